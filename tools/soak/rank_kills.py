#!/usr/bin/env python3
"""Kills or stops one of two processes that train together, at random moments, and continues in
another form: other parts, processes or threads.

The other process must end within seconds, with a message that names the rank. In the end the
weights must be those of an uninterrupted run, to the bit, and no saved step may be lost.
Usage: rank_kills.py [--program PATH] [--count N] [--seed S]
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

from kills_inside_saves import saved_step
from tiny_training import Battery, Training, resumed_from

STEPS = 400
FORMS = ["dp=2", "dp=2,bucket=tensor", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3"]
TIMEOUT_S = 1.5
PATIENCE_S = 20


def command(training, form, processes, *more):
    words = training.command(STEPS, "--parallel", form, *more)
    if not processes:
        return words
    return [words[0], "launch", "-n", "2", "--comm-timeout", str(TIMEOUT_S), "--", *words[1:]]


def ranks_of(mpirun):
    children = pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children")
    return [int(child) for child in children.read_text().split()]


def strike(battery, training, form, seconds, which, number, arguments):
    """Whether the signal met a process that was still there."""
    with subprocess.Popen(command(training, form, True, *arguments), cwd=training.folder,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as launch:
        time.sleep(seconds)
        try:
            ranks = ranks_of(launch.pid)
        except FileNotFoundError:
            ranks = []
        if len(ranks) == 2:
            os.kill(ranks[which], number)
        try:
            said = launch.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            battery.check(False, f"still there {PATIENCE_S} s after {number.name} of rank {which}")
            launch.kill()
            return True
        if launch.returncode == 0 or len(ranks) != 2:
            return False
        battery.check(f"rank {which}" in said, f"{number.name} of rank {which}: {said}")
        return True


def main():
    battery = Battery("rank_kills", __doc__, 100)
    numbers = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        training = Training(battery.options.program, folder, battery.options.seed)
        whole = subprocess.run(command(training, FORMS[0], False, "--save", "whole"), cwd=folder,
                               capture_output=True, text=True)
        battery.check(whole.returncode == 0, whole.stderr)
        expected = (folder / "whole").read_bytes()
        arguments = ["--checkpoint", "c", "--checkpoint-every", "10", "--resume"]
        while battery.summary["runs"] < battery.options.count:
            shutil.rmtree(folder / "c", ignore_errors=True)
            battery.add("runs")
            number = numbers.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            if strike(battery, training, numbers.choice(FORMS), numbers.uniform(0.4, 2.0),
                      numbers.randrange(2), number, arguments):
                battery.add("struck")
            saved = saved_step(folder / "c")
            done = subprocess.run(
                command(training, numbers.choice(FORMS), numbers.random() < 0.5, *arguments,
                        "--save", "w"), cwd=folder, capture_output=True, text=True, timeout=300)
            battery.check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
            if done.returncode != 0:
                continue
            battery.check(resumed_from(done) >= saved,
                          f"went on from {resumed_from(done)}, though {saved} was saved")
            battery.check((folder / "w").read_bytes() == expected, "other weights")
    battery.finish()


if __name__ == "__main__":
    main()
