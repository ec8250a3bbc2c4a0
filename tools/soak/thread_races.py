#!/usr/bin/env python3
"""Data races: commands and tests under ThreadSanitizer.

Builds build-tsan/ (preset tsan: without MPI; half an hour on two cores)
and runs the tests of TESTS once, then --count commands, one after the other from COMMANDS, each with
two to four threads. A fault is a report of ThreadSanitizer, or a status that the command must not
have. The last line is a JSON summary. Exit status 1: a fault.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-tsan"
TESTS = ("base", "runtime", "exec", "session")
# These start threads in forked processes, which ThreadSanitizer cannot follow (SIGNALLED has signals).
WITHOUT = "--gtest_filter=-SignalsTest.*"
MODEL = "--d-model 32 --d-ff 48 --layers 2 --heads 2"
STEP = f"{MODEL} --vocab 64 --batch 4 --context 16"
TRAIN = f"train --text text --steps 4 {MODEL} --batch 4 --context 16"
COMMANDS = [
    TRAIN,
    f"{TRAIN} --executor arena",
    f"{TRAIN} --executor compiled",
    f"{TRAIN} --precision bf16 --attention flash",
    f"{TRAIN} --precision fp16 --accumulate 2",
    f"{TRAIN} --parallel dp=2 --checkpoint one --checkpoint-every 2 --overwrite",
    f"{TRAIN} --parallel dp=2,shard=1 --validate-every 2",
    f"{TRAIN} --parallel dp=2,shard=2 --executor compiled",
    f"{TRAIN} --parallel dp=2,shard=3 --checkpoint parts --checkpoint-every 2 --overwrite",
    f"{TRAIN} --parallel tp=2 --log log",
    f"{TRAIN} --parallel tp=2,sp --precision bf16",
    f"{TRAIN} --parallel dp=2,tp=2 --executor arena",
    f"{TRAIN} --parallel dp=2 --shards 4",
    f"{TRAIN} --recompute blocks --loss-chunks 4 --save weights",
    f"{TRAIN} --memory-limit 200KiB",
    "eval --text text --init weights --heads 2 --context 16 --batch 2",
    "generate --init weights --heads 2 --prompt step --max-tokens 20",
    f"bench {STEP} --mode inference,step --steps 3 --warmup 1",
    f"bench {STEP} --mode step --parallel dp=2,shard=2 --steps 3 --warmup 1",
    f"profile {STEP} --mode step --attention naive,flash --steps 3",
    f"memory {STEP} --mode step --recompute none,blocks",
    "attention --context 16,32 --width 16 --steps 2",
    "precision --part steps --size tiny --context 16 --steps 2",
    "comm --ranks 3 --bytes 4KiB,1MiB --calls 3",
]
# Signals at a random moment: to save, then to end.
SIGNALLED = TRAIN.replace("--steps 4", "--steps 1000000") + " --checkpoint run --overwrite"
FINE = (0, 4, 128 + signal.SIGTERM)


class Battery:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.runs = self.faults = 0

    def check(self, name, status, said, fine):
        self.runs += 1
        reports = said.count("WARNING: ThreadSanitizer")
        if reports == 0 and status in fine:
            return
        self.faults += max(1, reports)
        begin = max(0, said.find("WARNING: ThreadSanitizer"))
        print(f"fault: {name}: status {status}, {reports} reports\n{said[begin:begin + 4000]}",
              flush=True)

    def run(self, words, folder, fine, signals=()):
        options = dict(os.environ, TSAN_OPTIONS="halt_on_error=0 exitcode=66 die_after_fork=0")
        with subprocess.Popen(words, cwd=folder, env=options, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            for number in signals:
                time.sleep(self.random.uniform(1.0, 3.0))
                process.send_signal(number)
            said = process.communicate(timeout=3600)[0]
        self.check(" ".join(map(str, words)), process.returncode, said, fine)

    def command(self, text, folder, signals=()):
        threads = str(self.random.randint(2, 4))
        flag = [] if text.startswith("comm") else ["--threads", threads]
        self.run([BUILD / "tracestep", *text.split(), *flag], folder, FINE, signals)


def build():
    targets = ["tracestep", *(f"test_{name}" for name in TESTS)]
    for command in (["cmake", "--preset", "tsan"],
                    ["cmake", "--build", "--preset", "tsan", "--target", *targets]):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=len(COMMANDS), help="commands")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    build()
    battery = Battery(arguments.seed)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text").write_text("A step reads, adds and writes.\n" * 400)
        for name in TESTS:
            battery.run([BUILD / f"tests/test_{name}", "--gtest_brief=1", WITHOUT], folder, (0,))
        for i in range(arguments.count):
            battery.command(COMMANDS[i % len(COMMANDS)], folder)
            if i % len(COMMANDS) == 0:
                battery.command(SIGNALLED, folder, (signal.SIGUSR1, signal.SIGTERM))
    print(json.dumps({"battery": "thread_races", "runs": battery.runs, "faults": battery.faults,
                      "seconds": round(time.monotonic() - begin, 1)}))
    return 1 if battery.faults else 0


if __name__ == "__main__":
    sys.exit(main())
