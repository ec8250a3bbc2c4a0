"""Prints the types of the module: what a wheel carries as __init__.pyi.

    python -m tracestep._stub PROGRAM > __init__.pyi

Editors and type checkers read the commands' options, their types, defaults and help from it.
"""
from __future__ import annotations

import sys
from typing import Any

from . import _commands as commands
from ._program import use

HEAD = '''"""tracestep from Python: the commands of the program as functions."""
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal

from ._program import (DeviceError as DeviceError, Error as Error, InputError as InputError,
                       Interrupted as Interrupted, NotFiniteError as NotFiniteError,
                       OutOfMemoryError as OutOfMemoryError, OutputError as OutputError,
                       UsageError as UsageError, program as program, use as use)
from ._attention import attention as attention
from ._capture import Captured as Captured, capture as capture
from ._step import Step as Step, step as step
from ._result import Result as Result, Table as Table, load as load
from ._weights import Model as Model, from_module as from_module
'''
PATHS = ("FILE", "DIR", "PATH...")


def type_of(option: dict[str, Any]) -> str:
    """The type annotation for an option's values."""
    value = option["value"]
    if not value:
        return "bool"
    one = value.split("[")[0]
    if option["choices"]:
        kind = "Literal[" + ", ".join(f'"{choice}"' for choice in option["choices"]) + "]"
        kind += "" if "|" in value else " | str"  # others have names that no list has, such as cuda:1
    else:
        kind = {"N": "int | str", "X": "float", "SIZE": "int | str"}.get(one, "str")
    if any(part in PATHS for part in one.split("|")):
        kind += " | PathLike[str]"
    if "[," in value or option["most_values"] > 1:
        kind += f" | Sequence[{kind}]"
    return kind if commands.default_of(option) is not None else f"{kind} | None"


def text_of(command: str) -> str:
    """The text of a command's function."""
    words = [f"    {word['name'].lower()}: str | PathLike[str] | Result | None = None, "
             for word in commands.listing()[command]["words"]]
    lines = words + ["    /,"] if words else []
    lines.append("    *,")
    lines += [f"    {name}: {type_of(option)} = {commands.default_of(option)!r},"
              for name, option in commands.options_of(command).items()]
    lines.append("    progress: bool | Callable[[str], object] = True,")
    if "log" in commands.options_of(command):
        lines.append("    on_step: Callable[[dict[str, Any]], object] | None = None,")
    doc = commands.doc_of(command).replace("\\", "\\\\").replace("\n", "\n    ")
    return f"def {command}(\n" + "\n".join(lines) + f'\n) -> Result:\n    """{doc}\n    """\n'


def main() -> None:
    """Prints the types for the program that is named, else for the one that the module runs."""
    if len(sys.argv) > 1:
        use(sys.argv[1])
    print(HEAD + "".join("\n" + text_of(command) for command in commands.COMMANDS), end="")


if __name__ == "__main__":
    main()
