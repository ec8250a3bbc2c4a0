#!/usr/bin/env python3
"""Fuzzes every reader, with the address and undefined-behaviour sanitizers, and measures coverage.

Builds the targets of tests/fuzz with clang (preset `fuzz`; packages: tools/bootstrap fuzz), runs each
from its corpus, and prints executions, faults and the lines of its reader that were reached. The
corpus in the repository stays as it is; what made a target fail is kept in out/fuzz. The last line
is a summary as JSON. Exit status 1: a fault, or fewer lines than --coverage.

Usage: tools/soak/fuzz.py [--runs N | --seconds-per-target N] [--targets NAME,...] [--coverage PERCENT]
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-fuzz"
OUT = ROOT / "out" / "fuzz"

# Target -> the files of src/ that are its reader.
READERS = {
    "captured": ["captured/captured_model.cpp", "captured/forward_program.cpp", "captured/capture_index.cpp",
                 "captured/leaf_blocks.cpp", "captured/read_captured.cpp", "nn/captured_programs.cpp"],
    "checkpoint": ["weights/checkpoint_format.cpp", "weights/saved_tensors.cpp", "weights/tensor_pieces.cpp"],
    "documents": ["tokens/documents.cpp", "tokens/chat_templates.cpp"],
    "gzip": ["lab/report/gzip.cpp"],
    "json": ["base/json.cpp", "base/json_events.cpp"],
    "memory_trace": ["lab/snapshots/trace.cpp"],
    "message": ["base/utf8.cpp"],
    "pickle": ["lab/report/unpickle.cpp"],
    "program": ["ir/parse.cpp"],
    "ranks": ["backends/comm/tcp/handshake.cpp", "backends/comm/tcp/messages.cpp"],
    "result": ["lab/compare/compare.cpp"],
    "result_csv": ["lab/compare/result_csv.cpp", "lab/report/csv_reader.cpp"],
    "safetensors": ["weights/safetensors_header.cpp"],
    "snapshot": ["lab/read/snapshot_file.cpp", "lab/read/snapshot_tables.cpp"],
    "token_file": ["tokens/token_file.cpp", "tokens/npy.cpp"],
    "tokenizer": ["tokens/tokenizer.cpp"],
    "tokenizer_json": ["tokens/tokenizer_json.cpp", "tokens/tokenizer_fields.cpp", "tokens/text_steps.cpp",
                       "tokens/text_pattern.cpp", "tokens/byte_pairs.cpp", "tokens/added_tokens.cpp"],
    "trace": ["lab/read/" + name for name in
              ("byte_stream.cpp", "file_kind.cpp", "json_stream.cpp", "trace_file.cpp",
               "trace_tables.cpp", "trace_times.cpp", "trace_difference.cpp")],
    "weight_index": ["weights/weight_index.cpp"],
}
MAX_BYTES = {"captured": 8192, "program": 4096, "ranks": 512, "tokenizer": 8192, "tokenizer_json": 8192}


def build(targets):
    subprocess.run(["cmake", "--preset", "fuzz", "--log-level=WARNING"], cwd=ROOT, check=True)
    subprocess.run(["cmake", "--build", str(BUILD), "--target", *("fuzz_" + t for t in targets)],
                   check=True)


def fuzz(target, args, folder):
    """Runs one target; (executions, name of the input that made it fail or None, its last words)."""
    new = folder / "new"
    new.mkdir()
    crash = OUT / f"{target}-"
    command = [str(BUILD / "tests/fuzz" / f"fuzz_{target}"), str(new),
               str(ROOT / "tests/fuzz/corpus" / target), "-print_final_stats=1", "-timeout=60",
               f"-max_len={MAX_BYTES.get(target, 16384)}", "-rss_limit_mb=2048",
               f"-artifact_prefix={crash}", f"-seed={args.seed}"]
    command.append(f"-runs={args.runs}" if args.runs else
                   f"-max_total_time={args.seconds_per_target}")
    dictionary = ROOT / "tests/fuzz/dictionaries" / target
    if dictionary.is_file():
        command.append(f"-dict={dictionary}")
    run = subprocess.run(command, capture_output=True, text=True, errors="replace",
                         env={**os.environ, "LLVM_PROFILE_FILE": str(folder / "raw")})
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", run.stderr)
    kept = re.search(r"Test unit written to (\S+)", run.stderr)
    fault = None
    if run.returncode != 0:
        fault = kept.group(1) if kept else f"status {run.returncode}"
    return int(executions.group(1)) if executions else 0, fault, run.stderr[-3000:]


def coverage(target, folder):
    """Percent of the reader's lines that were reached; None when a fault left no profile."""
    raw, merged = folder / "raw", folder / "merged"
    if not raw.is_file():
        return None
    subprocess.run(["llvm-profdata-16", "merge", "-o", merged, raw], check=True)
    report = subprocess.run(
        ["llvm-cov-16", "export", "-summary-only", str(BUILD / "tests/fuzz" / f"fuzz_{target}"),
         f"-instr-profile={merged}"], capture_output=True, text=True, check=True)
    counts = [f["summary"]["lines"] for f in json.loads(report.stdout)["data"][0]["files"]
              if f["filename"].endswith(tuple("src/" + name for name in READERS[target]))]
    return 100 * sum(c["covered"] for c in counts) / max(1, sum(c["count"] for c in counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--runs", type=int, default=0, help="executions of each target")
    amount.add_argument("--seconds-per-target", type=int, default=60)
    parser.add_argument("--targets", default=",".join(READERS), help="some of: %(default)s")
    parser.add_argument("--coverage", type=float, default=85, help="percent of lines; %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    targets = args.targets.split(",")
    if unknown := set(targets) - set(READERS):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    build(targets)
    OUT.mkdir(parents=True, exist_ok=True)
    total, faults, covered = 0, {}, {}
    for target in targets:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            executions, fault, words = fuzz(target, args, folder)
            covered[target] = coverage(target, folder)
        total += executions
        if fault:
            faults[target] = os.path.relpath(fault, ROOT) if os.path.exists(fault) else fault
            print(words, file=sys.stderr)
        lines = "-" if covered[target] is None else f"{covered[target]:.1f} %"
        print(f"{target:14} {executions:10} executions  {1 if fault else 0} faults  {lines} of lines",
              flush=True)
    low = {t: c for t, c in covered.items() if c is not None and c < args.coverage}
    print(json.dumps({"battery": "fuzz", "targets": len(targets), "executions": total,
                      "faults": faults, "coverage_percent": {t: c and round(c, 1)
                                                             for t, c in covered.items()},
                      "below_coverage": sorted(low), "ok": not faults and not low}))
    return 1 if faults or low else 0


if __name__ == "__main__":
    sys.exit(main())
