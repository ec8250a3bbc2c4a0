#!/usr/bin/env python3
"""Steps of 20 small models with one CPU thread and with two, in turns: does the second ever cost?

The last column but one is the time with two threads over the better of both; 1 is best. `--busy N` keeps N other
processes computing meanwhile; `--other PROGRAM` measures another build in the same turns. The last column is what the
program could not have had while the model was measured, of all cores' time: what the host gave to other guests (steal) and,
without --busy, what other processes took. Where that is more than 2 % the host is in the figure, and the line says so.

    python3 bench/peers/small_steps.py --markdown out/small_steps.md --busy 1
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# d_model, layers, batch, context; heads of 16, d_ff twice as wide, as many words as 8 d_model.
MODELS = [(16, 1, 1, 8), (16, 2, 1, 16), (32, 1, 1, 16), (32, 2, 1, 16), (32, 2, 2, 16), (32, 2, 4, 16),
          (48, 2, 2, 16), (64, 1, 1, 32), (64, 2, 1, 32), (64, 2, 2, 32), (64, 4, 2, 32), (64, 2, 4, 64),
          (96, 2, 2, 32), (96, 4, 2, 64), (128, 2, 1, 64), (128, 2, 2, 64), (128, 4, 2, 64), (128, 4, 4, 64),
          (192, 4, 2, 64), (256, 4, 2, 64)]


def median_ms(program, model, threads, steps):
    width, layers, batch, context = model
    flags = {"d-model": width, "d-ff": 2 * width, "layers": layers, "heads": width // 16, "vocab": 8 * width,
             "batch": batch, "context": context, "mode": "step", "threads": threads, "steps": steps,
             "warmup": steps // 3, "format": "json"}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    run = subprocess.run([program, "bench", *words], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["rows"][0]["median_ms"]


class Outside:
    """Shares of all cores' time since the start (%): stolen by the host, and used by processes that are not children."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        words = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
        user, nice, system, _, _, irq, softirq, steal = (int(w) / os.sysconf("SC_CLK_TCK") for w in words[1:9])
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), steal, user + nice + system + irq + softirq - sum(u.ru_utime + u.ru_stime for u in own)

    def shares(self):
        seconds, steal, others = (after - before for after, before in zip(self.now(), self.start))
        cores = os.cpu_count() * seconds
        return 100 * steal / cores, max(0.0, 100 * others / cores)


def measure(model, programs, rounds):
    """{(program, threads): median ms of the rounds}"""
    steps = max(20, 400_000 // (model[0] * model[1] * model[2] * model[3]))
    visits = {(program, threads): [] for program in programs for threads in (1, 2)}
    for _ in range(rounds):
        for (program, threads), times in visits.items():
            times.append(median_ms(program, model, threads, min(steps, 300)))
    return {key: statistics.median(times) for key, times in visits.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", metavar="FILE", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--other", metavar="FILE", help="another build, in the same turns")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="other processes that compute")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", metavar="FILE")
    arguments = parser.parse_args()
    programs = [arguments.tracestep] + ([arguments.other] if arguments.other else [])
    names = ["tracestep", "other"]
    columns = [f"{names[i]}, {threads} thread{'s' * (threads > 1)}" for i in range(len(programs)) for threads in (1, 2)]
    lines = ["| d_model, layers, batch × context | " + " | ".join(f"{c} ms" for c in columns) + " | " +
             " | ".join(f"{names[i]}: two over better" for i in range(len(programs))) + " | stolen; others' % |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    ratios, host_cells = [[] for _ in programs], 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for model in MODELS:
            outside = Outside()
            times = measure(model, programs, arguments.rounds)
            stolen, others = outside.shares()
            is_host = stolen > 2 or (others > 2 and not arguments.busy)
            host_cells += is_host
            for at, program in enumerate(programs):
                one, two = times[program, 1], times[program, 2]
                ratios[at].append(two / min(one, two))
            lines.append(f"| {model[0]}, {model[1]}, {model[2]} × {model[3]} | " +
                         " | ".join(f"{ms:.3f}" for ms in times.values()) + " | " +
                         " | ".join(f"{of[-1]:.2f}" for of in ratios) +
                         f" | {stolen:.1f}; {others:.1f}{', the host' if is_host else ''} |")
            print(lines[-1], flush=True)
    finally:
        for process in busy:
            process.kill()
    lines.append(f"\nThe host or others took more than 2 % of the cores in {host_cells} of {len(MODELS)} models.")
    print(lines[-1])
    for name, of in zip(names, ratios):
        lines.append(f"\n{name}: {statistics.median(of):.2f} in the median, {max(of):.2f} at most, "
                     f"{sum(r <= 1.05 for r in of)} of {len(of)} within 1.05.")
        print(lines[-1])
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
