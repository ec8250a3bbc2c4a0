"""What compare_models.py and compare_captured.py share: whole steps of models, whose forms take turns in one run.

First all forms of some groups (a model, its shape and a precision) get ready, at once; what is timed meanwhile does not
count. Then a round visits every form of every group. Results are written after each visit, so that a run which the clock
cuts has what it measured. Medians of the visits' medians; ± is half of what the visits lie apart; a ratio is taken in
each round.
"""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import platform
import statistics
import sys
import threading
import time
import typing

from compare_gpu import PROGRAMS, add_side_arguments, find_program, write_file
from gpu_report import environment_lines, shown
from gpu_runners import BENCH_GPU, TimeIsUp, Torch, Tracestep, card_state, note

sys.path.append(str(BENCH_GPU.parent))
import course_sizes

WIDE_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184",
               "MALLOC_TOP_PAD_": "67108864", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
OURS = "tracestep"
ONE_OF_OURS = threading.Lock()  # gets ready at a time: the memory of a GPU is full of PyTorch's models then


class Group(typing.NamedTuple):
    size: str
    batch: int
    context: int
    precision: str
    lora: str = ""  # adapters alone are trained, as tracestep's --lora says
    packed: bool = False  # rows of sixteen documents

    def __str__(self):
        return " ".join([f"{self.size} {self.batch}×{self.context} {self.precision}", *([self.lora] if self.lora else []),
                         *(["packed"] if self.packed else [])])


class Own(Tracestep):
    """`tracestep bench` of a model, its best form."""

    def model_words(self, group):
        model = ["--size", group.size] if group.size in course_sizes.SIZES else ["--model", group.size]
        return [*model, "--batch", str(group.batch), "--context", str(group.context),
                *(["--lora", group.lora] if group.lora else []), *(["--pack"] if group.packed else [])]

    def command(self, group, ops, modes, rows_file):
        a = self.arguments
        return [self.program, "bench", *self.model_words(group), "--precision", group.precision, "--mode", "step",
                "--executor", "compiled", "--attention", "flash", "--device", a.device,
                *(["--threads", str(a.threads)] if a.threads else []), "--warmup", str(a.warmup),
                "--steps", str(a.steps), "--seed", str(a.seed), "--roof", "0", "--format", "json",
                "--resume", rows_file, *a.tracestep_flags.split()]

    def prepare(self, group, limit):
        """Nothing: `--model` needs none."""


class Visits:
    """The rows of one form of a group, a row for each visit; or why there is none."""

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


def visit(runner, form, group, limit, visits, counts=None):
    """One turn; a runner that failed is not visited again. `counts`: PyTorch's steps of warm-up and timed ones, instead
    of those of the arguments."""
    if visits.problem or time.monotonic() >= limit:
        return
    began = time.monotonic()
    try:
        for row in runner.rows(group, form, ["step"], limit, *([counts] if counts else [])):
            if row["status"] == "ok":
                visits.rows.append(row)
            else:
                visits.problem = f"{row['status']}: {row.get('detail')}"
    except TimeIsUp:
        visits.problem = "late"
    except (RuntimeError, OSError, ValueError) as problem:
        visits.problem = f"error: {problem}"
    done = f"{visits.medians()[-1]:.2f} ms" if visits.rows else "–"
    note(f"  {group}, {form}: {visits.problem or done} ({time.monotonic() - began:.0f} s)")


def get_ready(runner, form, group, limit, visits):
    """Whatever a first visit needs once: captures, compiled code."""
    if isinstance(runner, Torch):
        visit(runner, form, group, limit, visits, (0, 1))  # processes that share cores take long for a step
        return
    try:
        runner.prepare(group, limit)
        if runner.arguments.device == "cpu":
            return  # there is nothing that a first visit compiles
        with ONE_OF_OURS:
            visit(runner, form, group, limit, visits)
    except (RuntimeError, TimeIsUp) as problem:
        visits.problem = "late" if isinstance(problem, TimeIsUp) else f"error: {problem}"
        note(f"  {group}, {form}: {visits.problem}")


def measure(turns, arguments, deadline, results, written):
    """Fills `results` {group: {form: Visits}} of `turns` {group: {form: runner}}; PyTorch's processes live meanwhile.

    `written()` is called after each visit. What is not ready after --turn-limit is late."""
    everybody = [(group, form) for group, runners in turns.items() for form in runners]
    ready_by = min(deadline, time.monotonic() + arguments.turn_limit)
    with concurrent.futures.ThreadPoolExecutor(len(everybody)) as pool:
        list(pool.map(lambda who: get_ready(turns[who[0]][who[1]], who[1], who[0], ready_by, results[who[0]][who[1]]),
                      everybody))
    for group, form in everybody:
        results[group][form].rows.clear()
    for number in range(arguments.rounds):
        note(f"round {number + 1}")
        for group, form in everybody:
            visit(turns[group][form], form, group, min(deadline, time.monotonic() + arguments.turn_limit),
                  results[group][form])
            written()
    about = None
    for group, form in everybody:
        if isinstance(runner := turns[group][form], Torch):
            about = runner.about or about
            runner.stop()
    return about


def problems_of(results):
    return {f"{group}, {form}": visits.problem for group, forms in results.items() for form, visits in forms.items()
            if visits.problem}


def compare(arguments, title, schema, turns_of, table_of):
    """Measures all groups, `arguments.together` of them at a time, prints and writes the table; the exit status.

    `turns_of(group)` is {form: runner}, and `table_of(results)` the table as Markdown."""
    deadline = time.monotonic() + arguments.budget if arguments.budget > 0 else math.inf
    if arguments.device == "cpu":  # for both alike
        os.environ.update(WIDE_MALLOC)
    groups = groups_of(arguments)
    together = arguments.together or len(groups)
    processes = max(1, min(together, len(groups)) * len(arguments.forms))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    environment = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "protocol": f"{arguments.rounds} rounds of visits, {arguments.warmup} warm-up and "
        f"{arguments.steps} timed steps each; random weights and tokens",
        "tracestep": Own(arguments.tracestep, arguments).version() if arguments.tracestep else None,
        "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    results = {}

    def text():
        return "\n".join([f"# {title}\n", environment_lines(environment), table_of(results)])

    def write():
        if arguments.markdown:
            write_file(arguments.markdown, text())
        if arguments.json:
            rows = [{**group._asdict(), "runner": form, "visit": number, **row} for group, forms in results.items()
                    for form, visits in forms.items() for number, row in enumerate(visits.rows)]
            write_file(arguments.json, json.dumps({"schema": schema, "rows": rows, "environment": environment,
                                                   "problems": problems_of(results)}, indent=1) + "\n")

    for first in range(0, len(groups), together):
        some = groups[first:first + together]
        if time.monotonic() >= deadline:
            note("not reached: " + ", ".join(map(str, some)))
            continue
        turns = {group: turns_of(group) for group in some}
        results.update({group: {form: Visits() for form in runners} for group, runners in turns.items()})
        about = measure(turns, arguments, deadline, results, write)
        environment["torch"] = about or environment.get("torch")
        environment["card"].append({"when": f"after {some[-1]}", "state": card_state(arguments.device)})
        write()
    print(text(), end="")
    return 1 if problems_of(results) else 0


def groups_of(arguments):
    shapes = []
    for text in arguments.shapes.split(","):
        size, _, tokens = text.partition("@")
        tokens, _, rows = tokens.partition(":")
        batch, _, context = tokens.partition("x")
        if not (batch.isdigit() and context.isdigit()) or rows not in ("", "packed"):
            raise SystemExit(f"{text!r} is no shape; write MODEL@BATCHxCONTEXT, and :packed for rows of documents")
        shapes.append((size, int(batch), int(context), rows == "packed"))
    adapters = (getattr(arguments, "lora", None) or "").split(";")
    return [Group(size, batch, context, precision, lora, packed) for lora in adapters
            for size, batch, context, packed in shapes for precision in arguments.precisions.split(",")]


def parser_of(description, forms, together):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", default="bf16", help="comma separated: fp32, bf16, bf16-pure")
    parser.add_argument("--forms", default=forms, help="of PyTorch, comma separated")
    parser.add_argument("--together", type=int, default=together, metavar="N",
                        help="so many groups get ready, and are then measured, at a time; 0: all")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a visit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU, for both")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="end by then")
    parser.add_argument("--turn-limit", type=float, default=300, metavar="SECONDS",
                        help="of a visit, and of getting ready")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--site", metavar="FOLDER", help="where transformers is, if not installed")
    add_side_arguments(parser)
    return parser


def completed(arguments):
    """The arguments, with what the runners of PyTorch read."""
    arguments.torch_device = arguments.device
    arguments.forms = [f for f in arguments.forms.split(",") if f]
    arguments.batch = arguments.vocab = None  # each group has its own
    find_program(arguments, ("build/tracestep",) if arguments.device == "cpu" else PROGRAMS)
    arguments.torch_options = [*(["--site", arguments.site] if arguments.site else []),
                               *(["--threads", str(arguments.threads)] if arguments.threads else [])]
    return arguments
