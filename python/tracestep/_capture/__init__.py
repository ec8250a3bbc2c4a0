"""tracestep.capture: any module of PyTorch as a program (docs/your-module.md). Needs torch, the user's own."""
from __future__ import annotations

import copy
import json
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .._program import UsageError
from .check import compared
from .export import Exported, Inputs, Step, exported
from .folder import RECORDING, prepare, write
from .patterns import NAMES as PATTERNS


@dataclass
class Captured:
    """A captured module: `folder` is what `program=` of the commands takes. A temporary one goes with this object."""

    folder: Path
    module: str
    patterns: dict[str, int]
    check: dict[str, Any] | None
    inputs: list[dict[str, Any]] = field(default_factory=list)

    def __fspath__(self) -> str:
        """The folder, so that `program=captured` names it."""
        return str(self.folder)

    def __str__(self) -> str:
        """Says in a sentence what was captured."""
        found = ", ".join(f"{n} {name}" for name, n in self.patterns.items()) or "no composites"
        held = (f"loss and gradients are the module's (float64: {self.check['loss']:.1e}, {self.check['gradients']:.1e})"
                if self.check else "loss and gradients were not checked")
        return f"{self.module}: {found}; {held}; in {self.folder}"


def capture(module: Any, *inputs: Any, loss: Callable[..., Any] | None = None, targets: Any = (),
            folder: Any = None, patterns: str | Iterable[str] = "all", check: bool = True, overwrite: bool = False,
            weights: bool = True, name: str | None = None, optimizer: Any = None, step: Any = None,
            autocast: str | None = None, **keywords: Any) -> Captured:
    """Writes `module`, called with `inputs` and `keywords`, and its loss as a program.

    The loss is loss(outputs, *targets), or what the module returns as one: alone, in a tuple or as `.loss`. Without
    `loss`, `targets` is a keyword of the module's own.
    `folder` is made, or is a temporary one; `patterns`: "all", "none" or names of composites that are looked for.
    `check` holds loss and every gradient to the module, small and in float64. Without `weights`, and for a module
    on the meta device, none are read or written, and nothing is checked: for plans. With an `optimizer`, its groups
    of parameters are written down. `step` records what eager PyTorch would allocate: a function
    step(module, optimizer, *inputs, *targets, **keywords) of yours, or True for the usual one, under `autocast` "bf16"
    or "fp16" if it is given, with AdamW if there is no `optimizer`. Errors: UsageError naming the line and the op that has no counterpart, or the
    gradient that differs; OutputError for a folder that has a capture.
    """
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"[module] {type(module).__name__} is no torch.nn.Module", 2)
    wanted = _patterns(patterns)
    place = Path(tempfile.mkdtemp(prefix="tracestep-") if folder is None else folder)
    prepare(place, overwrite)
    try:
        if loss is None and not isinstance(targets, (tuple, list)):  # the module's own keyword
            keywords, targets = {**keywords, "targets": targets}, ()
        targets = targets if isinstance(targets, (tuple, list)) else (targets,)
        if any(p.device.type == "meta" for p in module.parameters()):
            module, weights = _off_meta(module), False
        recording = None
        if step:
            from .recorded_step import recorded  # needs parts of PyTorch that a capture alone does not
            recording = recorded(module, (inputs, keywords, targets), loss, step, optimizer, autocast)
        step = Step(module, loss, Inputs.of(module, inputs, keywords, targets))
        title = name or type(module).__name__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch about itself
            found = exported(step, step.inputs.tensors, title, wanted)
            held = compared(step, found, wanted) if check and weights else None
        moves = {"optimizer": type(optimizer).__name__, "optimizer_groups": _groups(optimizer, found)} if optimizer else {}
        write(place, found, title, held, weights, moves)
        if recording:
            (place / RECORDING).write_text(json.dumps(recording, separators=(",", ":")) + "\n", encoding="utf-8")
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    captured = Captured(place, title, found.lifted, held, found.inputs)
    if folder is None:
        weakref.finalize(captured, shutil.rmtree, place, ignore_errors=True)
    return captured


def _off_meta(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of the module without parameters on the meta device, whose memory is never touched: export needs one
    device.
    """
    if missing := [n for n, b in module.named_buffers() if b.device.type == "meta"]:
        raise UsageError(f"the buffer {missing[0]} is on the meta device, and its values decide what the program is: build the "
                         "module on the CPU, where weights=False reads no parameter", 2)
    module = copy.deepcopy(module)
    known: dict[int, torch.nn.Parameter] = {}
    for part in module.modules():
        for name, p in list(part.named_parameters(recurse=False)):
            known.setdefault(id(p), torch.nn.Parameter(torch.empty_like(p, device="cpu"), p.requires_grad))
            setattr(part, name, known[id(p)])
    return module


def _patterns(patterns: str | Iterable[str]) -> frozenset[str]:
    if patterns in ("all", "none"):
        return frozenset(PATTERNS if patterns == "all" else ())
    names = patterns.split("+") if isinstance(patterns, str) else list(patterns)
    if unknown := [n for n in names if n not in PATTERNS]:
        raise UsageError(f"[patterns] {unknown[0]!r} is no pattern; there are {', '.join(PATTERNS)}, all and none", 2)
    return frozenset(names)


def _groups(optimizer: torch.optim.Optimizer, found: Exported) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer: the names in each, and the settings of AdamW."""
    names = {id(x): name for name, x in found.parameters.items()}
    rows = []
    for group in optimizer.param_groups:
        betas = dict(zip(("beta1", "beta2"), map(float, group.get("betas", ()))))
        rows.append({"parameters": [names[id(p)] for p in group["params"] if id(p) in names],
                     "lr": float(group["lr"]), "weight_decay": float(group.get("weight_decay", 0.0)), **betas,
                     **({"eps": float(group["eps"])} if "eps" in group else {})})
    if not any(row["parameters"] for row in rows):
        raise UsageError("[optimizer] it has none of the module's parameters", 2)
    return rows


__all__: Sequence[str] = ["PATTERNS", "Captured", "capture"]
