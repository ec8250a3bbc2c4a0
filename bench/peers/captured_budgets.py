#!/usr/bin/env python3
"""Steps of a captured model within budgets of memory, beside the step with all it needs, in one run, in turns.

The model is captured for planning, without weights: those of all steps are drawn from one seed. Then a round measures every
form: none, and the budgets, as shares of the full peak or sizes. Then each form trains the same few steps, on one GPU: their
losses and their weights (a hash of the file) must be the same.

    python3 bench/peers/captured_budgets.py --tracestep build-cuda/tracestep        # about two minutes on one H200
    python3 bench/peers/captured_budgets.py --module course --shape 1x64 --device cpu --precision fp32 --budgets 0.8 \\
        --steps 2 --rounds 1

Prints a table: step, its share of the full step, measured and predicted peak, and predicted time. Exit status 1: other bits,
a peak that is not as predicted or beyond its budget, or a step that takes longer than --most allows.
"""

import argparse
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from compare_gpu import find_program
from gpu_report import render

CAPTURE = pathlib.Path(__file__).resolve().parent / "pytorch" / "bench_captured.py"


START = time.monotonic()


def note(text):
    """Says on standard error how far the run is: it takes minutes, and a clock may cut it."""
    print(f"[captured_budgets] {time.monotonic() - START:.0f} s: {text}", file=sys.stderr, flush=True)


def run(words, **options):
    """What a command printed; the last line of its complaint where it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"[captured_budgets] {' '.join(map(str, words))}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def rows_of(words):
    return json.loads(run([*words, "--format", "json"]))["rows"]


def bytes_of(budget, full):
    """A share of the full peak, or a size in decimal gigabytes."""
    return int(float(budget.removesuffix("GB")) * 1e9) if budget.endswith("GB") else int(float(budget) * full)


def trained(program, flags, form, place, steps):
    """Losses of a few steps, and a hash of the weights behind them."""
    log, weights = place / "log.jsonl", place / "weights.safetensors"
    run([program, "train", *flags, "--recompute", form, "--steps", steps, "--log", log, "--save", weights, "--overwrite"])
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    digest = hashlib.sha256()
    with weights.open("rb") as file:
        while part := file.read(1 << 24):
            digest.update(part)
    log.unlink()
    weights.unlink()
    return [line["loss"] for line in lines if "loss" in line], digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", help="the program [default: of a build folder]")
    parser.add_argument("--python", default=sys.executable, help="one with torch and transformers")
    parser.add_argument("--module", default="llama-3.2-1b")
    parser.add_argument("--shape", default="4x2048", help="BATCHxCONTEXT")
    parser.add_argument("--program", help="a folder that was captured before, instead")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--budgets", default="0.8,21.4GB", help="shares of the full peak, or sizes")
    parser.add_argument("--most", default="1.08,1.13", help="how much of the full step each may take")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-steps", type=int, default=4, help="0: bits are not compared")
    options = parser.parse_args()
    find_program(options)
    if not (program := options.tracestep):
        raise SystemExit("[captured_budgets] there is no tracestep; build it, or say --tracestep FILE")
    with tempfile.TemporaryDirectory(prefix="tracestep-budgets-") as name:
        place = pathlib.Path(name)
        folder = options.program or place / "captured"
        if not options.program:
            batch, context = options.shape.split("x")
            run([options.python, CAPTURE, "--capture", f"{options.module},{batch},{context}", "--folder", folder])
        note("the program is there")
        step = ["--program", folder, "--precision", options.precision, "--executor", "compiled", "--attention", "flash",
                "--device", options.device]
        full = rows_of([program, "memory", "--predict", *step])[0]["predicted_peak_bytes"]
        forms = ["none", *(f"budget={bytes_of(b, full)}B" for b in options.budgets.split(","))]
        rows = rows_of([program, "bench", *step, "--recompute", ",".join(forms), "--rounds", options.rounds, "--warmup", 3,
                        "--steps", options.steps, "--roof", 0])
        note("steps are measured: " + ", ".join(f"{r['recompute']} {statistics.median(r['samples_ms'] or [0]):.2f} ms" for r in rows))
        for row in rows:
            if row["status"] != "ok":
                raise SystemExit(f"[captured_budgets] {row['recompute']}: {row['status']}, {row.get('detail')}")
        step_ms = {form: [statistics.median(r["samples_ms"]) for r in rows if r["recompute"] == form] for form in forms}
        most = {form: float(m) for form, m in zip(forms[1:], options.most.split(","))}
        table, wrong, wanted = [], [], None
        for form in forms:
            row = next(r for r in rows if r["recompute"] == form)
            ms = statistics.median(step_ms[form])
            ratio = ms / statistics.median(step_ms["none"])
            said = ["–", "–"]
            if options.train_steps:
                bits = trained(program, step, form, place, options.train_steps)
                wanted = wanted or bits
                note(f"{form} has trained {options.train_steps} steps")
                said = [f"{bits[0][-1]:.9g}", bits[1][:12]]
                if bits != wanted:
                    wrong.append(f"{form}: other losses or weights than without a budget")
            if row["peak_bytes"] != row["predicted_peak_bytes"]:
                wrong.append(f"{form}: its peak is not as predicted")
            if form != "none" and row["peak_bytes"] > int(form.removeprefix("budget=").rstrip("B")):
                wrong.append(f"{form}: its peak is beyond the budget")
            if ratio > most.get(form, ratio):
                wrong.append(f"{form}: {ratio:.3f} of the full step, {most[form]} at most")
            table.append([form, f"{ms:.2f}", f"{ratio:.3f}", f"{row['peak_bytes'] / 2**30:.2f}",
                          f"{row['predicted_peak_bytes'] / 2**30:.2f}", *said])
    print(render(["recompute", "step ms", "of the full step", "peak GiB", "predicted GiB", "last loss", "weights"], table))
    print("\n".join(wrong) or "All bits are those of the full step, and all peaks as predicted.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
