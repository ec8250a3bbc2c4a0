"""Runs the program and reads what it says.

The module is a wrapper: all that it does, the program does in a process of its own, so that a crash or
the end of its memory is an exception here.
"""
from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Progress = Callable[[str], object]


class Error(RuntimeError):
    """What the program refused or could not do, in its own words.

    `status` is its exit status (docs/cli.md lists them), `where` the part in brackets, such as "--batch".
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.where = message[1:].partition("]")[0] if message.startswith("[") else ""


class UsageError(Error, ValueError):
    """An option or value that there is not, or sizes that do not fit each other."""


class InputError(Error, OSError):
    """An input is missing or malformed."""


class OutOfMemoryError(Error, MemoryError):
    """A single run did not fit."""


class OutputError(Error, OSError):
    """A file cannot be written; found before the work starts."""


class DeviceError(Error):
    """The device is missing from this build or machine."""


class NotFiniteError(Error, ArithmeticError):
    """A loss, gradient or weight is not finite."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the program ended behind the step under way. `result` is what it had until then, or None."""

    result: object = None


ERRORS: dict[int, type[Error]] = {2: UsageError, 3: InputError, 4: OutOfMemoryError, 5: OutputError,
                                  6: DeviceError, 8: NotFiniteError}


_chosen: str | None = None


def use(path: str | os.PathLike[str]) -> None:
    """Runs this program from now on, such as a build of one's own with CUDA or MPI."""
    global _chosen
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{os.fspath(path)!r} is no program")
    _chosen = os.path.abspath(path)


def program() -> str:
    """The path of the program: that of `use`, that of this Python's environment, the first on PATH."""
    if _chosen:
        return _chosen
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        path = Path(sysconfig.get_path("scripts", scheme)) / "tracestep"
        if os.access(path, os.X_OK):
            return str(path)
    if found := shutil.which("tracestep"):
        return found
    raise FileNotFoundError("the program tracestep is neither beside this Python nor on PATH; "
                            "install its wheel")


@dataclass
class Finished:
    """A run that has ended: its exit status, what it printed and its messages."""

    status: int
    out: str
    messages: list[str]
    was_interrupted: bool


def say(line: str) -> None:
    """A line of progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


class _Readers:
    """Threads that hand the lines of a run's streams on.

    The first exception of those who get them is kept as `failure` and ends the run, as Ctrl-C does: the
    rest of its lines is read, so that it can end, and goes to nobody.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.failure: BaseException | None = None
        self.threads: list[threading.Thread] = []

    def add(self, stream: IO[bytes], keep: Progress, hand_on: Progress | None = None) -> None:
        """Every line goes to `keep`, and until something fails to `hand_on`."""
        thread = threading.Thread(target=self._read, args=(stream, keep, hand_on), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _read(self, stream: IO[bytes], keep: Progress, hand_on: Progress | None) -> None:
        with io.TextIOWrapper(stream, encoding="utf-8", errors="replace") as lines:
            for text in lines:
                line = text.rstrip("\n")
                keep(line)
                if hand_on is None or self.failure is not None:
                    continue
                try:
                    hand_on(line)
                except BaseException as failure:  # of the caller, who gets it
                    self.failure = self.failure or failure
                    self.process.send_signal(signal.SIGINT)

    def join(self) -> None:
        """Waits until everything is read."""
        for thread in self.threads:
            thread.join()


def is_error(line: str) -> bool:
    """True if a message says why the program failed, which an exception says as well."""
    return line.startswith("tracestep: ")


def run(words: Sequence[str], *, progress: bool | Progress = True, log: Progress | None = None) -> Finished:
    """Runs the program with `words`.

    Each line of its messages goes to `progress` as it comes (True: to stderr), but for what an exception
    will say. With `log`, "--log" is added, and each line that the program writes there goes to `log`. The
    first KeyboardInterrupt is handed on as a signal, behind which the program ends with what it has; a second
    one ends it at once. The first exception of `progress` or `log` ends it likewise, and is raised here.
    """
    messages: list[str] = []
    out: list[str] = []
    tell = (progress if callable(progress) else say) if progress else None
    command = [program(), *words]
    ends = os.pipe() if log else None
    if ends:
        command.insert(2, f"--log=/dev/fd/{ends[1]}")
    # A session of its own: else the terminal would send it a second signal for each Ctrl-C.
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True,
                                   pass_fds=ends[1:] if ends else ())
    except BaseException:
        for end in ends or ():
            os.close(end)
        raise
    assert process.stdout and process.stderr
    readers = _Readers(process)
    readers.add(process.stderr, messages.append,
                (lambda line: None if is_error(line) else tell(line)) if tell else None)
    readers.add(process.stdout, out.append)
    if ends and log:
        os.close(ends[1])
        readers.add(os.fdopen(ends[0], "rb"), lambda line: None, log)
    was_interrupted = _wait(process, readers)
    if readers.failure is not None:
        raise readers.failure
    return Finished(process.returncode, "\n".join(out), messages, was_interrupted)


def _wait(process: subprocess.Popen[bytes], readers: _Readers) -> bool:
    """Waits until the program has ended and everything is read; returns True if there was a KeyboardInterrupt."""
    was_interrupted = False
    try:
        while True:
            try:
                process.wait()
                readers.join()
                return was_interrupted
            except KeyboardInterrupt:
                was_interrupted = True
                process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def said_by(finished: Finished) -> str:
    """The error that the program printed; empty: none."""
    return next((line.removeprefix("tracestep: ") for line in reversed(finished.messages)
                 if is_error(line)), "")


def check(finished: Finished) -> None:
    """Raises the exception for an exit status."""
    if finished.status == 0 or finished.was_interrupted:
        return
    message = said_by(finished)
    if not message and finished.status < 0:
        message = f"the program was ended by {signal.Signals(-finished.status).name}"
    message = message or "\n".join(finished.messages[-3:]) or f"the program ended with status {finished.status}"
    raise ERRORS.get(finished.status, Error)(message, finished.status)
