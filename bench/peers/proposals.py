#!/usr/bin/env python3
"""Runs what `fit --gpus N` proposes, as it proposes it: does it fit as predicted, at the rate that was told?

    bench/peers/proposals.py --tracestep build-cuda/tracestep --gpus 2 --published H200
    bench/peers/proposals.py --device cpu --gpus 2 --models tiny --context 64 --published H200    # a dry run on CPUs

Status 1: a proposal does not run, its bytes are not as predicted on each rank, or (on GPUs) its rate is more than 10 % off.
"""
import argparse
import json
import shlex
import subprocess
import sys
import time

from compare_gpu import find_program
from gpu_report import render
from model_turns import course_sizes

MOST_OFF = 0.10


def json_of(words, limit):
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=max(1, limit))
    except subprocess.TimeoutExpired:
        return None, "too slow"
    said = done.stdout
    try:
        return json.loads(said[said.index("{"):said.rindex("}") + 1]), ""
    except ValueError:
        return None, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]


def run(model, options, left):
    """A line of the table, and problems."""
    name = ["--size" if model in course_sizes.SIZES else "--model", model]
    context = ["--context", options.context] if options.context else []
    plan, why = json_of([options.tracestep, "fit", *name, *context, "--published", options.published, "--gpus", options.gpus, "--format", "json"],
                        min(options.fit_seconds, left()))
    if plan is None or not plan["rows"]:
        return [model, *["-"] * 7], [f"{model}: nothing was proposed: {why}"]
    row = plan["rows"][0]
    words = shlex.split(row["command"])[1:]
    if options.device != "cuda":
        words = [options.device if w == "cuda" else w for w in words] + ["--threads", "1"]
    words += ["--warmup", options.warmup, "--steps", options.steps, "--roof", 0, "--format", "json"]
    ranks = ["launch", "-n", options.gpus, "--"] if options.gpus > 1 else []
    print(f"[proposals] {model}: {row['command']}", file=sys.stderr, flush=True)
    got, why = json_of([options.tracestep, *ranks, *words], min(options.run_seconds, left()))
    got = got["rows"][0] if got and got["rows"] else {"status": why}
    line = [model, row["flags"], f"{row['peak_bytes'] / 2**30:.2f}"]
    if got["status"] != "ok":
        return [*line, "-", f"{row['tokens_per_s']:,.0f}", "-", "-", "-"], [f"{model}: {got['status']} {got.get('detail') or ''}"]
    off = got["tokens_per_s"] / row["tokens_per_s"] - 1
    problems = []
    is_there = options.device == "cuda"  # where the plan was made for
    if got["predicted_peak_bytes"] != got["peak_bytes"] or (is_there and got["peak_bytes"] != row["peak_bytes"]):
        problems.append(f"{model}: peak {got['peak_bytes']}, of bench {got['predicted_peak_bytes']}, of fit {row['peak_bytes']}")
    if options.gpus > 1 and got.get("ranks_as_predicted") not in (None, options.gpus):
        problems.append(f"{model}: bytes of {got['ranks_as_predicted']} of {options.gpus} ranks are as predicted")
    if is_there and abs(off) > MOST_OFF:
        problems.append(f"{model}: its rate is {100 * off:+.1f} % off what was told")
    return [*line, f"{got['peak_bytes'] / 2**30:.2f}", f"{row['tokens_per_s']:,.0f}", f"{got['tokens_per_s']:,.0f}", f"{100 * off:+.1f}",
            f"{got['median_ms']:.1f}"], problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", help="the program [default: of a build folder]")
    parser.add_argument("--models", default="qwen2.5-7b,llama-3.1-8b")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--published", default="H200", help="the data sheet of the GPUs at hand")
    parser.add_argument("--context", type=int, help="[default: as fit chooses]")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--fit-seconds", type=float, default=60)
    parser.add_argument("--run-seconds", type=float, default=90)
    parser.add_argument("--budget", type=float, default=300, help="seconds for all")
    options = parser.parse_args()
    find_program(options)
    begin = time.monotonic()
    done = [run(model, options, lambda: options.budget - (time.monotonic() - begin)) for model in options.models.split(",")]
    print(render(["model", "proposed", "peak GiB, told", "measured", "tokens/s, told", "measured", "off %", "step ms"], [line for line, _ in done]))
    problems = [p for _, some in done for p in some]
    print("\n".join(f"WRONG  {p}" for p in problems) or "ok     all proposals run as predicted")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
