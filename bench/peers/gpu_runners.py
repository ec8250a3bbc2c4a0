"""The runners of compare_gpu.py and compare_models.py, and what nvidia-smi says about the card.

A runner measures one *group* (a size, context and precision) in several modes and answers with
rows. PyTorch stays one process, since it starts slowly; tracestep is a process per group. Both
give back their memory before the other one's turn.
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
import typing

BENCH_GPU = pathlib.Path(__file__).resolve().parent / "pytorch" / "bench_gpu.py"
SMI_FIELDS = ("name", "driver_version", "memory.total", "memory.used", "clocks.sm", "clocks.mem",
              "clocks.max.sm", "temperature.gpu", "power.draw", "power.limit",
              "clocks_throttle_reasons.active")
# Bits of the throttle reasons that slow a card down; the others say idle or set by somebody.
SLOWED_BY = {0x4: "power limit", 0x8: "hardware slowdown", 0x20: "software thermal",
             0x40: "hardware thermal", 0x80: "power brake"}
START_SECONDS = 180  # importing torch and making its context


class Group(typing.NamedTuple):
    size: str
    context: int
    precision: str

    def __str__(self):
        return f"{self.size}@{self.context} {self.precision}"


class TimeIsUp(Exception):
    """The budget or the limit of one turn ended while a runner worked."""


def note(text):
    print(text, file=sys.stderr, flush=True)


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


def card_state(device):
    """What nvidia-smi says now of `cuda` or `cuda:N`, or {} where there is no such card."""
    command = ["nvidia-smi", f"--id={device.partition(':')[2] or 0}", "--format=csv,noheader,nounits",
               "--query-gpu=" + ",".join(SMI_FIELDS)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [v.strip() for v in result.stdout.strip().split(",")]
    if result.returncode != 0 or len(values) != len(SMI_FIELDS):
        return {}
    return dict(zip(SMI_FIELDS, values))


def slowed_by(state):
    """Why the card runs below its clocks, in words; [] when it does not."""
    try:
        active = int(state["clocks_throttle_reasons.active"], 16)
    except (KeyError, ValueError):
        return []
    return [text for bit, text in SLOWED_BY.items() if active & bit]


class Torch:
    """bench_gpu.py --serve as a child; a cell that hangs costs the child, not the comparison."""

    name = "torch"

    def __init__(self, python, arguments, script=BENCH_GPU, options=()):
        self.arguments = arguments
        self.command = [python, str(script), "--serve", "--device", arguments.torch_device,
                        *options]
        self.child, self.answers, self.about = None, None, None

    def start(self):
        """Starts the child and returns what it says about itself; raises RuntimeError."""
        errors = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=errors, text=True, bufsize=1)
        self.answers = queue.Queue()
        threading.Thread(target=self._listen, args=(self.child.stdout, self.answers),
                         daemon=True).start()
        try:
            self.about = self._next(time.monotonic() + START_SECONDS)
        except (TimeIsUp, RuntimeError) as problem:
            self.stop()
            errors.seek(0)
            raise RuntimeError(f"{self.command[0]}: {last_line(errors.read())}") from problem
        return self.about

    @staticmethod
    def _listen(stream, answers):
        for line in stream:
            answers.put(line)
        answers.put(None)

    def _next(self, deadline):
        try:
            line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeIsUp from None
        if line is None:
            raise RuntimeError("the PyTorch process ended")
        return json.loads(line)

    def rows(self, group, form, modes, deadline, counts=None):
        """Yields a row per mode as it comes; `counts`: steps of warm-up and timed ones. Raises TimeIsUp or RuntimeError."""
        if self.child is None or self.child.poll() is not None:
            self.start()
        a = self.arguments
        warmup, steps = counts or (a.warmup, a.steps)
        cell = {"batch": a.batch, "vocab": a.vocab, **group._asdict(), "form": form,
                "modes": list(modes), "warmup": warmup, "steps": steps, "seed": a.seed}
        self.child.stdin.write(json.dumps(cell) + "\n")
        try:
            while not (row := self._next(deadline)).get("end"):
                yield row
        except (TimeIsUp, RuntimeError):
            self.stop()
            raise

    def stop(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None


class Tracestep:
    """`tracestep bench`, one process per group and granularity, all modes in it."""

    name = "tracestep"

    def __init__(self, program, arguments):
        self.program, self.arguments = program, arguments
        self.environment = None  # of its first result

    def version(self):
        result = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        return last_line(result.stdout) if result.returncode == 0 else None

    def command(self, group, ops, modes, rows_file):
        a = self.arguments
        return [self.program, "bench", "--size", group.size, "--context", str(group.context),
                "--precision", group.precision, "--ops", ops, "--mode", ",".join(modes),
                "--device", a.device, "--batch", str(a.batch), "--vocab", str(a.vocab),
                "--warmup", str(a.warmup), "--steps", str(a.steps), "--seed", str(a.seed),
                "--format", "json", "--resume", rows_file, *a.tracestep_flags.split()]

    def rows(self, group, ops, modes, deadline):
        """Yields the rows at the end; raises TimeIsUp, where the process is ended, or RuntimeError."""
        with tempfile.TemporaryDirectory() as folder:
            command = self.command(group, ops, modes, os.path.join(folder, "rows.jsonl"))
            try:
                result = subprocess.run(command, capture_output=True, text=True,
                                        timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeIsUp from None
        answer = json.loads(result.stdout) if result.stdout.strip() else {}
        self.environment = self.environment or answer.get("environment")
        yield from answer.get("rows", [])
        if len(answer.get("rows", [])) < len(modes):
            raise RuntimeError(last_line(result.stderr) if result.returncode else "tracestep answered with too few rows")
