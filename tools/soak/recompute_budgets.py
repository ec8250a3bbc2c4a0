#!/usr/bin/env python3
"""Recomputation under memory budgets, for steps of all sizes and contexts, by prediction.

Builds build/tests/recompute_budgets (tests/tools/recompute_budgets.cpp says what it checks) and runs
it on --count of the 384 cells, those that --seed says. The last line is a JSON summary.
Usage: recompute_budgets.py [--count CELLS] [--seed S] [--program PATH]
"""
import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, help="recompute_budgets; built when left out")
    args = parser.parse_args()
    if args.program is None:
        subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "recompute_budgets"],
                       check=True, stdout=subprocess.DEVNULL)
        args.program = ROOT / "build/tests/recompute_budgets"
    return subprocess.run([args.program, "--seed", str(args.seed), "--count", str(args.count)],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
