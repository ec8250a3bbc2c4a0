#!/usr/bin/env python3
"""Checks who includes whom, by the rows of src/folders.txt; and that no folder below the command
line speaks of its flags, that kernels which may be launched early wait, that only spec/ lists the fields of a run, that devices are asked for traits and not for names, that nothing of the
engine parses what a user wrote, that a column of several tables is declared once, that nothing is decided by
the words of a message, and that no two files define a type of one name.

Every broken rule is printed as file:line with the rule; the exit status is 1 if there is one.
Usage: check_layering.py [REPOSITORY]
"""
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

# A folder without a row is an error: decide its place.
FOLDERS = "src/folders.txt"
ROW = re.compile(r"([\w/]+):([^#]*)(?:#.*)?")


def rows_of(root):
    """The rows of src/folders.txt: folder -> folders it may include."""
    lines = (root / FOLDERS).read_text(encoding="utf-8").splitlines()
    return {row.group(1): row.group(2).split() for row in map(ROW.fullmatch, lines) if row}


ROWS = rows_of(Path(__file__).resolve().parents[1])

# Folder of src/ -> groups of its files, the lowest first. A file may include its
# own group and those before it. "*": files that fit no other pattern.
GROUPS = {
    "backends/cpu": [
        ("machine", ["threads.*", "team.*", "memory_source.*", "targets.h",
                     "bf16_products.*"]),
        ("operands", ["numbers.h", "operand.h", "plain_chunks.h"]),
        ("blocks", ["*-inl.h", "attention_heads.h"]),  # what a thread does on vectors
        ("kernels", ["*"]),
        ("device", ["cpu_device.*", "ceilings.*"]),
    ],
    "backends/cuda": [
        ("element types and launches",
         ["element_types.cuh", "kernel_launch.h", "mbarrier.cuh",
          "predecessors.cuh"]),
        ("attention", ["attention/*"]),  # a library of its own, also behind the C interface
        ("products by parts", ["split/*"]),
        ("toolkit", ["toolkit/*"]),
        ("device code", ["*.cuh"]),
        ("kernels", ["*"]),
        ("device", ["cuda_device.*", "ceilings.*"]),
    ],
}

# Headers that stay where they are: pattern of the included path -> (folders or files, reason).
CONFINED = [
    (r"(cuda|cublas|cudnn|curand|cupti|nvrtc|nvtx|nvToolsExt|nvml|cute/|cutlass/|mma\.h)",
     ["backends/cuda/", "backends/comm/nccl/"], "CUDA headers"),
    (r"nccl", ["backends/comm/nccl/"], "NCCL"),
    (r"mpi\.h$", ["backends/comm/mpi/"], "MPI"),
    (r"hwy/", ["backends/cpu/"], "Highway"),
    (r"sentencepiece", ["tokens/"], "SentencePiece"),
    (r"xxhash", ["base/hash.cpp"], "xxHash (slow to compile)"),
    (r"pcre2", ["tokens/text_pattern.cpp"], "PCRE2"),
    (r"utf8proc", ["tokens/text_steps.cpp"], "utf8proc"),
    (r"sodium", ["backends/comm/tcp/"], "libsodium"),
    (r"nlohmann/", ["base/json"], "nlohmann-json (slow to compile)"),
    (r"utf8\.h$", ["base/utf8.cpp"], "UTF8-CPP"),
]

# Below the command line, texts name what is wrong and mark the field, TRACESTEP_OPTION(token_dtype); only
# `cli/` knows flags, and shows them for the marks (cli/option_set.h). Allowed elsewhere:
FLAG = re.compile(r"(?<![\w!-])--[a-z]")  # "<!--" opens a comment
FLAGS_ALLOWED = [
    (r"spec/|train/", r"--[a-z][a-z-]*", "the flag of a row in a table of fields"),
    (r"lab/|course/", r"tracestep [a-z]+ .*", "a whole command line"),
    (r"backends/cuda/toolkit/nvrtc\.cpp", r"--(std|gpu-architecture)=.*", "options of NVRTC"),
]
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')  # neighbours are one
COMMENT = re.compile(r"(^|(?<=\s))//.*", re.MULTILINE)

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = {".h", ".cpp", ".cu", ".cuh"}


def row_of(path):
    """The longest row that is a folder above `path` (relative to src/), or None."""
    fits = [row for row in ROWS if path.startswith(row + "/")]
    return max(fits, key=len) if fits else None


def allowed_rows(row):
    """All rows that `row` may include, itself and `base` among them."""
    seen, todo = set(), [row, "base"]
    while todo:
        name = todo.pop()
        if name == "*" or name.endswith("/*"):
            todo += [other for other in ROWS if other.startswith(name[:-1])]
        elif name not in seen:
            seen.add(name)
            todo += ROWS[name]
    return seen


def broken_by_project_include(path, row, target, root):
    """The rule that `#include "target"` in src/`path` breaks, or None."""
    if ".." in Path(target).parts:
        return "include paths are relative to src/, without '..'"
    if target.startswith("embedded/"):
        return None  # text files of the including folder's library, written by cmake/embed.cmake
    if not (root / "src" / target).is_file():
        return f'no file src/{target}; "..." includes are relative to src/, <...> for libraries'
    if path.startswith("backends/reference/") and target.startswith("ops/scalar/"):
        return "the reference back end is an oracle: it shares no formula with ops/scalar/"
    other = row_of(target)
    if other not in allowed_rows(row):
        direct = ", ".join(ROWS[row]) or "nothing"
        return f"{row}/ may include {direct} (and what they may), not {other}/"
    return None


def group_of(folder, path):
    """Index in GROUPS[folder] of the group of src/`path`, a file in `folder`."""
    name, others = path[len(folder) + 1:], None
    for i, (_, patterns) in enumerate(GROUPS[folder]):
        if patterns == ["*"]:
            others = i
        elif any(fnmatch(name, pattern) for pattern in patterns):
            return i
    return others


def broken_by_group(path, target):
    """The rule of GROUPS that `#include "target"` in src/`path` breaks, or None."""
    for folder, groups in GROUPS.items():
        if not (path.startswith(folder + "/") and target.startswith(folder + "/")):
            continue
        here, there = group_of(folder, path), group_of(folder, target)
        if there > here:
            return (f"in {folder}/, {groups[here][0]} stand below {groups[there][0]} "
                    "and may not include them")
    return None


def broken_by_library_include(path, target):
    for pattern, places, what in CONFINED:
        if re.match(pattern, target) and not path.startswith(tuple(places)):
            return f"{what} may be included only in src/{', src/'.join(places)}"
    return None


KERNEL_THAT_WAITS = re.compile(r"__global__[^;{}]*\(Predecessors (\w+)[^;{}]*\) \{\n")


def broken_by_flags(path, text):
    """(line, rule) of each literal in src/`path` that names a flag and is not allowed to."""
    if path.startswith("cli/"):
        return
    for match in LITERALS.finditer(text):
        if "--" not in match.group():
            continue
        literal = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group()))
        if not FLAG.search(literal):
            continue
        if any(re.match(where, path) and re.fullmatch(what, literal)
               for where, what, _ in FLAGS_ALLOWED):
            continue
        yield (text.count("\n", 0, match.start()) + 1,
               f'"{literal}" names a flag; mark the field, TRACESTEP_OPTION(some_field): cli/ shows the flag')


def broken_by_waits(path, text):
    """(line, rule) of each kernel that takes `Predecessors` and does something before it waits.

    One that lets the next kernel begin says so first and may prefetch until it waits.
    """
    if not path.startswith("backends/cuda/"):
        return
    for match in KERNEL_THAT_WAITS.finditer(text):
        body = re.sub(r"^\s*(#.*|//.*)?\n", "", text[match.end():], flags=re.MULTILINE)
        name = match.group(1)
        prefetches = rf"{name}\.let_next_begin\(\);.*?\n}}"
        kernel = re.match(prefetches, body.lstrip(), re.DOTALL)
        waits = kernel and f"{name}.wait();" in kernel.group()
        if not waits and not body.lstrip().startswith(f"{name}.wait();"):
            yield (text.count("\n", 0, match.end()) + 1,
                   f"a kernel that takes Predecessors begins with {match.group(1)}.wait()")


# Rules over the roles in the table of run fields say which fields are meant; a list of their names
# would lack the next field.
FIELD_NAME = re.compile(r'(?:\.name = |place\(|add\(\s*)"(\w+)"')
LIST = re.compile(r'"\w+"(?:,\s*"\w+"){2,}')
MOST_LISTED = 2


def run_fields(root):
    """The names of the fields of a run, from their tables."""
    tables = sorted((root / "src/spec").glob("*fields.cpp"))
    return {name for table in tables for name in FIELD_NAME.findall(table.read_text(encoding="utf-8"))}


def broken_by_field_lists(path, text, fields):
    """(line, rule) of each list of literals in src/`path` that names run fields."""
    if path.startswith("spec/"):
        return
    for match in LIST.finditer(text):
        names = [name for name in re.findall(r'"(\w+)"', match.group()) if name in fields]
        if len(names) > MOST_LISTED:
            yield (text.count("\n", 0, match.start()) + 1,
                   f"a list of run fields ({', '.join(names)}); say which by a rule over spec/fields.h")


# A device is asked what it can do (planning/device_traits.h): a test of its name or kind would be
# wrong for the next one. The command line's table of devices names them, and what the vendor's
# libraries say of a machine is about them.
DEVICE_NAME = re.compile(r'''(?x)
    [=!]=\s*"(cpu|cuda|reference)"                     # device == "cuda"
  | device\b[^;{}=!]{0,24}[=!]=\s*"null"              # "null" is JSON's word as well
  | device\b[^;{}]{0,24}starts_with\("(cpu|cuda)
  | [=!]=\s*DeviceKind::k | DeviceKind::k\w+\s*[=!]= | case\s+DeviceKind::k''')
DEVICES_NAMED = ("backends/", "planning/", "cli/cuda.", "cli/devices.", "capi/step/devices.")


def broken_by_device_names(path, text):
    """(line, rule) of each comparison of a device's name or kind in src/`path`."""
    if path.startswith(DEVICES_NAMED):
        return
    for match in DEVICE_NAME.finditer(text):
        yield (text.count("\n", 0, match.start()) + 1,
               f"{match.group().strip()}: a test of a device's name; ask its traits "
               "(planning/device_traits.h)")


# A user's text is read where flags and files are; from there on a choice is a value (run/). What
# the engine itself wrote, it may read: programs, and the names of dtypes in them.
ENGINE = ("ops/", "planning/", "analysis/", "nn/", "run/", "passes/", "codegen/", "runtime/",
          "backends/", "exec/")
READS_ENVIRONMENT = "backends/comm/launch/"
PARSES = re.compile(r"\b(parse_(?!program\b|dtype\b)\w+|checked_parts)\(")


def broken_by_parsing(path, text):
    """(line, rule) of each place of the engine, src/`path`, that reads a user's text."""
    if not path.startswith(ENGINE) or path.startswith(READS_ENVIRONMENT):
        return
    for match in PARSES.finditer(text):
        yield (text.count("\n", 0, match.start()) + 1,
               f"{match.group(1)}() reads a text; spec/ does, and hands on the value (run/)")


# Columns that several tables have, by the kind of function that would declare one anew. Numbers are
# left out: one name may stand for several units. The study's tables are its own.
KNOWN_COLUMNS = "lab/report/known_columns.h"
KINDS = {"Text": "text", "Int": "int", "Bytes": "bytes", "Bool": "bool", "Reals": "reals",
         "Structure": "structured"}
DECLARED = re.compile(r"\b(\w+)_column\(\s*\"(\w+)\"")


def known_columns(root):
    """The (kind, name) of each column of KNOWN_COLUMNS."""
    file, out = root / "src" / KNOWN_COLUMNS, set()
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for kind, rows in re.findall(r"constexpr Known(\w+) (.*?);", text, re.DOTALL):
        if kind in KINDS:
            out |= {(KINDS[kind], name) for name in re.findall(r"{\"(\w+)\"", rows)}
    return out


def broken_by_columns(path, text, columns):
    """(line, rule) of each column that a table declares anew."""
    if path.startswith("lab/study/"):
        return
    for match in DECLARED.finditer(text):
        if match.groups() in columns:
            yield (text.count("\n", 0, match.start()) + 1,
                   f"the column {match.group(2)} is declared in {KNOWN_COLUMNS}: "
                   f"col::{match.group(2)}")


# What an error is about, and which options its text names, are values (base/error.h), and so is all else
# that code decides by: words are for people. The options of all commands are in this page:
OPTIONS_PAGE = "docs/cli.md"
MARKED = re.compile(r'TRACESTEP_OPTION\((\w+)\)|"(\w+)"_field')
WORDS_OF_OPTIONS = re.compile(r"\boptions? ([a-z]\w*)")
SAID_WITHOUT_FLAGS = {  # what log lines and columns say, which are shown as they are
    "lab/fit/plan.cpp", "train/loop.cpp", "train/run_checkpoints.cpp", "train/small_updates.cpp"}
COMPARED = re.compile(r'''(?x)
    \b(?:starts_with|ends_with|r?find|contains)\(\s*"((?:[^"\\]|\\.)*)"
  | [=!]=\s*"((?:[^"\\]|\\.)*)"''')
ENGLISH = re.compile(r"[A-Za-z]{2,}[:,;]? |[a-z]: $")
OF_ERROR = r"\b(?:e|\w*[eE]rror)\.(?:where|message|hint|text|what)\(\)"
COMPARED_ERROR = re.compile(rf"{OF_ERROR}\s*(?:[=!]=|\.\s*(?:starts_with|ends_with|r?find|contains|substr)\b)|"
                            rf"[=!]=\s*{OF_ERROR}")
READ = [  # whose words are a format, or another program's
    (r"lab/pages/", r"Each | by |is there|ms band", "the language of pages"),
    (r"lab/report/text\.cpp", r"doubt: |invalid: ", "notes of stored results, for their colour"),
    (r"lab/predict/measure_products\.cpp", r"matmul(_add)? ", "names of kernels"),
    (r"lab/read/file_kind\.cpp", r"SQLite format", "the start of such a file"),
    (r"lab/(measure/host_facts|report/chart/svg)\.cpp", r"cpu MHz|<svg ", "other formats"),
    (r"lab/precision/norms\.cpp", r"sum of squares", "the name of a form of the norm"),
    (r"lab/report/column_facts\.cpp", r"if it varies", "a word of stored columns"),
    (r"lab/study/answers\.cpp", r"tracestep study", "a page's whole command"),
    (r"weights/checkpoint_files\.cpp", r"process ", "what the lock's holder wrote"),
    (r"backends/comm/tcp/", r"tracestep: ", "the last line of another process"),
    (r"base/json_events\.cpp", r"column ", "nlohmann-json, which has no number for it"),
    (r"cli/help\.cpp", r"On a cluster", "the heading of a group"),
    (r"course/", r".*", "names of the course's terms and columns"),
]


def known_options(root):
    """The names of all options, as fields are named; None where no page lists them."""
    page = root / OPTIONS_PAGE
    if not page.exists():
        return None
    return {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"))}


def broken_by_words(path, text, options):
    """(line, rule) of each place in src/`path` where words decide, or name an option without a mark."""

    def line(match):
        return text.count("\n", 0, match.start()) + 1

    for match in COMPARED.finditer(text):
        words = match.group(1) or match.group(2) or ""
        if ENGLISH.search(words) and not any(re.match(where, path) and re.fullmatch(what, words)
                                             for where, what, _ in READ):
            yield line(match), f'"{words}" decides by words; hand on a value'
    for match in COMPARED_ERROR.finditer(text):
        yield line(match), f"{match.group()}: an error's text decides; ask about() or code()"
    if options is None or path.startswith("base/error."):
        return
    for match in MARKED.finditer(text):
        name = match.group(1) or match.group(2)
        if name not in options:
            yield line(match), f"no command has an option {name}"
    if path.startswith("cli/") or path in SAID_WITHOUT_FLAGS:
        return
    if "option" not in text:
        return
    for match in LITERALS.finditer(text):
        literal = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group()))
        for name in WORDS_OF_OPTIONS.findall(literal):
            if name in options:
                yield line(match), f'"option {name}" is no mark; write TRACESTEP_OPTION({name})'


def check_file(file, root, fields, columns, options):
    path = file.relative_to(root / "src").as_posix()
    row = row_of(path)
    if row is None:
        yield 1, f"src/{Path(path).parent} has no row in the layering table"
        return
    text = file.read_text(encoding="utf-8")
    code = COMMENT.sub("", text)
    yield from broken_by_flags(path, code)
    yield from broken_by_waits(path, text)
    yield from broken_by_field_lists(path, code, fields)
    yield from broken_by_device_names(path, code)
    yield from broken_by_parsing(path, code)
    yield from broken_by_columns(path, text, columns)
    yield from broken_by_words(path, code, options)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        project, library = match.groups()
        if path.startswith("ops/scalar/"):
            broken = "scalar functors include nothing: their text is compiled in several places"
        else:
            broken = broken_by_library_include(path, project or library)
            if not broken and project:
                broken = (broken_by_project_include(path, row, project, root) or
                          broken_by_group(path, project))
        if broken:
            yield number, f"#include of {project or library}: {broken}"


NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                   r"'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
NAMESPACE = re.compile(r"namespace\s*([\w:]*)\s*$")
TYPE = re.compile(r"\b(?:struct|class|enum(?:\s+class)?|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)"
                  r"(?:\s+final)?\s*(?::[^:].*)?$", re.S)
RUN_TIME_TEXT = "codegen/device/"  # compiled by itself, and never linked


def types_of(text):
    """The types that a file defines for all files, as (line, name with its namespaces)."""
    text = NOISE.sub(lambda m: "\n" * m[0].count("\n"), text)
    scopes, begin = [], 0  # None: a body; "": an unnamed namespace
    for brace in re.finditer(r"[{};]", text):
        head = text[begin:brace.start()]
        begin = brace.end()
        if brace[0] == "}" and scopes:
            scopes.pop()
        if brace[0] != "{":
            continue
        space, kind = NAMESPACE.search(head), TYPE.search(head.rstrip())
        if kind and all(scopes):
            yield text.count("\n", 0, brace.start()) + 1, "::".join([*scopes, kind[1]])
        scopes.append(space[1] if space else None)


def types_of_two_files(root, files):
    """A second definition of a type is another one for the linker's eyes: it keeps one copy of what
    both instantiate, which is right for one of them only."""
    first = {}
    for file in files:
        path = file.relative_to(root / "src").as_posix()
        if path.startswith(RUN_TIME_TEXT):
            continue
        for line, name in types_of(file.read_text(encoding="utf-8")):
            if first.setdefault(name, path) != path:
                yield path, line, f"{name} is a type of {first[name]}, too"


def main(repository=Path(__file__).parents[1]):
    root = Path(repository).resolve()
    files = sorted(f for f in (root / "src").rglob("*") if f.suffix in SOURCES)
    problems, fields, columns = 0, run_fields(root), known_columns(root)
    options = known_options(root)
    for file in files:
        for number, text in check_file(file, root, fields, columns, options):
            problems += 1
            print(f"{file.relative_to(root)}:{number}: {text}")
    for path, number, text in types_of_two_files(root, files):
        problems += 1
        print(f"src/{path}:{number}: {text}")
    print(f"layering: {len(files)} files, {problems} broken rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
