#!/usr/bin/env python3
"""Runs tracestep's attention beside PyTorch's scaled_dot_product_attention on one GPU.

First tracestep's results are checked against float64 (bench/peers/attention_checks.py). Then, shape
by shape, everybody is timed in turns, as replays of a CUDA graph, so that all meet the card in the
same state and nobody pays for Python; a time is the median over the rounds. TFLOP/s count
4 B H T^2 D forward and 2.5 times that backward, halved when causal.

    python3 bench/peers/compare_attention.py --library build-cuda/libtracestep_attention.so
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_checks import run_checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from tracestep._attention_library import Library  # noqa: E402

NAME = "libtracestep_attention.so"
PLACES = (ROOT / "build-cuda" / NAME, ROOT / NAME)  # of a checkout; of an unpacked bundle
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
# Batch x heads x tokens x width; g: so many heads share one of keys; c: causal; w: in a window of so many
# keys, which PyTorch's back ends do not have.
SHAPES = ("1x16x16384x128c,1x16x16384x128,1x32x16384x64c,1x32x16384x64,1x16x16384x64c,2x32x8192x80c,"
          "2x32x8192x80,2x16x8192x128c,2x32x8192x64c,8x16x2048x128c,8x32x2048x64c,8x32x2048x80c,"
          "4x48x1024x128c,16x25x1024x64c,32x16x512x128c,32x32x512x64c,32x32x512x80c")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", metavar="FILE",
                        default=str(next((p for p in PLACES if p.exists()), PLACES[0])))
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument("--family", default="auto", choices=("auto", "portable"))
    parser.add_argument("--shapes", default=SHAPES,
                        help="BxHxTxD, g and the heads that share one of keys, w and a window, c when causal; "
                             "comma separated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn-ms", type=float, default=20, help="replays last about as long")
    parser.add_argument("--check-widths", default="64,80,96,128,192,256,32,104,136,59,111")
    parser.add_argument("--check-repeats", type=int, default=3, help="equal bits, per case")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def capture(run, stream):
    """A graph of run(), after calls that let libraries settle."""
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return graph


def torch_graphs(backend, q, k, v, g, causal, stream):
    """Graphs of forward and backward of one back end of torch's attention."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))

    def attend():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                  enable_gqa=k.size(1) < q.size(1))

    with torch.no_grad():
        forward = capture(attend, stream)
    with torch.cuda.stream(stream):
        o = attend()
    backward = capture(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True), stream)
    # The graphs know addresses only: what they read and write has to stay.
    return {"forward": forward, "backward": backward, "kept": (q, k, v, g, o)}


def our_graphs(library, q, k, v, g, causal, stream, **options):
    o, lse = library.forward(q, k, v, causal, **options)
    shape = library.shape(q, k, causal, **options)
    grads = [torch.empty_like(x) for x in (q, k, v)]
    spaces = [library._workspace(which, shape, q) for which in ("forward", "backward")]
    return {
        "forward": capture(
            lambda: library.forward(q, k, v, causal, o, lse, spaces[0], **options), stream),
        "backward": capture(
            lambda: library.backward(q, k, v, o, g, lse, causal, grads, spaces[1], **options),
            stream),
        "kept": (q, k, v, g, o, lse, grads, spaces)}


def copied_graphs(library, q, k, v, g, causal, stream, **options):
    """Graphs of the ungrouped kernels on keys and values copied for each head."""
    heads = k.size(1)
    keys, values = (torch.empty_like(q) for _ in range(2))
    copies = [x.unflatten(1, (heads, -1)) for x in (keys, values)]
    ours = our_graphs(library, q, keys, values, g, causal, stream, **options)
    *_, o, lse, grads, spaces = ours["kept"]
    sums = [torch.empty_like(x) for x in (k, v)]

    def forward():
        for copy, x in zip(copies, (k, v)):
            copy.copy_(x.unsqueeze(2).expand_as(copy))
        library.forward(q, keys, values, causal, o, lse, spaces[0], **options)

    def backward():
        library.backward(q, keys, values, o, g, lse, causal, grads, spaces[1], **options)
        for total, x in zip(sums, grads[1:]):
            torch.sum(x.unflatten(1, (heads, -1)), 2, out=total)

    return {"forward": capture(forward, stream), "backward": capture(backward, stream),
            "kept": (ours, k, v, sums)}


def turn(graph, count):
    """Milliseconds of one replay, from `count` in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def time_shape(library, options, dtype, shape):
    batch, heads, tokens, width, group, window, causal = shape
    make = torch.Generator("cuda").manual_seed(2)
    q, k, v, g = (torch.randn((batch, n, tokens, width), device="cuda", dtype=torch.float32,
                              generator=make).to(dtype)
                  for n in (heads, heads // group, heads // group, heads))
    stream = torch.cuda.Stream()
    people = {}
    for name, extra in (("ours", False), ("ordered", True)):
        people[name] = our_graphs(library, q, k, v, g, causal, stream, deterministic=extra,
                                  family=options.family, window=window)
    if group > 1 and not window:
        people["copied"] = copied_graphs(library, q, k, v, g, causal, stream, family=options.family)
    for name, backend in BACKENDS.items() if not window else ():
        try:
            people[name] = torch_graphs(backend, q, k, v, g, causal, stream)
        except RuntimeError as error:  # a back end that does not take this shape
            print(f"  {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    times = {name: {"forward": [], "backward": []} for name in people}
    # Who follows a hungry kernel at once meets a lower clock: a pause, and other orders every round.
    order = random.Random(1)
    for _ in range(options.rounds):
        for phase in ("forward", "backward"):
            for name, graphs in order.sample(sorted(people.items()), len(people)):
                time.sleep(0.02)
                count = max(1, min(200, int(options.turn_ms / turn(graphs[phase], 1))))
                times[name][phase].append(turn(graphs[phase], count))
    seen = (tokens**2 - (tokens - window if window else 0)**2) / 2 if causal else tokens**2
    flops = 4.0 * batch * heads * seen * width
    words = [f"{batch}x{heads}x{tokens}x{width}"]
    words += [f"g{group}"] * (group > 1) + [f"w{window}"] * (window > 0)
    row = {"shape": " ".join(words), "causal": causal}
    for name, phases in times.items():
        for phase, samples in phases.items():
            ms = statistics.median(samples)
            work = flops * (1.0 if phase == "forward" else 2.5)
            row[f"{name} {phase}"] = {"ms": ms, "tflops": work / ms / 1e9,
                                      "spread": (max(samples) - min(samples)) / ms}
    return row


def table(rows):
    def cell(row, name, phase):
        x = row.get(f"{name} {phase}")
        return "" if x is None else f"{x['ms']:.3f} ({x['tflops']:.0f})"

    def ratio(row, phase):
        ours, best = row[f"ours {phase}"]["ms"], [
            row[f"{name} {phase}"]["ms"] for name in BACKENDS if f"{name} {phase}" in row]
        return f"{min(best) / ours:.2f}" if best else ""

    people = ["ours", "ordered", *(["copied"] if any("copied forward" in row for row in rows) else []),
              "cudnn", "flash2"]
    heads = {"ours": "ours, ms (TFLOP/s)", "ordered": "in order", "copied": "copied keys, in order",
             "cudnn": "cuDNN", "flash2": "FlashAttention-2"}
    lines = [f"| shape | causal | pass | {' | '.join(heads[name] for name in people)} "
             "| best of torch / ours |", f"|---|---|---|{'---:|' * (len(people) + 1)}"]
    for row in rows:
        for phase in ("forward", "backward"):
            cells = [cell(row, name, phase) for name in people]
            if phase == "forward":
                cells[1] = ""
            lines.append(f"| {row['shape']} | {'yes' if row['causal'] else 'no'} | {phase} | "
                         + " | ".join(cells) + f" | {ratio(row, phase)} |")
    return "\n".join(lines)


def parse_shapes(text):
    for word in text.split(","):
        sizes, group, window, causal = re.fullmatch(r"([\dx]+)(?:g(\d+))?(?:w(\d+))?(c?)", word).groups()
        yield (*(int(n) for n in sizes.split("x")), int(group or 1), int(window or 0), bool(causal))


def main():
    options = parse_arguments()
    library = Library(options.library)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options.dtype]
    failures = []
    if not options.no_check:
        widths = [int(n) for n in options.check_widths.split(",")]
        passed, failures = run_checks(library, (torch.bfloat16, torch.float16), widths,
                                      options.check_repeats)
        print(f"checks: {passed} passed, {len(failures)} failed")
        for message in failures[:20]:
            print("  " + message)
    rows = []
    if not options.no_time:
        for shape in parse_shapes(options.shapes):
            rows.append(time_shape(library, options, dtype, shape))
        print(table(rows))
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table(rows) + "\n")
    if options.json:
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                 "cudnn": torch.backends.cudnn.version(), "dtype": options.dtype}
        pathlib.Path(options.json).write_text(
            json.dumps({**about, "failures": failures, "rows": rows}, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
