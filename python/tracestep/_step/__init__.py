"""tracestep.step: the training step of a PyTorch module, in its process and in its memory (docs/in-process.md)."""
from __future__ import annotations

import ctypes
import os
import threading
import warnings
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
from .captures import Call, Capture, refuse_around, refuse_wrapped, unwrapped
from .ranks import ranks_of
from .scaling import LossScale
from .storage import Leaf, Parameters, address, leaves_of, placed
from .updates import MOMENTS, Updates
from .watch import Watched

SHADOW, GRADIENT = "shadow.", "grad."
MANY = 3  # steps in a row with numbers of their own for the optimizer


@dataclass
class Kept:
    """A program that calls with the same shapes share."""

    capture: Capture
    runs: dict[int, Run] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)  # of inputs: fixed places
    arenas: list[torch.Tensor] = field(default_factory=list)  # of its runs


def _no_backward(*_: Any, **__: Any) -> None:
    raise UsageError("[step] the loss of a step has no backward(): gradients and the update are parts of the step, "
                     "which has run; there is no .grad", 2)


class Step:
    """loss = step(*inputs) runs forward, backward and the optimizer's update, and returns the loss.

    `grad_norm`: of the last update. `memory()`, `profile()`: as the commands of the same name say it. `release()` gives the
    module its own memory back.
    """

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any] | None, optimizer: torch.optim.Optimizer,
                 words: dict[str, Any], clip: float, accumulate: int, check: bool, keep: int, scaler: Any, group: Any) -> None:
        model, group = unwrapped(model, group)
        refuse_wrapped(model)
        if accumulate < 1 or keep < 1 or not clip >= 0:
            raise UsageError("[step] accumulate and keep are 1 or more, clip is 0 or more", 2)
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.clip, self.accumulate, self._check, self._keep = clip, accumulate, check, keep
        self.words = self._with_place(words)
        self._updates = Updates(optimizer)
        self._scale = LossScale(scaler, str(words.get("precision")))
        self._ranks = ranks_of(group)
        if self._ranks is not None:
            self._ranks.give(x.data for x in (*model.parameters(), *model.buffers()))
        self._parameters = Parameters()
        self._kept: OrderedDict[Any, Kept] = OrderedDict()
        self._waiting: OrderedDict[Any, Kept] = OrderedDict()  # for runs of a new session
        self._watch = Watched(model)
        self._lock, self._process = threading.RLock(), os.getpid()
        self._done = 0  # micro-batches so far
        self._reopened = 0  # calls in a row for which the optimizer's numbers had changed
        self._session: Session | None = None
        self._close: Any = None
        self._released = False
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
        """Opens a session for the optimizer's groups as they are now."""
        self._own = parameters_of(self.model)[0]  # by name, each once
        self._signature = self._signed()
        rows = self._updates.rows({id(p): name for name, p in self._own.items()})
        words = " ".join(f"{name}={value}" for name, value in self.words.items())
        self._session = Session(words, self._updates.rule, self.clip, self.accumulate, rows, self._scale.numbers(),
                                self._ranks.interface if self._ranks is not None else None)
        self._scale.begin()
        self._close = weakref.finalize(self, self._session.close)
        self._lent: dict[str, torch.Tensor] = {}
        self._shadows: dict[str, torch.Tensor | None] = {}
        self._update: Run | None = None
        self._updated: Run | None = None  # the last run that updated
        self._watched: list[tuple[str, torch.nn.Parameter, int]] = []
        self._versions: list[int] = []

    def _signed(self) -> Any:
        return self._updates.signature(), tuple((p.requires_grad, bool(p._backward_hooks)) for p in self._own.values())

    def _shut(self) -> None:
        if self._session is not None:
            self._session.wait()
            self._close()
        self._kept.clear()
        self._waiting.clear()
        self._session = self._update = self._updated = None

    def _open_anew(self, signature: Any, is_other: bool) -> None:
        """Opens a new session after a change. Captures are kept unless the module `is_other`."""
        kept = OrderedDict() if is_other or signature[1] != self._signature[1] else self._waiting | self._kept
        while len(kept) > self._keep:
            kept.popitem(last=False)
        for other in kept.values():
            other.runs.clear()
        self._shut()
        self._open()
        self._waiting = kept

    def _lend(self, leaf: Leaf, x: torch.Tensor) -> None:
        assert self._session is not None
        self._lent[leaf.name] = x
        self._session.lend(leaf.name, address(x), leaf.bytes)

    def _place(self, run: Run, capture: Capture | None, kept: Kept) -> None:
        """Lends the session the memory that the module, the optimizer and this object own."""
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
        """The arena of another run if it is large enough: runs never overlap."""
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

    def _kept_for(self, key: Any, call: Call) -> Kept:
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return found
        kept = self._waiting.pop(key, None)
        if kept is None:
            refuse_wrapped(self.model)
            with torch.autocast(self.device.type, enabled=False):  # the program has casts of its own
                kept = Kept(Capture(self.model, self.loss, call, self._check))
            self._watch.settle()
        capture = kept.capture
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
        self._follow(next(iter(kept.runs.values())))
        return kept

    def _follow(self, run: Run) -> None:
        """Begins to watch these tensors for changes, and makes their narrow copies."""
        names = {leaf.name for leaf in leaves_of(run)}
        self._watched = [(name, p, address(p)) for name, p in self._own.items() if name in names]
        self._versions = [-1] * len(self._watched)
        shadows = {name: self._lent.get(SHADOW + name) for name in self._own if SHADOW + name in names}
        self._has_codes = any(name.startswith("codes.") for name in names)
        self._shadows.update(shadows)

    # --- what the user does between steps --------------------------------------------------------

    def _see(self, call: Call) -> Kept:
        """Returns the program of this call, after taking over everything that changed since the last call."""
        if os.getpid() != self._process:
            raise Error("[step] this process is a fork of the one that made the step: its threads are not here; "
                        "make the step behind the fork", 1)
        if self._released:
            raise UsageError("[step] the step has been released", 2)
        if self._session is None:  # a call before found a change that no program can be of
            self._watch = Watched(self.model)
            self._open()
        refuse_around(self.device, str(self.words.get("precision", "fp32")))
        is_other = self._watch.has_other_parts()
        if is_other:
            self._watch = Watched(self.model)
        signature, modes = self._signed(), self._watch.key()
        key = (call.key, modes)
        if self._ranks is not None:
            self._ranks.agree((call.key, modes[0], signature, is_other, key in self._kept))
        is_other = is_other or any(p.data_ptr() != at for _, p, at in self._watched)
        has_other_numbers = signature[0] != self._signature[0]
        if is_other or signature != self._signature or not self._updates.count_alike():
            self._open_anew(signature, is_other)
        self._reopened = self._reopened + 1 if has_other_numbers else 0
        if self._reopened == MANY:
            warnings.warn("[step] betas, eps or decay of the optimizer change at every step, and each time programs are planned "
                          "anew; a scheduler that cycles momentum does that, unless it gets cycle_momentum=False", stacklevel=4)
        kept = self._kept_for(key, call)
        for i, (name, p, _) in enumerate(self._watched):
            if p._version != self._versions[i]:
                self._refresh(name, p)
        self._updates.see()
        return kept

    def _refresh(self, name: str, p: torch.Tensor) -> None:
        """Makes the narrow copies of a parameter again."""
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
        updating = run if self._update is None else self._update
        self._scale.give(updating)
        if is_last:
            for i, (rate, number) in enumerate(self._updates.rates()):
                updating.rate(i, rate, number)
        run.go(stream)
        loss = self._read(run, "loss")
        if is_last:
            if updating is not run:
                updating.go(stream)
            self._advance(updating)
        self._done += 1
        if self.accumulate > 1:
            loss = loss * self.accumulate
            if self._ranks is not None:  # that of a whole step is the mean already
                loss = self._ranks.mean(loss * self._ranks.count)
        return self._as_loss(loss)

    def _advance(self, run: Run) -> None:
        """Tells PyTorch and the optimizer that the weights have changed."""
        if self._scale.take(run):
            self._updates.advance()
        self._updated = run
        torch.autograd.graph.increment_version([p for _, p, _ in self._watched])
        self._versions = [p._version for _, p, _ in self._watched]

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
    def grad_norm(self) -> float:
        """The norm of all gradients in the last update, before clipping; waits for it."""
        if not self.clip:
            raise UsageError('[step] the norm of the gradients is not computed; clip=float("inf") has it and clips nothing', 2)
        if self._updated is None:
            raise UsageError("[step] nothing has been updated yet", 2)
        return float(self._read(self._updated, "grad_norm"))

    @property
    def folder(self) -> Any:
        """The folder with the program of the last call, which `program=` of every command accepts."""
        if not self._kept:
            raise UsageError("[step] nothing has been captured: a first call does that", 2)
        return next(reversed(self._kept.values())).capture.folder

    def bytes(self) -> dict[str, int]:
        """Bytes of the last call's program: `peak` of all, `lent` by PyTorch, `shared` with other programs, `own`."""
        if not self._kept:
            raise UsageError("[step] nothing has been captured: a first call does that", 2)
        size = next(iter(next(reversed(self._kept.values())).runs.values())).size()
        return {name: int(getattr(size, name)) for name, _ in _library.Bytes._fields_}

    def _as_command(self) -> dict[str, Any]:
        batches = {"accumulate": self.accumulate} if self.accumulate > 1 else {}
        return {"program": self.folder, "executor": "compiled", **batches, **self.words}

    def memory(self, **words: Any) -> Any:
        """The bytes of a step, by module: tracestep.memory(predict=True) of its program."""
        from .. import memory
        return memory(**{"predict": True, "progress": False, **self._as_command(), **words})

    def profile(self, **words: Any) -> Any:
        """The time of a step, by module and kernel: tracestep.profile of its program, in a process of its own."""
        from .. import profile
        return profile(**{"progress": False, "mode": "step", **self._as_command(), **words})

    def release(self) -> None:
        """Ends the step. Parameters return to their own memory with their values; the optimizer keeps its moments."""
        with self._lock:
            self._shut()
            self._parameters.release()
            self._released = True


def step(model: torch.nn.Module, loss: Callable[..., Any] | None = None, *, optimizer: torch.optim.Optimizer,
         clip: float = 0.0, accumulate: int = 1, check: bool = True, keep: int = 4, scaler: Any = None, group: Any = None,
         **words: Any) -> Step:
    """A step of `model` with `optimizer`: loss = step(*inputs) instead of forward, backward(), step() and zero_grad().

    Without `loss` the model returns it: alone, in a tuple or as `.loss`; with it, loss(outputs, target) gets the last
    argument of a call. `clip` is the largest norm of all gradients. With `accumulate` each call is a micro-batch, and every
    so manieth updates. `keep` programs are kept, one for each shape of inputs. `check` holds each to the module's own
    gradients, in float64, when it is captured. `scaler` is a torch.amp.GradScaler, for precision="fp16". Under
    torch.distributed the processes of `group`, all of them if it is left out, take the mean of their losses and gradients;
    False is this process alone. `words` are options of the commands: precision="bf16", recompute="blocks",
    memory_limit="8GiB", executor="eager". Weights, moments and rates stay the model's and the optimizer's own. Errors:
    UsageError for what cannot be captured or is no part of a step, OutOfMemoryError, DeviceError.
    """
    return Step(model, loss, optimizer, words, clip, accumulate, check, keep, scaler, group)


__all__ = ["Step", "step"]
