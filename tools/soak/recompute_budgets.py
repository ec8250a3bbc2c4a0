#!/usr/bin/env python3
"""Recomputation under ten budgets each, for steps of all sizes and contexts, by prediction.

A budget must be met, at no more modelled time than every fixed choice (blocks, every=N, nested,
paths) that meets it, and one below the least peak must be refused with that peak. Nothing runs on
a device. The cells are all combinations in a fixed shuffle, and --seed says which COUNT of them.
Usage: recompute_budgets.py [--program build/tracestep] [--count CELLS] [--seed S]
"""
import argparse
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXES = {
    "--size": ["small", "medium", "large", "xl", "2.7B"],
    "--context": ["128", "256", "512", "1024"],
    "--precision": ["fp32", "bf16"],
    "--ops": ["fused", "primitive"],
    "--attention": ["naive", "flash"],
    "--executor": ["eager", "compiled"],
}
FIXED = ["none", "blocks", "every=2", "every=3", "every=4", "nested", "layers.*.ffn",
         "layers.*.attn"]
BUDGETS = 10


def cells():
    every = [dict(zip(AXES, values)) for values in itertools.product(*AXES.values())]
    random.Random(0).shuffle(every)
    return every


def predict(program, cell, choice):
    """(peak, modelled microseconds of what runs again), or the refusal's text"""
    flags = [word for pair in cell.items() for word in pair]
    run = subprocess.run([program, "memory", "--predict", *flags, "--threads", "2", "--recompute",
                          choice, "--tables", "recompute", "--format", "json"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return run.stderr
    result = json.loads(run.stdout)
    rows = result["tables"]["recompute"]["rows"]
    return result["rows"][0]["predicted_peak_bytes"], rows[0]["modelled_us"] if rows else 0.0


def faults_of(program, cell):
    fixed = {choice: predict(program, cell, choice) for choice in FIXED}
    least = min(peak for peak, _ in fixed.values())
    most = fixed["none"][0]
    for i in range(BUDGETS):
        budget = least + (most - least) * i // BUDGETS
        found = predict(program, cell, f"budget={budget}B")
        if isinstance(found, str):
            yield f"{budget} B: {found}"
            continue
        peak, us = found
        if peak > budget:
            yield f"{budget} B: a peak of {peak}"
        for choice, (other_peak, other_us) in fixed.items():
            if other_peak <= budget and us > other_us * (1 + 1e-9):
                yield f"{budget} B: {us} us, and {choice} takes {other_us}"
    refusal = predict(program, cell, "budget=1MiB")
    named = re.search(r"the least peak is .*\((\d+) B\)", str(refusal))
    if not named:
        yield f"1 MiB: {refusal}"
    elif predict(program, cell, f"budget={named[1]}B")[0] != int(named[1]):
        yield f"the least peak, {named[1]} B, is not met"
    elif not isinstance(predict(program, cell, f"budget={int(named[1]) - 1}B"), str):
        yield f"one byte less than the least peak, {named[1]} B, is met"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/tracestep")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    every = cells()
    faults = 0
    for i in range(args.count):
        cell = every[((args.seed - 1) * args.count + i) % len(every)]
        for fault in faults_of(args.program, cell):
            faults += 1
            print(*cell.values(), fault, flush=True)
    print(json.dumps({"battery": "recompute_budgets", "runs": args.count * BUDGETS,
                      "faults": faults, "ok": faults == 0}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
