#!/usr/bin/env python3
"""Bytes that a step moves, by the counters of a GPU, beside those that the program says: for each
rung of the ladder.

    tools/soak/measured_bytes.py [--program build-cuda/tracestep] [--ncu ncu] [--size small]
                                 [--context 512] [--rungs NAME,...] [--steps 3]
                                 [--output out/measured_bytes.md]

Runs `compile --part ladder` under Nsight Compute, which reads the counters of device memory around
the timed steps of each rung (ranges of cudaProfilerStart, one pass, nothing is repeated; the times
of such a run mean nothing). Modelled bytes count each operand of a kernel once, read or written;
counted ones are those that the caches did not keep. Ends with 1 when the counters cannot be read:
many machines allow that to root alone (ERR_NVGPUCTRPERM). The last line is a JSON summary.
"""
import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
GIB = 2.0**30


def count(options, folder):
    """The rows of the ladder, and for each of its ranges (bytes read, bytes written)."""
    log, result = folder / "ranges.csv", folder / "ladder.json"
    command = [options.ncu, "--replay-mode", "app-range", "--metrics", f"{READ},{WRITTEN}",
               "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
               str(options.program), "compile", "--device", "cuda", "--part", "ladder",
               "--size", options.size, "--context", str(options.context),
               "--steps", str(options.steps), "--warmup", "2", "--format", "json",
               "--output", str(result)]
    if options.rungs:
        command += ["--rungs", options.rungs]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = log.read_text().splitlines() if log.exists() else []
    if run.returncode != 0 or not result.exists():
        sys.exit("\n".join(lines[-10:]) + "\n" + run.stderr[-2000:])
    return json.loads(result.read_text())["rows"], ranges_of(lines)


def ranges_of(lines):
    """Of ncu's CSV, which has a line of units below that of names and messages in front of both."""
    table = [line for line in lines if line.startswith('"')]
    rows = list(csv.DictReader(table))[1:]
    return [tuple(float(row[name].replace(",", "")) for name in (READ, WRITTEN)) for row in rows]


def table_of(ladder, ranges, steps):
    out = ["| rung | modelled | read | written | of modelled |", "|---|---|---|---|---|"]
    for row, (read, written) in zip(ladder, ranges, strict=True):
        modelled = row["moved_bytes"]
        read, written = read / steps, written / steps
        out.append(f"| {row['rung']} | {modelled / GIB:.2f} GiB | {read / GIB:.2f} GiB | "
                   f"{written / GIB:.2f} GiB | {(read + written) / modelled:.2f} |")
    return out


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", type=Path, default=ROOT / "build-cuda" / "tracestep")
    options.add_argument("--ncu", default="ncu")
    options.add_argument("--size", default="small")
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--rungs", default="")
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--output", type=Path, default=ROOT / "out" / "measured_bytes.md")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ladder, ranges = count(options, Path(folder))
    lines = table_of(ladder, ranges, options.steps)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    moved = sum(row["moved_bytes"] for row in ladder) * options.steps
    counted = sum(read + written for read, written in ranges)
    print(json.dumps({"rungs": len(ladder), "counted_of_modelled": round(counted / moved, 3)}))


if __name__ == "__main__":
    main()
