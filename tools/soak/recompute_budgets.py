#!/usr/bin/env python3
"""Recomputation under ten budgets each, and under the peaks of the fixed choices, for steps of all
sizes and contexts, by prediction.

A budget must be met, at no more modelled time than every fixed choice (blocks, every=N, nested,
paths) that meets it, and one below the least peak must be refused with that peak. Nothing runs on
a device. The cells are all combinations in a fixed shuffle, and --seed says which COUNT of them.
Prints a table of what the choices under a budget save of the time that the cheapest fixed choice
spends; the last line is a JSON summary.
Usage: recompute_budgets.py [--program build/tracestep] [--count CELLS] [--seed S]
"""
import argparse
import itertools
import json
import pathlib
import random
import re
import statistics
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


def faults_of(program, cell, shares):
    """What does not hold; adds to `shares` the time of each choice over that of the cheapest fixed
    one that meets the budget."""
    fixed = {choice: predict(program, cell, choice) for choice in FIXED}
    least = min(peak for peak, _ in fixed.values())
    most = fixed["none"][0]
    even = [least + (most - least) * i // BUDGETS for i in range(BUDGETS)]
    for budget in sorted({*even, *(peak for peak, _ in fixed.values())}):
        found = predict(program, cell, f"budget={budget}B")
        if isinstance(found, str):
            yield f"{budget} B: {found}"
            continue
        peak, us = found
        if peak > budget:
            yield f"{budget} B: a peak of {peak}"
        meeting = {choice: other for choice, (other_peak, other) in fixed.items()
                   if other_peak <= budget}
        best = min(meeting, key=meeting.get)
        if us > meeting[best] * (1 + 1e-9):
            yield f"{budget} B: {us} us, and {best} takes {meeting[best]}"
        if meeting[best] > 0:
            shares.append(us / meeting[best])
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
    shares = {}
    for i in range(args.count):
        cell = every[((args.seed - 1) * args.count + i) % len(every)]
        found = shares.setdefault(cell["--size"], [])
        for fault in faults_of(args.program, cell, found):
            faults += 1
            print(*cell.values(), fault, flush=True)
    print("| size | budgets | median (%) | least (%) | most (%) |\n|---|---|---|---|---|")
    for size, found in sorted(shares.items()):
        if not found:  # the least peak is that of the step as it is
            continue
        percent = [100 * f(found) for f in (statistics.median, min, max)]
        print(f"| {size} | {len(found)} | {percent[0]:.0f} | {percent[1]:.0f} | {percent[2]:.0f} |")
    print(json.dumps({"battery": "recompute_budgets", "runs": args.count * BUDGETS,
                      "faults": faults, "ok": faults == 0}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
