#!/usr/bin/env python3
"""Names and values that look like something else, for every flag and file of every command.

Each case is a command that works, with one value of one flag, or one of its files, in the place of an ordinary
one: a value that a shell or a parser could take for an option, a command, a list or nothing. It is given as
"--flag=value", as "--flag value", and by the Python module. Rules, besides those of random_commands.py: the
value is used as it is, or refused with its flag or itself in the message; an empty one, and in two words one
that is a flag, is always refused by its flag; no command that stands in it runs; no file appears but under its
name, or where the command writes without it. The last line is a summary as JSON. Exit status 1: a fault.

Usage: tools/soak/hostile_names.py [--count N] [--seed N] [--program build/tracestep] [--only COMMAND[,COMMAND]]
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile

import random_commands
from random_commands import ROOT, SHORT, TINY

sys.path.insert(0, str(ROOT / "python"))
import tracestep  # noqa: E402
from tracestep import _commands  # noqa: E402

VALUES = ["", "--", "-", "-x", "=", "--save=PWNED", "--output=PWNED", "--overwrite", "--help", "-h",
          "--run=touch PWNED; cat bench.json #", "; touch PWNED", "$(touch PWNED)", "`touch PWNED`",
          "| touch PWNED", "a b", " ", "a\nb", "\t", "%s%n", "%%", "{}", "[a]", "[a,b]", "{{run}}", "@text.txt",
          "é\u202ex", "日本", "'q'", '"q"', "\\", "*", "~", "#", "!", "&", "a=b", "-n4", "x" * 300, "\udcff"]
# These make a command work, and quickly; a study reads what is not there.
WORDS = {"compare": ["bench.json", "bench.json"], "pivot": ["bench.json"], "export": ["m.safetensors", "made"],
         "completions": ["bash"], "explain": ["oom"], "merge": ["missing"], "read": ["missing"]}
MORE = {"train": ["--text=text.txt", "--tokenizer=bytes"], "eval": ["--text=text.txt", "--init=m.safetensors"],
        "generate": ["--init=m.safetensors", "--prompt-tokens=1,2"], "pivot": ["--across=context"],
        "study": ["--from=missing"], "show": ["--passes"], "fit": ["--memory-limit=1GiB"],
        "memory": ["--predict"], "compile": ["--part=composites"], "comm": ["--bytes=1KiB", "--ranks=2"],
        "precision": ["--mode=inference"]}
OF_A_SHELL = ("--run",)  # a value that is a command by its nature
OF_A_MODEL = ("--size", "--model")


class Cases:
    """Every flag, and every file, with every value, in every way."""

    def __init__(self, program, only):
        self.all = random_commands.Lines(program, random.Random(0), []).all
        self.cases = []
        for name, command in self.all.items():
            if only and name not in only or name == "launch":  # which has its own words behind "--"
                continue
            ways = ["one word", "two words"] + ["python"] * (name in tracestep._commands.COMMANDS)
            flags = [option["flag"] for option in command["options"] if option["value"]]
            self.cases += [(name, flag, value, way) for flag in flags for value in VALUES for way in ways
                           if way != "python" or flag not in _commands.LEFT_OUT]
            if name in WORDS:
                self.cases += [(name, None, value, way) for value in VALUES
                               for way in ("behind --", *ways[2:])]

    def flags_of(self, name, without):
        """The flags that make it work, but for one."""
        flags = {option["flag"] for option in self.all[name]["options"]}
        out = MORE.get(name, [])
        if set(TINY) <= flags and without not in OF_A_MODEL and name not in ("eval", "generate"):
            out = out + [f"{flag}={values[0]}" for flag, values in TINY.items() if flag != "--vocab"]
        out = out + [f"{flag}={values[0]}" for flag, values in SHORT.items() if flag in flags]
        return [word for word in out if word.split("=")[0] != without]

    def words_of(self, case):
        name, flag, value, way = case
        flags, files = self.flags_of(name, flag), WORDS.get(name, [])
        if flag is None:
            return [name, *flags, "--", value, *files[1:]]
        return [name, *flags, *([f"{flag}={value}"] if way == "one word" else [flag, value]), *files]


class NameRuns(random_commands.Runs):
    """Runs cases, and checks what came of the names in them."""

    def __init__(self, program, base, seconds, cases):
        super().__init__(program, base, seconds)
        self.cases, self.usual = cases, {}
        self.given = {path.name for path in self.template.iterdir()}
        tracestep.use(program)

    def entries(self):
        return {path.name for path in (self.base / "work").iterdir()}

    def entries_without(self, name, flag):
        """What the command leaves in its folder without the flag."""
        without = None if flag in OF_A_MODEL else flag  # else it would be the usual model, a large one
        words = [name, *self.cases.flags_of(name, without), *WORDS.get(name, [])]
        if tuple(words) not in self.usual:
            self.run(words)
            self.usual[tuple(words)] = self.entries()
        return self.usual[tuple(words)]

    def run_python(self, case):
        """(status, what was said) of the call in the module."""
        name, flag, value, _ = case
        folder = self.base / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        options = {option["flag"]: option for option in self.cases.all[name]["options"]}
        given = {}
        for word in self.cases.flags_of(name, flag):
            key, _, text = word.partition("=")
            given[_commands.keyword_of(key)] = text if options[key]["value"] else True
        files = list(WORDS.get(name, []))
        if flag is None:
            files[0] = value
        else:
            given[_commands.keyword_of(flag)] = value
        here, said = os.getcwd(), io.StringIO()
        os.chdir(folder)
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            with contextlib.redirect_stderr(said):
                getattr(tracestep, name)(*files, progress=False, **given)
            return 0, said.getvalue()
        except tracestep.Error as error:
            return error.status, f"{error}"
        except (OSError, ValueError, TypeError) as error:  # a value that no process can be given
            return 2, f"{flag} {error!r}"
        except KeyboardInterrupt:
            return 130, said.getvalue()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(here)

    def fault_of(self, case):
        name, flag, value, way = case
        if way == "python":
            status, said = self.run_python(case)
        else:
            status, _, err, _ = self.run(self.cases.words_of(case))
            said = err.decode("utf-8", "replace")
        self.counts["refused" if status in (2, 3, 5) else "taken"] += 1
        if status is None or status not in self.statuses:
            return f"status {status}"
        if "mistake in tracestep" in said:
            return "a mistake in tracestep"
        if self.outside() != self.around:
            self.around = self.outside()
            return "something is written outside the folder"
        begins = os.fsencode(value.split("/")[0] or "/")
        new = {entry for entry in self.entries() if not os.fsencode(entry).startswith(begins)} - self.given
        if new and flag not in OF_A_SHELL and (new := new - self.entries_without(name, flag)):
            return f"a file that nobody named: {new}"
        return self.fault_of_refusal(case, status, said)

    def fault_of_refusal(self, case, status, said):
        name, flag, value, way = case
        own = {option["flag"] for option in self.cases.all[name]["options"]} | {"--", "--help", "-h"}
        is_flag = value.split("=")[0] in own or value in own
        if way == "two words" and value in ("--help", "-h"):
            return "" if status == 0 else f"help ends with status {status}"
        if value == "" or way == "two words" and is_flag:
            ok = status == 2 and (flag or self.cases.all[name]["words"][0]["name"]) in said
            return "" if ok else f"status {status} for a value that is none: {said}"
        shown = (flag or "", value, value.encode("unicode_escape").decode(), value[:8])
        if status == 2 and not any(text and text in said for text in shown):
            return f"refused without its flag or itself: {said}"
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tracestep")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    options = parser.parse_args()
    program = options.program.resolve()
    cases = Cases(program, [*filter(None, options.only.split(","))])
    dice = random.Random(options.seed)
    chosen = dice.sample(cases.cases, min(options.count, len(cases.cases)))
    faults = 0
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        runs = NameRuns(program, pathlib.Path(base), options.seconds, cases)
        for case in chosen:
            if fault := runs.fault_of(case):
                faults += 1
                words = case if case[3] == "python" else shlex.join(cases.words_of(case))
                print(f"{case[3]}: {fault.strip()}: {words!r}", flush=True)
    print(json.dumps({"runs": len(chosen), "faults": faults, "cases": len(cases.cases),
                      "refused": runs.counts["refused"], "taken": runs.counts["taken"]}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
