#!/usr/bin/env python3
"""Runs the long batteries one after the other and writes a table of what they found.

    tools/soak/run.py [--scale 0.01] [--only signals,fuzz] [--output out/soak.md]

Never part of CI: at full scale they take hours. Each battery is a program of this folder whose last
line is a JSON summary; --scale multiplies how much each does.
"""
import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# (script, flag for how much, how much at full scale, what one of them is)
BATTERIES = [
    ("signals.py", "--count", 200, "of SIGTERM and SIGINT each, for train, bench, attention, precision"),
    ("kills_inside_saves.py", "--count", 200, "kills of training that saves every step"),
    ("damaged_folders.py", "--count", 100, "damaged checkpoint folders"),
    ("full_disks.py", "--count", 100, "runs on full disks"),
    ("safetensors_headers.py", "--count", 30000, "headers beside the reference library"),
    ("fuzz.py", "--runs", 1000000, "executions of every fuzz target"),
]


def summary_of(output):
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def run(script, flag, amount):
    begin = time.monotonic()
    done = subprocess.run([sys.executable, HERE / script, flag, str(amount)], text=True,
                          stdout=subprocess.PIPE)
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    summary = summary_of(done.stdout)
    summary.setdefault("seconds", round(time.monotonic() - begin, 1))
    return done.returncode, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="names of batteries, separated by commas")
    parser.add_argument("--output", default="out/soak.md")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    lines = ["| battery | what | runs | faults | seconds |", "|---|---|---|---|---|"]
    failed = False
    for script, flag, full, what in BATTERIES:
        name = script.removesuffix(".py")
        if only and name not in only:
            continue
        amount = max(1, round(full * options.scale))
        print(f"== {name}: {amount} {what}", flush=True)
        status, summary = run(script, flag, amount)
        failed |= status != 0
        faults = summary.get("faults", "?") if status == 0 else summary.get("faults", "broke off")
        lines.append(f"| {name} | {amount} {what} | {summary.get('runs', '?')} | {faults} "
                     f"| {summary['seconds']} |")
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    Path(options.output).write_text(
        f"# Long batteries\n\n{platform.machine()}, {platform.platform()}.\n\n" + "\n".join(lines)
        + "\n")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
