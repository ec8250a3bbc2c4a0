#!/usr/bin/env python3
"""Whole training steps of published models: tracestep beside `transformers`, in one run, in turns.

Every form of PyTorch (pytorch/bench_models.py lists them) is a process of its own that keeps its
compiled model between visits; tracestep is a process per visit. First all of PyTorch's compile, at
once; then a round visits everybody. Medians of the visits' medians; ± is half of what the visits lie
apart; a ratio is taken in each round.

    python3 bench/peers/compare_models.py --markdown out/models.md --json out/models.json
    python3 bench/peers/compare_models.py --device cpu --shapes gpt2@1x256 --precisions fp32,bf16 \\
        --forms eager,whole

All weights and tokens are random. On a GPU, the models of all forms lie in its memory at once.
"""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time
import typing

from compare_gpu import PROGRAMS, ROOT, add_side_arguments, find_program, write_file
from gpu_report import environment_lines, render, shown
from gpu_runners import BENCH_GPU, TimeIsUp, Torch, Tracestep, card_state, note

BENCH_MODELS = BENCH_GPU.with_name("bench_models.py")
SHAPES = "llama-3.2-1b@4x2048,qwen3-0.6b@4x2048,smollm2-135m@4x2048,gpt2@8x1024"
WIDE_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184",
               "MALLOC_TOP_PAD_": "67108864", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
OURS = "tracestep"


class Group(typing.NamedTuple):
    size: str
    batch: int
    context: int
    precision: str

    def __str__(self):
        return f"{self.size} {self.batch}×{self.context} {self.precision}"


class Own(Tracestep):
    """`tracestep bench --model`, its best form."""

    def command(self, group, ops, modes, rows_file):
        a = self.arguments
        return [self.program, "bench", "--model", group.size, "--batch", str(group.batch),
                "--context", str(group.context), "--precision", group.precision, "--mode", "step",
                "--executor", "compiled", "--attention", "flash", "--device", a.device,
                *(["--threads", str(a.threads)] if a.threads else []), "--warmup", str(a.warmup),
                "--steps", str(a.steps), "--seed", str(a.seed), "--roof", "0", "--format", "json",
                "--resume", rows_file, *(["--lora", a.lora] if a.lora else []),
                *a.tracestep_flags.split()]


class Visits:
    """The rows of one runner at one group, a row for each visit; or why there is none."""

    def __init__(self):
        self.rows, self.problem = [], None

    def medians(self):
        return [statistics.median(row["samples_ms"]) for row in self.rows]

    def latest(self, field):
        return self.rows[-1].get(field) if self.rows else None


def spread_text(values, digits):
    """Median ± half of the range."""
    if not values:
        return "–"
    text = shown(statistics.median(values), digits)
    return text + (f" ± {shown((max(values) - min(values)) / 2, digits)}" if len(values) > 1 else "")


def visit(runner, form, group, arguments, deadline, visits):
    """One turn; a runner that failed is not visited again."""
    if visits.problem or time.monotonic() >= deadline:
        return
    limit = min(deadline, time.monotonic() + arguments.turn_limit)
    began = time.monotonic()
    try:
        for row in runner.rows(group, form, ["step"], limit):
            if row["status"] == "ok":
                visits.rows.append(row)
            else:
                visits.problem = f"{row['status']}: {row.get('detail')}"
    except TimeIsUp:
        visits.problem = "late"
    except (RuntimeError, OSError, ValueError) as problem:
        visits.problem = f"error: {problem}"
    done = f"{visits.medians()[-1]:.2f} ms" if visits.rows else "–"
    note(f"  {form}: {visits.problem or done} ({time.monotonic() - began:.0f} s)")


def measure(group, arguments, own, deadline):
    """{form: Visits} of one group; the processes of PyTorch live as long as the group."""
    options = [*(["--site", arguments.site] if arguments.site else []),
               *(["--lora", arguments.lora] if arguments.lora else []),
               *(["--threads", str(arguments.threads)] if arguments.threads else [])]
    turns = {OURS: own} if own else {}
    turns.update({form: Torch(arguments.python, arguments, BENCH_MODELS, options)
                  for form in arguments.forms})
    results = {form: Visits() for form in turns}
    # Everybody compiles at once; what is timed meanwhile does not count.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda form: visit(turns[form], form, group, arguments, deadline,
                                         results[form]), arguments.forms))
    for visits in results.values():
        visits.rows.clear()
    for _ in range(arguments.rounds):
        for form, runner in turns.items():
            visit(runner, form, group, arguments, deadline, results[form])
    about = None
    for runner in turns.values():
        if isinstance(runner, Torch):
            about = runner.about or about
            runner.stop()
    return results, about


def peak_text(form, visits, is_gpu):
    peak = visits.latest("peak_bytes")
    return f"{peak / 2**20:.0f}" if peak and (is_gpu or form == OURS) else "–"


def table(measured, is_gpu):
    header = ["model", "batch × context", "precision", "form", "step ms", "PyTorch / tracestep",
              "peak MiB", "parameters"]
    lines = []
    for group, results in measured.items():
        ours = results[OURS].medians() if OURS in results else []
        for form, visits in results.items():
            ratios = [t / o for t, o in zip(visits.medians(), ours)] if form != OURS else []
            lines.append([group.size, f"{group.batch} × {group.context}", group.precision, form,
                          spread_text(visits.medians(), 2), spread_text(ratios, 3),
                          peak_text(form, visits, is_gpu), str(visits.latest("parameters") or "–")])
    problems = [f"- {group}, {form}: {visits.problem}" for group, results in measured.items()
                for form, visits in results.items() if visits.problem]
    return render(header, lines) + "\n" + ("\n" + "\n".join(problems) + "\n" if problems else "")


def write_results(measured, arguments, environment):
    text = "\n".join(["# Published models: PyTorch and tracestep\n", environment_lines(environment),
                      table(measured, arguments.device != "cpu")])
    if arguments.markdown:
        write_file(arguments.markdown, text)
    if arguments.json:
        rows = [{**group._asdict(), "runner": form, "visit": number, **row}
                for group, results in measured.items() for form, visits in results.items()
                for number, row in enumerate(visits.rows)]
        problems = {f"{g}, {f}": v.problem for g, r in measured.items() for f, v in r.items()
                    if v.problem}
        write_file(arguments.json, json.dumps({"schema": "tracestep.peers.models/1", "rows": rows,
                                               "environment": environment, "problems": problems},
                                              indent=1) + "\n")
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="comma separated MODEL@BATCHxCONTEXT; "
                        "MODEL: one that bench_models.py knows, or a config.json")
    parser.add_argument("--precisions", default="bf16", help="comma separated: fp32, bf16, bf16-pure")
    parser.add_argument("--forms", default="layers,graph,graph-whole",
                        help="comma separated, of bench_models.py")
    parser.add_argument("--lora", metavar="PARTS", help="train adapters alone, as tracestep's --lora "
                        "says; PyTorch's are PEFT's")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a visit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU, for both")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="end by then")
    parser.add_argument("--turn-limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--site", metavar="FOLDER", help="where transformers is, if not installed")
    add_side_arguments(parser)
    arguments = parser.parse_args()
    arguments.torch_device = arguments.device
    arguments.forms = [f for f in arguments.forms.split(",") if f]
    arguments.batch = arguments.vocab = None  # each group has its own
    find_program(arguments, ("build/tracestep",) if arguments.device == "cpu" else PROGRAMS)
    return arguments


def groups_of(arguments):
    shapes = []
    for text in arguments.shapes.split(","):
        size, _, tokens = text.partition("@")
        batch, _, context = tokens.partition("x")
        if not (batch.isdigit() and context.isdigit()):
            raise SystemExit(f"[compare_models] {text!r} is no shape; write MODEL@BATCHxCONTEXT")
        shapes.append((size, int(batch), int(context)))
    return [Group(*shape, p) for shape in shapes for p in arguments.precisions.split(",")]


def main():
    arguments = parse_arguments()
    deadline = time.monotonic() + arguments.budget if arguments.budget > 0 else math.inf
    if arguments.device == "cpu":  # for both alike
        os.environ.update(WIDE_MALLOC)
    own = Own(arguments.tracestep, arguments) if arguments.tracestep else None
    environment = {
        "date": datetime.date.today().isoformat(), "machine": f"{platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores",
        "protocol": f"{arguments.rounds} rounds of visits, {arguments.warmup} warm-up and "
        f"{arguments.steps} timed steps each; random weights and tokens",
        "tracestep": own.version() if own else None,
        "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    measured, text = {}, ""
    for group in groups_of(arguments):
        if time.monotonic() >= deadline:
            note(f"{group}: not reached")
            continue
        note(str(group))
        measured[group], about = measure(group, arguments, own, deadline)
        environment["torch"] = about or environment.get("torch")
        environment["card"].append({"when": f"after {group}",
                                    "state": card_state(arguments.device)})
        text = write_results(measured, arguments, environment)
    print(text, end="")
    return 1 if any(v.problem for r in measured.values() for v in r.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
