#!/usr/bin/env python3
"""PyTorch's CPU attention (scaled_dot_product_attention) and tracestep's, in turns, and the ratios.

Batch 8, no heads, causal. Every cell of either side is a process of its own, round by round, so
that drift of the machine hits both alike. The share of peak counts 4·B·T²·D operations forward and
2.5 times as many backward, halved because of the mask, against multiply-adds on the same threads.

    python3 bench/peers/compare_attention_cpu.py --markdown out/attention.md
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from torch_peer import find_builds, note, run_child

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = pathlib.Path(__file__).resolve().parent / "pytorch" / "bench_attention.py"
PARTS = ("forward", "backward")


def numbers(text):
    return [int(n) for n in text.split(",")]


def flags_of(cell, arguments):
    width, context, precision = cell
    return ["--batch", str(arguments.batch), "--context", str(context), "--width", str(width),
            "--precision", precision, "--threads", str(arguments.threads),
            "--warmup", str(arguments.warmup), "--steps", str(arguments.steps),
            "--max-seconds", str(arguments.max_seconds)]


def run_torch(build, cell, arguments):
    environment = {"OMP_NUM_THREADS": str(arguments.threads)}
    output, _ = run_child([build["python"], str(BENCH), *flags_of(cell, arguments)], environment)
    row = json.loads(output.splitlines()[-1])
    return {part: row[f"{part}_ms"] for part in PARTS}


def run_tracestep(cell, arguments):
    output, _ = run_child([arguments.tracestep, "attention", *flags_of(cell, arguments),
                           "--attention", "flash", "--device", "cpu", "--format", "json"])
    row = json.loads(output)["rows"][0]
    if row["status"] != "ok":
        raise RuntimeError(f"tracestep says {row['status']}")
    return {part: row[f"{part}_samples_ms"] for part in PARTS}


def measure(build, cell, arguments):
    samples = {"torch": {p: [] for p in PARTS}, "tracestep": {p: [] for p in PARTS}}
    for _ in range(arguments.rounds):
        for name, run in (("torch", lambda: run_torch(build, cell, arguments)),
                          ("tracestep", lambda: run_tracestep(cell, arguments))):
            try:
                for part, ms in run().items():
                    samples[name][part] += ms
            except (RuntimeError, OSError, ValueError, KeyError) as problem:
                note(f"  {name} {cell}: {problem}")
    return samples


def peak_gflops(arguments):
    """Multiply-adds of independent accumulators, as `doctor --ceilings` times them."""
    output, _ = run_child([arguments.tracestep, "doctor", "--ceilings", "--threads",
                           str(arguments.threads), "--format", "json"])
    found = []

    def walk(node):
        if isinstance(node, dict):
            if isinstance(node.get("peak_gflops"), (int, float)):
                found.append(node["peak_gflops"])
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(json.loads(output))
    return statistics.median(found) if found else None


def table_of(results, arguments, peak):
    lines = [["precision", "D", "T", "part", "PyTorch ms", "tracestep ms", "PyTorch / tracestep",
              "min / min", "% of peak"]]
    for (width, context, precision), samples in results:
        for part, products in (("forward", 2), ("backward", 5)):
            ms = {name: samples[name][part] for name in samples}
            if not all(ms.values()):
                continue
            median = {name: statistics.median(values) for name, values in ms.items()}
            flops = products * arguments.batch * context * context * width
            share = 100e-6 * flops / min(ms["tracestep"]) / peak if peak else None
            lines.append([precision, str(width), str(context), part, f"{median['torch']:.3f}",
                          f"{median['tracestep']:.3f}",
                          f"{median['torch'] / median['tracestep']:.2f}",
                          f"{min(ms['torch']) / min(ms['tracestep']):.2f}",
                          "–" if share is None else f"{share:.0f}"])
    return lines


def markdown(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for index, line in enumerate(lines):
        text.append("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |")
        if index == 0:
            text.append("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=numbers, default=[16, 32, 64, 128])
    parser.add_argument("--context", type=numbers, default=[256, 1024, 4096, 8192])
    parser.add_argument("--precision", default="fp32,bf16-pure")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7, help="samples per round, at most")
    parser.add_argument("--max-seconds", type=float, default=4.0, help="of samples per round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / ".venv-oracle" / "bin" / "python"))
    parser.add_argument("--tracestep", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--realtime", action="store_true", help="run everything at real-time "
                        "priority (needs the right to): for a machine that others use, too")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.realtime:  # children inherit it, so it holds for both sides alike
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    builds = find_builds([arguments.python], arguments.threads)
    if not builds:
        raise SystemExit("[compare_attention_cpu] found no PyTorch; run tools/python_env")
    peak = peak_gflops(arguments)
    results = []
    for precision in arguments.precision.split(","):
        for width in arguments.width:
            for context in arguments.context:
                cell = (width, context, precision)
                results.append((cell, measure(builds[0], cell, arguments)))
                note("  " + " ".join(str(x) for x in cell))
    report = markdown(table_of(results, arguments, peak))
    report += (f"\ntorch {builds[0]['version']}, {arguments.threads} threads, batch "
               f"{arguments.batch}, causal; peak {peak or 0:.0f} GFLOP/s of float32 multiply-adds; "
               f"load average {os.getloadavg()[0]:.1f} at the end.\n")
    print(report, end="")
    if arguments.markdown:
        path = pathlib.Path(arguments.markdown)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report)
    if arguments.json:
        rows = [{"width": w, "context": c, "precision": p, "samples_ms": s}
                for (w, c, p), s in results]
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"schema": "tracestep.peers.attention-cpu/1", "peak_gflops": peak,
             "torch": builds[0]["version"], "rows": rows}, indent=1) + "\n")
    return 0 if all(all(s[n][p] for n in s for p in PARTS) for _, s in results) else 1


if __name__ == "__main__":
    sys.exit(main())
