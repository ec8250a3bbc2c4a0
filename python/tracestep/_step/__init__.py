"""tracestep.step: the training step of a PyTorch module, in its process and in its memory (docs/in-process.md)."""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _library
from .._capture.export import leaves_of as parameters_of
from .._library import Run, Session
from .._program import Error, OutOfMemoryError, UsageError
from .captures import Call, Capture, refuse_wrapped
from .storage import Leaf, Parameters, address, leaves_of, placed
from .updates import MOMENTS, Updates

SHADOW, GRADIENT = "shadow.", "grad."
SKIPPED = "loss_scale.skipped_steps"


@dataclass
class Kept:
    """A program that calls of one shape share."""

    capture: Capture
    runs: dict[int, Run] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)  # of inputs: fixed places
    arenas: list[torch.Tensor] = field(default_factory=list)  # of its runs


def _no_backward(*_: Any, **__: Any) -> None:
    raise UsageError("[step] the loss of a step has no backward(): gradients and the update are parts of the step, "
                     "which has run; there is no .grad", 2)


class Step:
    """loss = step(*inputs) runs forward, backward and the optimizer's update, and returns the loss.

    `memory()`, `profile()`: as the commands of the same name say it. `release()` gives the module its own memory back.
    """

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any] | None, optimizer: torch.optim.Optimizer,
                 words: dict[str, Any], clip: float, accumulate: int, check: bool, keep: int) -> None:
        refuse_wrapped(model)
        if accumulate < 1 or keep < 1 or clip < 0:
            raise UsageError("[step] accumulate and keep are 1 or more, clip is 0 or more", 2)
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.clip, self.accumulate, self._check, self._keep = clip, accumulate, check, keep
        self.words = self._with_place(words)
        self._updates = Updates(optimizer)
        self._parameters = Parameters()
        self._kept: OrderedDict[Any, Kept] = OrderedDict()
        self._modes: list[torch.nn.Module] = list(model.modules())
        self._lock, self._process = threading.RLock(), os.getpid()
        self._done = 0  # micro-batches so far
        self._session: Session | None = None
        self._close: Any = None
        self._open()

    def _with_place(self, words: dict[str, Any]) -> dict[str, Any]:
        found = {p.device for p in self.model.parameters()}
        if len(found) != 1:
            raise UsageError(f"[step] the module's parameters lie on {len(found)} devices; one is needed", 2)
        self.device = found.pop()
        is_wide = any(p.dtype == torch.float64 for p in self.model.parameters())
        name = str(self.device) if self.device.type == "cuda" else "reference" if is_wide else "cpu"
        if is_wide and self.device.type == "cuda":
            raise UsageError("[step] parameters in float64 are for the CPU", 2)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        place: dict[str, Any] = {"device": name}
        if name == "cpu":
            place["threads"] = torch.get_num_threads()
        if words.get("moments", "fp32") != "fp32":
            raise UsageError("[moments] narrow moments are none of the optimizer's own; fp32 are", 2)
        return place | words

    # --- session, programs and their memory ------------------------------------------------------

    def _open(self) -> None:
        """A session for the optimizer's groups as they are."""
        self._own = parameters_of(self.model)[0]  # by name, each once
        self._signature = self._signed()
        rows = self._updates.rows({id(p): name for name, p in self._own.items()})
        words = " ".join(f"{name}={value}" for name, value in self.words.items())
        self._session = Session(words, self._updates.rule, self.clip, self.accumulate, rows)
        self._close = weakref.finalize(self, self._session.close)
        self._lent: dict[str, torch.Tensor] = {}
        self._shadows: dict[str, torch.Tensor | None] = {}
        self._update: Run | None = None
        self._watched: list[tuple[str, torch.nn.Parameter, int]] = []
        self._versions: list[int] = []

    def _signed(self) -> Any:
        return self._updates.signature(), tuple(p.requires_grad for p in self._own.values())

    def _shut(self) -> None:
        if self._session is not None:
            self._session.wait()
            self._close()
        self._kept.clear()
        self._session = None

    def _lend(self, leaf: Leaf, x: torch.Tensor) -> None:
        assert self._session is not None
        self._lent[leaf.name] = x
        self._session.lend(leaf.name, address(x), leaf.bytes)

    def _place(self, run: Run, capture: Capture | None, kept: Kept) -> None:
        """Lends what the module, the optimizer and this object own."""
        leaves = leaves_of(run)
        new = [leaf for leaf in leaves if leaf.name not in self._lent]
        held = [leaf for leaf in new if leaf.role == _library.PARAMETER or leaf.name in self._own]
        self._parameters.place(held, self._own, self.device, self._lend)  # type: ignore[arg-type]
        if moments := [leaf for leaf in leaves if leaf.name.startswith(tuple(MOMENTS))]:
            self._updates.place(moments, self._own, self.device, self._lend)  # type: ignore[arg-type]
        for leaf in new:
            if leaf.name in self._lent or leaf.role in (_library.OUTPUT, _library.PARAMETER):
                continue
            if leaf.role == _library.INPUT and capture is not None and leaf.name in capture.names:
                if leaf.name not in kept.buffers:
                    kept.buffers[leaf.name] = torch.zeros(leaf.shape, dtype=leaf.dtype, device=self.device)
                self._session.lend(leaf.name, address(kept.buffers[leaf.name]), leaf.bytes)  # type: ignore[union-attr]
            elif leaf.role == _library.CONSTANT and capture is not None:
                value = capture.constants[leaf.name]
                self._lend(leaf, placed([leaf], [value.to(self.device, leaf.dtype)], self.device)[0])
            elif leaf.role == _library.ARENA and self.device.type == "cuda":
                arena = self._arena_of(leaf, kept)
                kept.arenas.append(arena)
                self._session.lend(leaf.name, address(arena), arena.numel())  # type: ignore[union-attr]
        for leaf in leaves:
            if leaf.role == _library.STATE and leaf.name not in self._lent \
                    and leaf.name.startswith((SHADOW, GRADIENT)) and leaf.dtype is not None and not leaf.block:
                self._lend(leaf, torch.zeros(leaf.shape, dtype=leaf.dtype, device=self.device))

    def _arena_of(self, leaf: Leaf, kept: Kept) -> torch.Tensor:
        """The arena of another run, if it is large enough: one runs after the other."""
        for arena in (a for other in (kept, *self._kept.values()) for a in other.arenas):
            if arena.numel() >= leaf.bytes:
                return arena
        try:
            return torch.empty(leaf.bytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as problem:  # as PyTorch says that a device is full
            raise OutOfMemoryError(f"[step] the arena of {leaf.bytes:,} bytes: {problem}", 4) from None

    def _started(self, folder: Any, capture: Capture | None, kind: int, kept: Kept) -> Run:
        assert self._session is not None
        run = self._session.plan(folder, kind)
        try:
            self._place(run, capture, kept)
            run.start()
        except BaseException:
            run.end()
            raise
        return run

    def _kept_for(self, call: Call) -> Kept:
        buffers = tuple((b.data_ptr(), b._version) for b in self.model.buffers())  # a program holds their values
        key = (call.key, tuple(part.training for part in self._modes), buffers)
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return found
        refuse_wrapped(self.model)
        capture = Capture(self.model, self.loss, call, self._check)
        kept = Kept(capture)
        kinds = (_library.STEP,) if self.accumulate == 1 else (_library.FIRST, _library.NEXT)
        try:
            for kind in kinds:
                kept.runs[kind] = self._started(capture.folder, capture, kind, kept)
            if self.accumulate > 1 and self._update is None:
                self._update = self._started(None, None, _library.UPDATE, kept)
        except BaseException:
            for run in kept.runs.values():
                run.end()
            raise
        self._kept[key] = kept
        while len(self._kept) > self._keep:
            _, oldest = self._kept.popitem(last=False)
            for run in oldest.runs.values():
                run.end()
            for name in oldest.capture.constants:
                self._lent.pop(name, None)
        self._watch(next(iter(kept.runs.values())))
        return kept

    def _watch(self, run: Run) -> None:
        """From now on changes of these are seen; what is narrower is made of them as they are."""
        names = {leaf.name for leaf in leaves_of(run)}
        self._watched = [(name, p, address(p)) for name, p in self._own.items() if name in names]
        self._versions = [-1] * len(self._watched)
        shadows = {name: self._lent.get(SHADOW + name) for name in self._own if SHADOW + name in names}
        self._has_codes = any(name.startswith("codes.") for name in names)
        self._shadows.update(shadows)

    # --- what the user does between steps --------------------------------------------------------

    def _see(self, call: Call) -> Kept:
        """The program of this call, with everything that changed since the last one taken over."""
        if os.getpid() != self._process:
            raise Error("[step] this process is a fork of the one that made the step: its threads are not here; "
                        "make the step behind the fork", 1)
        if self._session is None:
            raise UsageError("[step] the step has been released", 2)
        moved = any(p.data_ptr() != at for _, p, at in self._watched)
        if moved or self._signed() != self._signature:
            self._shut()
            self._open()
        kept = self._kept_for(call)
        for i, (name, p, _) in enumerate(self._watched):
            if p._version != self._versions[i]:
                self._refresh(name, p)
        self._updates.see()
        return kept

    def _refresh(self, name: str, p: torch.Tensor) -> None:
        """Its narrow copies anew."""
        if self._has_codes or (name in self._shadows and self._shadows[name] is None):
            self._session.refresh(name)  # type: ignore[union-attr]
        elif name in self._shadows:
            self._shadows[name].copy_(p.detach())  # type: ignore[union-attr]

    # --- steps -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **keywords: Any) -> torch.Tensor:
        """The loss of this batch, a number on the CPU; with `loss`, the last argument is its target."""
        targets: tuple[Any, ...] = ()
        if self.loss is not None and "targets" in keywords:
            given = keywords.pop("targets")
            targets = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        elif self.loss is not None:
            args, targets = args[:-1], args[-1:]
        with self._lock, torch.no_grad():
            call = Call(args, keywords, targets)
            kept = self._see(call)
            for name, x in zip(kept.capture.names, call.tensors):
                if name in kept.buffers:
                    kept.buffers[name].copy_(x)
            return self._run(kept)

    def _run(self, kept: Kept) -> torch.Tensor:
        position = self._done % self.accumulate
        is_last = position == self.accumulate - 1
        kind = _library.STEP if self.accumulate == 1 else _library.NEXT if position else _library.FIRST
        run = kept.runs[kind]
        if kept.capture.batch:
            seed = (torch.initial_seed() & 0x3FFFFF) << 40
            run.set(kept.capture.batch, (ctypes.c_int64 * 1)(seed + self._done))
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None
        updating = run if self.accumulate == 1 else self._update if is_last else None
        if updating is not None:
            for i, (rate, number) in enumerate(self._updates.rates()):
                updating.rate(i, rate, number)
        run.go(stream)
        loss = self._read(run, "loss")
        if updating is not None:
            if updating is not run:
                updating.go(stream)
            self._advance(updating)
        self._done += 1
        return self._as_loss(loss * self.accumulate if self.accumulate > 1 else loss)

    def _advance(self, run: Run) -> None:
        """The weights are new: PyTorch is told, and so is the optimizer."""
        before, self._skipped = getattr(self, "_skipped", 0.0), self._count_skipped(run)
        if self._skipped == before:
            self._updates.advance()
        torch.autograd.graph.increment_version([p for _, p, _ in self._watched])
        self._versions = [p._version for _, p, _ in self._watched]

    def _count_skipped(self, run: Run) -> float:
        """Steps whose gradients overflowed float16."""
        if self.words.get("precision") not in ("fp16", "fp16-pure"):
            return 0.0
        count = (ctypes.c_float * 1)()
        run.get(SKIPPED, count)
        return float(count[0])

    def _read(self, run: Run, name: str) -> torch.Tensor:
        is_wide = self.words["device"] == "reference"
        value = torch.empty((), dtype=torch.float64 if is_wide else torch.float32)
        run.get_at(name, address(value), value.element_size())
        return value

    @staticmethod
    def _as_loss(loss: torch.Tensor) -> torch.Tensor:
        loss.backward = _no_backward  # type: ignore[method-assign]
        return loss

    # --- what it takes ---------------------------------------------------------------------------

    @property
    def folder(self) -> Any:
        """The program of the last call, which `program=` of every command takes."""
        if not self._kept:
            raise UsageError("[step] nothing has been captured: a first call does that", 2)
        return next(reversed(self._kept.values())).capture.folder

    def bytes(self) -> dict[str, int]:
        """Bytes of the last call's program: `peak` of all, `lent` by PyTorch, `shared` with other programs, `own`."""
        size = next(reversed(self._kept.values())).runs[next(iter(next(reversed(self._kept.values())).runs))].size()
        return {name: int(getattr(size, name)) for name, _ in _library.Bytes._fields_}

    def _as_command(self) -> dict[str, Any]:
        return {"program": self.folder, "executor": "compiled", **self.words}

    def memory(self, **words: Any) -> Any:
        """The bytes of a step, by module: tracestep.memory(predict=True) of its program."""
        from .. import memory
        return memory(**{"predict": True, "progress": False, **self._as_command(), **words})

    def profile(self, **words: Any) -> Any:
        """The time of a step, by module and kernel: tracestep.profile of its program, in a process of its own."""
        from .. import profile
        return profile(**{"progress": False, "mode": "step", **self._as_command(), **words})

    def release(self) -> None:
        """Ends it. Parameters are back in their own memory, with their values; the optimizer keeps its moments."""
        with self._lock:
            self._shut()
            self._parameters.release()


def step(model: torch.nn.Module, loss: Callable[..., Any] | None = None, *, optimizer: torch.optim.Optimizer,
         clip: float = 0.0, accumulate: int = 1, check: bool = True, keep: int = 4, **words: Any) -> Step:
    """A step of `model` with `optimizer`: loss = step(*inputs) instead of forward, backward(), step() and zero_grad().

    Without `loss` the model returns it: alone, in a tuple or as `.loss`; with it, loss(outputs, target) gets the last
    argument of a call. `clip` is the largest norm of all gradients. With `accumulate` each call is a micro-batch, and every
    so manieth updates. `keep` programs are kept, one for each shape of inputs. `check` holds each to the module's own
    gradients, in float64, when it is captured. `words` are options of the commands: precision="bf16", recompute="blocks",
    memory_limit="8GiB", executor="eager". Weights, moments and rates stay the model's and the optimizer's own. Errors:
    UsageError for what cannot be captured or is no part of a step, OutOfMemoryError, DeviceError.
    """
    return Step(model, loss, optimizer, words, clip, accumulate, check, keep)


__all__ = ["Step", "step"]
