#!/usr/bin/env python3
"""Training steps with products in 8 bits: tracestep beside torchao, in one run, in turns.

Of each model, PyTorch's best form (presets: `graph` of pytorch/bench_gpu.py; published models: `graph` of
pytorch/bench_models.py) in bf16 and with each of torchao's recipes, and `tracestep bench` in bf16 and fp8.
First PyTorch visits a layer of every model in several processes at once, so that what it compiles lies in its
cache; then a round visits everybody. Each gives its memory back before the next one's turn. Medians of the
visits' medians; ± is half of what the visits lie apart; a ratio is taken in each round.

    python3 bench/peers/compare_float8.py --rounds 2 --markdown out/float8.md --json out/float8.json
"""

import argparse
import concurrent.futures
import copy
import datetime
import json
import math
import os
import platform
import sys
import time
import typing

from compare_gpu import add_side_arguments, find_program, write_file
from compare_models import BENCH_MODELS, Visits, spread_text, visit
from gpu_report import environment_lines, render
from gpu_runners import BENCH_GPU, Torch, Tracestep, card_state, note

SHAPES = "large@4x512,2.7B@4x1024,llama-3.2-1b@4x2048"
PUBLISHED = ("llama-3.2-1b", "qwen3-0.6b")  # the others are presets
VOCABULARY = 10000  # of presets
OURS, THEIRS = ("bf16", "fp8"), ("bf16", "fp8", "fp8-row")


class Group(typing.NamedTuple):
    size: str
    batch: int
    context: int
    vocab: int
    precision: str
    layers: int = 0  # 0: all
    is_kept: bool = False


class Own(Tracestep):
    """`tracestep bench`, its best form."""

    def command(self, group, ops, modes, rows_file):
        a = self.arguments
        model = ["--model", group.size] if group.size in PUBLISHED else [
            "--size", group.size, "--vocab", str(group.vocab)]
        return [self.program, "bench", *model, "--batch", str(group.batch), "--context",
                str(group.context), "--precision", group.precision, "--mode", "step", "--executor",
                "compiled", "--attention", "flash", "--device", a.device, "--warmup", str(a.warmup),
                "--steps", str(a.steps), "--seed", str(a.seed), "--roof", "0", "--format", "json",
                "--resume", rows_file, *a.tracestep_flags.split()]


def torch_of(size, arguments):
    script = BENCH_MODELS if size in PUBLISHED else BENCH_GPU
    options = ["--site", arguments.site] if arguments.site and size in PUBLISHED else []
    return Torch(arguments.python, arguments, script, options)


def compile_all(shapes, arguments, deadline):
    """Fills PyTorch's cache on disk: layers of a model share what is compiled."""
    one = copy.copy(arguments)
    one.warmup, one.steps = 0, 1

    def compile_one(shape, precision):
        runner, visits = torch_of(shape[0], one), Visits()
        visit(runner, "graph", Group(*shape, precision, layers=1), one, deadline, visits)
        runner.stop()

    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(compile_one, *zip(*((s, p) for s in reversed(shapes) for p in THEIRS))))


def measure(shape, arguments, own, deadline):
    """{(who, precision): Visits} of one model, and what PyTorch says about itself."""
    torch = torch_of(shape[0], arguments)
    turns = [("tracestep", own, p) for p in OURS] + [("PyTorch", torch, p) for p in THEIRS]
    results = {(who, precision): Visits() for who, _, precision in turns}
    for _ in range(arguments.rounds):
        for who, runner, precision in turns:
            note(f" {who} {precision}")
            visit(runner, "graph", Group(*shape, precision), arguments, deadline,
                  results[who, precision])
    about = torch.about
    torch.stop()
    return results, about


def table(measured):
    header = ["model", "batch × context", "who", "precision", "step ms", "of tracestep's fp8",
              "peak MiB"]
    lines, problems = [], []
    for (size, batch, context, _), results in measured.items():
        fp8 = results["tracestep", "fp8"].medians()
        for (who, precision), visits in results.items():
            ratios = [t / o for t, o in zip(visits.medians(), fp8)]
            peak = visits.latest("peak_bytes")
            lines.append([size, f"{batch} × {context}", who, precision,
                          spread_text(visits.medians(), 2), spread_text(ratios, 3),
                          f"{peak / 2**20:.0f}" if peak else "–"])
            if visits.problem:
                problems.append(f"- {size}, {who} {precision}: {visits.problem}")
    return render(header, lines) + "\n" + "\n".join(["", *problems, ""])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="comma separated MODEL@BATCHxCONTEXT")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a visit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=5, help="of PyTorch, while it compiles")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="end by then")
    parser.add_argument("--turn-limit", type=float, default=200, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--site", metavar="FOLDER", help="where transformers is, if not installed")
    add_side_arguments(parser)
    arguments = parser.parse_args()
    arguments.torch_device = arguments.device
    arguments.batch = arguments.vocab = None  # each group has its own
    find_program(arguments)
    return arguments


def shape_of(text):
    size, _, tokens = text.partition("@")
    batch, _, context = tokens.partition("x")
    if not (batch.isdigit() and context.isdigit()):
        raise SystemExit(f"[compare_float8] {text!r} is no shape; write MODEL@BATCHxCONTEXT")
    return size, int(batch), int(context), VOCABULARY


def main():
    arguments = parse_arguments()
    deadline = time.monotonic() + arguments.budget if arguments.budget > 0 else math.inf
    shapes = [shape_of(text) for text in arguments.shapes.split(",")]
    compile_all(shapes, arguments, deadline)
    own = Own(arguments.tracestep, arguments)
    environment = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "protocol": f"{arguments.rounds} rounds of visits, {arguments.warmup} warm-up and "
        f"{arguments.steps} timed steps each; random weights and tokens",
        "tracestep": own.version(), "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    measured, text = {}, ""
    for shape in shapes:
        note(f"{shape}")
        measured[shape], about = measure(shape, arguments, own, deadline)
        environment["torch"] = about or environment.get("torch")
        environment["card"].append({"when": f"after {shape[0]}", "state": card_state(arguments.device)})
        text = "\n".join(["# Products in 8 bits: torchao and tracestep\n",
                          environment_lines(environment), table(measured)])
        if arguments.markdown:
            write_file(arguments.markdown, text)
        if arguments.json:
            rows = [{"size": size, "batch": batch, "context": context, "runner": who,
                     "precision": precision, "visit": i, **row}
                    for (size, batch, context, _), results in measured.items()
                    for (who, precision), visits in results.items()
                    for i, row in enumerate(visits.rows)]
            write_file(arguments.json, json.dumps({"schema": "tracestep.peers.float8/1", "rows": rows,
                                                   "environment": environment}, indent=1) + "\n")
    print(text, end="")
    return 1 if any(v.problem for r in measured.values() for v in r.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
