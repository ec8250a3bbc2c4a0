#!/usr/bin/env python3
"""Runs PyTorch and tracestep on the same training steps on a GPU, in turns, and prints ratios.

For every size, context and precision, each PyTorch form and each granularity of tracestep
measures all modes, one after the other in the same run, so that both meet the card in the same
state. Small and short models come first, then larger and longer ones; with --budget the run ends
in time, and what was not reached is listed. The tables are written anew after every group.

    python3 bench/peers/compare_gpu.py --budget 300 --markdown out/gpu.md --json out/gpu.json
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import sys
import time

from gpu_report import FORMS, GRANULARITIES, Results, missing_lines, report
from gpu_runners import Group, TimeIsUp, Torch, Tracestep, card_state, note

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ("inference", "forward", "forward-backward", "step")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
PROGRAMS = ("build-cuda/tracestep", "tracestep")  # of a checkout; of an unpacked bundle
LIST_FLAGS = ("sizes", "contexts", "modes", "precisions", "forms", "ops")


def add_side_arguments(parser):
    """Where both sides are, and what is written."""
    parser.add_argument("--python", default="python3", help="an interpreter that has torch")
    parser.add_argument("--tracestep", metavar="FILE", help="the program")
    parser.add_argument("--tracestep-flags", default="", help="more flags for tracestep bench")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")


def find_program(arguments, programs=PROGRAMS):
    """The first that was built, unless --tracestep names one."""
    found = [str(ROOT / p) for p in programs if os.access(ROOT / p, os.X_OK)]
    arguments.tracestep = arguments.tracestep or (found or [None])[0]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = "comma separated; "
    parser.add_argument("--sizes", default="small,medium,large,xl,2.7B", help=comma + "presets")
    parser.add_argument("--contexts", default="128,512,1024,256", help=comma + "the first count "
                        "as the most telling")
    parser.add_argument("--modes", default=",".join(MODES), help=comma + ", ".join(MODES))
    parser.add_argument("--precisions", default="fp32,bf16", help=comma + ", ".join(PRECISIONS))
    parser.add_argument("--forms", default="course,best,graph", help=comma + "of PyTorch: "
                        + ", ".join(FORMS))
    parser.add_argument("--ops", default=",".join(GRANULARITIES), help=comma + "of tracestep: "
                        + ", ".join(GRANULARITIES))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed steps per turn")
    parser.add_argument("--rounds", type=int, default=1, help="turns of everybody per group")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS",
                        help="end by then; 0: when everything is measured")
    parser.add_argument("--turn-limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", help="of tracestep: cuda or cuda:N")
    parser.add_argument("--torch-device", help="of PyTorch; the same by default")
    add_side_arguments(parser)
    arguments = parser.parse_args()
    for flag in LIST_FLAGS:
        setattr(arguments, flag, [v for v in getattr(arguments, flag).split(",") if v])
    for flag, known in (("modes", MODES), ("precisions", PRECISIONS), ("forms", FORMS),
                        ("ops", GRANULARITIES)):
        for value in getattr(arguments, flag):
            if value not in known:
                parser.error(f"unknown value {value!r} of --{flag}; known: {', '.join(known)}")
    if not all(c.isdigit() for c in arguments.contexts):
        parser.error("--contexts are whole numbers")
    arguments.torch_device = arguments.torch_device or arguments.device
    find_program(arguments)
    return arguments


def ordered_groups(arguments):
    """Sizes and contexts by diagonals: no size waits for the longest context of a smaller one."""
    pairs = [(i + j, i, size, int(context)) for i, size in enumerate(arguments.sizes)
             for j, context in enumerate(arguments.contexts)]
    return [Group(size, context, precision) for _, _, size, context in
            sorted(pairs, key=lambda p: p[:2]) for precision in arguments.precisions]


def take_turn(runner, label, how, group, arguments, deadline, results):
    """One runner on one group. Returns False when the budget is spent."""
    now = time.monotonic()
    if now >= deadline:
        return False
    limit = min(deadline, now + arguments.turn_limit)
    try:
        for row in runner.rows(group, how, arguments.modes, limit):
            results.add(group, label, row)
    except TimeIsUp:
        if time.monotonic() >= deadline:
            return False
        results.fail(group, label, arguments.modes, "late",
                     f"longer than {arguments.turn_limit:g} s")
    except (RuntimeError, OSError, ValueError) as problem:
        results.fail(group, label, arguments.modes, "error", str(problem))
    for mode in arguments.modes:
        row = results.get(group, label, mode)
        if row["status"] in ("error", "late"):
            note(f"  {label} {mode}: {row['status']}: {row.get('detail')}")
    median = results.median(group, label, arguments.modes[-1])
    note(f"  {label}: {arguments.modes[-1]} {'–' if median is None else f'{median:.3f} ms'} "
         f"({time.monotonic() - now:.0f} s)")
    return True


def write_file(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_results(results, groups, arguments, runners, environment):
    text = report(results, groups, arguments.modes, runners, environment)
    if arguments.markdown:
        write_file(arguments.markdown, text)
    if arguments.json:
        document = {"schema": "tracestep.peers.gpu/1", "environment": environment,
                    "rows": results.as_json(),
                    "not_measured": missing_lines(results, groups, arguments.modes,
                                                  runners).splitlines()}
        write_file(arguments.json, json.dumps(document, indent=1) + "\n")
    return text


def make_turns(arguments, environment):
    """(label, runner, form or granularity) in the order of the turns; what is missing is said."""
    torch_turns, own_turns = [], []
    if arguments.forms:
        torch = Torch(arguments.python, arguments)
        try:
            environment["torch"] = torch.start()
            torch_turns = [(form, torch, form) for form in arguments.forms]
        except (RuntimeError, OSError) as problem:
            note(f"[compare_gpu] no PyTorch to compare with: {problem}")
    if arguments.tracestep:
        own = Tracestep(arguments.tracestep, arguments)
        environment["tracestep"] = own.version()
        own_turns = [(ops, own, ops) for ops in arguments.ops]
    else:
        note("[compare_gpu] no tracestep; build it with `make build-cuda` or name it with "
             "--tracestep")
    # The eager forms stand next to tracestep in time, too.
    return torch_turns[:1] + own_turns + torch_turns[1:]


def main():
    arguments = parse_arguments()
    start = time.monotonic()
    deadline = start + arguments.budget if arguments.budget > 0 else math.inf
    environment = {
        "date": datetime.date.today().isoformat(), "machine": f"{platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores", "python": platform.python_version(),
        "protocol": f"batch {arguments.batch}, vocabulary {arguments.vocab}, {arguments.warmup} "
        f"warm-up and {arguments.steps} timed calls, {arguments.rounds} round(s), fp32 is IEEE",
        "arguments": {k: v for k, v in vars(arguments).items()
                      if k not in ("python", "tracestep", "markdown", "json")},
        "card": [{"when": "at the start", "state": card_state(arguments.device)}]}
    turns = make_turns(arguments, environment)
    if not turns:
        raise SystemExit("[compare_gpu] neither PyTorch nor tracestep: nothing to measure")
    runners = [label for label, _, _ in sorted(
        turns, key=lambda t: (FORMS + GRANULARITIES).index(t[0]))]
    groups, results = ordered_groups(arguments), Results()
    text = ""
    for group in groups:
        note(f"{group} ({time.monotonic() - start:.0f} s)")
        in_time = all(take_turn(runner, label, how, group, arguments, deadline, results)
                      for _ in range(arguments.rounds) for label, runner, how in turns)
        environment["card"].append({"when": f"after {group}", "state": card_state(arguments.device)})
        text = write_results(results, groups, arguments, runners, environment)
        if not in_time:
            break
    for _, runner, _ in turns:
        if isinstance(runner, Torch):
            runner.stop()
    print(text, end="")
    return 1 if any(r["status"] in ("error", "late") for r in results.rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
