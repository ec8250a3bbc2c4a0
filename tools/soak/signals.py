#!/usr/bin/env python3
"""Ends commands by SIGTERM and SIGINT at random moments, as a person or a scheduler does.

A command must end with that signal's status and never crash. Training, which before that may be
asked to save by SIGUSR1, must leave a checkpoint from which it is resumed to the very bytes of an
uninterrupted run. The last line is a JSON summary; exit status 1 on any fault.
"""
import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = ["--d-model", "128", "--d-ff", "256", "--layers", "2", "--heads", "4"]
STEPS = 200
TRAIN = ["train", *MODEL, "--batch", "4", "--context", "64", "--steps", str(STEPS)]
MEASURING = {
    "bench": ["bench", *MODEL, "--batch", "4", "--context", "64", "--steps", "100000"],
    "attention": ["attention", "--context", "128,256", "--width", "16,64", "--steps", "100000"],
    "precision": ["precision", "--part", "steps", *MODEL, "--context", "64", "--steps", "100000"],
}
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}


class Battery:
    def __init__(self, program, seed):
        self.program = Path(program).resolve()
        self.random = random.Random(seed)
        self.runs = 0
        self.faults = []

    def start(self, arguments, folder):
        return subprocess.Popen([self.program, *arguments], cwd=folder, text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def fault(self, what):
        self.faults.append(what)
        print("fault:", what, flush=True)

    def check_end(self, name, number, process):
        try:
            error = process.communicate(timeout=120)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return self.fault(f"{name}: still running two minutes after signal {number}")
        self.runs += 1
        status = process.returncode
        if status not in (128 + number, -number):
            self.fault(f"{name}: status {status} after signal {number}: {error[-300:]}")

    def interrupt_measuring(self, command, number, folder):
        process = self.start(MEASURING[command], folder)
        time.sleep(self.random.uniform(0.05, 1.0))
        if process.poll() is not None:
            return self.fault(f"{command}: ended by itself: {process.stderr.read()[-300:]}")
        process.send_signal(number)
        self.check_end(command, number, process)

    def train_to_the_end(self, arguments, folder, what):
        process = self.start([*TRAIN, *arguments], folder)
        error = process.communicate()[1]
        if process.returncode != 0:
            self.fault(f"{what}: status {process.returncode}: {error[-300:]}")

    def interrupt_training(self, number, text, expected, folder):
        log, saved = folder / "log", folder / "saved"
        files = ["--text", str(text), "--checkpoint", str(folder / "run"), "--save", str(saved),
                 "--log", str(log)]
        process = self.start([*TRAIN, *files], folder)
        while process.poll() is None and not (log.exists() and log.stat().st_size > 0):
            time.sleep(0.001)
        time.sleep(self.random.uniform(0.0, 0.5))
        if process.poll() is None:
            for _ in range(self.random.randrange(3)):  # saves, and goes on
                process.send_signal(signal.SIGUSR1)
                time.sleep(self.random.uniform(0.0, 0.1))
            process.send_signal(number)
            self.check_end("train", number, process)
            if not (folder / "run" / "latest").exists():
                return self.fault(f"train: no checkpoint after signal {number}")
        self.train_to_the_end([*files, "--resume"], folder, "train --resume")
        if not saved.exists() or saved.read_bytes() != expected:
            self.fault(f"train: other weights after signal {number} and --resume")


def run(arguments):
    battery = Battery(arguments.program, arguments.seed)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        text = root / "text"
        words = battery.random.choices("the step of a model has many parts and bytes".split(), k=9000)
        text.write_text(" ".join(words))
        battery.train_to_the_end(["--text", str(text), "--save", str(root / "whole")], root, "train")
        expected = (root / "whole").read_bytes()
        for i in range(arguments.count):
            for number in SIGNALS.values():
                folder = root / f"run{i}"
                folder.mkdir()
                battery.interrupt_training(number, text, expected, folder)
                for command in MEASURING:
                    battery.interrupt_measuring(command, number, folder)
                shutil.rmtree(folder)
    print(json.dumps({"battery": "signals", "runs": battery.runs, "faults": len(battery.faults),
                      "seconds": round(time.monotonic() - begin, 1)}))
    return 1 if battery.faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/tracestep")
    parser.add_argument("--count", type=int, default=200, help="of each signal and command; 200")
    parser.add_argument("--seed", type=int, default=1)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
