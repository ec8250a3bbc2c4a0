#!/usr/bin/env python3
"""Runs the long batteries one after the other and writes a table of what they found.

    tools/soak/run.py [--scale 0.01] [--only signals,fuzz] [--jobs N] [--output out/soak.md]

Never part of CI: at full scale they take hours. Each battery is a program of this folder whose last
line is a JSON summary; --scale multiplies how much each does, --jobs shares it among as many
processes with seeds of their own (but for those that build first).
"""
import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# (script, flag for how much, how much at full scale, what one of them is)
BATTERIES = [
    ("signals.py", "--count", 200, "of SIGTERM and SIGINT each, for train, bench, attention, precision"),
    ("kills_inside_saves.py", "--count", 200, "kills of training that saves every step"),
    ("damaged_folders.py", "--count", 100, "damaged checkpoint folders"),
    ("damaged_models.py", "--count", 2000, "damaged folders of published models"),
    ("full_disks.py", "--count", 100, "runs on full disks"),
    ("limits.py", "--count", 400, "runs with little memory, no place for files or no shared memory"),
    ("accessibility.py", "--count", 6, "audits of a report by axe-core, three widths in both schemes"),
    ("empty_machine.py", "--count", 10, "commands of README.md's quick start on an empty Debian 12"),
    ("readme_commands.py", "--count", 40, "commands of README.md's table that take minutes"),
    ("claims.py", "--count", 50, "commands of published claims, as they are printed"),
    ("random_tables.py", "--count", 100000, "random tables through each question of the study"),
    ("recompute_budgets.py", "--count", 384, "steps of ten memory budgets each, predicted"),
    ("fit_questions.py", "--count", 10000, "random questions of what fits, against every answer"),
    ("ranks.py", "--count", 2304, "steps of several ranks, in every form"),
    ("rank_kills.py", "--count", 100, "trainings of several ranks of which one is killed or stopped"),
    ("strangers.py", "--count", 100000, "connections to a rank 0 that waits, or that has met its ranks"),
    ("false_ranks.py", "--count", 1000, "runs of ranks of which one knows the secret and misbehaves"),
    ("hosts.py", "--count", 20, "rounds of ranks on two hosts (network namespaces), each with a cut cable"),
    ("slurm.py", "--count", 10, "rounds of a job array and of trainings of two ranks under Slurm, each with a kill"),
    ("random_programs.py", "--count", 10000, "random programs, every pass and both executors"),
    ("thread_races.py", "--count", 48, "commands, and tests, under ThreadSanitizer"),
    ("random_commands.py", "--count", 20000, "random command lines over all commands and flags"),
    ("hostile_names.py", "--count", 20000, "names that look like something else, for every flag and file"),
    ("hostile_texts.py", "--count", 300, "reports of studies with texts that try to run"),
    ("safetensors_headers.py", "--count", 30000, "headers beside the reference library"),
    ("tokenizer_ids.py", "--count", 100000, "random texts for each family's tokenizer, beside the library"),
    ("random_tokenizers.py", "--count", 20000, "random tokenizer.json files, beside the library"),
    ("fuzz.py", "--runs", 1000000, "executions of every fuzz target"),
]
BUILDING = ("empty_machine.py", "recompute_budgets.py", "fit_questions.py",
            "random_programs.py", "thread_races.py", "safetensors_headers.py",
            "tokenizer_ids.py", "random_tokenizers.py", "fuzz.py")


def summary_of(output):
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def run(script, flag, amount, jobs):
    """(whether all went well, the summaries of all processes added up)"""
    begin = time.monotonic()
    jobs = 1 if script in BUILDING else jobs
    shares = [["--seed", str(seed)] for seed in range(1, jobs + 1)]
    command = [sys.executable, HERE / script, flag, str(-(-amount // len(shares)))]
    running = [subprocess.Popen([*command, *share], text=True, stdout=subprocess.PIPE)
               for share in shares]
    summaries = []
    for process in running:
        output = process.communicate()[0]
        sys.stdout.write(output)
        summaries.append(summary_of(output))
    sys.stdout.flush()
    total = {key: sum(s.get(key, 0) for s in summaries) for key in ("runs", "faults")}
    total["seconds"] = round(time.monotonic() - begin, 1)
    return all(p.returncode == 0 for p in running) and all(summaries), total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="names of batteries, separated by commas")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", default="out/soak.md")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    lines = ["| battery | what | runs | faults | seconds |", "|---|---|---|---|---|"]
    failed = False
    for script, flag, full, what in BATTERIES:
        name = script.removesuffix(".py")
        if only and name not in only:
            continue
        amount = max(1, round(full * options.scale))
        print(f"== {name}: {amount} {what}", flush=True)
        is_fine, total = run(script, flag, amount, options.jobs)
        failed |= not is_fine
        faults = total["faults"] if is_fine or total["faults"] else "broke off"
        lines.append(f"| {name} | {amount} {what} | {total['runs']} | {faults} "
                     f"| {total['seconds']} |")
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    Path(options.output).write_text(
        f"# Long batteries\n\n{platform.machine()}, {platform.platform()}.\n\n" + "\n".join(lines)
        + "\n")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
