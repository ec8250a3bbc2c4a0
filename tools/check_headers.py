#!/usr/bin/env python3
"""Checks that every header of src/ can be included by itself.

Most are the first include of some source, or of a header that is, so the build has compiled them with
nothing before them but the precompiled headers. The remaining headers are compiled in the same way here,
again only when they, a project header they include, or the compiler changes: the keys of those that
passed are kept in the cache file. Of the precompiled headers, each header must include those whose names
it uses, itself or through project headers: their names are found in the text.
Usage: check_headers.py [--compiler g++] [--cache FILE] [--jobs N]
"""
import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Isrc"]
# These need a toolkit that a machine may lack; the build of that back end compiles them.
SKIPPED = ("backends/cuda/", "backends/comm/nccl/", "backends/comm/mpi/")
INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(rb"//.*")
# The precompiled headers (cmake/precompiled.cmake) define these, and our headers use them.
NAMES = {header: re.compile(names.encode()) for header, names in {
    "algorithm": r"std::(min|max|clamp|equal|copy|fill|find|sort|(any|all|none)_of|ranges::[a-z_]+)\b",
    "array": r"std::array\b",
    "chrono": r"std::chrono\b",
    "cmath": r"std::(sqrt|exp|log2?|pow|abs|ceil|floor|l?l?round|is(nan|inf|finite))\b",
    "cstdint": r"std::u?int(8|16|32|64|ptr)_t\b",
    "cstring": r"std::(mem(cpy|set|cmp|move)|strlen)\b",
    "filesystem": r"std::filesystem\b",
    "functional": r"std::(function|invoke)\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::((unique|shared|weak)_ptr|make_(unique|shared))\b",
    "optional": r"std::(optional|nullopt)\b",
    "set": r"std::(multi)?set\b",
    "source_location": r"std::source_location\b",
    "span": r"std::span\b",
    "string": r"std::(string|to_string)\b",
    "string_view": r"std::string_view\b",
    "utility": r"std::(pair|move|forward|swap|exchange)\b",
    "variant": r"std::(variant|monostate|visit|holds_alternative)\b",
    "vector": r"std::vector\b",
    "fmt/format.h": r"fmt::(format|format_string|format_to)\b",
    "fmt/ranges.h": r"fmt::join\b",
}.items()}


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


def first_includes(precompiled):
    """The headers that a source, or a header that is read first, reads before anything else but precompiled ones."""
    todo = [f for f in (ROOT / "src").rglob("*.cpp")
            if not f.relative_to(ROOT / "src").as_posix().startswith(SKIPPED + ("capi/",))]
    found = set()
    while todo:
        included = (name.decode() for name in INCLUDE.findall(todo.pop().read_bytes()))
        header = next((name for name in included if name not in precompiled), None)
        if header and header not in found and (ROOT / "src" / header).is_file():
            found.add(header)
            todo.append(ROOT / "src" / header)
    return found


def precompiled_headers():
    text = (ROOT / "cmake" / "precompiled.cmake").read_text()
    return set(re.search(r"set\(tracestep_common_headers([^)]*)\)", text).group(1).split())


def all_included(header, known):
    return {name.decode() for _, text in closure(header, known) for name in INCLUDE.findall(text)}


def missing_includes(header, known):
    """The precompiled headers whose names `header` uses and that neither it nor its own include."""
    included = all_included(header, known)
    text = COMMENT.sub(b"", known[header])
    return [name for name, used in NAMES.items() if name not in included and used.search(text)]


def key_of(header, compiler, known):
    digest = hashlib.sha256(" ".join([compiler, *FLAGS]).encode())
    for path, text in closure(header, known):
        digest.update(path.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()


def units_of(headers, precompiled, known):
    """Lists of headers to compile together: each includes itself all that those before it bring."""
    brought = {header: {header} | all_included(header, known) - precompiled for header in headers}
    units = []
    for header in sorted(headers, key=lambda header: len(brought[header])):
        fitting = [unit for unit in units if set().union(*(brought[h] for h in unit)) <= brought[header]]
        if fitting:
            max(fitting, key=len).append(header)
        else:
            units.append([header])
    return units


def precompile(compiler, folder):
    """A header in `folder` that stands for all precompiled ones."""
    common = folder / "common.h"
    common.write_text("".join(f"#include <{name}>\n" for name in sorted(precompiled_headers())))
    subprocess.run([compiler, *FLAGS, "-x", "c++-header", common, "-o", f"{common}.gch"], cwd=ROOT,
                   check=True)
    return common


def compile_alone(compiler, common, headers):
    """The compiler's messages; empty when the headers stand alone without a warning."""
    command = [compiler, *FLAGS, "-fsyntax-only", "-x", "c++", "-include", common,
               *(word for header in headers for word in ("-include", header)), "/dev/null"]
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
    known, passed, precompiled = {}, read_cache(args.cache), precompiled_headers()
    if unknown := precompiled - set(NAMES):
        print(f"NAMES lacks precompiled headers: {', '.join(sorted(unknown))}")
        return 1
    incomplete = {header: missing_includes(header, known) for header in headers}
    for header, names in incomplete.items():
        if names:
            print(f"src/{header} uses names of {', '.join(names)}, which it does not include")

    built = first_includes(precompiled)
    keys = {header: key_of(header, version, known) for header in headers if header not in built}
    todo = [header for header in keys if keys[header] not in passed]

    failed = set()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        common = precompile(args.compiler, Path(folder)) if todo else None
        units = units_of(todo, precompiled, known)
        messages = pool.map(lambda unit: compile_alone(args.compiler, common, unit), units)
        for unit in [unit for unit, message in zip(units, messages) if message]:
            for header in unit:
                if message := compile_alone(args.compiler, common, [header]):
                    failed.add(header)
                    print(f"src/{header} does not compile alone:\n{message}")

    args.cache.parent.mkdir(parents=True, exist_ok=True)
    args.cache.write_text(json.dumps(sorted(key for h, key in keys.items() if h not in failed)))
    failed |= {header for header, names in incomplete.items() if names}
    print(f"headers: {len(headers)}, first in a source {len(headers) - len(keys)}, "
          f"compiled now {len(todo)}, failed {len(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
