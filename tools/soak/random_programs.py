#!/usr/bin/env python3
"""Random programs through every pass and both executors (tests/backends/random_checks.h).

Builds build/tests/random_programs and runs it on --count programs. Seeds are fixed: --seed N means
the programs N * 1000000 + 1 and so on. A program with a fault is printed with its own seed, and
again as small as it can be while it still has one; `build/tests/random_programs --seed S --count 1`
makes it again. The last line is a summary as JSON. Exit status 1: a fault.

Usage: tools/soak/random_programs.py [--count N] [--seed N] [--program PATH]
"""
import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", type=Path, help="random_programs; built when left out")
    args = parser.parse_args()
    if args.program is None:
        subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "random_programs"],
                       check=True, stdout=subprocess.DEVNULL)
        args.program = ROOT / "build/tests/random_programs"
    first = args.seed * 1000000 + 1
    return subprocess.run([args.program, "--seed", str(first), "--count", str(args.count)],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
