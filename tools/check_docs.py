#!/usr/bin/env python3
"""Checks the pages that people read: links lead somewhere, source files that the architecture page and
docs/decisions/ name exist, the sizes of folders in the architecture page are true, and the tables of
passes and of the ladder have those of the code in their order.

Every fault is printed as file:line with what is wrong; the exit status is 1 if there is one.
Usage: check_docs.py [--write] [REPOSITORY]    --write: sets the sizes and the folders in the
                                               architecture page
"""
import re
import sys
from pathlib import Path

from check_layering import ROWS, SOURCES, row_of

MAP = "docs/architecture.md"
MOST_LINES, MOST_COLUMNS = 110, 110  # of the map, without its rows of folders and targets of links
# A size may be off by a tenth; a small folder by this many lines.
MOST_OFF, FEW_LINES = 0.1, 50

PAGES = ("*.md", "docs/**/*.md", "bench/**/*.md", "tests/**/*.md")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6} (.*)")
SIZE = re.compile(r"\| `([\w/]+)/` \| ([\d,]+) \|(.*)\| ([^|]*) \|$")
TOTAL = re.compile(r"()([\d,]+)( lines in all)")
SUM = re.compile(r"(`([\w/]+)/` \()([\d,]+)(\))")  # of the folders below one
NAMED = re.compile(r"`([\w./-]+(?:/|\.(?:h|cpp|cu|cuh|py|md|csv|js)))`")
# Pages whose table has the rows of one in a source.
TABLES = (("docs/decisions/passes.md", "src/passes/pipeline.cpp", "pass"),
          ("docs/compile.md", "src/lab/compile/ladder.cpp", "rung"))
# Folders in which a named file is looked for, besides the root.
ROOTS = ("", "src", "docs")


def texts_without_code(text):
    """The lines of a page, with fenced code as empty ones."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
            yield ""
        else:
            yield "" if is_code else line


def anchors_of(page):
    """What `page#…` may name: its headings as GitHub writes them."""
    out = set()
    for line in texts_without_code(page.read_text(encoding="utf-8")):
        if match := HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            name, more = anchor, 0
            while name in out:
                more += 1
                name = f"{anchor}-{more}"
            out.add(name)
    return out


def broken_links(page):
    for number, line in enumerate(texts_without_code(page.read_text(encoding="utf-8")), 1):
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path) if path else page
            if not file.exists():
                yield number, f"there is no {target}"
            elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
                yield number, f"{path or 'this page'} has no heading #{anchor}"


def missing_files(page, root):
    """Names of files and folders that are not there. In a row of a table a bare name is in the folder
    of the one before it; NAME stands for any name."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        folder = ""
        for name in NAMED.findall(line):
            if "/" in name:
                folder = str(Path(name).parent)
            elif line.startswith("|") and folder:
                name = f"{folder}/{name}"
            else:
                continue
            pattern = name.rstrip("/").replace("NAME", "*")
            if not any(True for top in ROOTS for _ in (root / top).glob(pattern)):
                yield number, f"there is no {name}"


def folder_sizes(root):
    """Lines of C++ and CUDA, by row of the layering table."""
    out = {}
    for file in sorted((root / "src").rglob("*")):
        if file.suffix in SOURCES:
            row = row_of(file.relative_to(root / "src").as_posix())
            out[row] = out.get(row, 0) + file.read_text(encoding="utf-8").count("\n")
    return out


def words_of(row):
    """What the table says of the folders that a row may include."""
    words = {"*": "everything"}
    return ", ".join(words.get(dep, dep) for dep in ROWS[row]) or "nothing"


def number_of(text):
    return int(text.replace(",", ""))


def sum_below(folder, sizes):
    return sum(lines for row, lines in sizes.items() if (row + "/").startswith(folder + "/"))


def broken_size(what, said, lines):
    """What is wrong with a size that a page says; nothing: an empty list."""
    if abs(said - lines) <= max(MOST_OFF * lines, FEW_LINES):
        return []
    return [f"{what} has {lines:,} lines, not {said:,}: run tools/check_docs.py --write"]


def broken_sizes(line, sizes):
    """What is wrong with the sizes and with the folders of one line."""
    out = []
    if match := SIZE.match(line):
        row, said, _, includes = match.groups()
        out += broken_size(f"src/{row}/", number_of(said), sizes.get(row, 0))
        if row not in ROWS:
            out.append(f"src/folders.txt has no row {row}")
        elif includes != words_of(row):
            out.append(f"src/{row}/ may include {words_of(row)}")
    for _, folder, said, _ in SUM.findall(line):
        out += broken_size(f"src/{folder}/", number_of(said), sum_below(folder, sizes))
    for _, said, _ in TOTAL.findall(line):
        out += broken_size("src/", number_of(said), sum(sizes.values()))
    return out


def broken_map(page, root):
    sizes, lines = folder_sizes(root), page.read_text(encoding="utf-8").splitlines()
    if sum(not SIZE.match(line) for line in lines) > MOST_LINES:
        yield len(lines), f"beside its folders a map has at most {MOST_LINES} lines; reasons belong in docs/decisions/"
    named = {match.group(1) for line in lines if (match := SIZE.match(line))}
    for row in sorted(sizes.keys() - named):
        yield 1, f"src/{row}/ is not in the table of folders"
    for number, line in enumerate(lines, 1):
        if (columns := len(re.sub(r"\]\([^)]*\)", "]", line))) > MOST_COLUMNS:
            yield number, f"{columns} columns, more than {MOST_COLUMNS}"
        for text in broken_sizes(line, sizes):
            yield number, text


def with_sizes(text, sizes):
    """The page with true sizes and folders."""
    out = []
    for line in text.splitlines():
        if match := SIZE.match(line):
            row, said, _, includes = match.groups()
            line = line.replace(f"| {said} |", f"| {sizes.get(row, 0):,} |", 1)
            line = line[:-len(f"{includes} |")] + f"{words_of(row) if row in ROWS else includes} |"
        line = SUM.sub(lambda m: f"{m[1]}{sum_below(m[2], sizes):,}{m[4]}", line)
        out.append(TOTAL.sub(lambda m: f"{sum(sizes.values()):,}{m[3]}", line))
    return "\n".join(out) + "\n"


def broken_rows(page, source, what):
    """The rows of a page's table, whose first heading is `what`, beside those of the table in a source."""
    code = re.findall(r'(?:^ {4,6}\{|\{\.name = )"(\w+)"', source.read_text(encoding="utf-8"),
                      re.MULTILINE)
    _, _, table = page.read_text(encoding="utf-8").partition(f"| {what} |")
    rows = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    if rows != code:
        row = next((i for i, (a, b) in enumerate(zip(rows + [""], code + [""])) if a != b), 0)
        yield 1, (f"row {row + 1} of the table of a {what} is {(rows + ['none'])[row]}, "
                  f"in {source.name} it is {(code + ['none'])[row]}")


def faults(root):
    for page in sorted({p for pattern in PAGES for p in root.glob(pattern)}):
        name = page.relative_to(root).as_posix()
        for number, text in broken_links(page):
            yield f"{name}:{number}: {text}"
        if name == MAP or name.startswith("docs/decisions/"):
            for number, text in missing_files(page, root):
                yield f"{name}:{number}: {text}"
    if (page := root / MAP).is_file():
        for number, text in broken_map(page, root):
            yield f"{MAP}:{number}: {text}"
    for name, source, what in TABLES:
        if (root / name).is_file() and (root / source).is_file():
            for number, text in broken_rows(root / name, root / source, what):
                yield f"{name}:{number}: {text}"


def main(arguments):
    words = [word for word in arguments if word != "--write"]
    root = Path(words[0] if words else Path(__file__).parents[1]).resolve()
    if "--write" in arguments:
        page = root / MAP
        page.write_text(with_sizes(page.read_text(encoding="utf-8"), folder_sizes(root)),
                        encoding="utf-8")
    found = list(faults(root))
    print("\n".join(found + [f"docs: {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
