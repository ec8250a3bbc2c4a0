#!/usr/bin/env python3
"""Holds predicted times to their word: calibrates this machine, predicts cells that the calibration
has not seen, runs them, and tells the errors.

    tools/soak/prediction.py [--program build/tracestep] [--threads N] [--only small] [--seed S]
                             [--output out/prediction.md]

The history of earlier checks is not used. Ends with 1 when the median error is above 8 % or the
90th percentile above 15 %. Needs a machine on which nothing else runs: about five minutes on two
cores. The last line is a JSON summary.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_MEDIAN, MOST_P90 = 8.0, 15.0  # percent

# Name -> flags of one grid. No size, width, vocabulary or context is one of the calibration's.
NARROW = ["--d-model", "256", "--d-ff", "1024", "--layers", "4", "--heads", "4", "--vocab", "256"]
MODES = "inference,forward,forward-backward,step"
GRIDS = {
    "tiny": [
        ["--size", "tiny", "--context", "64,128,256,512", "--mode", MODES,
         "--precision", "fp32,bf16,bf16-pure"],
        ["--size", "tiny", "--context", "128,256", "--mode", "forward,step",
         "--precision", "fp32,bf16", "--ops", "primitive", "--attention", "naive,flash"],
        ["--size", "tiny", "--context", "128,256", "--precision", "fp32,bf16,fp16",
         "--executor", "eager,compiled", "--recompute", "none,blocks,nested"],
    ],
    "narrow": [
        [*NARROW, "--context", "128,512", "--mode", MODES, "--precision", "fp32,bf16",
         "--ops", "primitive,fused"],
    ],
    "small": [
        ["--size", "small", "--context", "128", "--mode", "inference,forward-backward,step",
         "--precision", "fp32,bf16"],
        ["--size", "small", "--context", "128", "--precision", "fp32,bf16",
         "--executor", "compiled", "--recompute", "none,blocks"],
        ["--size", "small", "--context", "256", "--attention", "flash", "--precision", "fp32,bf16"],
        ["--size", "small", "--context", "512", "--mode", "forward"],
    ],
}


def percentile(values, p):
    ordered = sorted(values)
    at = p * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def tracestep(program, *arguments):
    run = subprocess.run([program, "predict", *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return run.stdout


def checked_cells(program, folder, grid, common):
    """The rows of the grid, predicted from the calibration alone and measured."""
    calibration = folder / "calibration.json"
    (folder / "calibration.history.jsonl").unlink(missing_ok=True)
    output = tracestep(program, *grid, *common, "--calibration", calibration, "--check",
                       "--no-spot-check", "--warmup", "1", "--steps", "3", "--format", "json")
    result = json.loads(output)
    return [row for row in result["rows"] if row["status"] == "ok"], result["environment"]


def write_report(path, rows, environment, seconds):
    lines = [
        "# Predicted and measured times", "",
        f"{environment['cpu']}, {environment['threads']} threads, {environment['tool']} "
        f"({environment['commit']}), {environment['date_utc']}. Made by `tools/soak/prediction.py` "
        f"in {seconds:.0f} s: the calibration has seen none of these cells, and no history corrects "
        "them.", "",
        "| cells | number | median error (%) | 90th percentile (%) | largest (%) |",
        "|---|---|---|---|---|"]
    groups = {"all": rows}
    for name in ("size", "mode", "precision", "ops", "attention", "executor", "recompute"):
        for row in rows:
            groups.setdefault(f"{name} {row['cell'][name]}", []).append(row)
    for name, group in groups.items():
        errors = [abs(row["error_percent"]) for row in group]
        lines.append(f"| {name} | {len(group)} | {statistics.median(errors):.1f} | "
                     f"{percentile(errors, 0.9):.1f} | {max(errors):.1f} |")
    lines += ["", "| cell | predicted (ms) | measured (ms) | error (%) |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['label']} | {row['predicted_ms']:.2f} | {row['measured_ms']:.2f} | "
                     f"{row['error_percent']:.1f} |")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/tracestep")
    parser.add_argument("--threads")
    parser.add_argument("--only", default="", help="names of grids, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the grids")
    parser.add_argument("--output", type=Path, default=ROOT / "out/prediction.md")
    options = parser.parse_args()
    begin = time.monotonic()
    common = ["--threads", options.threads] if options.threads else []
    grids = [grid for name, part in GRIDS.items() for grid in part
             if not options.only or name in options.only.split(",")]
    random.Random(options.seed).shuffle(grids)
    rows, environment = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tracestep(options.program, "--calibrate", "--calibration", folder / "calibration.json",
                  *common)
        print(f"calibrated in {time.monotonic() - begin:.0f} s", flush=True)
        for grid in grids:
            found, environment = checked_cells(options.program, folder, grid, common)
            errors = [abs(row["error_percent"]) for row in found]
            print(f"{' '.join(grid)}: median {statistics.median(errors):.1f} %", flush=True)
            rows += found
    seconds = time.monotonic() - begin
    write_report(options.output, rows, environment, seconds)
    errors = [abs(row["error_percent"]) for row in rows]
    median, p90 = statistics.median(errors), percentile(errors, 0.9)
    is_fine = median <= MOST_MEDIAN and p90 <= MOST_P90
    print(json.dumps({"runs": len(rows), "faults": 0 if is_fine else 1,
                      "median_percent": round(median, 2), "p90_percent": round(p90, 2),
                      "seconds": round(seconds, 1)}))
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
