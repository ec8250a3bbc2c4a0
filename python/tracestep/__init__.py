"""tracestep from Python: the commands of the program as functions.

    import tracestep
    tracestep.fit(model="llama-3.1-8b", published="H100")

Options are the program's flags, with lines for dashes; a result has tables that become frames of pandas
or polars, the sentence that answers the question, and charts that a notebook shows.
"""
from __future__ import annotations

from typing import Any

from ._commands import COMMANDS, make_function
from ._program import (DeviceError, Error, InputError, Interrupted, NotFiniteError, OutOfMemoryError,
                       OutputError, UsageError, program, use)
from ._result import Result, Table, load
from ._weights import Model, from_module

__all__ = [*COMMANDS, "DeviceError", "Error", "InputError", "Interrupted", "Model", "NotFiniteError",
           "OutOfMemoryError", "OutputError", "Result", "Table", "UsageError", "from_module", "load",
           "program", "use"]


def __getattr__(name: str) -> Any:
    """The function of a command, made when it is first asked for: importing runs nothing."""
    if name in ("attention", "capture", "step"):  # these need torch
        from importlib import import_module

        globals()[name] = function = getattr(import_module(f"._{name}", __name__), name)
        return function
    if name not in COMMANDS:
        raise AttributeError(f"module 'tracestep' has no attribute {name!r}")
    globals()[name] = function = make_function(name)
    return function


def __dir__() -> list[str]:
    """Lists the module's names, those of the commands included."""
    return sorted({*globals(), *__all__})
