"""What the batteries on checkpoints share: a training of milliseconds, and their report."""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 16
SIZES = ["--vocab", str(VOCABULARY), "--d-model", "8", "--d-ff", "8", "--layers", "1", "--heads",
         "2", "--context", "4", "--lr", "0.01"]


class Training:
    """Runs `train` in `folder`, on tokens made from `seed`."""

    def __init__(self, program, folder, seed, batch=2):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = folder
        self.batch = batch
        numbers = random.Random(seed)
        tokens = [numbers.randrange(VOCABULARY) for _ in range(500)]
        (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))

    def command(self, steps, *more):
        return [self.program, "train", "--tokens", "tokens.bin", "--token-dtype", "uint16", *SIZES,
                "--batch", str(self.batch), "--threads", "1", "--format", "json", "--steps",
                str(steps), *more]

    def run(self, steps, *more):
        return subprocess.run(self.command(steps, *more), cwd=self.folder, capture_output=True,
                              text=True, errors="backslashreplace", check=False, timeout=300)

    def weights_of(self, steps):
        """The weights of an uninterrupted run."""
        name = f"whole-{steps}.safetensors"
        done = self.run(steps, "--save", name)
        if done.returncode != 0:
            sys.exit(f"an uninterrupted run of {steps} steps failed: {done.stderr}")
        return (self.folder / name).read_bytes()


def resumed_from(done):
    return json.loads(done.stdout)["rows"][0]["resumed_from"]


class Battery:
    """Counts runs and faults; finish() prints the summary and ends the program."""

    def __init__(self, name, description, count):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--program", default=str(ROOT / "build/tracestep"),
                            help="the program; build/tracestep")
        parser.add_argument("--count", type=int, default=count, help=f"runs; {count}")
        parser.add_argument("--seed", type=int, default=0, help="of what happens in them; 0")
        self.options = parser.parse_args()
        self.summary = {"battery": name, "runs": 0, "faults": 0}
        self.start = time.monotonic()

    def add(self, key, amount=1):
        self.summary[key] = self.summary.get(key, 0) + amount

    def check(self, is_right, text):
        if is_right:
            return
        self.add("faults")
        print(f"fault in run {self.summary['runs']} (seed {self.options.seed}): {text}", flush=True)

    def finish(self):
        self.summary["seconds"] = round(time.monotonic() - self.start, 1)
        print(json.dumps(self.summary))
        sys.exit(1 if self.summary["faults"] else 0)
