#!/usr/bin/env python3
"""Peaks of steps with adapters, frozen parts, 4-bit weights and packed rows: predicted and measured.

    tools/soak/adapter_bytes.py [--program build/tracestep] [--device cpu] [--count 500] [--seconds 300]
                                [--seed 1] [--output out/adapter_bytes.md]

Draws small models of every form and steps of every kind, runs `memory` on each, and compares the two
figures. A combination that the program refuses by one line with status 2 is counted by that line.
Ends with 1 when a figure differs or a command ends otherwise; each such command is printed. The
table tells how often each choice was among the equal ones. The last line is a JSON summary.
"""
import argparse
import collections
import json
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What of a command is drawn; an empty choice leaves the flag out.
ADAPTERS = {"r": ["1", "3", "8", "40"],
            "targets": ["q", "q+v", "q+k+v+o", "all", "down", "layers.0.*"],
            "dropout": ["", "0.1"], "whole": ["", "", "token_embeddings", "ln_final"],
            "base": ["", "nf4", "nf4"], "rslora": ["", "yes"]}
FREEZE = ["layers.0", "token_embeddings", "layers.*.attn"]
STEP = {"--precision": ["fp32", "bf16", "fp16"], "--attention": ["naive", "flash"],
        "--executor": ["eager", "arena", "compiled"],
        "--recompute": ["none", "blocks", "nested", "layers.*.attn", "layers.*.ffn"],
        "--moments": ["fp32", "bf16", "8bit"], "--updates": ["end", "early"],
        "--offload": ["none", "optimizer", "activations", "optimizer+activations"],
        "--loss-chunks": ["1", "2", "auto"], "--ffn-chunks": ["1", "1", "2", "3"],
        "--parallel": ["", "", "", "", "dp=2", "dp=2,shard=1", "dp=2,shard=3", "tp=2"]}
MODEL = {"--d-model": ["32", "48", "64", "128"], "--d-ff": ["50", "96", "128"], "--layers": ["1", "2", "3"],
         "--heads": ["2", "4"], "--vocab": ["65", "300"], "--context": ["9", "32", "64"],
         "--batch": ["1", "2"], "--kv-heads": ["", "", "2"], "--norm-kind": ["rms", "layer"],
         "--gated": ["on", "off"], "--tied-head": ["on", "off"], "--qkv-bias": ["on", "off"],
         "--positions": ["rotary", "learned"], "--window": ["", "7"]}


def drawn(dice, choices):
    picked = {name: dice.choice(values) for name, values in choices.items()}
    return {name: value for name, value in picked.items() if value}


def draw(dice):
    """The flags of a command, and of them and of the adapters' parts what the table counts."""
    flags, counted = drawn(dice, MODEL), drawn(dice, STEP)
    flags |= counted
    if flags["--positions"] == "learned":
        flags["--max-positions"] = flags["--context"]
    if dice.random() < 0.85:
        parts = drawn(dice, ADAPTERS)
        counted |= {f"--lora {name}": value for name, value in parts.items()}
        flags["--lora"] = ",".join("rslora" if n == "rslora" else f"{n}={v}" for n, v in parts.items())
    else:
        counted["--freeze"] = flags["--freeze"] = dice.choice(FREEZE)
    words = [word for pair in flags.items() for word in pair]
    if dice.random() < 0.6:
        counted["--pack"] = "yes"
        words.append("--pack")
    return words, counted


def outcome(command):
    """Of a run: whether its figures are equal, or None and why it was refused."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    errors = [line for line in run.stderr.splitlines() if line.startswith("tracestep: ")]
    if run.returncode == 2 and len(errors) == 1:
        return None, errors[0].removeprefix("tracestep: ")
    if run.returncode != 0:
        return False, f"status {run.returncode}: {run.stderr[-300:]}"
    row = json.loads(run.stdout)["rows"][0]
    peaks = [row["predicted_peak_bytes"], row["measured_peak_bytes"],
             row["host_bytes"], row["measured_host_bytes"]]
    equal = peaks[1] and peaks[0] == peaks[1] and peaks[2] == peaks[3]
    return bool(equal), f"predicted, measured, host, measured host: {peaks}"


def table_of(seen):
    rows = collections.defaultdict(list)
    for (name, value), count in sorted(seen.items()):
        rows[name].append(f"`{value}` {count}")
    return ["| choice | steps whose bytes were equal |", "|---|---|"] + [
        f"| `{name}` | {', '.join(values)} |" for name, values in rows.items()]


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", type=Path, default=ROOT / "build" / "tracestep")
    options.add_argument("--device", default="cpu")
    options.add_argument("--count", type=int, default=500)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path, default=ROOT / "out" / "adapter_bytes.md")
    options = options.parse_args()
    dice, begin = random.Random(options.seed), time.monotonic()
    equal, faults, refused, seen = 0, 0, collections.Counter(), collections.Counter()
    while equal + faults < options.count and time.monotonic() - begin < options.seconds:
        words, counted = draw(dice)
        command = [str(options.program), "memory", "--mode", "step", "--format", "json", "--device",
                   options.device, "--threads", "1", *words]
        is_equal, why = outcome(command)
        if is_equal is None:
            refused[why] += 1
        elif is_equal:
            equal += 1
            seen.update(counted.items())
        else:
            faults += 1
            print(shlex.join(command), why, sep="\n", flush=True)
    lines = table_of(seen)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for why, count in refused.most_common():
        print(f"{count} refused: {why}")
    print(json.dumps({"equal": equal, "faults": faults, "refused": sum(refused.values()),
                      "seconds": round(time.monotonic() - begin)}))
    sys.exit(1 if faults or not equal else 0)


if __name__ == "__main__":
    main()
