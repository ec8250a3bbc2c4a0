#!/usr/bin/env python3
"""Validation losses of 1,000 steps on real text: Muon, and AdamW without master copies, beside AdamW's curve.

    bench/peers/muon_curve.py [--program build-cuda/tracestep] [--device cuda] [--output bench/results/muon-curve.md] [--tiny]

A Llama of some 30 M parameters over bytes learns the sources in C++ under src/. The last 5 % are held out and read whole every
100 steps. Runs of one seed have the same first weights and the same batches. Columns: AdamW in bf16 with float32 weights; Muon
with AdamW's rate (match_rms_adamw), with three times it, and with its mean in bfloat16; AdamW on bfloat16 weights alone, whose updates are rounded
at random (no master copies: bf16-pure, --rounding random, --moments bf16), and to nearest. Must hold: every loss is finite;
the better rate of Muon ends below AdamW; its mean in bfloat16 ends within 1 % of float32's; without masters, rounded at random, the end is within 2 % of AdamW's, and below that of rounding to
nearest. Ends with 1 where one does not."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import time

import numpy

NORMAL = dict(width=512, ff=1408, layers=9, heads=8, context=256, batch=32, steps=1000, every=100, rate=1e-3)
TINY = dict(width=64, ff=96, layers=2, heads=2, context=64, batch=4, steps=60, every=20, rate=3e-3)
RUNS = {"AdamW": ["--precision", "bf16"],
        "Muon": ["--precision", "bf16", "--optimizer", "muon"],
        "Muon, three times the rate": ["--precision", "bf16", "--optimizer", "muon"],
        "Muon, bf16 mean": ["--precision", "bf16", "--optimizer", "muon", "--moments", "bf16"],
        "no masters, at random": ["--precision", "bf16-pure", "--rounding", "random", "--moments", "bf16"],
        "no masters, to nearest": ["--precision", "bf16-pure", "--rounding", "nearest", "--moments", "bf16"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="build-cuda/tracestep")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--root", type=pathlib.Path, default=".")
    parser.add_argument("--folder", type=pathlib.Path, default="/tmp/muon-curve")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    size, folder = TINY if options.tiny else NORMAL, options.folder.resolve()
    folder.mkdir(parents=True)
    root, program = options.root.resolve(), options.program.resolve()
    paths = sorted(p for suffix in ("cpp", "h", "cu", "cuh") for p in root.glob(f"src/**/*.{suffix}"))
    text = numpy.frombuffer("\n".join(p.read_text() for p in paths).encode(), dtype=numpy.uint8).astype(numpy.uint16)
    text.tofile(folder / "text.bin")

    def curve(name, seed):
        """Validation losses, and milliseconds of a step in the median."""
        log = folder / "log"
        rate = size["rate"] * (3 if "three times" in name else 1)
        words = [program, "train", "--tokens", "text.bin", "--token-dtype", "uint16", "--vocab", 256, "--d-model", size["width"],
                 "--d-ff", size["ff"], "--layers", size["layers"], "--heads", size["heads"], "--context", size["context"], "--batch",
                 size["batch"], "--steps", size["steps"], "--lr", rate, "--schedule", "cosine", "--lr-min", rate / 10,
                 "--warmup-steps", size["steps"] // 20, "--weight-decay", 0.1, "--weight-decay-on", "matrices", "--clip", 1, "--beta2",
                 0.95, "--seed", seed, "--validate-every", size["every"], "--attention", "flash", "--device", options.device, "--log", log,
                 "--format", "json", *RUNS[name]]
        log.unlink(missing_ok=True)
        done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: status {done.returncode}: {done.stderr[-800:]}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        rates = sorted(line["tokens_per_s"] for line in lines if line.get("tokens_per_s"))
        return ([line["validation_loss"] for line in lines if line.get("validation_loss") is not None],
                1e3 * size["batch"] * size["context"] / rates[len(rates) // 2])

    begin, curves, times = time.monotonic(), {}, {}
    for seed in range(options.seeds):
        for name in RUNS:
            curves[name, seed], times[name] = curve(name, seed)
            print(f"{name}, seed {seed}: {curves[name, seed][0]:.4f} … {curves[name, seed][-1]:.4f}, {times[name]:.2f} ms a step "
                  f"({time.monotonic() - begin:.0f} s)", flush=True)
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip().splitlines()[-1]
    heads = [name if options.seeds == 1 else f"{name}, seed {seed}" for name in RUNS for seed in range(options.seeds)]
    rows = [f"| {(i + 1) * size['every']} | " + " | ".join(f"{curves[name, seed][i]:.4f}" for name in RUNS for seed in range(options.seeds)) + " |"
            for i in range(size["steps"] // size["every"])]
    ends = {name: [curves[name, seed][-1] for seed in range(options.seeds)] for name in RUNS}
    wrong = [f"{name}: a loss that is not finite" for (name, seed), losses in curves.items() if not all(map(math.isfinite, losses))]
    for adamw, muon, fast, narrow, random, nearest in zip(*(ends[name] for name in RUNS)):
        wrong += [f"Muon ends at {min(muon, fast):.4f}, AdamW at {adamw:.4f}"] if min(muon, fast) >= adamw else []
        wrong += [f"Muon ends at {muon:.4f}, with its mean in bfloat16 at {narrow:.4f}"] if abs(narrow / muon - 1) > 0.01 else []
        wrong += [f"without masters the end is {random:.4f}, with them {adamw:.4f}"] if random > 1.02 * adamw else []
        wrong += [f"rounded at random the end is {random:.4f}, to nearest {nearest:.4f}"] if random >= nearest else []
    lines = ["# Muon, and AdamW without master copies, beside AdamW", "",
             f"Written by `bench/peers/muon_curve.py` on {options.device}; {version}. A Llama over bytes ({size['layers']} layers, width "
             f"{size['width']}) learns the sources in C++ ({text.size:,} bytes) in {size['steps']:,} steps of {size['batch']} × {size['context']} "
             f"tokens: rate {size['rate']} with a cosine, decay 0.1 of matrices, norm clipped at 1, β2 = 0.95; Muon has the same rate, or three times it. Losses are "
             "of the last 5 %, held out.", "", "| step | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads), *rows, "",
             "Milliseconds of a step: " + ", ".join(f"{name} {ms:.2f}" for name, ms in times.items()) + ".", ""]
    print("\n".join(lines))
    for line in wrong:
        print("WRONG:", line)
    if options.output:
        options.output.write_text("\n".join(lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
