#!/usr/bin/env python3
"""Steps of 20 small models with one CPU thread and with two, in turns: does the second ever cost?

The last column is the time with two threads over the better of both; 1 is best. `--busy N` keeps N other
processes computing meanwhile; `--other PROGRAM` measures another build in the same turns.

    python3 bench/peers/small_steps.py --markdown out/small_steps.md --busy 1
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

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
             " | ".join(f"{names[i]}: two over better" for i in range(len(programs))) + " |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    ratios = [[] for _ in programs]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for model in MODELS:
            times = measure(model, programs, arguments.rounds)
            for at, program in enumerate(programs):
                one, two = times[program, 1], times[program, 2]
                ratios[at].append(two / min(one, two))
            lines.append(f"| {model[0]}, {model[1]}, {model[2]} × {model[3]} | " +
                         " | ".join(f"{ms:.3f}" for ms in times.values()) + " | " +
                         " | ".join(f"{of[-1]:.2f}" for of in ratios) + " |")
            print(lines[-1], flush=True)
    finally:
        for process in busy:
            process.kill()
    for name, of in zip(names, ratios):
        lines.append(f"\n{name}: {statistics.median(of):.2f} in the median, {max(of):.2f} at most, "
                     f"{sum(r <= 1.05 for r in of)} of {len(of)} within 1.05.")
        print(lines[-1])
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
