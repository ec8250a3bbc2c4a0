#!/usr/bin/env python3
"""Holds predicted times to their word: calibrates this machine, predicts cells that the calibration
has not seen, runs them, and tells the errors.

    tools/soak/prediction.py [--program build/tracestep] [--device cpu] [--threads N] [--only small]
                             [--rounds N] [--seed S] [--output out/prediction.md] [--folder FOLDER] [--seconds N]

On a GPU predict times products of the cells' sizes by themselves first, as it always does there; no
cell runs before it is predicted. The history of earlier checks is not used. Every cell is measured in several rounds, which go
through all cells each, and its quietest counts, as in a calibration: a shared machine is slower for
minutes at a time. How far apart rounds were is in the table. Ends with 1 when the errors are above
the targets of docs/predict.md. Needs a machine on which nothing else runs: about eight minutes on
two cores, two on a GPU. With --folder and --seconds that may be several times a minute: a call goes
on where the one before ended. The last line is a JSON summary.
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
# Most errors in percent: of the median, and of the largest or the 90th percentile.
MOST_ERROR = {"cpu": (8.0, 1.0, 15.0), "cuda": (4.0, 0.9, 10.0)}
ROUNDS = {"cpu": 3, "cuda": 1}
WARMUP = {"cpu": 1, "cuda": 6}  # steps: a GPU is predicted as it runs for long, at its power limit

# Name -> flags of one grid. No size, width, vocabulary or context is one of the calibration's.
NARROW = ["--d-model", "256", "--d-ff", "1024", "--layers", "4", "--heads", "4", "--vocab", "256"]
MODES = "inference,forward,forward-backward,step"
CPU_GRIDS = {
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
    "batches": [
        ["--size", "tiny", "--batch", "1", "--context", "96,384", "--precision", "fp32,bf16"],
        ["--size", "tiny", "--batch", "8", "--context", "96", "--precision", "fp32,bf16",
         "--executor", "eager,compiled"],
        ["--size", "tiny", "--batch", "2", "--context", "512", "--attention", "flash",
         "--executor", "eager,compiled", "--precision", "fp32,bf16"],
        ["--d-model", "512", "--d-ff", "1536", "--layers", "2", "--heads", "4", "--vocab", "4096",
         "--context", "192", "--mode", "inference,step", "--precision", "fp32,bf16",
         "--attention", "naive,flash"],
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
CUDA_GRIDS = {
    "small": [
        ["--size", "small", "--context", "128,512,1024", "--mode", "inference,step",
         "--precision", "fp32,bf16", "--executor", "eager,compiled"],
        ["--size", "small", "--context", "256", "--mode", "forward,step", "--precision", "fp32,bf16",
         "--ops", "primitive"],
    ],
    "medium": [
        ["--size", "medium", "--context", "256,1024", "--precision", "fp32,bf16",
         "--executor", "eager,compiled", "--recompute", "none,blocks"],
        ["--size", "medium", "--context", "512", "--attention", "flash", "--precision", "fp32,bf16"],
    ],
    "xl": [
        ["--size", "large,xl", "--context", "512", "--precision", "fp32,bf16",
         "--executor", "eager,compiled"],
    ],
}
GRIDS = {"cpu": CPU_GRIDS, "cuda": CUDA_GRIDS}


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


def rows_of(program, folder, grid, common, *more):
    """The rows of the grid, predicted from the calibration alone; with --check also measured."""
    calibration = folder / "calibration.json"
    (folder / "calibration.history.jsonl").unlink(missing_ok=True)
    output = tracestep(program, *grid, *common, "--calibration", calibration, "--no-spot-check",
                       "--format", "json", *more)
    result = json.loads(output)
    return [row for row in result["rows"] if row["status"] == "ok"], result["environment"]


def quietest(rounds):
    """One row for each cell, from its rows of all rounds."""
    by_label = {}
    for row in rounds:
        by_label.setdefault(row["label"], []).append(row)
    out = []
    for rows in by_label.values():
        row = min(rows, key=lambda r: r["measured_ms"])
        row["error_percent"] = 100 * (row["predicted_ms"] / row["measured_ms"] - 1)
        slowest = max(r["measured_ms"] for r in rows)
        row["rounds_percent"] = 100 * (slowest / row["measured_ms"] - 1)
        out.append(row)
    return out


def device_name(environment):
    gpu = environment.get("gpu")
    return gpu or f"{environment['cpu']}, {environment['threads']} threads"


def waits_for_host(row):
    """On a GPU: a host that launches slowly widens the band of steps that wait for it."""
    return row["cell"]["device"].startswith("cuda") and row["high_ms"] > 1.1 * row["predicted_ms"]


def is_in_band(row):
    return row["low_ms"] <= row["measured_ms"] <= row["high_ms"]


def write_report(path, rows, environment, rounds, seconds):
    lines = [
        "# Predicted and measured times", "",
        f"{device_name(environment)}, {environment['tool']} ({environment['commit']}), "
        f"{environment['date_utc']}. Made by `tools/soak/prediction.py` in {seconds:.0f} s: the "
        f"calibration has seen none of these cells, and no history corrects them. Measured in "
        f"{rounds} rounds, of which the quietest counts. {sum(map(is_in_band, rows))} of {len(rows)} "
        f"lie within their band.", "",
        "| cells | number | median error (%) | 90th percentile (%) | largest (%) | median distance of "
        "rounds (%) |",
        "|---|---|---|---|---|---|"]
    groups = {"all": rows}
    for row in rows:
        name = "wait for the host, by their band" if waits_for_host(row) else "others"
        groups.setdefault(name, []).append(row)
    for name in ("size", "mode", "precision", "ops", "attention", "executor", "recompute"):
        for row in rows:
            groups.setdefault(f"{name} {row['cell'][name]}", []).append(row)
    for name, group in groups.items():
        errors = [abs(row["error_percent"]) for row in group]
        distance = statistics.median(row["rounds_percent"] for row in group)
        lines.append(f"| {name} | {len(group)} | {statistics.median(errors):.1f} | "
                     f"{percentile(errors, 0.9):.1f} | {max(errors):.1f} | {distance:.1f} |")
    lines += ["", "| cell | predicted (ms) | band (ms) | measured (ms) | error (%) | rounds apart (%) |",
              "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['label']} | {row['predicted_ms']:.2f} | {row['low_ms']:.2f} to "
                     f"{row['high_ms']:.2f} | {row['measured_ms']:.2f} | "
                     f"{row['error_percent']:.1f} | {row['rounds_percent']:.1f} |")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def precisions_of(grids):
    return ",".join(sorted({p for grid in grids if "--precision" in grid
                            for p in grid[grid.index("--precision") + 1].split(",")}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/tracestep")
    parser.add_argument("--device", default="cpu", choices=GRIDS)
    parser.add_argument("--threads")
    parser.add_argument("--only", default="", help="names of grids, separated by commas")
    parser.add_argument("--rounds", type=int, help="that go through all cells")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the grids")
    parser.add_argument("--folder", type=Path,
                        help="keep calibration and rows there, and go on with what it has")
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="after which no grid is begun; the next call goes on")
    parser.add_argument("--output", type=Path, default=ROOT / "out/prediction.md")
    options = parser.parse_args()
    begin = time.monotonic()
    device = ["--device", options.device]
    device += ["--threads", options.threads] if options.threads else []
    common = [*device, "--warmup", str(WARMUP[options.device])]
    rounds = options.rounds or ROUNDS[options.device]
    order = random.Random(options.seed)
    grids = [grid for name, part in GRIDS[options.device].items() for grid in part
             if not options.only or name in options.only.split(",")]
    turns = [grid for _ in range(rounds) for grid in order.sample(grids, len(grids))]
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "rows.json"
        state = {"done": 0, "rows": [], "environment": {}, "seconds": 0}
        if kept.exists():
            state = json.loads(kept.read_text())
        if not (folder / "calibration.json").exists():
            tracestep(options.program, "--calibrate", "--calibration", folder / "calibration.json",
                      "--precision", precisions_of(grids), *device)
            print(f"calibrated in {time.monotonic() - begin:.0f} s", flush=True)
        for grid in turns[state["done"]:]:
            if time.monotonic() - begin > options.seconds:
                break
            found, state["environment"] = rows_of(options.program, folder, grid, common,
                                                  "--check", "--steps", "3")
            errors = [abs(row["error_percent"]) for row in found]
            print(f"{' '.join(grid)}: median {statistics.median(errors):.1f} %", flush=True)
            state["rows"] += found
            state["done"] += 1
            kept.write_text(json.dumps(state))
        state["seconds"] += time.monotonic() - begin
        kept.write_text(json.dumps(state))
    measured, environment = state["rows"], state["environment"]
    if state["done"] < len(turns):
        print(f"{state['done']} of {len(turns)} turns are done", flush=True)
    rows = quietest(measured)
    seconds = state["seconds"]
    write_report(options.output, rows, environment, rounds, seconds)
    errors = [abs(row["error_percent"]) for row in rows]
    median, p90 = statistics.median(errors), percentile(errors, 0.9)
    most_median, p, most_of_p = MOST_ERROR[options.device]
    is_fine = median <= most_median and percentile(errors, p) <= most_of_p
    print(json.dumps({"runs": len(rows), "faults": 0 if is_fine else 1,
                      "median_percent": round(median, 2), "p90_percent": round(p90, 2), "largest_percent": round(max(errors), 2),
                      "within_band": sum(map(is_in_band, rows)),
                      "seconds": round(seconds, 1)}))
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
