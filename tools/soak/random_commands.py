#!/usr/bin/env python3
"""Random command lines over all commands and flags, as the program itself lists them.

Flags, their choices and the words of their help come from `tracestep show --docs cli --format json`,
exit statuses from the table of `show --docs cli`; here stand only the sizes of a tiny model, and how
a number, a size or a file is drawn. Each command runs in a folder of its own. Rules: no crash; after
--seconds a SIGINT ends it; its status is in the table, and status 2 comes with exactly one error
line; no nan or inf in a cell, no control bytes, whole JSON; predicted peaks are the measured ones;
nothing "internal" and no "mistake in tracestep"; nothing is written outside the folder. A line that
breaks a rule is printed with it, as short as it can be while it still does. The last line is a
summary as JSON. Exit status 1: a fault.

Usage: tools/soak/random_commands.py [--count N] [--seed N] [--program build/tracestep]
       [--seconds S] [--only COMMAND[,COMMAND]]
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = {"--d-model": ["8", "16", "24"], "--d-ff": ["8", "24"], "--layers": ["1", "2", "3"],
        "--heads": ["1", "2", "4"], "--vocab": ["16", "65", "256"]}
SHORT = {"--context": ["4", "8", "16"], "--batch": ["1", "2", "6"], "--threads": ["1", "2"],
         "--steps": ["1", "3"], "--warmup": ["0", "1"], "--calls": ["2"], "--batches": ["2"],
         "--max-tokens": ["5"]}
NEEDED = {"--text": ["text.txt"], "--prompt-tokens": ["1,2"]}  # by some commands
NUMBERS = ["0", "1", "2", "3", "4", "8", "12", "1e1"]
ODD_NUMBERS = ["-1", "-0", "1.5", "2k", "1M", "x", "1e309", "nan", "99999999999999999999"]
REALS = ["0", "0.1", "0.5", "1", "1e-3", "5", "1e30"]
SIZES = ["1B", "1KiB", "64KiB", "1MiB", "1.5MiB", "1GB", "80GiB", "24"]
NASTY = ["", "-", "--", "\x1b[31m", "é\u202ex", "a" * 300, "0", "../outside", "a,b", "a+b", "="]
PATHS = ("FILE", "DIR", "PATH")
MEMORY, LARGEST_FILE = 6 << 30, 64 << 20


class Lines:
    """Draws command lines."""

    def __init__(self, program, dice, only):
        listed = json.loads(subprocess.run([program, "show", "--docs", "cli", "--format", "json"],
                                           capture_output=True, text=True, check=True).stdout)
        self.all = {c["name"]: c for c in listed["commands"]}
        self.names = only or list(self.all)
        topics = subprocess.run([program, "explain", "--format", "json"], capture_output=True,
                                text=True, check=True).stdout
        self.topics = [row["topic"] for row in json.loads(topics)["rows"]]
        self.dice = dice

    def number(self):
        return self.dice.choice(ODD_NUMBERS if self.dice.random() < 0.1 else NUMBERS)

    def file(self):
        known = ["text.txt", "bench.json", "bench.csv", "m.safetensors", "checkpoints", "tokens.bin",
                 "empty", "missing", "new/file"]
        return self.dice.choice([*known, *(f"new{i}" for i in range(6))])

    def word_of(self, help_text):
        """A word of the help: "shard=1|2|3" is one of three, N and SIZE are filled in."""
        forms = re.findall(r"[a-z_]+=[A-Za-z0-9|]+", help_text)
        words = re.findall(r"[a-z][a-z0-9_.*+-]+[a-z0-9]", help_text)
        word = self.dice.choice(forms if forms and self.dice.random() < 0.8 else words or ["x"])
        name, equals, value = word.partition("=")
        value = self.dice.choice(value.split("|"))
        value = {"N": self.dice.choice(["1", "2", "3"]), "SIZE": self.dice.choice(SIZES)}.get(value,
                                                                                             value)
        return name + equals + value

    def value(self, option):
        if self.dice.random() < 0.02:
            return self.dice.choice(NASTY)
        kind = option["value"].split("[")[0].split()[0]
        draws = {"N": self.number, "SIZE": lambda: self.dice.choice(SIZES),
                 "X": lambda: self.dice.choice(REALS + ODD_NUMBERS[:1]),
                 **dict.fromkeys(PATHS, self.file)}
        if option["choices"]:
            draw = lambda: self.dice.choice(option["choices"])
        else:
            draw = draws.get(kind, lambda: self.word_of(option["help"]))
        is_list = "," in option["value"] or kind not in draws and not option["choices"]
        many = self.dice.choice([1, 1, 2, 3]) if is_list else 1
        plus = kind not in draws and not option["choices"] and self.dice.random() < 0.5
        return ("+" if plus else ",").join(dict.fromkeys(draw() for _ in range(many)))

    def flags(self, command):
        """Groups of words, each of a flag with its values."""
        options = {o["flag"]: o for o in command["options"]}
        chosen = {}
        if all(flag in options for flag in TINY) and self.dice.random() < 0.95:
            chosen.update(TINY)
        chosen.update({flag: values for flag, values in SHORT.items() if flag in options})
        if self.dice.random() < 0.9:
            chosen.update({flag: values for flag, values in NEEDED.items() if flag in options})
        out = {flag: [flag, self.dice.choice(values)] for flag, values in chosen.items()}
        if "--format" in options and self.dice.random() < 0.6:
            out["--format"] = ["--format", "json"]
        for flag in self.dice.sample(list(options), min(len(options), self.dice.choice([0, 1, 1, 2, 3, 5]))):
            option = options[flag]
            if flag == "--size" and "--d-model" in out:
                continue
            count = option["most_values"] if option["least_values"] == 1 else option["least_values"]
            out[flag] = [flag, *(self.value(option)
                                 for _ in range(self.dice.randint(1, min(count, 2)) if count else 0))]
        groups = list(out.values())
        self.dice.shuffle(groups)
        return groups

    def draw(self, names=None):
        """[command], groups of flags, words: what may be left out is a group of its own."""
        command = self.all[self.dice.choice(names or self.names)]
        groups = [[command["name"]], *self.flags(command)]
        for word in command["words"]:
            if word["name"].startswith("-- "):
                inner = self.draw([n for n in self.all if n != command["name"]])
                groups.append(["--", *(w for group in inner for w in group)])
            elif word["is_required"] or self.dice.random() < 0.7:
                topics = self.topics if word["name"] == "TOPIC" else []
                groups.append([self.dice.choice([*topics, self.file(), self.word_of(word["help"])])])
        return groups


def before_start():
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell starts with "&"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))


class Runs:
    """Runs command lines, each in a copy of one folder, and checks what came of it."""

    def __init__(self, program, base, seconds):
        self.program, self.base, self.seconds = program, base, seconds
        self.counts = collections.Counter()
        page = subprocess.run([program, "show", "--docs", "cli"], capture_output=True, text=True,
                              check=True).stdout
        rows = re.findall(r"^\| ([0-9, ]+) \|", page, re.MULTILINE)
        self.statuses = {int(n) for row in rows for n in row.split(",")}
        self.template = base / "template"
        self.prepare()

    def environment(self, folder):
        return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder),
                "LANG": "C.UTF-8"}

    def prepare(self):
        self.template.mkdir()
        (self.base / "outside").write_text("as it was")
        (self.template / "text.txt").write_text("The quick brown fox jumps over a dog.\n" * 40)
        (self.template / "tokens.bin").write_bytes(bytes(range(16)) * 64)
        (self.template / "empty").write_text("")
        model = [w for flag in TINY for w in (flag, TINY[flag][0]) if flag != "--vocab"]
        bench = ["bench", *model, "--vocab", "16", "--context", "4", "--steps", "6"]
        for command in ([*bench, "--format", "json", "--output", "bench.json"],
                        [*bench, "--format", "csv", "--output", "bench.csv"],
                        ["train", "--text", "text.txt", "--tokenizer", "bytes", *model, "--context",
                         "8", "--batch", "2", "--steps", "2", "--save", "m.safetensors",
                         "--checkpoint", "checkpoints"]):
            subprocess.run([self.program, *command], cwd=self.template, check=True,
                           capture_output=True, env=self.environment(self.template))
        self.around = self.outside()

    def outside(self):
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns)
                for p in self.base.rglob("*") if p.relative_to(self.base).parts[0] != "work"}

    def run(self, words):
        """(status, stdout, stderr, whether it was asked to end); None as status: it did not."""
        folder = self.base / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        child = subprocess.Popen([self.program, *words], cwd=folder, env=self.environment(folder),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True,
                                 preexec_fn=before_start)
        for ending in (signal.SIGINT, signal.SIGKILL):
            try:
                out, err = child.communicate(timeout=self.seconds)
                return child.returncode, out, err, ending == signal.SIGKILL
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, ending)
        out, err = child.communicate()
        return None, out, err, True

    def fault(self, words):
        """What is wrong with it, in words that say where; empty: nothing."""
        status, out, err, was_asked = self.run(words)
        text, messages = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        self.counts["asked to end"] += was_asked
        self.counts[f"status {status}"] += 1
        if status is None:
            return "hangs: SIGINT did not end it"
        if status < 0 and not (was_asked and status == -signal.SIGINT):
            return f"signal {-status}"
        if status >= 0 and status not in self.statuses:
            return f"status {status} is not in the table"
        for bad in ("internal error", "mistake in tracestep", "terminate called", "Sanitizer"):
            if bad in messages or bad in text:
                return f"\"{bad}\""
        errors = [line for line in messages.splitlines() if line.startswith("tracestep: ")]
        if status == 2 and len(errors) != 1 or len(errors) > 1 and words[0] != "launch":
            return f"{len(errors)} error lines"
        for stream, content in (("stdout", out), ("stderr", err)):
            if re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", content):
                return f"control bytes on {stream}"
        if self.outside() != self.around:
            self.around = self.outside()
            return "something is written outside the folder"
        return self.wrong_result(text)

    def wrong_result(self, text):
        if text.startswith("{"):
            try:
                return self.wrong_peak(json.loads(text, parse_constant=lambda name: 1 / 0))
            except (ValueError, ZeroDivisionError):
                return "JSON that is none"
        cells = re.split(r"\s{2,}|[,|\n]", text)
        bad = [c for c in cells if re.fullmatch(r"\s*-?(nan|inf)(inity)?\s*", c, re.IGNORECASE)]
        return f"a cell says {bad[0].strip()}" if bad else ""

    def wrong_peak(self, result):
        for row in result.get("rows", []):
            if not isinstance(row, dict) or row.get("status") != "ok":
                continue
            measured = row.get("measured_peak_bytes", row.get("peak_bytes"))
            predicted = row.get("predicted_peak_bytes")
            if measured is None or predicted is None:
                continue
            self.counts["peaks compared"] += 1
            if measured != predicted:
                return f"a peak of {measured}, predicted {predicted}"
        return ""


def kind_of(fault):
    return re.sub(r"[0-9]+", "N", fault)


def shortest(runs, groups, fault):
    """The groups without those that do not matter to it; of one that hangs, all."""
    if fault.startswith("hangs"):
        return groups
    for group in groups[1:]:
        fewer = [g for g in groups if g is not group]
        if kind_of(runs.fault([w for g in fewer for w in g])) == kind_of(fault):
            groups = fewer
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tracestep")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    options = parser.parse_args()
    program = options.program.resolve()
    lines = Lines(program, random.Random(options.seed), [*filter(None, options.only.split(","))])
    faults = 0
    with tempfile.TemporaryDirectory() as base:
        runs = Runs(program, pathlib.Path(base), options.seconds)
        for number in range(options.count):
            groups = lines.draw()
            words = [w for group in groups for w in group]
            if any("\0" in w for w in words):
                continue
            fault = runs.fault(words)
            if not fault:
                continue
            faults += 1
            short = [w for g in shortest(runs, groups, fault) for w in g]
            print(f"{number}: {fault}: tracestep {shlex.join(short)}", flush=True)
    print(json.dumps({"runs": options.count, "faults": faults, **runs.counts}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
