#!/usr/bin/env python3
"""Kills training at random moments, most of them inside a save, and lets it continue.

The weights in the end must be those of an uninterrupted run, to the bit, and so must the best
checkpoint; no saved step may be lost, no line of the log be missing or there twice, and nothing
half-written be left.
Usage: kills_inside_saves.py [--program PATH] [--count N] [--seed S]
"""
import json
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

from tiny_training import Battery, Training, resumed_from

STEPS = 16


def saved_step(folder):
    """The step that `latest` names; 0 when there is none."""
    latest = folder / "latest"
    return int(latest.read_text().removeprefix("step-")) if latest.exists() else 0


def best_step(log):
    """What `best` should hold: the first step with the lowest validation loss."""
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    validated = [step for step in steps if "validation_loss" in step]
    return f"step-{min(validated, key=lambda step: step['validation_loss'])['step']:08}\n"


def leftovers(folder):
    return [p for p in folder.rglob(".*") if p.name != ".lock"] if folder.exists() else []


def seconds_of(training, steps, *arguments):
    start = time.monotonic()
    training.run(steps, *arguments)
    return time.monotonic() - start


def kill_after(training, seconds, arguments):
    """True when the kill came before the end."""
    with subprocess.Popen(training.command(STEPS, *arguments), cwd=training.folder,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def check_rest(battery, training, expected, saved, arguments):
    done = training.run(STEPS, *arguments)
    battery.check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    if done.returncode != 0:
        return
    battery.check("warning" not in done.stderr, f"said {done.stderr}")
    start = resumed_from(done)
    battery.check(start >= saved, f"went on from {start}, though {saved} was saved")
    battery.check((training.folder / "w").read_bytes() == expected, "other weights")
    best = best_step(training.folder / "log")
    battery.check((training.folder / "c/best").read_text() == best, "another best checkpoint")
    battery.check((training.folder / "c" / best.strip()).is_dir(), "the best checkpoint is lost")
    log = [json.loads(line)["step"] for line in (training.folder / "log").read_text().splitlines()]
    battery.check(log == list(range(1, STEPS + 1)), f"the steps of the log are {log}")
    battery.check(not leftovers(training.folder / "c"), f"left: {leftovers(training.folder / 'c')}")


def main():
    battery = Battery("kills_inside_saves", __doc__, 200)
    numbers = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        training = Training(battery.options.program, folder, battery.options.seed)
        validation = ["--validate-every", "2"]
        training.run(STEPS, "--save", "expected", *validation)
        expected = (folder / "expected").read_bytes()
        arguments = ["--checkpoint", "c", "--checkpoint-every", "1", "--resume", "--save", "w",
                     "--log", "log", *validation]
        before_saves = seconds_of(training, 1)
        whole = seconds_of(training, STEPS, *arguments)
        while battery.summary["runs"] < battery.options.count:
            shutil.rmtree(folder / "c")
            for _ in range(numbers.choice([1, 1, 2, 3])):
                if kill_after(training, numbers.uniform(before_saves, whole), arguments):
                    battery.add("kills")
                battery.add("inside_saves", 1 if leftovers(folder / "c") else 0)
            battery.add("runs")
            check_rest(battery, training, expected, saved_step(folder / "c"), arguments)
    battery.finish()


if __name__ == "__main__":
    main()
