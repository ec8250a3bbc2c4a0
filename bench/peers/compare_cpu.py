#!/usr/bin/env python3
"""Runs PyTorch and tracestep on the same training shapes, in one go, and prints the ratios.

Every PyTorch build found (the system's python3-torch, the one in .venv-oracle, more through
--python) first gets its best settings: from a start of one thread per core, an OpenMP BLAS and
a generous malloc, each knob's alternatives are tried in turn and the fastest is kept. Then the
builds and tracestep take turns, round by round, so that drift of the machine hits all alike.

    python3 bench/peers/compare_cpu.py --markdown out/peers.md --json out/peers.json
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from torch_peer import Shape, find_builds, note, run_child, run_torch, tuned_settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ("inference", "forward", "forward-backward", "step")
DEFAULT_SHAPES = "small@128,small@512,4x256@128"


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((l.split(":")[1].strip() for l in lines if l.startswith("model name")), "unknown")


def run_tracestep(shape, mode, arguments, counts):
    command = [arguments.tracestep, "bench", *shape.flags(arguments), "--mode", mode,
               "--precision", "fp32", "--ops", "fused", "--device", "cpu",
               "--threads", str(arguments.threads), "--warmup", str(counts[0]),
               "--steps", str(counts[1]), "--format", "json", *arguments.tracestep_flags.split()]
    output, peak = run_child(command)
    row = json.loads(output)["rows"][0]
    if row["status"] != "ok":
        raise RuntimeError(f"tracestep says {row['status']}")
    return {"samples_ms": row["samples_ms"], "peak_rss_bytes": peak, "row": row}


class Cell:
    """The pooled samples of one runner at one shape and mode."""

    def __init__(self, runner, shape, mode, settings):
        self.runner, self.shape, self.mode, self.settings = runner, shape, mode, settings
        self.samples_ms, self.peak_rss_bytes, self.error = [], 0, None

    def add(self, run):
        try:
            row = run()
            self.samples_ms += row["samples_ms"]
            self.peak_rss_bytes = max(self.peak_rss_bytes, row["peak_rss_bytes"])
        except (RuntimeError, OSError, ValueError, KeyError) as problem:
            self.error = str(problem)
            note(f"  {self.runner} {self.mode}: {problem}")

    def as_json(self):
        ok = bool(self.samples_ms)
        return {
            "runner": self.runner, "size": self.shape.name, "context": self.shape.context,
            "mode": self.mode, "settings": self.settings, "samples_ms": self.samples_ms,
            "median_ms": statistics.median(self.samples_ms) if ok else None,
            "min_ms": min(self.samples_ms) if ok else None,
            "peak_rss_bytes": self.peak_rss_bytes or None, "error": self.error,
        }


def measure(builds, chosen, shape, mode, arguments):
    """All runners take turns, `rounds` times; each turn is a fresh process."""
    turns = []
    for build in builds:
        settings = chosen[(build["python"], shape.name)]
        for form in arguments.form.split(","):
            cell = Cell(f"torch {build['version']} {form}", shape, mode, settings.describe())
            turns.append((cell, lambda counts, b=build, s=settings, f=form: run_torch(
                b, s, shape, mode, arguments, counts, f)))
    if arguments.tracestep:
        cell = Cell("tracestep", shape, mode, f"threads {arguments.threads}, ops fused "
                    f"{arguments.tracestep_flags}".strip())
        turns.append((cell, lambda counts: run_tracestep(shape, mode, arguments, counts)))
    for _ in range(arguments.rounds):
        for cell, run in turns:
            cell.add(lambda: run((arguments.warmup, arguments.steps)))
    for cell, _ in turns:
        if cell.samples_ms:
            note(f"  {cell.runner} {shape.name}@{shape.context} {mode}: "
                 f"{statistics.median(cell.samples_ms):.1f} ms")
    return [cell.as_json() for cell, _ in turns]


def number(value, form):
    return "–" if value is None else format(value, form)


def make_table(rows):
    """One line per torch cell; tracestep's figures of the same shape and mode stand beside it."""
    header = ["model", "context", "mode", "torch", "torch ms", "min", "tracestep ms", "min",
              "torch / tracestep", "torch RSS MiB", "tracestep RSS MiB"]
    ours = {(r["size"], r["context"], r["mode"]): r for r in rows if r["runner"] == "tracestep"}
    lines = [header]
    for row in rows:
        if row["runner"] == "tracestep":
            continue
        own = ours.get((row["size"], row["context"], row["mode"]), {})
        both = row["median_ms"] and own.get("median_ms")
        lines.append([
            row["size"], str(row["context"]), row["mode"], row["runner"].removeprefix("torch "),
            number(row["median_ms"], ".1f"), number(row["min_ms"], ".1f"),
            number(own.get("median_ms"), ".1f"), number(own.get("min_ms"), ".1f"),
            number(row["median_ms"] / own["median_ms"] if both else None, ".2f"),
            number(row["peak_rss_bytes"] and row["peak_rss_bytes"] / 2**20, ".0f"),
            number(own.get("peak_rss_bytes") and own["peak_rss_bytes"] / 2**20, ".0f"),
        ])
    return lines


def markdown(table, chosen, builds, environment):
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    text = []
    for index, line in enumerate(table):
        text.append("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |")
        if index == 0:
            text.append("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    text += ["", f"{environment['cpu']}, {environment['threads']} threads, batch "
             f"{environment['batch']}, vocabulary {environment['vocab']}, load average "
             f"{environment['load_start']:.1f} at the start and {environment['load_end']:.1f} "
             "at the end. Medians and minima over all rounds.", ""]
    versions = {b["python"]: b["version"] for b in builds}
    for (python, name), settings in chosen.items():
        text.append(f"- torch {versions[python]}, {name}: {settings.describe()}")
    return "\n".join(text) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=DEFAULT_SHAPES, help="comma separated NAME@CONTEXT")
    parser.add_argument("--mode", default="forward,forward-backward,step")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="samples per round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--form", default="best",
                        help="comma separated: best, course, compiled (best under torch.compile)")
    parser.add_argument("--no-tune", action="store_true", help="take each knob's first option")
    parser.add_argument("--tune-steps", type=int, default=3)
    parser.add_argument("--python", action="append", default=[], help="one more interpreter")
    parser.add_argument("--tracestep", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--tracestep-flags", default="", help="more flags for tracestep bench")
    parser.add_argument("--realtime", action="store_true", help="run everything at real-time "
                        "priority (needs the right to): for a machine that others use, too")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    for flag, known in (("mode", MODES), ("form", ("best", "course", "compiled"))):
        for value in getattr(arguments, flag).split(","):
            if value not in known:
                parser.error(f"unknown {flag} {value!r}; known: {', '.join(known)}")
    return arguments


def write_file(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main():
    arguments = parse_arguments()
    shapes = [Shape.parse(s) for s in arguments.shapes.split(",")]
    if arguments.realtime:  # children inherit it, so it holds for all runners alike
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    if not os.access(arguments.tracestep, os.X_OK):
        note(f"{arguments.tracestep} is not there yet; measuring PyTorch alone")
        arguments.tracestep = None
    pythons = ["/usr/bin/python3", str(ROOT / ".venv-oracle/bin/python"), *arguments.python]
    builds = find_builds(dict.fromkeys(pythons), arguments.threads)
    if not builds and not arguments.tracestep:
        raise SystemExit("[compare_cpu] found neither PyTorch nor tracestep; install "
                         "python3-torch, run tools/python_env, or build the project first")
    environment = {"cpu": cpu_name(), "threads": arguments.threads, "batch": arguments.batch,
                   "vocab": arguments.vocab, "load_start": os.getloadavg()[0]}
    chosen, trials = tuned_settings(builds, shapes, arguments)
    rows = []
    for shape in shapes:
        for mode in arguments.mode.split(","):
            rows += measure(builds, chosen, shape, mode, arguments)
    environment["load_end"] = os.getloadavg()[0]
    report = markdown(make_table(rows), chosen, builds, environment)
    print(report, end="")
    if arguments.markdown:
        write_file(arguments.markdown, report)
    if arguments.json:
        results = {"schema": "tracestep.peers.cpu/1", "environment": environment,
                   "builds": builds, "tuning": trials, "rows": rows}
        write_file(arguments.json, json.dumps(results, indent=1) + "\n")
    return 1 if any(r["error"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
