#!/usr/bin/env python3
"""Compiles every header of src/ alone, so that each can be read and included by itself.

A header is compiled again only when it, a project header it includes, or the compiler changes:
the keys of those that passed are kept in the cache file.
Usage: check_headers.py [--compiler g++] [--cache FILE] [--jobs N]
"""
import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++20", "-fopenmp", "-Wall", "-Wextra", "-Wconversion", "-Isrc"]
# These need a toolkit that a machine may lack; the build of that back end compiles them.
SKIPPED = ("backends/cuda/", "backends/comm/nccl/", "backends/comm/mpi/")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def closure(header, known):
    """`header` and the project headers it reaches, with their bytes, in a fixed order."""
    todo, texts = [header], {}
    while todo:
        path = todo.pop()
        if path in texts:
            continue
        if path not in known:
            file = ROOT / "src" / path
            known[path] = file.read_bytes() if file.is_file() else b""
        texts[path] = known[path]
        todo += [name.decode() for name in INCLUDE.findall(known[path])]
    return sorted(texts.items())


def key_of(header, compiler, known):
    digest = hashlib.sha256(" ".join([compiler, *FLAGS]).encode())
    for path, text in closure(header, known):
        digest.update(path.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()


def compile_alone(compiler, header):
    """The compiler's messages; empty when the header stands alone without a warning."""
    command = [compiler, *FLAGS, "-fsyntax-only", "-x", "c++", "-include", header, "/dev/null"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr or ("" if done.returncode == 0 else f"{compiler}: {done.returncode}\n")


def read_cache(file):
    try:
        return set(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return set()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "headers.json")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    paths = (f.relative_to(ROOT / "src").as_posix() for f in (ROOT / "src").rglob("*.h"))
    headers = sorted(path for path in paths if not path.startswith(SKIPPED))
    version = subprocess.run([args.compiler, "--version"], capture_output=True, text=True,
                             check=True).stdout
    known, passed = {}, read_cache(args.cache)
    keys = {header: key_of(header, version, known) for header in headers}
    todo = [header for header in headers if keys[header] not in passed]

    with ThreadPoolExecutor(args.jobs) as pool:
        messages = list(pool.map(lambda h: compile_alone(args.compiler, h), todo))
    failed = {header for header, message in zip(todo, messages) if message}
    for header, message in zip(todo, messages):
        if message:
            print(f"src/{header} does not compile alone:\n{message}")

    args.cache.parent.mkdir(parents=True, exist_ok=True)
    args.cache.write_text(json.dumps(sorted(keys[h] for h in headers if h not in failed)))
    print(f"headers: {len(headers)}, compiled now {len(todo)}, failed {len(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
