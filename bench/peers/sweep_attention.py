#!/usr/bin/env python3
"""Attention over contexts, widths and dtypes, one head, causal: naive, tiled, and PyTorch's own.

`tracestep attention --sweep flash` runs the first two, then torch.nn.functional's
scaled_dot_product_attention runs the same cells in the same way: eager calls on random normal
values, host clock from an idle device to an idle one, median of the timed steps; forward alone,
backward alone, and both without a wait in between. Which kernel PyTorch takes is left to it. Prints
one table in Markdown.

    python3 bench/peers/sweep_attention.py --contexts 128,1024,8192,65536
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("build-cuda/tracestep", "tracestep")  # of a checkout; of an unpacked bundle
PRECISIONS = {"bf16-pure": torch.bfloat16, "fp32": torch.float32}
CONTEXTS = "128,256,512,1024,2048,4096,8192,16384,32768,65536"
FORMS = ("naive", "flash", "SDPA")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default=CONTEXTS, help="comma separated")
    parser.add_argument("--widths", default="16,32,64,128", help="comma separated")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="comma separated")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="timed, of each form and cell")
    parser.add_argument("--max-seconds", type=float, default=0.3,
                        help="end the timed steps of a cell after so long")
    parser.add_argument("--device", default="cuda", help="of both: cuda, cuda:N, cpu")
    parser.add_argument("--tracestep", metavar="FILE", help="the program")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def tracestep_rows(options):
    """Milliseconds (forward, backward, both) by (precision, width, context, form)."""
    places = [ROOT / name for name in PROGRAMS if (ROOT / name).exists()]
    program = options.tracestep or next(iter(places), None)
    if program is None:
        sys.exit("[sweep_attention] no tracestep: build it, or name it with --tracestep")
    command = [str(program), "attention", "--sweep", "flash", "--device", options.device,
               "--context", options.contexts, "--width", options.widths,
               "--precision", options.precisions, "--warmup", str(options.warmup),
               "--steps", str(options.steps), "--max-seconds", str(options.max_seconds),
               "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cells = {}
    for row in json.loads(done.stdout)["rows"]:
        key = (row["precision"], row["width"], row["context"], row["attention"])
        cells[key] = row["status"] if row["status"] != "ok" else tuple(
            row[f"{phase}_median_ms"] for phase in ("forward", "backward", "whole"))
    return cells


def timed(run, wait):
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return result, (time.perf_counter() - start) * 1e3


def torch_cell(options, precision, width, context):
    wait = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    generator = torch.Generator(options.device).manual_seed(2)
    q, k, v, g = (torch.randn((1, 1, context, width), device=options.device, dtype=torch.float32,
                              generator=generator).to(PRECISIONS[precision]) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def forward():
        return F.scaled_dot_product_attention(*leaves, is_causal=True)

    def backward(y):
        return torch.autograd.grad(y, leaves, g)

    samples, begin = [], None
    for i in range(options.warmup + options.steps):
        if i == options.warmup:
            begin = time.perf_counter()
        y, forward_ms = timed(forward, wait)
        _, backward_ms = timed(lambda: backward(y), wait)
        _, whole_ms = timed(lambda: backward(forward()), wait)
        if begin is not None:
            samples.append((forward_ms, backward_ms, whole_ms))
            if time.perf_counter() - begin > options.max_seconds:
                break
    return tuple(statistics.median(phase) for phase in zip(*samples))


def torch_rows(options, cells):
    for precision, width, context in sorted({key[:3] for key in cells}):
        try:
            cell = torch_cell(options, precision, width, context)
        except torch.cuda.OutOfMemoryError:
            cell = "oom"
        cells[precision, width, context, "SDPA"] = cell


def table(cells):
    def text(cell):
        return cell if isinstance(cell, str) else " / ".join(f"{ms:.3f}" for ms in cell)

    def ratio(flash, peer):
        return "" if isinstance(flash, str) or isinstance(peer, str) else f"{peer[2] / flash[2]:.2f}"

    lines = ["Milliseconds forward / backward / both in one go.", "",
             "| precision | D | T | " + " | ".join(FORMS) + " | SDPA / flash |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for key in sorted({key[:3] for key in cells}):
        row = [cells[(*key, form)] for form in FORMS]
        lines.append("| " + " | ".join([*map(str, key), *map(text, row), ratio(*row[1:])]) + " |")
    return "\n".join(lines)


def main():
    options = parse_arguments()
    cells = tracestep_rows(options)
    torch_rows(options, cells)
    print(table(cells))
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table(cells) + "\n")
    if options.json:
        rows = [dict(zip(("precision", "width", "context", "form"), key), result=cell)
                for key, cell in sorted(cells.items())]
        pathlib.Path(options.json).write_text(
            json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
