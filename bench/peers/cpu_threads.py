#!/usr/bin/env python3
"""A step on 1, 2, 4, 8, 16 CPU threads: what each kind of kernel takes of it, beside its roof, and what bounds the whole.

The roofs are those that `tracestep profile` measures on as many threads: multiply-adds of the dtype, and bytes of the
fastest of copy, triad and update. A kind's floor is the sum of its kernels' times at their roofs; `bound by` names the
kind that takes most of the step, its roof, and how much of that it reaches. Nothing else should run on the machine.

    python3 bench/peers/cpu_threads.py --precision fp32,bf16 --markdown out/threads.md
    python3 bench/peers/cpu_threads.py --step "--model gpt2 --batch 1 --context 256" --threads 1,16 --budget 100
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("products", "attention", "update", "rest")


def kind_of(row):
    if row["class"] in ("matrix product", "attention"):
        return "products" if row["class"] == "matrix product" else "attention"
    return "update" if row["phase"] == "optimizer" else "rest"


def floor_of(row):
    """ms at the roof; of a kernel that its bytes or FLOPs do not bound, none."""
    return row["ms"] * min(row["roof_percent"] or 0.0, 100.0) / 100.0


def profiled(arguments, precision, threads, limit):
    command = [arguments.tracestep, "profile", *arguments.step.split(), "--mode", "step", "--precision", precision,
               "--ops", "fused", "--executor", "compiled", "--attention", "flash", "--device", "cpu", "--threads",
               str(threads), "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    if run.returncode:
        raise RuntimeError((run.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(run.stdout)["tables"]


def line_of(precision, threads, tables):
    step_ms = tables["clocks"]["rows"][0]["plain_wall_ms"]
    ms, floors, bounds = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0), {}
    for row in tables["matrix"]["rows"]:
        if row["ms"] is None or row["op"] is None:  # no kernel, but the time between them
            continue
        kind = kind_of(row)
        ms[kind] += row["ms"]
        floors[kind] += floor_of(row)
        by = bounds.setdefault(kind, {})
        by[row["bound"]] = by.get(row["bound"], 0.0) + row["ms"]
    most = max(KINDS, key=ms.get)
    roof = max(bounds[most], key=bounds[most].get)
    shown = [f"{ms[k]:.1f} ({100 * floors[k] / ms[k]:.0f} %)" if ms[k] else "–" for k in KINDS]
    between = max(0.0, step_ms - sum(ms.values()))
    bound = f"{most}: {100 * ms[most] / step_ms:.0f} % of the step, {100 * floors[most] / ms[most]:.0f} % of its {roof}"
    return [precision, str(threads), f"{step_ms:.1f}", *shown, f"{between:.1f}", f"{sum(floors.values()):.1f}", bound]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", metavar="FILE", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--step", default="--size small --batch 4 --context 128", help="flags of the model")
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--threads", default="1,2,4,8,16", help="those that the machine has not are left out")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="end by then, the most threads first")
    parser.add_argument("--markdown", metavar="FILE")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.budget if arguments.budget else float("inf")
    cores = len(os.sched_getaffinity(0))
    header = ["precision", "threads", "step ms", *(f"{k} ms (of roof)" for k in KINDS), "between ms", "floor ms", "bound by"]
    lines, failed = {}, []
    for threads in sorted({int(t) for t in arguments.threads.split(",") if int(t) <= cores}, reverse=True):
        for precision in arguments.precision.split(","):
            left = end - time.monotonic()
            if left < 3:
                failed.append(f"{precision}, {threads} threads: no time was left")
                continue
            try:
                tables = profiled(arguments, precision, threads, min(left, 600))
                lines[precision, threads] = line_of(precision, threads, tables)
                print(*lines[precision, threads], sep=" | ", file=sys.stderr, flush=True)
            except (RuntimeError, subprocess.TimeoutExpired, KeyError) as problem:
                failed.append(f"{precision}, {threads} threads: {problem}")
    rows = [lines[key] for key in sorted(lines)]
    text = "\n".join(["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]] +
                     ([""] + [f"- {what}" for what in failed] if failed else [])) + "\n"
    print(text, end="")
    if arguments.markdown:
        path = pathlib.Path(arguments.markdown)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {arguments.step}, by threads\n\n{text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
