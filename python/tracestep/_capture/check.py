"""Holds a program to its module: loss and every gradient, in float64 on the reference device.

The step is exported once more, small (one row, few positions) and in float64 throughout, and the program's
gradients are compared with those of the module's own autograd. An exported graph cannot tell that a custom
autograd.Function has a backward of its own: only this comparison finds it.
"""
from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from .._commands import call
from .._program import UsageError
from .export import Exported, Inputs, Step, Widened, exported, leaves_of, widened_copy
from .folder import read_tensors, write

POSITIONS = 9  # at least, of the small export; beyond a window by some
BOUND = 1e-8  # of the largest of each gradient; rounding in float64 is far below
ROUNDING = 1e-6  # what is below that is compared with it: of a loss that is 0, rounding alone is left
LARGEST = 40_000_000  # parameters, above which the check takes too long on the reference device


def narrowed(inputs: Inputs, window: int) -> list[list[torch.Tensor]]:
    """Smaller versions of the inputs: one row and few positions, one row, unchanged; the first that the module accepts
    is used.
    """
    few = max(POSITIONS, window + 4)
    lengths = [x.shape[1] for x in inputs.tensors if x.dim() > 1 and not x.is_floating_point()]
    length = max(set(lengths), key=lengths.count, default=0)
    rows = next((x.shape[0] for x in inputs.tensors if x.dim()), 1)

    def cut(x: torch.Tensor, positions: int) -> torch.Tensor:
        x = x[:1] if x.dim() and x.shape[0] == rows else x
        for axis in range(1, x.dim()):
            if positions and x.shape[axis] == length:
                x = x.narrow(axis, 0, min(positions, length))
        return x.clone()

    found = [[cut(x, few) for x in inputs.tensors]] if length > few else []
    return [*found, [cut(x, 0) for x in inputs.tensors], list(inputs.tensors)]


def windows_of(step: Exported) -> int:
    """The widest window of the module's attention."""
    return max((n.attrs.get("window", 0) for n in step.program.nodes), default=0)


def compared(step: Step, at: Exported, patterns: frozenset[str]) -> dict[str, Any]:
    """The largest differences, relative to the largest element of each tensor; raises if one exceeds the bound."""
    count = sum(x.numel() for x in at.weights.values())
    if count > LARGEST:
        raise UsageError(f"[check] {count:,} parameters take long in float64: capture a smaller module of the same kind "
                         "with the check, and this one with check=False", 2)
    try:
        module = widened_copy(step.module)
    except Exception as problem:  # of any type: what a user's class says of copies
        raise UsageError(f"[check] the module cannot be copied ({problem}); check=False leaves the check out", 2) from None
    small = Step(module, step.loss, step.inputs)
    problem: Exception | None = None
    for tensors in narrowed(step.inputs, windows_of(at)):
        tensors = [x.double() if x.is_floating_point() else x for x in tensors]
        try:
            with Widened():
                loss = small(*tensors)[0]
                module.zero_grad()
                loss.backward()
            program = exported(small, tensors, at.program.name, patterns, widened=True)
            break
        except Exception as failure:  # of the module, which does not take this size
            problem = failure
    else:
        raise UsageError(f"[check] the module does not run in float64: {problem}; check=False leaves the check out", 2)
    with tempfile.TemporaryDirectory(prefix="tracestep-check-") as place:
        found, gradients = evaluated(program, Path(place))
    return differences(leaves_of(module)[0], float(loss.detach()), found, gradients)


def evaluated(program: Exported, place: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients as the program computes them."""
    write(place, program, "check", None)
    file = place / "gradients.safetensors"
    result = call("eval", (), {"program": place, "device": "reference", "gradients": file}, False)
    return float(result.table["loss"][0]), read_tensors(file)


def differences(parameters: dict[str, torch.Tensor], loss: float, found: float,
                gradients: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The entry about the check in capture.json."""
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items() if p.requires_grad}
    overall = max((float(g.abs().max()) for g in wanted.values() if g.numel()), default=1.0)
    overall = max(overall, 1e3 * ROUNDING)
    by_name = {}
    for name, g in wanted.items():
        mine = gradients.get(name, torch.zeros_like(g)).double()
        # A gradient that is 0 but for rounding is compared with the others'.
        largest = max(float(g.abs().max()) if g.numel() else 0.0, 1e-3 * overall)
        by_name[name] = float((mine - g).abs().max()) / largest if g.numel() else 0.0
    worst = max(by_name, key=lambda n: (by_name[n] != by_name[n], by_name[n]), default="")
    result = {"loss": abs(found - loss) / max(abs(loss), ROUNDING), "gradients": by_name.get(worst, 0.0), "worst": worst}
    if not result["loss"] <= BOUND:
        raise UsageError(f"[check] the program's loss is {found:.9g}, the module's {loss:.9g}: it is not captured", 2)
    if not result["gradients"] <= BOUND:
        raise UsageError(f"[check] the loss is the module's, but the gradient of {worst} differs by "
                         f"{result['gradients']:.2g} of its largest: a custom autograd.Function, or a hook on gradients, has a "
                         "backward that no exported graph shows; the module is not captured", 2)
    return result
