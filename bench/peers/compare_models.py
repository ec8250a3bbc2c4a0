#!/usr/bin/env python3
"""Whole training steps of published models: tracestep beside `transformers`, in one run, in turns. The course's model, by the
name of its size, is plain PyTorch's.

Every form of PyTorch (pytorch/bench_models.py lists them) is a process of its own that keeps its
compiled model between visits; tracestep is a process per visit. model_turns.py has the protocol.

    python3 bench/peers/compare_models.py --markdown out/models.md --json out/models.json
    python3 bench/peers/compare_models.py --device cpu --shapes gpt2@1x256 --precisions fp32,bf16 \\
        --forms eager,whole

All weights and tokens are random. On a GPU, the models of all forms lie in its memory at once.
"""

import sys
import threading

from gpu_report import render
from gpu_runners import BENCH_GPU, Torch
from model_turns import OURS, Own, compare, course_sizes, completed, parser_of, problems_of, spread_text

BENCH_MODELS = BENCH_GPU.with_name("bench_models.py")
SHAPES = "llama-3.2-1b@4x2048,qwen3-0.6b@4x2048,smollm2-135m@4x2048,gpt2@8x1024"


class SharedTorch(Torch):
    """A process whose model serves several groups, one at a time."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.turn = threading.Lock()

    def rows(self, *arguments):
        with self.turn:
            yield from super().rows(*arguments)


def table(measured, is_gpu):
    has_adapters = any(group.lora for group in measured)
    header = ["model", *(["adapters"] if has_adapters else []), "batch × context", "precision", "form", "step ms",
              "PyTorch / tracestep", "peak MiB", "parameters"]
    lines = []
    for group, results in measured.items():
        ours = results[OURS].medians() if OURS in results else []
        for form, visits in results.items():
            ratios = [t / o for t, o in zip(visits.medians(), ours)] if form != OURS else []
            peak = visits.latest("peak_bytes")
            tokens = f"{group.batch} × {group.context}" + (" packed" if group.packed else "")
            lines.append([group.size, *([group.lora or "none"] if has_adapters else []), tokens, group.precision, form,
                          spread_text(visits.medians(), 2), spread_text(ratios, 3),
                          f"{peak / 2**20:.0f}" if peak and (is_gpu or form == OURS) else "–",
                          str(visits.latest("parameters") or "–")])
    problems = [f"- {who}: {problem}" for who, problem in problems_of(measured).items()]
    return render(header, lines) + "\n" + ("\n" + "\n".join(problems) + "\n" if problems else "")


def main():
    parser = parser_of(__doc__, "layers,graph,graph-whole", 1)
    parser.add_argument("--shapes", default=SHAPES, help="comma separated MODEL@BATCHxCONTEXT; MODEL: one that "
                        "bench_models.py knows, a size of the course's model, or a config.json; :packed after it: rows of sixteen documents")
    parser.add_argument("--lora", metavar="PARTS;PARTS…", help="train adapters alone, as tracestep's --lora says; "
                        "PyTorch's are PEFT's, and bitsandbytes' with base=nf4")
    arguments = completed(parser.parse_args())
    shared = {}

    def turns_of(group):
        ours = {OURS: Own(arguments.tracestep, arguments)} if arguments.tracestep else {}
        theirs = {}
        for form in arguments.forms:
            if group.size in course_sizes.SIZES and form not in course_sizes.FORMS:
                continue
            who = (group.size, group.precision, group.lora, form)
            if not group.lora or who not in shared:
                shared[who] = SharedTorch(arguments.python, arguments, BENCH_MODELS, arguments.torch_options)
            theirs[form] = shared[who]
        return ours | theirs

    return compare(arguments, "Steps of models: PyTorch and tracestep", "tracestep.peers.models/1", turns_of,
                   lambda measured: table(measured, arguments.device != "cpu"))


if __name__ == "__main__":
    sys.exit(main())
