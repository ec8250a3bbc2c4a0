#!/usr/bin/env python3
"""Whole training steps of captured modules: torch.compile, tracestep --program and, where the module is a published
model, tracestep --model, in one run, in turns.

pytorch/bench_captured.py has the modules. Each is captured and compiled first, all forms at once; then a round
visits everybody, as in compare_models.py. Medians of the visits' medians; ratios are taken in each round.

    python3 bench/peers/compare_captured.py --modules gpt2@8x1024,nanogpt@8x1024,course@4x512
    python3 bench/peers/compare_captured.py --modules llama-3.2-1b@4x2048 --budget 250
    python3 bench/peers/compare_captured.py --device cpu --modules course@1x64 --precisions fp32 \\
        --forms eager --native off --steps 2 --rounds 1

All weights and tokens are random. On a GPU, the modules of all forms lie in its memory at once.
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
import subprocess
import sys
import tempfile
import time

from compare_gpu import PROGRAMS, add_side_arguments, find_program, write_file
from compare_models import OURS, WIDE_MALLOC, Own, Visits, groups_of, spread_text, visit
from gpu_report import environment_lines, render
from gpu_runners import BENCH_GPU, Torch, card_state, last_line, note

BENCH_CAPTURED = BENCH_GPU.with_name("bench_captured.py")
MODULES = "gpt2@8x1024,nanogpt@8x1024,course@4x512,qwen2.5-0.5b@4x2048,llama-3.2-1b@4x2048"
NATIVE, OWN_MODULES = "tracestep, native", ("nanogpt", "course")


class Program(Own):
    """`tracestep bench --program`, of a captured module."""

    def __init__(self, program, arguments, folder):
        super().__init__(program, arguments)
        self.folder = folder

    def command(self, group, ops, modes, rows_file):
        words = super().command(group, ops, modes, rows_file)
        at = words.index("--model")
        return [*words[:at], "--program", str(self.folder), *words[at + 6:]]


def captured(group, arguments, folder):
    """Captures the module; seconds that it took, or what went wrong."""
    began = time.monotonic()
    done = subprocess.run([arguments.python, str(BENCH_CAPTURED), *arguments.site_words, "--capture",
                           f"{group.size},{group.batch},{group.context}", "--folder", str(folder)],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"[compare_captured] {group.size}: {last_line(done.stderr)}")
    note(f"  {last_line(done.stdout)} ({time.monotonic() - began:.0f} s)")


def measure(group, arguments, folder, deadline):
    """{form: Visits} of one module; the processes of PyTorch live as long as it is measured."""
    threads = ["--threads", str(arguments.threads)] if arguments.threads else []
    turns = {OURS: Program(arguments.tracestep, arguments, folder)}
    if arguments.native == "on" and group.size not in OWN_MODULES:
        turns[NATIVE] = Own(arguments.tracestep, arguments)
    turns.update({form: Torch(arguments.python, arguments, BENCH_CAPTURED, [*arguments.site_words, *threads])
                  for form in arguments.forms})
    results = {form: Visits() for form in turns}
    with concurrent.futures.ThreadPoolExecutor() as pool:  # everybody compiles at once
        waiting = [pool.submit(visit, turns[form], form, group, arguments, deadline, results[form])
                   for form in arguments.forms]
        waiting.append(pool.submit(captured, group, arguments, folder))
        for one in waiting:
            one.result()
    for visits in results.values():
        visits.rows.clear()  # what was timed meanwhile does not count
    for _ in range(arguments.rounds):
        for form, runner in turns.items():
            visit(runner, form, group, arguments, deadline, results[form])
    about = None
    for runner in turns.values():
        if isinstance(runner, Torch):
            about = runner.about or about
            runner.stop()
    return results, about


def table(measured):
    """Rows by module and form: ratios to the captured program, and of the best compiled form."""
    lines = []
    for group, results in measured.items():
        ours = results[OURS].medians()
        for form, visits in results.items():
            ratios = [] if form == OURS else [t / o for t, o in zip(visits.medians(), ours)]
            peak = visits.latest("peak_bytes")
            lines.append([group.size, f"{group.batch} × {group.context}", group.precision, form,
                          spread_text(visits.medians(), 2), spread_text(ratios, 3),
                          f"{peak / 2**20:.0f}" if peak else "–"])
    header = ["module", "batch × context", "precision", "form", "step ms", "form / captured", "peak MiB"]
    said = []
    for group, results in measured.items():
        said += [f"- {group}, {form}: {visits.problem}" for form, visits in results.items() if visits.problem]
        best = min((statistics.median(v.medians()), form) for form, v in results.items()
                   if form not in (OURS, NATIVE) and v.rows) if any(
                       v.rows for form, v in results.items() if form not in (OURS, NATIVE)) else None
        if best and results[OURS].rows:
            said.append(f"- {group}: the fastest of PyTorch, {best[1]}, takes "
                        f"{best[0] / statistics.median(results[OURS].medians()):.3f} times as long.")
    return render(header, lines) + "\n" + "\n".join(said) + "\n"


def write_results(measured, arguments, environment):
    text = "\n".join(["# Captured modules: PyTorch and tracestep\n", environment_lines(environment), table(measured)])
    if arguments.markdown:
        write_file(arguments.markdown, text)
    if arguments.json:
        rows = [{**group._asdict(), "runner": form, "visit": number, **row}
                for group, results in measured.items() for form, visits in results.items()
                for number, row in enumerate(visits.rows)]
        write_file(arguments.json, json.dumps({"schema": "tracestep.peers.captured/1", "rows": rows,
                                               "environment": environment}, indent=1) + "\n")
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", default=MODULES, dest="shapes", help="comma separated MODULE@BATCHxCONTEXT")
    parser.add_argument("--precisions", default="bf16", help="comma separated: fp32, bf16")
    parser.add_argument("--forms", default="reduce-overhead,tuned", help="comma separated, of bench_captured.py")
    parser.add_argument("--native", default="on", choices=("on", "off"), help="our own program of published models, too")
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
    arguments.site_words = ["--site", arguments.site] if arguments.site else []
    arguments.batch = arguments.vocab = None  # each module has its own
    find_program(arguments, ("build/tracestep",) if arguments.device == "cpu" else PROGRAMS)
    if not arguments.tracestep:
        raise SystemExit("[compare_captured] there is no tracestep; build it, or say --tracestep FILE")
    return arguments


def main():
    arguments = parse_arguments()
    deadline = time.monotonic() + arguments.budget if arguments.budget > 0 else math.inf
    if arguments.device == "cpu":  # for both alike
        os.environ.update(WIDE_MALLOC)
    environment = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "protocol": f"{arguments.rounds} rounds of visits, {arguments.warmup} warm-up and {arguments.steps} timed "
        "steps each; random weights and tokens",
        "tracestep": Own(arguments.tracestep, arguments).version(),
        "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    measured, text = {}, ""
    with tempfile.TemporaryDirectory(prefix="tracestep-captured-") as place:
        for number, group in enumerate(groups_of(arguments)):
            if time.monotonic() >= deadline:
                note(f"{group}: not reached")
                continue
            note(str(group))
            measured[group], about = measure(group, arguments, pathlib.Path(place) / str(number), deadline)
            environment["torch"] = about or environment.get("torch")
            environment["card"].append({"when": f"after {group}", "state": card_state(arguments.device)})
            text = write_results(measured, arguments, environment)
    print(text, end="")
    return 1 if any(v.problem for r in measured.values() for v in r.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
