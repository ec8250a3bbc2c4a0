"""A training step of the user's own code under fake tensors: each storage's birth, bytes, death, line and module.

Nothing is computed and no device is needed. Tensors are of the device "cuda" that PyTorch only pretends to have, so that
it takes the ways that it takes on a card (autocast, foreach, fused kernels); Python's own references decide when a
storage dies, as they do there.
"""
from __future__ import annotations

import contextlib
import copy
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import chosen_attention
from .export import loss_of
from .inside_kernels import LT_WORKSPACE, in_order, scratch_of, takes_workspace
from .pretended_card import IS_PRETENDED, pretended_card

WORKSPACE = -1  # bytes that the card decides
DEVICE = torch.device("cuda", 0)
PHASES = ("setup", "forward", "backward", "recompute", "optimizer")
LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
_TORCH = torch.__file__.rpartition("/")[0]
_WRAPPERS = ("inner", "_fn", "wrapper", "__torch_dispatch__")
_OWN = __file__.rpartition("/")[0] + "/"


class Recording(TorchDispatchMode):
    """Writes down what each op allocates; `events` has [id, bytes, site, module, op, phase] and [-id]."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[list[int]] = []
        self.names: dict[str, int] = {"": 0}
        self.modules: list[str] = [""]  # from outside in, of the forward that runs
        self.is_updating = False
        self.is_setup = self.is_lifting = True
        self._alive: dict[int, tuple[int, int, Any]] = {}  # by address of the storage: number, bytes, reference
        self._next = 1
        self._made_at: dict[int, tuple[int, int]] = {}  # by sequence number of a gradient's node: site and module
        self._workspaces: set[tuple[bool, bool]] = set()  # on the thread of backward, of cuBLASLt
        self._full: set[int] = set()  # storages of results of `all`, and of counts of booleans beside their number
        self._counted = (0, 0)  # the storage of the last sum over booleans, and their number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the op on fake tensors and looks at its results."""
        kwargs = kwargs or {}
        torch._C._set_only_lift_cpu_tensors(self.is_lifting)  # of this thread: torch.tensor() copies to the card by an op
        if func is torch.ops.prim.device.default:
            return self._device(args[0])
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._value_of(args[0])
        place = self._place(str(func.name()).removeprefix("aten::").partition(".")[0])
        if func is torch.ops.aten.add.Tensor and place[3] == 2 and _is_alone(args[0]):
            return args[0]  # the engine adds to a gradient that nobody else holds in its place, but not to a fake one
        if func is torch.ops.aten.add.Tensor and chosen_attention.is_math:
            return torch.ops.aten.alias.default(args[0])  # a mask is added in the place of scores, but of fake ones
        if func is torch.ops.aten._to_copy.default and args[0].device.type == "cpu":
            args = (torch.empty_strided(args[0].size(), args[0].stride(), dtype=args[0].dtype),)  # without a value to compute with
        out = func(*args, **kwargs)
        if func is torch.ops.aten.sum.default and args[0].dtype == torch.bool:
            self._counted = out.untyped_storage()._cdata, args[0].numel()
        is_count = func is torch.ops.aten.eq.Scalar and self._counted == (args[0].untyped_storage()._cdata, args[1])
        if func.overloadpacket is torch.ops.aten.all or is_count:
            self._full.add(out.untyped_storage()._cdata)
        before, after = scratch_of(func, args, out)
        held = [self._born(size, place) for size in before]
        for x in in_order(func, pytree.tree_leaves(out)):
            if isinstance(x, torch.Tensor) and x.device.type == "cuda":
                self.see(x, place)
        for group in after:
            born = [self._born(size, place) for size in group]
            self._take_workspaces(func, place)
            self._die(born)
        self._die(held)
        return out

    def _take_workspaces(self, func: Any, place: Sequence[int]) -> None:
        """Allocates the workspaces of cuBLAS, and of cuBLASLt for a bias, when a thread first uses one; the thread of
        backward has handles of its own.
        """
        is_backward = place[3] in (2, 3)
        needed = [(False, WORKSPACE)] if takes_workspace(func) else []
        needed += [(True, LT_WORKSPACE)] if func is torch.ops.aten.addmm.default else []
        for is_lt, size in needed:
            if (is_backward, is_lt) not in self._workspaces:
                self._workspaces.add((is_backward, is_lt))
                self._born(size, place)

    def _die(self, numbers: Sequence[int]) -> None:
        self.events += [[-number] for number in reversed(numbers)]

    def see(self, x: torch.Tensor, place: Sequence[int]) -> None:
        """A storage that was not seen before is born here; one that has grown is born again."""
        storage = x.untyped_storage()
        size, key = storage.nbytes(), storage._cdata
        known = self._alive.get(key)
        if known is not None and known[1] == size:
            return
        if known is not None:
            self.events.append([-known[0]])
        if size == 0:
            return
        number = self._born(size, place)

        def dead(_: Any, self: Recording = self, key: int = key, number: int = number) -> None:
            self._full.discard(key)  # another storage may come to lie there
            if self._alive.get(key, (0,))[0] == number:
                del self._alive[key]
                self.events.append([-number])

        self._alive[key] = (number, size, weakref.ref(storage, dead))

    def name(self, text: str) -> int:
        """The number of a name in the recording's list."""
        return self.names.setdefault(text, len(self.names))

    def _born(self, size: int, place: Sequence[int]) -> int:
        number, self._next = self._next, self._next + 1
        self.events.append([number, size, *place])
        return number

    def _device(self, x: torch.Tensor) -> torch.device:
        """The device that C++ is told: the engine of backward, which no Python code calls, must not ask a real card."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_TORCH) and frame.f_code.co_name in _WRAPPERS:
            frame = frame.f_back
        is_engine = IS_PRETENDED and (frame is None or frame.f_code.co_name == "_engine_run_backward")
        return torch.device("cpu") if is_engine else x.device

    def _value_of(self, x: torch.Tensor) -> Any:
        """What reading a number gives: 0 of the device (no overflow was found), 1 of `all` (nothing is masked), and of the
        host (a count of steps)."""
        value = 0 if x.device.type == "cuda" and x.untyped_storage()._cdata not in self._full else 1
        return bool(value) if x.dtype == torch.bool else float(value) if x.is_floating_point() else value

    def _place(self, op: str) -> tuple[int, int, int, int]:
        """Site, module, op and phase of what runs at the moment."""
        node = torch._C._current_autograd_node()
        site, is_inside = _site(sys._getframe(2))
        module = self.modules[-1]
        if self.is_setup or self.is_updating:
            return self.name(site), 0, self.name(op), 0 if self.is_setup else 4
        if node is None:
            place = self.name(site), self.name(module)
            self._made_at.setdefault(torch.autograd._get_sequence_nr() - 1, place)  # an op's first call made its node
            return *place, self.name(op), 1
        if is_inside:  # numbers of that thread's nodes are those of others, which forward made
            return self.name(site), self.name(module), self.name(op), 3
        place = self._made_at.get(node._sequence_nr(), (self.name(node.name()), 0))
        return *place, self.name(op), 2


def _is_alone(x: Any) -> bool:
    """True for a gradient that only the engine and this call hold."""
    return isinstance(x, torch.Tensor) and x._use_count() <= 4 and torch._C._storage_Use_Count(x.untyped_storage()._cdata) <= 2


def _site(frame: Any) -> tuple[str, bool]:
    """The innermost line of the user's code, inside of backward if it runs; else a line of a library."""
    library, is_in_module = "", False
    while frame is not None:
        file = frame.f_code.co_filename
        is_in_module |= frame.f_code.co_name == "_call_impl"
        if file.startswith(_OWN) or "contextlib" in file:
            frame = frame.f_back
            continue
        if file.endswith("torch/autograd/graph.py") and frame.f_code.co_name == "_engine_run_backward":
            return library, is_in_module
        if not any(part in file for part in LIBRARIES):
            return _line(frame), True
        if not library and "/torch/" not in file and "<frozen" not in file:
            library = _line(frame)
        frame = frame.f_back
    return library, is_in_module


def _line(frame: Any) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"


class Faked:
    """Copies of modules, optimizers and inputs whose tensors are fake ones on the card."""

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}

    def tensor(self, x: torch.Tensor) -> torch.Tensor:
        """The fake tensor of a tensor, always the same one."""
        if id(x) not in self.memo:
            is_leaf_parameter = isinstance(x, torch.nn.Parameter)
            made = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=DEVICE)
            self.memo[id(x)] = torch.nn.Parameter(made, x.requires_grad) if is_leaf_parameter else made.requires_grad_(x.requires_grad)
        return self.memo[id(x)]

    def copied(self, what: Any, tensors: Sequence[torch.Tensor] = ()) -> Any:
        """A deep copy in which tensors that are known are fake."""
        for x in tensors:
            self.tensor(x)
        return copy.deepcopy(what, self.memo)


def _as_moved(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The module's tensors in the order in which module.to() moves them: first those of its parts."""
    for part in module.children():
        yield from _as_moved(part)
    yield from (x for x in (*module._parameters.values(), *module._buffers.values()) if x is not None)


@contextlib.contextmanager
def _hooks(recording: Recording, module: torch.nn.Module, is_moved: bool) -> Iterator[None]:
    """Hooks that name modules while they run; `is_moved`: tensors that a module makes without a device are on the
    card.
    """
    names = {id(m): name for name, m in module.named_modules()}
    here = threading.local()  # backward computes again on a thread of its own

    def enter(m: torch.nn.Module, _: Any) -> None:
        recording.modules.append(names.get(id(m), recording.modules[-1]))
        here.defaults = [*getattr(here, "defaults", ()), torch.device(DEVICE) if is_moved else contextlib.nullcontext()]
        here.defaults[-1].__enter__()

    def leave(m: torch.nn.Module, _: Any, __: Any) -> None:
        recording.modules.pop()
        here.defaults.pop().__exit__(None, None, None)

    def updating(is_on: bool) -> Callable[..., None]:
        def change(*_: Any) -> None:
            recording.is_updating = is_on
        return change

    every = torch.nn.modules.module
    handles = [every.register_module_forward_pre_hook(enter), every.register_module_forward_hook(leave, always_call=True),
               register_optimizer_step_pre_hook(updating(True)), register_optimizer_step_post_hook(updating(False))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def record_step(module: torch.nn.Module, inputs: Sequence[Any], step: Callable[..., Any], optimizer: Any = None,
                steps: int = 2, attention: str = "auto") -> dict[str, Any]:
    """What `steps` calls of step(module, optimizer, *inputs) allocate on a card, as the index of a recording.

    `module`, `optimizer` and `inputs` are copied as fake tensors; none of them is changed, and parameters may be
    on the meta device. Errors: those of the user's code; DynamicOutputShapeException where sizes depend on values.
    """
    recording, marks = Recording(), []
    is_moved = all(p.device.type != "cuda" for p in module.parameters())
    with pretended_card():
        faked = Faked()
        with recording:
            own = faked.copied(module, list(_as_moved(module)))
            leaves, tree = pytree.tree_flatten(tuple(inputs))
            leaves = [faked.tensor(x) if isinstance(x, torch.Tensor) else x for x in leaves]
            update = faked.copied(optimizer) if optimizer is not None else None
        inputs = pytree.tree_unflatten(leaves, tree)
        del leaves
        recording.is_setup = False
        with (_hooks(recording, own, is_moved), chosen_attention.chosen(attention), torch.jit.optimized_execution(False), recording):
            for _ in range(steps):
                marks.append(len(recording.events))
                step(own, update, *inputs)
            events = list(recording.events)
            recording.is_lifting = False
            torch.empty(1, device=DEVICE, requires_grad=True).sum().backward()  # on the thread of backward, too
    return {"format": 1, "torch": torch.__version__.partition("+")[0], "attention": attention, "phases": list(PHASES),
            "names": list(recording.names), "steps": marks, "events": events}


def usual_step(loss: Callable[..., Any] | None, autocast: str | None) -> Callable[..., None]:
    """Runs forward, backward and update as most training loops do."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, None: torch.bfloat16}[autocast]

    def step(module: Any, optimizer: Any, inputs: Any, keywords: Any, targets: Any) -> None:
        with torch.autocast("cuda", dtype, enabled=autocast is not None):
            outputs = module(*inputs, **keywords)
            value = loss(outputs, *targets) if loss else loss_of(outputs)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def recorded(module: torch.nn.Module, call: Any, loss: Any, step: Any, optimizer: Any, autocast: str | None) -> dict[str, Any] | None:
    """The recording of a capture; None, with a warning, where the step cannot run without values."""
    if optimizer is None:
        optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-4)
    run = usual_step(loss, autocast)
    if callable(step):
        def run(module: Any, optimizer: Any, inputs: Any, keywords: Any, targets: Any) -> None:
            step(module, optimizer, *inputs, *targets, **keywords)
    try:
        return record_step(module, call, run, optimizer)
    except Exception as problem:  # of any type: what the user's code says of tensors without values
        first = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        warnings.warn(f"the step of PyTorch was not recorded, so its memory is estimated: {first[:300]}", stacklevel=3)
        return None
