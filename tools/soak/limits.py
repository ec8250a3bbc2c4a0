#!/usr/bin/env python3
"""Runs the program where there is little: memory, a place for temporary files, shared memory.

Each run draws a command whose step needs a random part of what there is, or more, and one of: a
control group with that memory (made here, of version 1 or 2; as root), the same bound by RLIMIT_AS
where no group can be made, a full folder of temporary files (a tmpfs of 16 KiB), or no /dev/shm (a
read-only one that is empty). The command must end with status 0, or with one line and the status of
what it lacked: 4 in little memory, 5 without a place for files. No process may be ended by the system,
nothing may stay behind. Prints one line per fault and a summary in JSON; status 1 when there was one.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 300
MIB = 1 << 20
GROUPS = pathlib.Path("/sys/fs/cgroup")


class Fault(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Fault(what)


def model(width, layers):
    return ["--d-model", width, "--d-ff", 4 * width, "--layers", layers, "--heads", "4",
            "--vocab", "256", "--context", "64", "--threads", "1"]


def commands(folder):
    """Name: the command at a width, in float32; larger ones need more than any group here has."""
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    steps = ["--warmup", "0", "--steps", "1"]
    return {
        "bench": lambda w: ["bench", "--mode", "step", "--batch", "2", *steps, *model(w, 4)],
        "compiled": lambda w: ["bench", "--mode", "step", "--batch", "2", "--executor", "compiled",
                               *steps, *model(w, 4)],
        "ranks": lambda w: ["bench", "--mode", "step", "--batch", "2", "--parallel", "dp=2", *steps,
                            *model(w, 2)],
        "launch": lambda w: ["launch", "-n", "2", "--", "bench", "--mode", "step", "--batch", "2",
                             "--parallel", "dp=2", *steps, *model(w, 2)],
        "memory": lambda w: ["memory", "--mode", "step", "--batch", "2", *model(w, 4)],
        "profile": lambda w: ["profile", "--mode", "step", "--batch", "2", "--no-ceilings", "--steps",
                              "1", *model(w, 4)],
        "throughput": lambda w: ["throughput", "--mode", "step", "--batch", "2", "--steps", "3",
                                 *model(w, 4)],
        "train": lambda w: ["train", "--text", text, "--steps", "2", "--batch", "2", *model(w, 4)],
        "train with checkpoints": lambda w: ["train", "--text", text, "--steps", "2", "--batch", "2",
                                             "--checkpoint", folder / "run", "--overwrite",
                                             *model(w, 4)],
        "eval": lambda w: ["eval", "--text", text, "--batch", "2", *model(w, 4)],
        "generate": lambda w: ["generate", "--prompt-tokens", "1,2", "--max-tokens", "4",
                               *model(w, 4)[:-4], "--threads", "1"],
        "attention": lambda w: ["attention", "--batch", "2", "--width", "16", "--context", 2 * w,
                                "--steps", "1", "--threads", "1"],
        "comm": lambda w: ["comm", "--collective", "all_reduce", "--ranks", "2", "--calls", "2",
                           "--bytes", f"{w * w * 64}B"],
    }


class Group:
    """A control group of this script with a limit of memory; None where none can be made."""

    def __init__(self, path, limit_name):
        self.path, self.limit_name = path, limit_name

    @classmethod
    def make(cls):
        for base, name in ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max")):
            path = base / f"tracestep-limits-{os.getpid()}"
            try:
                path.mkdir()
                (path / name).write_text(str(64 * MIB))
                return cls(path, name)
            except OSError:
                if path.is_dir():
                    path.rmdir()
        return None

    def limit(self, size):
        (self.path / self.limit_name).write_text(str(size))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        events = self.path / ("memory.oom_control" if "limit_in" in self.limit_name
                              else "memory.events")
        for line in events.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        self.path.rmdir()


def run(program, words, folder, temporary, before):
    environment = {**os.environ, "TMPDIR": str(temporary), "TRACESTEP_LOG": "quiet"}
    try:
        return subprocess.run([program, *map(str, words)], cwd=folder, text=True,
                              capture_output=True, timeout=SECONDS, check=False, env=environment,
                              preexec_fn=before)
    except subprocess.TimeoutExpired as late:
        raise Fault(f"no end after {late.timeout} s") from late


def check_end(done, statuses):
    require(done.returncode in (0, *statuses),
            f"status {done.returncode}: {done.stderr.strip()[-300:]}")
    if done.returncode:
        ours = [line for line in done.stderr.splitlines() if line.startswith("tracestep: ")]
        # mpirun, which launch becomes, adds lines of its own.
        is_alone = len(done.stderr.strip().splitlines()) == 1 or "mpirun" in done.stderr
        require(len(ours) == 1 and ours[0].startswith("tracestep: [") and is_alone,
                f"not one line of error: {done.stderr!r}")


def in_little_memory(group, size, call):
    if group is None:
        return call(lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
    group.limit(size)
    killed = group.kills()
    done = call(group.enter)
    require(group.kills() == killed, f"the system ended a process of {size // MIB} MiB")
    return done


def one_run(program, group, counts):
    with tempfile.TemporaryDirectory(prefix="tracestep-limits-") as name:
        folder = pathlib.Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        kind = random.choices(["memory", "temporary", "shm"], [6, 1, 1])[0]
        makers = commands(folder)
        if kind == "temporary":  # mpirun, which launch becomes, keeps files of its own there
            del makers["launch"]
        make = random.choice(list(makers.values()))
        width = 8 * (random.randint(4, 125) if kind == "memory" else random.randint(2, 6))
        words = make(width)
        shown = f"{kind}: {' '.join(map(str, words))}"
        mounted = []

        def mount(path, *options):
            subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(path)], check=True)
            mounted.append(path)

        def call(before=None):
            return run(program, words, folder, temporary, before)

        try:
            if kind == "memory":
                size = random.randint(48, 400) * MIB
                shown += f" in {size // MIB} MiB"
                done = in_little_memory(group, size, call)
                check_end(done, [4])
            elif kind == "temporary":
                mount(temporary, "-o", "size=16k")
                (temporary / "full").write_bytes(bytes(16 << 10))
                done = call()
                check_end(done, [5])
                require([p.name for p in temporary.iterdir()] == ["full"], "something is left in TMPDIR")
            else:
                mount("/dev/shm", "-o", "ro,size=4k")
                done = call()
                check_end(done, [])
            if kind == "memory":
                require(not list(temporary.iterdir()), "something is left in TMPDIR")
            if done.returncode:
                left = {p.name for p in folder.iterdir()} - {"tmp", "text.txt"}
                require(not left, f"left behind: {sorted(left)}")
            counts["refused" if done.returncode else "done"] += 1
        except Fault as fault:
            print(f"{shown}: {fault}", flush=True)
            return 1
        finally:
            for path in mounted:
                subprocess.run(["umount", str(path)], check=False)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--count", type=int, default=50, help="runs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    if not options.inside:
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", "--mount", *as_root, sys.executable,
                              os.path.abspath(__file__), "--inside", "--seed", str(options.seed),
                              "--count", str(options.count), "--program", program])
    random.seed(options.seed)
    start = time.monotonic()
    group = Group.make()
    counts = {"done": 0, "refused": 0}
    try:
        faults = sum(one_run(program, group, counts) for _ in range(options.count))
    finally:
        if group is not None:
            group.remove()
    print(json.dumps({"battery": "limits", "runs": options.count, "faults": faults, **counts,
                      "bound": "control group" if group else "RLIMIT_AS",
                      "seconds": round(time.monotonic() - start, 1), "seed": options.seed}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
