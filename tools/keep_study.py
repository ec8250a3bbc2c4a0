#!/usr/bin/env python3
"""Keeps a study of a card as the one that README.md and the docs show.

    build/tracestep study --device cuda --minutes 7 --course --output-dir out/study-h200
    tools/keep_study.py out/study-h200

Refuses a study in which what a long one is for is missing, or whose page is too large; copies
study.html to bench/results/study-h200, writes the paragraph about it in bench/results/cuda-h200.md
anew, and runs the tests that read the stored page, where they are built. --check only looks.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "build/tests/test_cli"
MOST_BYTES = 1_300_000
SIZES = ("small", "medium", "large", "xl", "2.7B")
CONTEXTS = (128, 256, 512, 1024)


def rows(tables, name):
    return tables.get(name, {}).get("rows", [])


def lacking(tables, course):
    """Yields what a long study of a card has and this one has not."""
    steps = {(r["size"], r["mode"], r["precision"]) for r in rows(tables, "steps") if r["status"] == "ok"}
    for size in SIZES:
        for mode in ("forward", "forward-backward"):
            for precision in ("fp32", "bf16"):
                if (size, mode, precision) not in steps:
                    yield f"table steps: {mode} of {size} in {precision}"
    profiled = {r["context"] for r in rows(tables, "passes")
                if r["mode"] == "step" and r["size"] == "large" and r["status"] == "ok"}
    for context in CONTEXTS:
        if context not in profiled:
            yield f"table passes: a step of large at context {context}"
    attention = {(r["attention"], r["precision"]) for r in rows(tables, "attention") if r["status"] == "ok"}
    for form in ("naive", "flash"):
        if (form, "bf16") not in attention:
            yield f"table attention: {form} in bf16"
    for problem in ("1.1.3 b", "1.3", "2.1", "2.4", "3"):
        if f"Problem {problem}" not in course:
            yield f"course.md: problem {problem}"


def facts_of(document):
    """The figures of the paragraph, from the study itself."""
    tables, environment = document["tables"], document["environment"]
    answers = rows(tables, "answers")
    answered = [a for a in answers if not a["refused"]]
    marked = [a for a in answered if a["standing"] != "sound"]
    seconds = sum(r["seconds"] for r in rows(tables, "parts"))
    invalid = [r for r in rows(tables, "validity") if str(r["verdict"]).startswith("invalid")]
    commit = str(environment.get("commit", "?"))[:12]
    when = str(environment.get("date_utc", ""))[:10]
    gpu = environment.get("gpu", "a GPU")
    no_time = [a["id"] for a in answers if a["refused"] and "no time" in a["answer"]]
    words = [str(word) for word in environment.get("command_line", ["study"])]
    if "--output-dir" in words:
        at = words.index("--output-dir")
        del words[at:at + 2]
    text = (f"`{' '.join(words)}`{' on ' + when if when else ''}, one {gpu}, commit "
            f"{commit},\n{seconds:.0f} s: {len(answered)} of {len(answers)} questions answered, "
            f"{len(answered) - len(marked)} of them on rows without a doubt,\n"
            f"{len(invalid) or 'none'} invalid ([its page](study-h200/study.html)). ")
    text += (f"For lack of time: {', '.join(no_time)}." if no_time else "None lacks an answer for time.")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="--output-dir of the study")
    parser.add_argument("--check", action="store_true", help="only look")
    options = parser.parse_args()
    page = (options.folder / "study.html").read_text()
    document = json.loads((options.folder / "study.json").read_text())
    course = (options.folder / "course.md").read_text()
    missing = list(lacking(document["tables"], course))
    for what in missing:
        print("missing:", what)
    size = len(page.encode())
    print(f"study.html: {size:,} bytes of {MOST_BYTES:,}")
    text = facts_of(document)
    print(text)
    if missing or size >= MOST_BYTES:
        sys.exit("this study is not kept")
    if options.check:
        return
    kept = ROOT / "bench/results/study-h200/study.html"
    kept.write_text(page)
    about = ROOT / "bench/results/cuda-h200.md"
    begin, end = "<!-- the stored study -->\n", "\n<!-- -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    whole = about.read_text()
    if not pattern.search(whole):
        sys.exit(f"{about} has no place for the paragraph")
    about.write_text(pattern.sub(lambda _: begin + text + end, whole))
    print("kept:", kept.relative_to(ROOT), "and a paragraph in", about.relative_to(ROOT))
    if TESTS.exists():
        subprocess.run([TESTS, "--gtest_brief=1", "--gtest_filter=StudyTest.TheStored*"], cwd=ROOT,
                       check=True)


if __name__ == "__main__":
    main()
