#!/usr/bin/env python3
"""Runs the program on disks that fill up while it writes, and looks at what it leaves behind.

Each run mounts a small tmpfs in a private mount namespace (root, or a machine that lets users have
namespaces of their own), lets a command write its files there once, takes all but a random part of
the space it needs away, and runs it again. The command must end with status 0 or 5, the latter with
a message; files of the first run must be whole, old or new; checkpoints must load; no temporary
file may stay. Prints one line per fault and a summary in JSON; status 1 when there was a fault.
"""
import argparse
import contextlib
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

MODEL = "--d-model 32 --d-ff 64 --layers 2 --heads 2".split()
GRID = ["bench", "--device", "null", "--warmup", "0", "--vocab", "50", *MODEL]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = 4096
SECONDS = 600


class Fault(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Fault(what)


def mount(*options):
    subprocess.run(["mount", *options], check=True)


class Disk:
    """A tmpfs whose size changes."""

    def __init__(self, path):
        self.path = path
        mount("-t", "tmpfs", "-o", "size=256m", "none", str(path))

    def used(self):
        info = os.statvfs(self.path)
        return (info.f_blocks - info.f_bfree) * info.f_frsize

    def resize(self, size):
        mount("-o", f"remount,size={max(size, PAGE)}", str(self.path))


class Run:
    def __init__(self, program, disk, inputs):
        self.program, self.disk, self.inputs = program, disk, inputs

    def call(self, arguments):
        try:
            return subprocess.run([self.program, *arguments], cwd=self.inputs, text=True,
                                  capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            raise Fault(f"no end after {late.timeout} s: {' '.join(arguments)}") from late

    def well(self, arguments):
        done = self.call(arguments)
        require(done.returncode == 0,
                f"status {done.returncode} with room enough: {' '.join(arguments)}: {done.stderr}")
        return done

    def squeezed(self, arguments, room):
        """Runs with `room` bytes free; whether it succeeded."""
        self.disk.resize(self.disk.used() + room)
        done = self.call(arguments)
        self.disk.resize(256 << 20)
        if done.returncode == 0:
            return True
        require(done.returncode == 5,
                f"status {done.returncode}: {' '.join(arguments)}: {done.stderr}")
        last = (done.stderr.strip().splitlines() or [""])[-1]
        require(last.startswith("tracestep: [") and "No space left" in last,
                f"no message about the disk: {done.stderr}")
        return False

    def files(self):
        return {str(p.relative_to(self.disk.path)): p.read_bytes()
                for p in sorted(self.disk.path.rglob("*")) if p.is_file()}

    def no_leftovers(self, expected):
        found = set(self.files())
        require(found <= expected, f"left behind: {sorted(found - expected)}")


def whole_file(name, first, second, check):
    """A command that writes one file, which appears whole or not at all."""

    def battery(run, room):
        path = str(run.disk.path / name)
        had_one = random.random() < 0.5
        if had_one:
            run.well([*first, path])
        before = run.files()
        # Twice the size of a file of the second kind is more than it needs.
        done = run.squeezed([*second, path], room(64 << 10))
        run.no_leftovers({name})
        after = run.files()
        if done:
            check(after[name])
        else:
            require(after == before, "the file of before is not as it was")

    return battery


def bench_output(run, room):
    grid = [*GRID, "--format", "json"]
    whole_file("grid.json", [*grid, "--context", "8", "--output"],
               [*grid, "--context", "8,16,32", "--output"], json.loads)(run, room)


def snapshot(run, room):
    kind = random.choice(["--snapshot", "--snapshot-json"])
    command = ["memory", "--device", "null", "--context", "16", "--vocab", "50", *MODEL]
    whole_file("step", [*command, "--mode", "forward", kind], [*command, "--mode", "step", kind],
               lambda content: require(content, "an empty snapshot"))(run, room)


def trace(run, room):
    command = ["profile", "--context", "8", "--warmup", "0", "--vocab", "50", "--threads", "1",
               *MODEL]
    whole_file("step.json.gz", [*command, "--mode", "inference", "--trace"],
               [*command, "--mode", "step", "--trace"],
               lambda content: json.loads(gzip.decompress(content)))(run, room)


def bench_resume(run, room):
    path = run.disk.path / "grid.jsonl"
    grid = [*GRID, "--steps", "300", "--resume", str(path)]
    if random.random() < 0.7:
        run.well([*grid, "--context", "8"])
    before = run.files().get(path.name, b"")
    run.squeezed([*grid, "--context", "8,16,32,64"], room(48 << 10))
    run.no_leftovers({path.name})
    after = run.files().get(path.name, b"")
    require(after.startswith(before), "rows of before are gone")
    require(after.endswith(b"\n") or not after, "a row is there in part")
    for line in after.splitlines():
        json.loads(line)
    run.well([*grid, "--context", "8,16,32,64"])
    require(path.read_bytes().startswith(after), "rows were measured again")


def train(run, room):
    folder = run.disk.path
    command = ["train", "--text", "text", "--batch", "2", "--context", "8", "--threads", "1",
               "--checkpoint", str(folder / "run"), "--checkpoint-every", "1", "--resume",
               "--log", str(folder / "log.jsonl"), "--save", str(folder / "model"), *MODEL]
    run.well([*command, "--steps", "2"])
    before = run.files()["model"]
    done = run.squeezed([*command, "--steps", "5"], room(3 << 20))
    require(not [name for name in run.files() if ".tmp" in name],
            f"left behind: {sorted(run.files())}")
    require(done or run.files()["model"] == before, "the weights of before are not as they were")
    run.well(["eval", "--text", "text", "--init", str(folder / "model"), "--heads", "2",
              "--batch", "2", "--context", "8", "--threads", "1"])
    run.well([*command, "--steps", "6"])
    lines = (folder / "log.jsonl").read_text().splitlines()
    require([json.loads(line)["step"] for line in lines] == list(range(1, 7)),
            "the log has other steps than 1 to 6")


def study(run, room):
    folder = run.disk.path
    command = ["study", "--quick", "--minutes", "0.05", "--train-steps", "1", "--threads", "1",
               "--output-dir", str(folder), "--overwrite"]
    reports = {"study.md", "study.json", "study.html"}
    for name in reports:
        (folder / name).write_text("before")
    run.squeezed(command, room(4 << 20))
    names = set(run.files())
    require(reports <= names and not [n for n in names if ".tmp" in n], f"files: {sorted(names)}")
    content = (folder / "study.json").read_text()
    require(content == "before" or json.loads(content), "a report in part")


# Names, and how many times each stands in a round.
BATTERIES = [(bench_output, 4), (bench_resume, 9), (snapshot, 4), (trace, 3),
             (train, 4), (study, 1)]


@contextlib.contextmanager
def fresh_disk():
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Disk(pathlib.Path(folder))
        finally:
            subprocess.run(["umount", folder], check=False)


def all_runs(program, count, seed):
    random.seed(seed)
    round_of = [battery for battery, times in BATTERIES for _ in range(times)]
    faults = squeezed = 0
    with tempfile.TemporaryDirectory() as inputs:
        for name in ("text", "README.md"):
            (pathlib.Path(inputs) / name).write_text("A step reads, adds and writes.\n" * 400)
        for i in range(count):
            if i % len(round_of) == 0:
                random.shuffle(round_of)
            battery = round_of[i % len(round_of)]
            # Often hardly any room, sometimes nearly enough.
            share = random.random() ** 2
            try:
                with fresh_disk() as disk:
                    battery(Run(program, disk, inputs), lambda most: int(share * most))
            except Fault as fault:
                faults += 1
                print(f"run {i} of seed {seed}, {battery.__name__}, {share:.4f} of the room: "
                      f"{fault}", flush=True)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--count", type=int, default=50, help="runs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", "--mount", *as_root, sys.executable,
                              os.path.abspath(__file__), "--inside", "--seed", str(options.seed),
                              "--count", str(options.count),
                              "--program", os.path.abspath(options.program)])
    start = time.monotonic()
    faults = all_runs(options.program, options.count, options.seed)
    print(json.dumps({"battery": "full_disks", "runs": options.count, "faults": faults,
                      "seconds": round(time.monotonic() - start, 1), "seed": options.seed}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
