#!/usr/bin/env python3
"""Training steps of models whose sizes no kernel likes, beside PyTorch's best, in one run on a GPU.

The sizes are drawn at random: widths that are not multiples of 8 or 16, vocabularies like 32,003 and
50,257, batch times context not a multiple of 64; head widths are even, as rotary positions need. First
PyTorch (`graph` of pytorch/bench_gpu.py: compiled blocks, library attention, the step as one CUDA graph)
visits every shape in several processes at once, so that what it compiles lies in its cache; then both take
turns, shape by shape.

    python3 bench/peers/compare_odd.py --seed 1 --count 20 --markdown out/odd.md --json out/odd.json
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import platform
import random
import statistics
import sys
import time
import typing

from compare_gpu import add_side_arguments, find_program, write_file
from gpu_report import environment_lines, render, shown
from gpu_runners import TimeIsUp, Torch, Tracestep, card_state, note

VOCABULARIES = (32003, 50257, 10007, 8191)
MOST_TOKENS = 4096


class Group(typing.NamedTuple):
    """A model and a batch of it; bench_gpu.py takes the sizes by these names."""
    size: str
    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocab: int
    batch: int
    context: int
    precision: str

    def __str__(self):
        return (f"C {self.d_model}, F {self.d_ff}, {self.heads} × {self.d_model // self.heads}, "
                f"L {self.layers}, V {self.vocab}, {self.batch} × {self.context}")


class Own(Tracestep):
    """`tracestep bench` of a model by its sizes, its best form."""

    def command(self, group, ops, modes, rows_file):
        a = self.arguments
        sizes = [word for name in ("d_model", "d_ff", "layers", "heads", "vocab", "batch", "context")
                 for word in ("--" + name.replace("_", "-"), str(getattr(group, name)))]
        return [self.program, "bench", *sizes, "--precision", group.precision, "--mode", "step",
                "--executor", "compiled", "--attention", "flash", "--device", a.device, "--warmup",
                str(a.warmup), "--steps", str(a.steps), "--seed", str(a.seed), "--roof", "0", "--format",
                "json", "--resume", rows_file, *a.tracestep_flags.split()]


def draw(generator, precision):
    """Sizes of one model, at least one of which is odd."""
    while True:
        heads, width = generator.randint(3, 16), 2 * generator.randint(16, 72)
        d_model = heads * width
        context = generator.randint(100, 1200)
        batch = generator.randint(1, 8)
        odd = d_model % 16 != 0 or batch * context % 64 != 0
        if 400 <= d_model <= 1600 and 1000 <= batch * context <= MOST_TOKENS and odd:
            d_ff = round(d_model * 8 / 3) + generator.randint(-8, 8)
            return Group("odd", d_model, d_ff, generator.randint(3, 6), heads,
                         generator.choice(VOCABULARIES), batch, context, precision)


def visit(runner, group, arguments, deadline):
    """Milliseconds of a step, or why there are none."""
    limit = min(deadline, time.monotonic() + arguments.turn_limit)
    try:
        row = list(runner.rows(group, "graph", ["step"], limit))[-1]  # to the end of the answer
    except TimeIsUp:
        return "late"
    except (RuntimeError, OSError, ValueError, IndexError) as problem:
        return f"error: {problem}"
    ok = row["status"] == "ok"
    return statistics.median(row["samples_ms"]) if ok else f"{row['status']}: {row.get('detail')}"


def compile_all(groups, arguments, deadline):
    """Fills PyTorch's cache on disk, every shape in one of a few processes."""
    shares = [groups[i::arguments.processes] for i in range(arguments.processes)]

    def compile_share(share):
        runner = Torch(arguments.python, arguments)
        for group in share:
            visit(runner, group, arguments, deadline)
        runner.stop()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(compile_share, shares))


def table(measured):
    header = ["C", "F", "heads × D", "L", "V", "batch × context", "tracestep ms", "PyTorch ms",
              "PyTorch / tracestep"]
    lines, ratios, problems = [], [], []
    for group, (ours, theirs) in measured.items():
        both = all(isinstance(x, float) for x in (ours, theirs))
        if both:
            ratios.append(theirs / ours)
        problems += [f"- {group}, {who}: {x}" for who, x in (("tracestep", ours), ("PyTorch", theirs))
                     if not isinstance(x, float)]
        lines.append([str(group.d_model), str(group.d_ff),
                      f"{group.heads} × {group.d_model // group.heads}", str(group.layers),
                      str(group.vocab), f"{group.batch} × {group.context}",
                      *(shown(x, 3) if isinstance(x, float) else "–" for x in (ours, theirs)),
                      shown(theirs / ours, 3) if both else "–"])
    ends = (f"\nPyTorch / tracestep: least {min(ratios):.3f}, median {statistics.median(ratios):.3f}, "
            f"most {max(ratios):.3f}.\n" if ratios else "")
    return render(header, lines) + "\n" + ends + "\n".join(problems) + ("\n" if problems else "")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the sizes, weights and tokens")
    parser.add_argument("--count", type=int, default=20, help="shapes")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--processes", type=int, default=5, help="of PyTorch, while it compiles")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a visit")
    parser.add_argument("--rounds", type=int, default=2, help="visits of tracestep around one of PyTorch")
    parser.add_argument("--budget", type=float, default=300, metavar="SECONDS", help="end by then")
    parser.add_argument("--turn-limit", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--no-torch", action="store_true", help="our times alone")
    add_side_arguments(parser)
    arguments = parser.parse_args()
    arguments.torch_device = arguments.device
    arguments.batch = arguments.vocab = None  # each group has its own
    find_program(arguments)
    return arguments


def measure(group, own, torch, arguments, deadline):
    """Ours around theirs: the faster of our visits would be unfair, their median is taken."""
    ours = [visit(own, group, arguments, deadline)]
    theirs = visit(torch, group, arguments, deadline) if torch else "not asked"
    ours += [visit(own, group, arguments, deadline) for _ in range(arguments.rounds - 1)]
    failed = [x for x in ours if not isinstance(x, float)]
    return failed[0] if failed else statistics.median(ours), theirs


def main():
    arguments = parse_arguments()
    deadline = time.monotonic() + arguments.budget
    generator = random.Random(arguments.seed)
    groups = [draw(generator, arguments.precision) for _ in range(arguments.count)]
    own = Own(arguments.tracestep, arguments)
    torch = None
    if not arguments.no_torch:
        compile_all(groups, arguments, deadline)
        note(f"compiled, {deadline - time.monotonic():.0f} s left")
        torch = Torch(arguments.python, arguments)
    environment = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "protocol": f"sizes drawn with seed {arguments.seed}; {arguments.rounds} visits of tracestep "
        f"around one of PyTorch, {arguments.warmup} warm-up and {arguments.steps} timed steps each",
        "tracestep": own.version(), "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    measured = {}
    for group in groups:
        if time.monotonic() >= deadline:
            note(f"{group}: not reached")
            continue
        measured[group] = measure(group, own, torch, arguments, deadline)
        note(f"{group}: {measured[group]}")
        environment["torch"] = (torch.about if torch else None) or environment.get("torch")
        text = "\n".join(["# Odd shapes: PyTorch and tracestep\n", environment_lines(environment),
                          table(measured)])
        if arguments.markdown:
            write_file(arguments.markdown, text)
        if arguments.json:
            rows = [{**g._asdict(), "tracestep_ms": ours, "torch_ms": theirs}
                    for g, (ours, theirs) in measured.items()]
            write_file(arguments.json, json.dumps({"schema": "tracestep.peers.odd/1", "rows": rows,
                                                   "environment": environment}, indent=1) + "\n")
    if torch:
        torch.stop()
    print(text, end="")
    return 1 if any(not isinstance(ours, float) for ours, _ in measured.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
