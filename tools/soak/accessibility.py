#!/usr/bin/env python3
"""Holds a report's page against the rules of axe-core, in a browser, and prints it.

    tools/soak/accessibility.py --count 6 [--page out/study.html]

Makes a virtual environment .venv-axe with the PyPI package `axe-playwright-python`, of which only
axe-core itself is used; the browser is chromium, without a driver. Each audit shows a copy of the
page that carries axe-core at one of three widths, light or dark, with all of its tables open, and
reads what the rules for WCAG 2 A and AA, and axe's best practices, find. Without --page a quick
study is run first. On paper the page may have no more than 15 sheets. Prints one line per fault and
a summary in JSON; status 1 when there was a fault.
"""
import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-axe"
VIEWS = [(width, scheme) for width in (390, 1280, 1920) for scheme in ("light", "dark")]
MOST_SHEETS = 15
# When the page is built, opens what a person could open, audits, and leaves the result in the page.
AUDIT = """
built.then(() => {
  document.documentElement.dataset.theme = '%s';
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  return axe.run(document, {resultTypes: ['violations']});
}).then(found => {
  const out = document.createElement('pre');
  out.id = 'axe-result';
  out.textContent = JSON.stringify({passes: found.passes.length, violations: found.violations.map(
    v => ({rule: v.id, impact: v.impact, help: v.help, count: v.nodes.length,
           first: v.nodes[0].html.slice(0, 200), why: v.nodes[0].failureSummary}))});
  document.body.append(out);
});
"""


def axe_source():
    found = list(VENV.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js"))
    if not found:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "--no-deps",
                        "axe-playwright-python==0.1.8"], check=True)
        found = list(VENV.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js"))
    return found[0].read_text()


def browser(folder, page, *options):
    return subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                           f"--user-data-dir={folder / 'profile'}", *options, f"file://{page}"],
                          check=True, text=True, capture_output=True, timeout=300).stdout


def audit(folder, page, axe, width, scheme):
    """What axe finds at this width, in this scheme."""
    # The page's own policy lets nothing in, not even into a copy of it.
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    script = f"<script>{axe}</script><script>{AUDIT % scheme}</script></body>"
    copy = folder / "audited.html"
    copy.write_text(script.join(open_page.rsplit("</body>", 1)))
    dom = browser(folder, copy, f"--window-size={width},900", "--virtual-time-budget=120000",
                  "--dump-dom")
    result = re.search(r'<pre id="axe-result">(.*?)</pre>', dom, re.DOTALL)
    if result is None:
        raise RuntimeError(f"axe-core gave no result at {width}, {scheme}")
    return json.loads(html.unescape(result[1]))


def sheets(folder, path):
    """How many the page has when it is printed."""
    paper = folder / "page.pdf"
    browser(folder, path, "--virtual-time-budget=20000", "--no-pdf-header-footer",
            f"--print-to-pdf={paper}")
    return len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))


def quick_study(folder):
    subprocess.run([ROOT / "build/tracestep", "study", "--quick", "--output-dir", folder],
                   check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return folder / "study.html"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=len(VIEWS), help="audits, of those there are")
    parser.add_argument("--seed", type=int, default=1, help="with which view to begin")
    parser.add_argument("--page", type=pathlib.Path, help="a study.html; made when left out")
    options = parser.parse_args()
    faults = rules = 0
    views = [VIEWS[(options.seed - 1 + i) % len(VIEWS)]
             for i in range(min(options.count, len(VIEWS)))]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = (options.page or quick_study(folder)).resolve()
        axe, page = axe_source(), path.read_text()
        for width, scheme in views:
            found = audit(folder, page, axe, width, scheme)
            rules = max(rules, found["passes"] + len(found["violations"]))
            for v in found["violations"]:
                faults += 1
                print(f"{width} {scheme}: {v['rule']} ({v['impact']}), {v['count']} times: "
                      f"{v['help']}\n  {v['first']}\n  {v['why']}")
        count = sheets(folder, path)
        if not 1 <= count <= MOST_SHEETS:
            faults += 1
            print(f"printed, it has {count} sheets; {MOST_SHEETS} at most")
    print(json.dumps({"runs": len(views), "faults": faults, "rules": rules, "sheets": count}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
