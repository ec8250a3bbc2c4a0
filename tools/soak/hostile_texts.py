#!/usr/bin/env python3
"""Texts that try to run in a page: names of models and files, labels, samples, cells of --mine.

Takes a study that is stored in the repository, puts what a browser, LaTeX, Typst or a terminal could take for
its own into some of its texts (everywhere where a text stands, so that rows still find each other), and makes
the reports anew, with a hand-in; and predicts for a model's folder of such a name. Rules: the program ends
with 0, or refuses in one line; a page has the elements, the scripts and the kinds of attributes of the page of
the untouched study, and no address that leads out; the other reports hold no such text unescaped. Every
--browser-th page is also built by chromium, without the page's own policy: nothing of the text may have run or
become an element. The last line is a summary as JSON. Exit status 1: a fault.

Usage: tools/soak/hostile_texts.py [--count N] [--seed N] [--program build/tracestep] [--browser N]
"""
import argparse
import csv
import html.parser
import io
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDY = ROOT / "bench/results/study-h200/study.html"
MOST_ROWS = 30  # of a table: a report in a second
RUN = "document.documentElement.id='pwned'"
TEXTS = [f"<script>{RUN}</script>", f"</script><script>{RUN}</script>", f"<img src=x onerror=\"{RUN}\">",
         f"\"><svg onload=\"{RUN}\">", f"' onmouseover='{RUN}' x='", f"\" onfocus=\"{RUN}\" autofocus x=\"",
         f"javascript:{RUN}", "</title></style></textarea><iframe src=//pwned>", "<!--", "-->", "]]>", "<![CDATA[",
         "&lt;script&gt;", "&#60;script&#62;", "\\u003cscript\\u003e", "\\x3cscript\\x3e", "${" + RUN + "}",
         "{{constructor}}", "`", "')//", "\u2028" + RUN, "\u2029", "\u202e</tpircs>", "\u0000", "\u001b]0;pwned\u0007",
         "\r\n", "\\input{/etc/passwd}", "\\end{tabular}\\write18{touch pwned}", "$ % # & _ { } ~ ^", "\\", "\\\\",
         "#read(\"/etc/passwd\")", "#eval(\"1\")", "*_@x<y>", "[x](javascript:pwned)", "| a | b |\n|---|", "```",
         "__proto__", "constructor", "=cmd|'/C calc'!A0", "x" * 3000, "]]]]><a href=//pwned>", "<x y=z>", "%00<script>"]
# A report must not hold these, outside of what cannot be taken for them: strings of Typst, code of Markdown.
FORBIDDEN = {".tex": r"(?<!\\)\\(input|write18)\b", ".typ": r"(?<![\\\w])#(read|eval)\(",
             ".md": r"(?<!\\)<(script|img|svg|iframe)\b"}
HARMLESS = {".typ": re.compile(r'"(\\.|[^"\\])*"', re.DOTALL), ".md": re.compile(r"```.*?```|(`+)[^`].*?\1", re.DOTALL)}


class Skeleton(html.parser.HTMLParser):
    """What a page consists of, but for its texts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.links, self.inside = set(), [], set(), None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.add((tag, tuple(sorted({name for name, _ in attributes}))))
        self.links |= {value for name, value in attributes if name in ("href", "src", "xlink:href", "action")}
        self.inside = tag
        if tag in ("script", "style"):
            self.scripts.append("")

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("script", "style"):
            self.scripts[-1] += data

    def handle_comment(self, data):
        self.elements.add(("comment", data))

    def code(self):
        """Scripts and styles, but for the numbers that one of them carries."""
        return [text for text in self.scripts if not re.fullmatch(r"[A-Za-z0-9+/=\s]*", text)]


def trimmed(value):
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items()}
    return [trimmed(item) for item in value[:MOST_ROWS]] if isinstance(value, list) else value


def texts_in(value, out):
    if isinstance(value, str):
        out.add(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        texts_in(item, out)


def replaced(value, by, keys):
    if isinstance(value, str):
        return by.get(value, value)
    if isinstance(value, list):
        return [replaced(item, by, keys) for item in value]
    if isinstance(value, dict):
        return {(by.get(key, key) if keys else key): replaced(item, by, keys) for key, item in value.items()}
    return value


def hostile(dice, text):
    one = dice.choice(TEXTS)
    return dice.choice((one, one, text + one, one + text, text[:len(text) // 2] + one + text[len(text) // 2:],
                        text + " " + one + dice.choice(TEXTS)))


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.base = folder / "base.json"
        self.report("base", STUDY)
        study = json.loads((folder / "base/study.json").read_text())
        self.study = trimmed(study)
        self.base.write_text(json.dumps(self.study))
        self.report("base", self.base)
        self.normal = Skeleton((folder / "base/study.html").read_text())
        texts = set()
        texts_in(self.study["tables"], texts)
        texts_in(self.study["environment"], texts)
        self.texts = sorted(texts)
        self.model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
                      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 64,
                      "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
                      "hidden_act": "silu", "torch_dtype": "float32"}
        self.fit("plain", "base.html")
        self.normal_fit = Skeleton((folder / "base.html").read_text())

    def run(self, *words):
        return subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, check=False,
                              timeout=300)

    def report(self, to, source, *more):
        return self.run("study", "--from", source, "--output-dir", to, "--overwrite", *more)

    def fit(self, name, page):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(self.model))
        return self.run("fit", "--model", f"./{name}", "--memory-limit", "1GiB", "--output", page, "--overwrite")

    def own_times(self, dice):
        out = io.StringIO()
        rows = csv.writer(out)
        rows.writerow(["size", "context", "mode", "precision", "mean_ms", "std_ms", "n"])
        for _ in range(3):
            cells = ["small", "128", "forward", "fp32", "1.5", "0.1", "5"]
            for place in dice.sample((0, 2, 3), dice.randrange(1, 4)):
                cells[place] = hostile(dice, cells[place])
            rows.writerow(cells)
        (self.folder / "mine.csv").write_text(out.getvalue(), newline="")

    def faults_of_page(self, path, normal):
        page = Skeleton(path.read_text())
        if new := page.elements - normal.elements:
            # An element that the study did not need may come with another sentence; not with another kind.
            tags = {tag for tag, _ in normal.elements}
            if bad := [one for one in new if one[0] not in tags or any(name.startswith("on") for name in one[1])]:
                yield f"other elements: {bad[:3]}"
        if page.code() != normal.code():
            yield "other scripts"
        if bad := [link for link in page.links if not re.match(r"#|data:,|data:image/|[\w.-]+$", link or "#")]:
            yield f"links: {bad[:3]}"

    def faults_of_texts(self, folder):
        for path in sorted(folder.iterdir()):
            if path.suffix not in FORBIDDEN:
                continue
            text = path.read_text()
            if path.suffix in HARMLESS:
                text = HARMLESS[path.suffix].sub("", text)
            if found := re.search(FORBIDDEN[path.suffix], text):
                yield f"{path.name}: {text[max(0, found.start() - 40):found.end() + 40]!r}"

    def faults_in_browser(self, path):
        copy = self.folder / "opened.html"
        copy.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text()))
        dom = subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                              f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=20000",
                              "--dump-dom", f"file://{copy}"], check=True, text=True, capture_output=True,
                             errors="replace", timeout=300).stdout
        if re.search(r"<html[^>]*pwned", dom):
            yield "a text has run"
        tags = {tag for tag, names in Skeleton(dom).elements if tag in ("img", "iframe", "x")
                or any(name.startswith("on") for name in names)}
        if tags:
            yield f"elements in the browser: {tags}"


def faults_of_run(runs, dice, in_browser):
    """(whether the program refused, faults)"""
    chosen = dice.sample(runs.texts, dice.choice((1, 3, 20, 200, len(runs.texts))))
    by = {text: hostile(dice, text) for text in chosen}
    source = runs.folder / "hostile.json"
    document = dict(runs.study)
    for key in ("environment", "tables", "rows"):
        document[key] = replaced(document[key], by, dice.random() < 0.1)
    source.write_text(json.dumps(document))
    runs.own_times(dice)
    shutil.rmtree(runs.folder / "out", ignore_errors=True)
    more = ["--course"] + ["--mine", "mine.csv"] * (dice.random() < 0.5)
    done = runs.report("out", source, *more)
    faults, page = [], runs.folder / "out/study.html"
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode not in (0, 2, 3) or "mistake in tracestep" in said:
        faults.append(f"status {done.returncode}: {said[-300:]}")
    if "\x1b" in said or b"\x1b" in done.stdout:
        faults.append("an escape sequence on the terminal")
    if done.returncode == 0:
        faults += runs.faults_of_page(page, runs.normal)
        faults += runs.faults_of_texts(runs.folder / "out")
        if in_browser:
            faults += runs.faults_in_browser(page)
    name = re.sub(r"[/\0]", "", dice.choice(TEXTS))[:80].strip() or "x"
    fitted = runs.fit(name, "plan.html")
    if fitted.returncode == 0:
        faults += runs.faults_of_page(runs.folder / "plan.html", runs.normal_fit)
    elif fitted.returncode not in (2, 3):
        faults.append(f"fit of {name!r}: status {fitted.returncode}: {fitted.stderr[-300:]}")
    return done.returncode != 0, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tracestep")
    parser.add_argument("--browser", type=int, default=10)
    options = parser.parse_args()
    dice, refused, faults, opened = random.Random(options.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(options.program.resolve(), pathlib.Path(name))
        for run in range(options.count):
            in_browser = run % options.browser == 0 and shutil.which("chromium") is not None
            was_refused, found = faults_of_run(runs, dice, in_browser)
            refused += was_refused
            opened += in_browser and not was_refused
            faults += bool(found)
            for fault in found:
                print(f"run {run} (seed {options.seed}): {fault}", flush=True)
    print(json.dumps({"runs": options.count, "faults": faults, "refused": refused, "in_browser": opened}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
