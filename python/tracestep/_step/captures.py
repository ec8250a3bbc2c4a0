"""A call of a module as a program in a folder of its own."""
from __future__ import annotations

import copy
import itertools
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._capture.check import compared
from .._capture.export import Exported, Inputs, Step, exported
from .._capture.folder import write
from .._capture.patterns import NAMES as PATTERNS
from .._program import UsageError

NARROW = {torch.bfloat16: "bf16", torch.float16: "fp16"}  # what autocast has for a precision


class Call:
    """The arguments of a call: which of them are tensors, and what decides the program."""

    def __init__(self, args: tuple[Any, ...], keywords: dict[str, Any], targets: tuple[Any, ...]) -> None:
        self.args, self.keywords, self.targets = args, keywords, targets
        leaves, tree = pytree.tree_flatten((args, keywords, targets))
        self.tensors: list[torch.Tensor] = []
        known: dict[int, int] = {}
        key: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                key.append(repr(leaf))
                continue
            if id(leaf) not in known:
                known[id(leaf)] = len(self.tensors)
                self.tensors.append(leaf)
            key.append((leaf.dtype, tuple(leaf.shape), known[id(leaf)]))
        self.key = (tree, tuple(key))


def unwrapped(module: Any, group: Any) -> tuple[Any, Any]:
    """The module inside of wrappers that share its parameters, and the process group that one of them was given."""
    while True:
        kind = type(module).__name__
        if kind == "OptimizedModule":
            module = module._orig_mod
        elif kind == "DistributedDataParallel":
            group = module.process_group if group is None else group
            module = module.module
        else:
            return module, group


def refuse_wrapped(module: Any) -> None:
    """Raises for a module that holds other modules' parameters, or has hooks on their gradients: it has no program."""
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"[step] {type(module).__name__} is no torch.nn.Module", 2)
    kinds = {type(part).__name__ for part in module.modules()}
    if wrapped := kinds & {"DistributedDataParallel", "FullyShardedDataParallel", "DataParallel", "OptimizedModule"}:
        raise UsageError(f"[step] {sorted(wrapped)[0]} wraps the module: give the module itself", 2)
    for name, p in module.named_parameters():
        if p.device.type == "meta":
            raise UsageError(f"[step] {name} is on the meta device, and a step needs its values", 2)
        if type(p.data) is not torch.Tensor:
            raise UsageError(f"[step] {name} is a {type(p.data).__name__}, whose parts lie elsewhere", 2)
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise UsageError(f"[step] {name} has a hook on its gradient, which a program does not call", 2)
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise UsageError(f"[step] {name or 'the module'} has a backward hook, which a program does not call", 2)


def refuse_around(device: torch.device, precision: str) -> None:
    """Raises if the call is made inside of a context that a program cannot have."""
    if torch.is_autocast_enabled(device.type):
        wanted = NARROW.get(torch.get_autocast_dtype(device.type), "fp32")
        if not precision.startswith((wanted, "fp8")):
            raise UsageError(f'[step] autocast is on around the call, and casts are parts of the step: make it with '
                             f'precision="{wanted}"', 2)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise UsageError("[step] a step is no part of a CUDA graph of PyTorch's: it has its own, and a loss on the host", 2)


def on_cpu(module: torch.nn.Module) -> torch.nn.Module:
    """The module, or a copy of it in host memory, from which a program is made."""
    held = [*module.parameters(), *module.buffers()]
    if all(x.device.type == "cpu" for x in held):
        return module
    memo: dict[int, Any] = {}
    for x in held:
        host = x.detach().cpu()
        memo[id(x)] = torch.nn.Parameter(host, x.requires_grad) if isinstance(x, torch.nn.Parameter) else host
    return copy.deepcopy(module, memo)


_numbers = itertools.count()


def name_apart(found: Exported) -> None:
    """Constants of one program are not those of another; buffers that are only saved are the module's own affair."""
    number = next(_numbers)
    saved = set(found.buffers)
    found.program.leaves = [v for v in found.program.leaves if v.name not in saved]
    names = {name: f"call{number}.{name}" for name in found.constants if name not in saved}
    for v in found.program.leaves:
        v.name = names.get(v.name, v.name)
    found.constants = {names[name]: x for name, x in found.constants.items() if name in names}
    found.buffers = []


class Capture:
    """A program of a module, and the constants that PyTorch has computed for it."""

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any] | None, call: Call, check: bool) -> None:
        here = on_cpu(module)
        args, keywords, targets = pytree.tree_map_only(
            torch.Tensor, lambda x: x.detach().cpu(), (call.args, call.keywords, call.targets))
        if here is module:
            args, keywords, targets = call.args, call.keywords, call.targets
        step = Step(here, loss, Inputs.of(here, args, keywords, targets))
        wanted = frozenset(PATTERNS)
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # of PyTorch about itself
            found: Exported = exported(step, step.inputs.tensors, type(module).__name__, wanted)
            held = compared(step, found, wanted) if check else None
        name_apart(found)
        self.folder = Path(tempfile.mkdtemp(prefix="tracestep-step-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        write(self.folder, found, type(module).__name__, held, weights=False)
        self.check = held
        self.names: Sequence[str] = step.inputs.names  # of call.tensors
        self.constants = found.constants
        self.batch = next((row["name"] for row in found.inputs if row["role"] == "batch"), "")
