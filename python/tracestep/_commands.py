"""The commands of the program as functions, made from the program's own list of them.

`tracestep show --docs cli --format json` says what options there are, their defaults, values and help;
nothing of that is written down here, so the functions are those of the program that is installed.
"""
from __future__ import annotations

import functools
import inspect
import json
import keyword
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._program import Interrupted, Progress, check, run, say
from ._result import Result, Table, load

COMMANDS = ("fit", "predict", "memory", "bench", "profile", "compare", "study", "train", "eval",
            "export")
# They say how stdout looks, which here is read by the module.
LEFT_OUT = ("--format", "--output", "--all")

Option = dict[str, Any]
OnStep = Callable[[dict[str, Any]], object]


@functools.cache
def listing() -> dict[str, dict[str, Any]]:
    """The commands by name, as the program lists them."""
    finished = run(["show", "--docs", "cli", "--format", "json"], progress=False)
    check(finished)
    return {command["name"]: command for command in json.loads(finished.out)["commands"]}


def options_of(command: str) -> dict[str, Option]:
    """Keyword -> option, in the order of the program's help."""
    return {keyword_of(option["flag"]): option for option in listing()[command]["options"]
            if option["flag"] not in LEFT_OUT}


def keyword_of(flag: str) -> str:
    """"d_model" of "--d-model"; Python's own words get a line at the end: "from_"."""
    name = flag.lstrip("-").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def default_of(option: Option) -> Any:
    """The default as Python writes it; None where the program decides, False for a switch."""
    text = option["default"]
    if not option["value"]:
        return False
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text or None


def text_of(option: Option, value: Any) -> str:
    """One word of the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(option, part) for part in value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, int) and option["value"].startswith("SIZE"):
        return f"{value}B"  # bytes, which the program takes with their unit alone
    return str(value)


def words_of(option: Option, value: Any) -> list[str]:
    """The words of an option with this value; none for what is left to the program."""
    if value is None or value is False:
        return []
    flag = option["flag"]
    if not option["value"]:
        if value is not True:
            raise TypeError(f"{keyword_of(flag)} is True or False, not {value!r}")
        return [flag]
    if value is True:
        raise TypeError(f"{keyword_of(flag)} wants a value ({option['value']}), not True")
    if option["most_values"] > 1:
        values = value if isinstance(value, (list, tuple)) else [value]
        return [flag, *(text_of(option, part) for part in values)]
    return [f"{flag}={text_of(option, value)}"]


class _Steps:
    """The rows of a training, as they come."""

    def __init__(self, on_step: OnStep | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.on_step = on_step

    def take(self, line: str) -> None:
        self.rows.append(json.loads(line))
        if self.on_step:
            self.on_step(self.rows[-1])

    def table(self) -> Table:
        columns = {name: {"title": name.replace("_", " ")} for row in self.rows for name in row}
        return Table("steps", columns, self.rows, "The steps")


def _call(command: str, words: Sequence[str], progress: bool | Progress, pictures: Path | None,
          steps: _Steps | None) -> Result:
    """Runs a command, whose result is JSON on stdout."""
    log = steps.take if steps else None
    more = ["--format=json"] if _has(command, "--format") else []
    if pictures is not None:
        more.append(f"--pictures={pictures}")
    finished = run([command, *words, *more], progress=_without(pictures, progress), log=log)
    is_json = finished.out.lstrip().startswith("{")
    result = Result(json.loads(finished.out), _drawn(pictures)) if is_json else None
    if result is None or command != "compare":  # whose gates tell by their status what is in the result
        check(finished)
    if result is not None:
        result.status = finished.status
    if result is not None and steps:
        result.tables["steps"] = steps.table()
    if finished.was_interrupted:
        interrupted = Interrupted("stopped by Ctrl-C")
        interrupted.result = result
        raise interrupted
    said = finished.out.strip() or "\n".join(finished.messages[-1:])  # of export, which prints no table
    return result or Result({"answer": said, "table": command}, _drawn(pictures))


def _without(pictures: Path | None, progress: bool | Progress) -> bool | Progress:
    """Messages but the one that names a folder which is gone when it is read."""
    if pictures is None or not progress:
        return progress
    sink = progress if callable(progress) else say
    return lambda line: None if str(pictures) in line else sink(line)


def _has(command: str, flag: str) -> bool:
    return any(option["flag"] == flag for option in listing()[command]["options"])


def _drawn(pictures: Path | None) -> dict[str, str]:
    drawn = sorted(pictures.glob("*.svg")) if pictures is not None else []
    return {path.stem: path.read_text(encoding="utf-8") for path in drawn}


def call(command: str, files: Sequence[Any], values: dict[str, Any], progress: bool | Progress,
         on_step: OnStep | None = None) -> Result:
    """Runs a command with files in front and options by keyword."""
    options = options_of(command)
    for name in values:
        if name not in options:
            raise TypeError(f"{command}() has no option {name!r}; tracestep {command} --help lists them")
    words = [word for name, value in values.items() for word in words_of(options[name], value)]
    with tempfile.TemporaryDirectory(prefix="tracestep-") as scratch:
        for i, file in enumerate(files):
            if isinstance(file, Result):
                path = Path(scratch) / f"{'ab'[i]}.json"
                file.save(path)
                file = path
            words.insert(i, os.fspath(file))
        draws = "pictures" in options and values.get("pictures") is None
        logs_here = "log" in options and values.get("log") is None
        if on_step and not logs_here:
            raise TypeError("on_step gets what log would write: give one of them")
        steps = _Steps(on_step) if logs_here else None
        result = _call(command, words, progress, Path(scratch) if draws else None, steps)
        if command == "study":  # it leaves its result in its folder, and prints what it answers
            folder = Path(values.get("output_dir") or options["output_dir"]["default"])
            answers, pictures = result.answer, result.pictures
            result = load(folder / "study.json")
            result.answer, result.pictures = result.answer or answers, pictures
        return result


def signature_of(command: str) -> inspect.Signature:
    """Files by position, all options and `progress` by keyword."""
    parameters = [inspect.Parameter(word["name"].lower(), inspect.Parameter.POSITIONAL_ONLY, default=None)
                  for word in listing()[command]["words"]]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default_of(option))
                   for name, option in options_of(command).items()]
    parameters.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=True))
    if "log" in options_of(command):
        parameters.append(inspect.Parameter("on_step", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(parameters, return_annotation=Result)


def doc_of(command: str) -> str:
    """The question, and a line for each option."""
    lines = [f"{name}: {option['help']}" for name, option in options_of(command).items()]
    lines.append("progress: whether messages go to stderr, or a function that gets each line")
    if "log" in options_of(command):
        lines.append("on_step: a function that gets the row of each step as it comes")
    question = listing()[command]["summary"]
    return f"{question[0].upper()}{question[1:]}.\n\n" + "\n".join(lines)


def make_function(command: str) -> Callable[..., Result]:
    """The function of a command."""
    count = len(listing()[command]["words"])

    def function(*files: Any, progress: bool | Progress = True, **values: Any) -> Result:
        if len(files) > count:
            raise TypeError(f"{command}() takes {count or 'no'} files, not {len(files)}")
        given = [file for file in files if file is not None]
        on_step = values.pop("on_step", None) if "log" in options_of(command) else None
        return call(command, given, values, progress, on_step)

    function.__name__ = function.__qualname__ = command
    function.__module__ = "tracestep"
    function.__doc__ = doc_of(command)
    function.__signature__ = signature_of(command)  # type: ignore[attr-defined]
    return function
