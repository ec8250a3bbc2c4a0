"""The commands of the program as functions, made from the program's own list of them.

`tracestep show --docs cli --format json` says what options there are, their defaults, values and help;
nothing of that is written down here, so the functions are those of the program that is installed.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import keyword
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._program import Error, Finished, Interrupted, Progress, check, run, said_by, say
from ._result import Result, Table, load, parsed

COMMANDS = ("fit", "predict", "memory", "bench", "profile", "read", "compare", "study", "train", "eval",
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
    listed = parsed(finished.out, "the list of commands")
    return {command["name"]: command for command in listed["commands"]}


def options_of(command: str) -> dict[str, Option]:
    """Keyword -> option, in the order of the program's help."""
    return {keyword_of(option["flag"]): option for option in listing()[command]["options"]
            if option["flag"] not in LEFT_OUT}


def keyword_of(flag: str) -> str:
    """"d_model" of "--d-model"; Python's own words get a line at the end: "from_"."""
    name = flag.lstrip("-").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def default_of(option: Option) -> Any:
    """The default as Python writes it; None if the program decides, False for a switch."""
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
    """A value as one word of the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(option, part) for part in value)
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, int) and option["value"].startswith("SIZE"):
        return f"{value}B"  # bytes, which the program takes with their unit alone
    return str(value)


def words_of(option: Option, value: Any) -> list[str]:
    """The words of an option with this value; none for what is left to the program.

    Each value stands in one word with its flag, so that none is taken for a flag, whatever it looks like.
    """
    if value is None or value is False:
        return []
    flag = option["flag"]
    if not option["value"]:
        if value is not True:
            raise TypeError(f"{keyword_of(flag)} is True or False, not {value!r}")
        return [flag]
    if value is True:
        raise TypeError(f"{keyword_of(flag)} wants a value ({option['value']}), not True")
    several = option["most_values"] > 1 and isinstance(value, (list, tuple)) and value
    return [f"{flag}={text_of(option, part)}" for part in (value if several else [value])]


class _Steps:
    """Passes on the rows of a training as they come."""

    def __init__(self, on_step: OnStep | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.on_step = on_step

    def take(self, line: str) -> None:
        self.rows.append(parsed(line, "a line of its log"))
        if self.on_step:
            self.on_step(self.rows[-1])

    def table(self) -> Table:
        columns = {name: {"title": name.replace("_", " ")} for row in self.rows for name in row}
        return Table("steps", columns, self.rows, "The steps")


def _call(command: str, options: Sequence[str], files: Sequence[str], progress: bool | Progress,
          pictures: Path | None, steps: _Steps | None) -> Result:
    """Runs a command, whose result is JSON on stdout."""
    more = ["--format=json"] if _has(command, "--format") else []
    if pictures is not None:
        more.append(f"--pictures={pictures}")
    behind = ["--", *files] if files else []  # where no word is a flag
    finished = run([command, *options, *more, *behind], progress=_without(pictures, progress),
                   log=steps.take if steps else None)
    if finished.was_interrupted:
        interrupted = Interrupted("; ".join(filter(None, ("stopped by Ctrl-C", said_by(finished)))))
        with contextlib.suppress(Error):  # there may be none
            interrupted.result = _result_of(command, finished, pictures, steps)
        raise interrupted
    if command != "compare" or not finished.out:  # whose gates tell by their status what is in the result
        check(finished)
    return _result_of(command, finished, pictures, steps)


def _result_of(command: str, finished: Finished, pictures: Path | None, steps: _Steps | None) -> Result:
    if _has(command, "--format"):
        data = parsed(finished.out, f"what {command} printed")
    else:  # it prints what it has done, or says it
        data = {"answer": finished.out.strip() or "\n".join(finished.messages[-1:]), "table": command}
    result = Result(data, _drawn(pictures))
    result.status = finished.status
    if steps:
        result.tables["steps"] = steps.table()
    return result


def _without(pictures: Path | None, progress: bool | Progress) -> bool | Progress:
    """The messages without the one that names a folder which no longer exists when it is read."""
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
    """Runs a command with files and with options by keyword."""
    options = options_of(command)
    for name in values:
        if name not in options:
            raise TypeError(f"{command}() has no option {name!r}{_meant_by_keyword(command, name)}")
    words = [word for name, value in values.items() for word in words_of(options[name], value)]
    with tempfile.TemporaryDirectory(prefix="tracestep-") as scratch:
        places = []
        for i, file in enumerate(files):
            if isinstance(file, Result):
                path = Path(scratch) / f"{'ab'[i]}.json"
                file.save(path)
                file = path
            places.append(os.fspath(file))
        draws = "pictures" in options and values.get("pictures") is None
        logs_here = "log" in options and values.get("log") is None
        if on_step and not logs_here:
            raise TypeError("on_step gets what log would write: give one of them")
        steps = _Steps(on_step) if logs_here else None
        result = _call(command, words, places, progress, Path(scratch) if draws else None, steps)
        if command == "study":  # it leaves its result in its folder, and prints what it answers
            folder = Path(values.get("output_dir") or options["output_dir"]["default"])
            answers, pictures = result.answer, result.pictures
            result = load(folder / "study.json")
            result.answer, result.pictures = result.answer or answers, pictures
        return result


def _refusal_of(words: Sequence[str]) -> str:
    """The error that the program gives for a command line, without running it."""
    return said_by(run(words, progress=False))


def _meant_by_keyword(command: str, name: str) -> str:
    """"; did you mean precision?" for "dtype", as the program answers the flag; else where help is."""
    flag = "--" + name.replace("_", "-")
    if name.isidentifier() and not _has(command, flag):  # so that the program refuses it
        said = _refusal_of([command, flag])
        if meant := re.search(r"unknown option [^;]*(; .+?);? tracestep ", said):
            return re.sub(r"--[a-z][a-z0-9-]*", lambda ours: keyword_of(ours[0]), meant[1])
    return f"; tracestep {command} --help lists them"


def _meant_by_words(command: str, words: Sequence[Any]) -> str:
    """"; say fit(model='llama-3.1-8b')" for a word that the program knows an option for."""
    texts = [os.fspath(word) for word in words if isinstance(word, (str, os.PathLike))]
    are_plain = len(texts) == len(words) and not any(os.fsencode(text).startswith(b"-") for text in texts)
    said = _refusal_of([command, *texts]) if are_plain else ""
    meant = re.search(r"did you mean --([a-z0-9-]+) (.+)\?(?:;? tracestep |$)", said)
    return f"; say {command}({keyword_of(meant[1])}={meant[2]!r})" if meant else ""


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
        given = list(files)
        while given and given[-1] is None:
            given.pop()
        if len(given) > count:
            raise TypeError(f"{command}() takes {count or 'no'} files, not {len(given)}"
                            f"{_meant_by_words(command, given)}")
        if None in given:
            raise TypeError(f"{command}() has a file behind one that is None")
        on_step = values.pop("on_step", None) if "log" in options_of(command) else None
        return call(command, given, values, progress, on_step)

    function.__name__ = function.__qualname__ = command
    function.__module__ = "tracestep"
    function.__doc__ = doc_of(command)
    function.__signature__ = signature_of(command)  # type: ignore[attr-defined]
    return function
