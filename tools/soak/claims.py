#!/usr/bin/env python3
"""Runs the command of every published claim as it is printed (docs/claims.md).

    tools/soak/claims.py --count 50

Each must end with status 0 and print something. Prints one line per fault and a summary in JSON;
status 1 when there was a fault.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="commands, of those there are")
    parser.add_argument("--seed", type=int, default=1, help="from which on, one seed a share")
    options = parser.parse_args()
    page = (ROOT / "docs/claims.md").read_text()
    commands = sorted(set(re.findall(r"^`tracestep (.+)`$", page, re.MULTILINE)))
    first = (options.seed - 1) * options.count
    chosen = commands[first:first + options.count]
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in chosen:
            run = subprocess.run([ROOT / "build/tracestep", *command.split()], cwd=folder,
                                 text=True, capture_output=True)
            if run.returncode != 0 or not run.stdout.strip():
                faults += 1
                print(f"tracestep {command}: status {run.returncode}\n{run.stderr}")
    print(json.dumps({"runs": len(chosen), "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
