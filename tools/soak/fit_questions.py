#!/usr/bin/env python3
"""Random questions of what makes a step fit, against every set of changes.

Builds build/tests/fit_questions (tests/lab/fit/fit_questions.h says what it checks) and asks
--count questions, those from --seed times a million on, of models with --layers layers where that
is given. The last line is a JSON summary.
Usage: fit_questions.py [--count N] [--seed S] [--layers L] [--program PATH]
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
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--program", type=Path, help="fit_questions; built when left out")
    args = parser.parse_args()
    if args.program is None:
        subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "fit_questions"],
                       check=True, stdout=subprocess.DEVNULL)
        args.program = ROOT / "build/tests/fit_questions"
    return subprocess.run([args.program, "--seed", str(args.seed), "--count", str(args.count),
                           "--layers", str(args.layers)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
