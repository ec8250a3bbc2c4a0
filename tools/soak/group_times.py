#!/usr/bin/env python3
"""How much longer or shorter a cell takes in a group of ten than alone.

    tools/soak/group_times.py [--device cpu] [--times 27] [--seconds S] [--rounds 1] [--cpus 4-5]
                              [--output out/group.md]

Ten cells, light and heavy, are measured in the rounds of one `bench` and each in a `bench` of its own,
in an order drawn by lot; so many --times, since another process of the same cell differs too. The
times of one turn are a pair, so that what changes slowly cancels; the ratio is the geometric mean of
the pairs and ± twice its standard error. Ends with 1 when one of the ten is more than 2 % off, and
by more than that error. Needs a machine on which nothing else runs.
"""
import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = {
    "cpu": ["--size", "tiny", "--vocab", "256", "--batch", "1", "--threads", "1", "--steps", "5",
            "--roof", "0"],
    "cuda": ["--device", "cuda", "--precision", "bf16", "--attention", "flash", "--executor",
             "compiled", "--steps", "10"],
}
CELLS = {
    "cpu": {"--mode": ("inference", "step"), "--context": ("16", "64", "128", "256", "512")},
    "cuda": {"--size": ("small", "medium"), "--context": ("64", "128", "256", "512", "1024")},
}


def measured(options, changes):
    """{(size, mode, context): median in ms} of one `bench` in a new process."""
    command = [options.program, "bench", *COMMON[options.device], "--rounds", str(options.rounds),
               "--format", "json", *changes]
    if options.cpus:
        command = ["taskset", "-c", options.cpus, *command]
    run = subprocess.run(command, text=True, capture_output=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}: {run.stderr}")
    return {(row["size"], row["mode"], row["context"]): row["median_ms"]
            for row in json.loads(run.stdout)["rows"]}


def one_time(options, lots):
    """The ten in a group, and alone."""
    axes = CELLS[options.device]
    jobs = [[word for flag, values in axes.items() for word in (flag, ",".join(values))]]
    jobs += [[word for both in zip(axes, cell) for word in both]
             for cell in itertools.product(*axes.values())]
    group, alone = {}, {}
    for job in lots.sample(jobs, len(jobs)):
        (group if job is jobs[0] else alone).update(measured(options, job))
    return group, alone


def paired(group, alone):
    """By how many percent the group's times are longer, and twice the standard error of that."""
    logs = [100 * math.log(both[0] / both[1]) for both in zip(group, alone)]
    return statistics.mean(logs), 2 * statistics.stdev(logs) / math.sqrt(len(logs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--device", default="cpu", choices=COMMON)
    parser.add_argument("--times", type=int, default=27)
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="after which no further time begins, from the third on")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cpus", default="", help="as taskset takes them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "out/group.md")
    options = parser.parse_args()
    lots = random.Random(options.seed)
    end = time.monotonic() + options.seconds
    runs = []
    while len(runs) < options.times and (len(runs) < 2 or time.monotonic() < end):
        runs.append(one_time(options, lots))
    lines = ["| cell | in the group (ms) | alone (ms) | group/alone (%) | ± |",
             "|---|---|---|---|---|"]
    faults, ratios = 0, []
    for cell in runs[0][0]:
        group, alone = ([run[side][cell] for run in runs] for side in (0, 1))
        percent, error = paired(group, alone)
        faults += abs(percent) > max(2, error)
        ratios.append(abs(percent))
        lines.append(f"| {' '.join(map(str, cell))} | {statistics.median(group):.3f} | "
                     f"{statistics.median(alone):.3f} | {percent:+.1f} | {error:.1f} |")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(json.dumps({"runs": len(ratios), "faults": faults,
                      "median_percent": round(statistics.median(ratios), 2),
                      "largest_percent": round(max(ratios), 2)}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
