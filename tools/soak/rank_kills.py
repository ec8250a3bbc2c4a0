#!/usr/bin/env python3
"""Kills or stops one of the processes that train together, at random moments, some of them inside
a save, and continues in another form: other parts, processes or threads, and with fixed shards of the
batch another number of ranks.

The other processes must end within seconds, with a message that names the rank. In the end the
weights must be those of an uninterrupted run, to the bit, no saved step may be lost, and nothing
half-written be left.
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

from kills_inside_saves import leftovers, saved_step
from tiny_training import Battery, Training, resumed_from

STEPS = 200
# Forms of a training that end with the same bits, and the arguments that make them so.
FAMILIES = [(["dp=2", "dp=2,bucket=tensor", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3"], []),
            (["none", "dp=2", "dp=3", "dp=6"], ["--shards", "6"])]
TIMEOUT_S = 1.5
PATIENCE_S = 20


def ranks_in(form):
    return 1 if form == "none" else int(form.removeprefix("dp=").split(",")[0])


def command(training, form, in_processes, *more):
    words = training.command(STEPS, "--parallel", form, *more)
    if not in_processes or form == "none":
        return words
    return [words[0], "launch", "-n", str(ranks_in(form)), "--comm-timeout", str(TIMEOUT_S), "--",
            *words[1:]]


def run(training, form, in_processes, *more):
    return subprocess.run(command(training, form, in_processes, *more), cwd=training.folder,
                          capture_output=True, text=True, check=False, timeout=300)


def runs_program(process):
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    state = next(line for line in lines if line.startswith("State:"))
    return lines[0].split()[1] == "tracestep" and state.split()[1] not in "ZX"


def processes_below(mpirun):
    """Its children that run the program: one that is stopped before that would stop mpirun."""
    try:
        children = pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [int(child) for child in children if runs_program(child)]


def strike(battery, training, form, seconds, which, number, arguments):
    """Whether the signal met a process that was still there."""
    with subprocess.Popen(command(training, form, True, *arguments), cwd=training.folder,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as launch:
        time.sleep(seconds)
        processes = processes_below(launch.pid)
        if len(processes) == ranks_in(form):
            os.kill(processes[which], number)
        try:
            said = launch.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            # A rank that is stopped when the others are done has nobody to notice it.
            others = [process for process in processes if process != processes[which]]
            battery.check(not any(map(runs_program, others)),
                          f"still there {PATIENCE_S} s after {number.name} of rank {which}")
            if runs_program(processes[which]):
                os.kill(processes[which], signal.SIGKILL)
            launch.kill()
            return False
        if launch.returncode == 0 or len(processes) != ranks_in(form):
            return False
        is_said = f"rank {which}" in said or "[MPI] another process" in said
        battery.check(is_said, f"{number.name} of rank {which}: {said}")
        return True


def check_rest(battery, training, form, in_processes, arguments, expected):
    saved = saved_step(training.folder / "c")
    done = run(training, form, in_processes, *arguments, "--save", "w")
    battery.check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    if done.returncode != 0:
        return
    battery.check(resumed_from(done) >= saved,
                  f"went on from {resumed_from(done)}, though {saved} was saved")
    battery.check((training.folder / "w").read_bytes() == expected, "other weights")
    left = leftovers(training.folder / "c")
    battery.check(not left, f"left: {left}")


def main():
    battery = Battery("rank_kills", __doc__, 100)
    numbers = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        training = Training(battery.options.program, folder, battery.options.seed, batch=6)
        expected = []
        for forms, more in FAMILIES:
            whole = run(training, forms[-1], False, *more, "--save", "whole")
            battery.check(whole.returncode == 0, whole.stderr)
            expected.append((folder / "whole").read_bytes())
        while battery.summary["runs"] < battery.options.count:
            shutil.rmtree(folder / "c", ignore_errors=True)
            battery.add("runs")
            family = numbers.randrange(len(FAMILIES))
            forms, more = FAMILIES[family]
            arguments = [*more, "--checkpoint", "c", "--checkpoint-every",
                         str(numbers.choice([1, 10])), "--resume"]
            form = numbers.choice([form for form in forms if form != "none"])
            number = numbers.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            if strike(battery, training, form, numbers.uniform(0.2, 2.5),
                      numbers.randrange(ranks_in(form)), number, arguments):
                battery.add("struck")
                battery.add("inside_saves", 1 if leftovers(folder / "c") else 0)
            check_rest(battery, training, numbers.choice(forms), numbers.random() < 0.5, arguments,
                       expected[family])
    battery.finish()


if __name__ == "__main__":
    main()
