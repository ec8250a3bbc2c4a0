#!/usr/bin/env python3
"""Steps in micro-batches of 1024 tokens a row, as LLM.Q publishes them on one H100, beside the published rates.

    bench/peers/micro_batches.py --tracestep build-cuda/tracestep                      # about five minutes on one H200
    bench/peers/micro_batches.py --rows 0.5b:bf16-pure,0.5b:fp8 --micro-batches 2      # some, in shorter steps
    bench/peers/micro_batches.py --device cpu --context 4 --micro-batches 2 --rows 0.5b:bf16-pure --steps 1

A published step has 524,288 tokens, AdamW's moments in bf16, and weights that LLM.Q stores in bf16 (here bf16-pure; bf16 and
fp8 have float32 weights beside). The rates are of its README, read in November 2026, and were not measured here; the GPU is
the one at hand. --micro-batches shortens all steps, whose update then weighs more. Exit status 1: a peak is not as predicted.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

from compare_gpu import find_program
from gpu_report import render

# model -> rows of a micro-batch, micro-batches of a step
SHAPES = {"0.5b": (32, 16), "1.5b": (16, 32), "3b": (8, 64), "7b": (4, 128), "14b": (2, 256)}
PUBLISHED = {("0.5b", "bf16"): 149000, ("1.5b", "bf16"): 59000, ("3b", "bf16"): 31000, ("7b", "bf16"): 14000, ("14b", "bf16"): 6300,
             ("0.5b", "fp8"): 164000, ("1.5b", "fp8"): 73000, ("7b", "fp8"): 19000, ("14b", "fp8"): 9300}
ROWS = "0.5b:bf16-pure,0.5b:bf16,0.5b:fp8,1.5b:bf16-pure,1.5b:bf16,1.5b:fp8,3b:bf16-pure,7b:bf16-pure"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", help="the program [default: of a build folder]")
    parser.add_argument("--rows", default=ROWS, help="MODEL:PRECISION, with commas")
    parser.add_argument("--micro-batches", type=int, help="at most so many in a step [default: the published]")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=290, help="seconds, behind which no row is begun")
    parser.add_argument("--flags", default="", help="more words for bench, of all rows")
    options = parser.parse_args()
    find_program(options)
    begin, table, wrong = time.monotonic(), [], []
    for row in options.rows.split(","):
        model, precision = row.split(":")
        batch, parts = SHAPES[model]
        parts = min(parts, options.micro_batches or parts)
        if time.monotonic() - begin > options.budget:
            wrong.append(f"{row}: not begun, the time is used")
            continue
        words = [options.tracestep, "bench", "--device", options.device, "--model", f"qwen2.5-{model}", "--context", options.context,
                 "--batch", batch, "--accumulate", parts, "--precision", precision, "--moments", "bf16", "--executor", "compiled",
                 "--attention", "flash", "--mode", "step", "--warmup", 1, "--steps", options.steps, "--roof", 0, "--format", "json",
                 *options.flags.split()]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        got = json.loads(done.stdout)["rows"][0] if done.returncode == 0 else {"status": done.stderr.strip().splitlines()[-1:]}
        if got["status"] != "ok":
            wrong.append(f"{row}: {got['status']} {got.get('detail') or ''}")
            continue
        ms = statistics.median(got["samples_ms"])
        rate = 1e3 * batch * parts * options.context / ms
        theirs = PUBLISHED.get((model, "fp8" if precision == "fp8" else "bf16"))
        if got["peak_bytes"] != got["predicted_peak_bytes"]:
            wrong.append(f"{row}: its peak is not as predicted")
        table.append([f"qwen2.5-{model}", precision, f"{batch} x {parts}", f"{ms:.1f}", f"{rate:,.0f}",
                      f"{theirs:,}" if theirs else "-", f"{rate / theirs:.3f}" if theirs else "-", f"{got['peak_bytes'] / 1e9:.2f}",
                      str(got["launches"])])
        print(f"[micro_batches] {time.monotonic() - begin:.0f} s: {' '.join(map(str, table[-1]))}", file=sys.stderr, flush=True)
    print(render(["model", "precision", "rows x micro-batches", "step ms", "tokens/s", "LLM.Q, published", "ratio", "peak GB",
                  "launches"], table))
    print("\n".join(wrong) or "All peaks are as predicted.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
