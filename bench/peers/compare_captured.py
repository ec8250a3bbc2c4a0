#!/usr/bin/env python3
"""Whole training steps of captured modules: torch.compile, tracestep --program and, where the module is a published
model, tracestep --model, in one run, in turns.

pytorch/bench_captured.py has the modules. All are captured and compiled first, at once; then a round visits everybody.
model_turns.py has the protocol.

    python3 bench/peers/compare_captured.py --budget 290 --markdown out/captured.md --json out/captured.json
    python3 bench/peers/compare_captured.py --modules llama-3.2-1b@4x2048 --forms ''     # captured and native alone
    python3 bench/peers/compare_captured.py --device cpu --modules course@1x64 --precisions fp32 \\
        --forms eager --native off --steps 2 --rounds 1

All weights and tokens are random. On a GPU, the modules of all forms lie in its memory at once.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_report import render
from gpu_runners import BENCH_GPU, TimeIsUp, Torch, last_line, note
from model_turns import OURS, Own, compare, completed, parser_of, problems_of, spread_text

BENCH_CAPTURED = BENCH_GPU.with_name("bench_captured.py")
MODULES = "gpt2@8x1024,nanogpt@8x1024,course@4x512,qwen2.5-0.5b@4x2048,llama-3.2-1b@4x2048"
NATIVE, OWN_MODULES = "tracestep, native", ("nanogpt", "course")


class Program(Own):
    """`tracestep bench --program` of a captured module."""

    def __init__(self, program, arguments, folder):
        super().__init__(program, arguments)
        self.folder = folder

    def model_words(self, group):
        return ["--program", str(self.folder)]

    def prepare(self, group, limit):
        """Captures the module."""
        began = time.monotonic()
        try:
            done = subprocess.run([self.arguments.python, str(BENCH_CAPTURED), *self.arguments.torch_options, "--capture",
                                   f"{group.size},{group.batch},{group.context}", "--folder", str(self.folder)],
                                  capture_output=True, text=True, timeout=max(0.1, limit - began))
        except subprocess.TimeoutExpired:
            raise TimeIsUp from None
        if done.returncode:
            raise RuntimeError(last_line(done.stderr))
        note(f"  {last_line(done.stdout)} ({time.monotonic() - began:.0f} s)")


def table(measured):
    """Rows by module and form: ratios to the captured program, and of the fastest form of PyTorch."""
    lines, said = [], [f"- {who}: {problem}" for who, problem in problems_of(measured).items()]
    for group, results in measured.items():
        ours = results[OURS].medians()
        theirs = []
        for form, visits in results.items():
            medians, peak = visits.medians(), visits.latest("peak_bytes")
            ratios = [] if form == OURS else [t / o for t, o in zip(medians, ours)]
            lines.append([group.size, f"{group.batch} × {group.context}", group.precision, form,
                          spread_text(medians, 2), spread_text(ratios, 3), f"{peak / 2**20:.0f}" if peak else "–"])
            if medians and form not in (OURS, NATIVE):
                theirs.append((statistics.median(medians), form))
        if theirs and ours:
            said.append(f"- {group}: the fastest of PyTorch, {min(theirs)[1]}, takes "
                        f"{min(theirs)[0] / statistics.median(ours):.3f} times as long.")
    header = ["module", "batch × context", "precision", "form", "step ms", "form / captured", "peak MiB"]
    return render(header, lines) + "\n" + "\n".join(said) + "\n"


def main():
    parser = parser_of(__doc__, "reduce-overhead", 0)
    parser.add_argument("--modules", default=MODULES, dest="shapes", help="comma separated MODULE@BATCHxCONTEXT")
    parser.add_argument("--native", default="on", choices=("on", "off"), help="our own program of published models, too")
    arguments = completed(parser.parse_args())
    if not arguments.tracestep:
        raise SystemExit("[compare_captured] there is no tracestep; build it, or say --tracestep FILE")
    with tempfile.TemporaryDirectory(prefix="tracestep-captured-") as place:
        def turns_of(group):
            turns = {OURS: Program(arguments.tracestep, arguments, pathlib.Path(place) / f"{group.size}-{group.precision}")}
            if arguments.native == "on" and group.size not in OWN_MODULES:
                turns[NATIVE] = Own(arguments.tracestep, arguments)
            return turns | {form: Torch(arguments.python, arguments, BENCH_CAPTURED, arguments.torch_options)
                            for form in arguments.forms}

        return compare(arguments, "Captured modules: PyTorch and tracestep", "tracestep.peers.captured/1", turns_of, table)


if __name__ == "__main__":
    sys.exit(main())
