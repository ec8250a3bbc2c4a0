#!/usr/bin/env python3
"""Losses of tracestep.step in bf16 beside PyTorch's autocast over 1,000 steps of real text, on a CPU.

    bench/peers/in_process_curve.py [--program build/tracestep] [--output bench/results/in-process-curve.md]

A GPT of bytes learns the pages of docs/. A seed draws its first weights and its batches; both sides have the same of
each. The differences of a seed's two curves are held to those among PyTorch's seeds, window by window.
"""
import argparse
import copy
import math
import pathlib
import platform
import statistics
import sys

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/in_process")]
import gpt_loop  # noqa: E402
import tracestep  # noqa: E402

BATCH, CONTEXT, WIDTH, HEADS, LAYERS, RATE = 8, 64, 64, 4, 2, 3e-3
WINDOW = 100


def text():
    pages = sorted((ROOT / "docs").glob("*.md"))
    return torch.tensor(list("\n".join(page.read_text() for page in pages).encode()))


def rate(step, steps):
    return RATE * min(1, (step + 1) / 50) * 0.5 * (1 + math.cos(math.pi * step / steps))


def adamw(model):
    wide = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": wide, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                             lr=RATE, betas=(0.9, 0.95))


def trained(model, data, seed, steps, is_ours):
    """The losses."""
    optimizer = adamw(model)
    draw = torch.Generator().manual_seed(seed)
    step = tracestep.step(model, optimizer=optimizer, clip=1.0, precision="bf16") if is_ours else None
    losses = []
    for i in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(i, steps)
        at = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=draw).tolist()
        ids = torch.stack([data[k:k + CONTEXT] for k in at])
        targets = torch.stack([data[k + 1:k + 1 + CONTEXT] for k in at])
        if is_ours:
            loss = step(ids, targets)
        else:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                _, loss = model(ids, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def windows(losses):
    return [statistics.fmean(losses[i:i + WINDOW]) for i in range(0, len(losses), WINDOW)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/tracestep"))
    parser.add_argument("--output")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    tracestep.use(options.program)
    torch.set_num_threads(1)
    gpt_loop.BATCH, gpt_loop.CONTEXT, gpt_loop.WIDTH, gpt_loop.HEADS, gpt_loop.LAYERS = BATCH, CONTEXT, WIDTH, HEADS, LAYERS
    data = text()
    ours, theirs = [], []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = gpt_loop.GPT()
        theirs.append(trained(copy.deepcopy(model), data, seed, options.steps, False))
        ours.append(trained(model, data, seed, options.steps, True))
        print(f"seed {seed}: PyTorch ends at {windows(theirs[-1])[-1]:.4f}, tracestep at {windows(ours[-1])[-1]:.4f}", flush=True)
    mine, its = [windows(x) for x in ours], [windows(x) for x in theirs]
    rows, apart, spreads = [], [], []
    for w in range(len(mine[0])):
        peers = [x[w] for x in its]
        spread = max(peers) - min(peers)
        own = [abs(a[w] - b[w]) for a, b in zip(mine, its)]
        apart.append(max(own))
        spreads.append(spread)
        rows.append(f"| {w * WINDOW + 1}–{(w + 1) * WINDOW} | " + " | ".join(f"{x:.4f}" for x in peers) + " | "
                    + " | ".join(f"{x[w]:.4f}" for x in mine) + f" | {max(own):.4f} | {spread:.4f} |")
    is_within = all(a <= s for a, s in zip(apart, spreads))
    parameters = sum(p.numel() for p in gpt_loop.GPT().parameters())
    head = [f"seed {i}" for i in range(options.seeds)]
    lines = [
        "# A step in bf16 in PyTorch's process: 1,000 losses beside autocast's", "",
        f"Written by `bench/peers/in_process_curve.py`, with torch {torch.__version__}, Python {platform.python_version()}, one thread "
        f"of a CPU. A GPT of {parameters:,} parameters ({LAYERS} layers, width {WIDTH}) on the bytes of docs/ ({len(data):,}), "
        f"batch {BATCH}, context {CONTEXT}, AdamW with two groups, clipping, warm-up and a cosine; {options.steps} steps. A seed "
        "draws weights and batches, the same for both sides; losses are means of windows.", "",
        f"Within the spread of PyTorch's seeds in {'every window' if is_within else 'NOT every window'}: a seed's two curves are "
        f"{max(apart):.4f} apart at the most, {statistics.median(apart):.4f} in the median; PyTorch's seeds are "
        f"{min(spreads):.4f} to {max(spreads):.4f} apart.", "",
        "| steps | " + " | ".join("PyTorch, " + x for x in head) + " | " + " | ".join("tracestep, " + x for x in head)
        + " | largest difference of one seed | among PyTorch's seeds |",
        "|---|" + "--:|" * (2 * options.seeds + 2), *rows, ""]
    print("\n".join(lines))
    if options.output:
        pathlib.Path(options.output).write_text("\n".join(lines))
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
