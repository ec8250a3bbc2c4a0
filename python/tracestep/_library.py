"""The C interface of libtracestep.so (src/capi/tracestep.h), by ctypes."""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ._program import ERRORS, DeviceError, Error, program

INTERFACE = 1
FORWARD, BACKWARD, STEP, FIRST, NEXT, UPDATE = range(6)
INPUT, PARAMETER, CONSTANT, STATE, ARENA, OUTPUT = range(6)
ADAMW, SGD = range(2)


class Group(ctypes.Structure):
    """The struct tracestep_group."""

    _fields_ = [("parameters", ctypes.POINTER(ctypes.c_char_p)), ("count", ctypes.c_int64), ("beta1", ctypes.c_double),
                ("beta2", ctypes.c_double), ("eps", ctypes.c_double), ("weight_decay", ctypes.c_double)]


class Options(ctypes.Structure):
    """The struct tracestep_options."""

    _fields_ = [("size", ctypes.c_int64), ("words", ctypes.c_char_p), ("rule", ctypes.c_int32),
                ("accumulate", ctypes.c_int32), ("clip", ctypes.c_double), ("groups", ctypes.POINTER(Group)),
                ("group_count", ctypes.c_int64), ("scale_growth", ctypes.c_double), ("scale_backoff", ctypes.c_double),
                ("scale_interval", ctypes.c_int64)]


GATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
SUM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p)


class Ranks(ctypes.Structure):
    """The struct tracestep_ranks, with functions of Python; `problem` is the last exception that one of them raised."""

    _fields_ = [("size", ctypes.c_int64), ("rank", ctypes.c_int32), ("count", ctypes.c_int32),
                ("context", ctypes.c_void_p), ("gather", GATHER), ("sum", SUM)]
    problem: BaseException | None = None


def ranks(rank: int, count: int, gather: Callable[..., None], add: Callable[..., None]) -> Ranks:
    """gather(own, everyone, bytes) and add(data, count, dtype), with addresses, of all ranks."""
    def guarded(act: Callable[..., None]) -> Callable[..., int]:
        def call(_: Any, *words: Any) -> int:
            try:
                act(*words)
            except BaseException as problem:  # which C would not pass on
                out.problem = problem
                return 1
            return 0
        return call

    out = Ranks(ctypes.sizeof(Ranks), rank, count, None, GATHER(guarded(gather)), SUM(guarded(add)))
    return out


class Bytes(ctypes.Structure):
    """The struct tracestep_bytes."""

    _fields_ = [(name, ctypes.c_int64) for name in ("peak", "lent", "shared", "own")]


class Tensor(ctypes.Structure):
    """The struct tracestep_tensor."""

    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("role", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * 8), ("bytes", ctypes.c_int64),
                ("block", ctypes.c_char_p), ("offset", ctypes.c_int64)]


def path() -> Path:
    """The library of the program that runs: beside it in a build, in lib/ where it is installed."""
    here = Path(program()).resolve().parent
    places = [here, here.parent / "lib" / "tracestep", here.parent / "lib"]
    for place in places:
        if (place / "libtracestep.so").is_file():
            return place / "libtracestep.so"
    raise DeviceError(f"[step] there is no libtracestep.so in {', '.join(map(str, places))}: "
                      "this program came without its library", 6)


@functools.cache
def _loaded(file: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(file))
    library.tracestep_message.restype = ctypes.c_char_p
    for name in ("close", "end"):
        getattr(library, "tracestep_" + name).restype = None
    if library.tracestep_interface() != INTERFACE:
        raise Error(f"[step] {file} has another interface than this module: both come from one wheel", 1)
    return library


def _call(library: ctypes.CDLL, name: str, *words: Any) -> None:
    status = getattr(library, "tracestep_" + name)(*words)
    if status:
        raise ERRORS.get(status, Error)(library.tracestep_message().decode(), status)


class Run:
    """A run of a session (tracestep_run)."""

    def __init__(self, session: Session, handle: ctypes.c_void_p) -> None:
        self.session, self.handle = session, handle

    def _call(self, name: str, *words: Any) -> None:
        self.session.call(name, self.handle, *words)

    def size(self) -> Bytes:
        """The planned bytes of the run."""
        found = Bytes()
        self._call("size", ctypes.byref(found))
        return found

    def tensors(self) -> Iterator[Tensor]:
        """The run's tensors: leaves, the arena, outputs."""
        i = 0
        while True:
            tensor = Tensor()
            if self.session.library.tracestep_tensor_at(self.handle, ctypes.c_int64(i), ctypes.byref(tensor)):
                return
            yield tensor
            i += 1

    def start(self) -> None:
        """Allocates the memory that is not lent."""
        self._call("start")

    def set(self, name: str, values: ctypes.Array[Any]) -> None:
        """Copies host memory into a tensor."""
        self._call("set", name.encode(), values, ctypes.c_int64(ctypes.sizeof(values)))

    def get(self, name: str, values: ctypes.Array[Any]) -> None:
        """Copies a tensor to host memory."""
        self._call("get", name.encode(), values, ctypes.c_int64(ctypes.sizeof(values)))

    def get_at(self, name: str, address: int, size: int) -> None:
        """Copies a tensor to host memory at this address."""
        self._call("get", name.encode(), ctypes.c_void_p(address), ctypes.c_int64(size))

    def rate(self, group: int, rate: float, step: int) -> None:
        """Sets the learning rate of a group, and the number of its step."""
        self._call("rate", ctypes.c_int64(group), ctypes.c_double(rate), ctypes.c_int64(step))

    def go(self, stream: int | None = None) -> None:
        """Runs once."""
        self._call("go", ctypes.c_void_p(stream))

    def end(self) -> None:
        """Frees the run's memory."""
        if self.handle and self.session.handle:
            self.session.library.tracestep_end(self.handle)
        self.handle = ctypes.c_void_p()


class Session:
    """A device with weights on it, by name (tracestep_session)."""

    def __init__(self, words: str, rule: int = ADAMW, clip: float = 0.0, accumulate: int = 1,
                 groups: Sequence[tuple[Sequence[str], float, float, float, float]] = (),
                 scale: tuple[float, float, int] = (0.0, 0.0, 0), ranks: Ranks | None = None) -> None:
        self.library = _loaded(path())
        self.handle = ctypes.c_void_p()
        self.ranks = ranks
        kept = [(ctypes.c_char_p * len(names))(*[n.encode() for n in names]) for names, *_ in groups]
        rows = [Group(names, len(names), *numbers) for names, (_, *numbers) in zip(kept, groups)]
        options = Options(ctypes.sizeof(Options), words.encode(), rule, accumulate, clip,
                          (Group * len(rows))(*rows), len(rows), *scale)
        _call(self.library, "open", ctypes.byref(options), ctypes.byref(self.handle))
        if ranks is not None:
            self.call("join", self.handle, ctypes.byref(ranks))

    def call(self, name: str, *words: Any) -> None:
        """Calls a function of the interface. An exception that a function of the ranks raised meanwhile is the cause
        of the error.
        """
        try:
            _call(self.library, name, *words)
        except Error as error:
            if self.ranks is None or self.ranks.problem is None:
                raise
            problem, self.ranks.problem = self.ranks.problem, None
            raise error from problem

    def plan(self, folder: Path | None, kind: int) -> Run:
        """Makes a run, for which nothing is allocated yet."""
        handle = ctypes.c_void_p()
        name = None if folder is None else str(folder).encode()
        self.call("plan", self.handle, name, kind, ctypes.byref(handle))
        return Run(self, handle)

    def lend(self, name: str, address: int, size: int) -> None:
        """Lends the session memory for a tensor."""
        self.call("lend", self.handle, name.encode(), ctypes.c_void_p(address), ctypes.c_int64(size))

    def refresh(self, name: str) -> None:
        """Makes the narrow copies of a parameter again."""
        self.call("refresh", self.handle, name.encode())

    def wait(self) -> None:
        """Waits for all work."""
        self.call("wait", self.handle)

    def close(self) -> None:
        """Ends all runs."""
        handle, self.handle = self.handle, ctypes.c_void_p()
        self.library.tracestep_close(handle)
