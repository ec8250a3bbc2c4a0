#!/usr/bin/env python3
"""Steps on one card and on several, in turns, beside PyTorch's DDP and FSDP2 where it is asked for.

    bench/peers/scaling.py --tracestep build-cuda/tracestep --cells "large 4; large 8 dp=2,sums=low; large 8; large 8 tp=2"
    bench/peers/scaling.py --gpus 4 --sizes large,2.7B --forms ddp,fsdp2     # weak and strong scaling on 1, 2, 4 cards
    bench/peers/scaling.py --device cpu --context 32 --gpus 2 --sizes tiny --steps 1 --rounds 1

A cell is MODEL BATCH [HOW [words for bench, NAME=VALUE for its environment]]: a size of `show` or a published model, the rows of the whole batch, --parallel's form
("one" for one card). Before each cell of several cards the last cell of the same model on one card with the same rows a card
(`dp`), or with the same rows (`tp`, strong scaling), is what it is compared with: "share" is its tokens/s a card over that one's,
so that a step of the same length on twice the cards with twice the rows has 1. With HOW `ddp` or `fsdp2` PyTorch runs the cell
(pytorch/bench_ranks.py; `ddp:1` is PyTorch on one card, `ddp:4` on four). Status 1: a rank's bytes are not as predicted, or a
cell did not run.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from compare_gpu import find_program
from gpu_report import render
from model_turns import course_sizes

PEER = pathlib.Path(__file__).resolve().parent / "pytorch" / "bench_ranks.py"


class Cell:
    def __init__(self, text):
        self.text = " ".join(text.split())
        self.model, batch, *rest = self.text.split()
        self.batch, self.how = int(batch), (rest or ["one"])[0]
        self.rows, self.failed, self.predicted = [], "", {}
        self.environment = dict(w.split("=", 1) for w in rest[1:] if re.match(r"[A-Z_]+=", w))
        self.words = [w for w in rest[1:] if not re.match(r"[A-Z_]+=", w)]
        peer = re.fullmatch(r"(ddp|fsdp2)(?::(\d+))?", self.how)
        self.form = peer[1] if peer else ""
        factors = [int(n) for n in re.findall(r"\b(?:dp|tp)=(\d+)", self.how)]
        self.ranks = int(peer[2] or 2) if peer else factors[0] * (factors[1] if len(factors) > 1 else 1) if factors else 1

    def median_ms(self):
        return statistics.median([ms for row in self.rows for ms in row["samples_ms"]])


def reference_of(cell, cells):
    """The cell on one card that this one is compared with."""
    alone = [c for c in cells if c.model == cell.model and c.ranks == 1 and bool(c.form) == bool(cell.form) and c.rows]
    for batch in (cell.batch // cell.ranks, cell.batch) if "tp=" not in cell.how else (cell.batch,):
        for c in alone:
            if c.batch == batch:
                return c
    return None


def scaling_cells(options):
    """Weak scaling has `--rows` rows on each card, strong scaling the rows of all cards on each number of them."""
    counts = [n for n in (1, 2, 4, 8) if n <= options.gpus]
    out = []
    for size in options.sizes.split(","):
        most = options.rows * counts[-1]
        for n in counts:
            for batch in dict.fromkeys((options.rows * n, most)):
                if n == 1:
                    out.append(f"{size} {batch} one")
                    out += [f"{size} {batch} {form}:1" for form in options.forms.split(",")[:1] if form]
                    continue
                out.append(f"{size} {batch} dp={n},sums=low")
                out.append(f"{size} {batch} dp={n},shard=3,sums=low")
                out += [f"{size} {batch} {form}:{n}" for form in options.forms.split(",") if form]
            if n > 1:
                out.append(f"{size} {most} tp={n}")
    return out


def command_of(cell, options):
    shape = ["--context", options.context, "--batch", cell.batch, "--warmup", options.warmup, "--steps", options.steps]
    name = ["--size" if cell.model in course_sizes.SIZES else "--model", cell.model]
    if cell.form:
        return [options.python, PEER, *name, "--form", cell.form, "--ranks", cell.ranks, "--device", options.device, *shape, *cell.words]
    threads = ["--threads", 1] if options.device == "cpu" else []
    precision = [] if "--precision" in cell.words else ["--precision", options.precision]
    bench = ["bench", *name, "--mode", "step", *precision, "--attention", "flash", "--executor", "compiled",
             "--device", options.device, "--roof", 0, "--format", "json", *shape, *threads]
    if cell.ranks > 1:
        return [options.tracestep, "launch", "-n", cell.ranks, "--", *bench, "--parallel", cell.how, *cell.words]
    return [options.tracestep, *bench, *cell.words]


def predict(cell, options):
    """Sets what `predict` says by the published peaks of a device; nothing runs for it."""
    words = list(map(str, command_of(cell, options)))
    words = words[words.index("--") + 1:] if "launch" in words else words[1:]
    for flag in ("--warmup", "--steps", "--device", "--roof", "--threads"):
        if flag in words:
            del words[words.index(flag):words.index(flag) + 2]
    link = ["--link-gb-s", str(options.link_gb_s)] if cell.ranks > 1 else []
    done = subprocess.run([options.tracestep, "predict", "--published", options.published, *link, *words[1:]], capture_output=True, text=True)
    try:
        cell.predicted = json.loads(done.stdout)["rows"][0]
    except ValueError:
        print(f"[scaling] {cell.text}: not predicted: {done.stderr.strip()[-200:]}", file=sys.stderr)


def run(cell, options, left):
    if left < 5:
        cell.failed = cell.failed or "no time was left"
        return
    try:
        done = subprocess.run(list(map(str, command_of(cell, options))), capture_output=True, text=True,
                              env={**os.environ, **cell.environment}, timeout=min(left, options.limit))
    except subprocess.TimeoutExpired:
        cell.failed = "too slow"
        return
    said = done.stdout
    try:
        row = json.loads(said[said.index("{"):said.rindex("}") + 1])
        row = row["rows"][0] if "rows" in row else row
    except ValueError:
        row = {"status": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:160]}
    if row["status"] == "ok":
        cell.rows.append(row)
    else:
        cell.failed = f"{row['status']} {row.get('detail') or ''}".strip()


def problems_of(cell):
    out = [f"{cell.text}: {cell.failed}"] if cell.failed and not cell.failed.startswith("not run") else []
    for row in cell.rows if not cell.form else []:
        if row["peak_bytes"] != row["predicted_peak_bytes"]:
            out.append(f"{cell.text}: peak {row['peak_bytes']}, predicted {row['predicted_peak_bytes']}")
        agreeing = row.get("ranks_as_predicted")
        if agreeing is not None and agreeing != cell.ranks:
            out.append(f"{cell.text}: bytes of {agreeing} of {cell.ranks} ranks are as predicted")
    return out


def line_of(cell, cells, context):
    if not cell.rows:
        return [cell.text, *["-"] * 10]
    row, ms = cell.rows[-1], cell.median_ms()
    every = [statistics.median(r["samples_ms"]) for r in cell.rows]
    reference = reference_of(cell, cells)

    def rate(c):  # tokens/s a card
        return 1e3 * c.batch * context / c.median_ms() / c.ranks

    def shown(key, digits=2):
        return "-" if row.get(key) is None else f"{row[key]:.{digits}f}"

    said = cell.predicted.get("predicted_ms")
    told = f"{said:.1f} ({100 * (said / ms - 1):+.1f} %)" if said else "-"
    share = rate(cell) / rate(reference) if reference and reference is not cell else None
    return [cell.text, f"{ms:.3f}", told, " ".join(f"{t:.2f}" for t in every), f"{rate(cell):,.0f}",
            "-" if share is None else f"{share:.3f}", "-" if share is None else f"{1 / share:.3f}", shown("communication_ms"),
            shown("exposed_ms"), str(row.get("launches") or "-"), f"{row['peak_bytes'] / 2**30:.2f}" if row.get("peak_bytes") else "-"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracestep", help="the program [default: of a build folder]")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch, for ddp and fsdp2")
    parser.add_argument("--cells", default="", help="with semicolons; else those of --gpus and --sizes")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--sizes", default="large,2.7B")
    parser.add_argument("--forms", default="", help="ddp,fsdp2: PyTorch's rows of the scaling table")
    parser.add_argument("--rows", type=int, default=4, help="rows of the batch for each card")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2, help="turns of all cells")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=500, help="seconds for all")
    parser.add_argument("--limit", type=float, default=90, help="seconds for one run of a cell")
    parser.add_argument("--published", help="a device whose published peaks tell each of our cells' time before it runs, as H200")
    parser.add_argument("--link-gb-s", type=float, default=330, help="for that: what an all_reduce reaches")
    parser.add_argument("--json", help="file for all rows")
    options = parser.parse_args()
    find_program(options)
    begin = time.monotonic()
    cells = [Cell(text) for text in (options.cells.split(";") if options.cells else scaling_cells(options))]
    if options.published:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda c: predict(c, options), [c for c in cells if not c.form]))
        print(f"[scaling] {time.monotonic() - begin:.0f} s: predicted", file=sys.stderr, flush=True)
    for number in range(options.rounds):
        for cell in cells:
            if number > 0 and not cell.rows:
                continue
            run(cell, options, options.budget - (time.monotonic() - begin))
            got = f"{statistics.median(cell.rows[-1]['samples_ms']):.2f} ms" if cell.rows else cell.failed
            print(f"[scaling] {time.monotonic() - begin:.0f} s: {cell.text}: {got}", file=sys.stderr, flush=True)
            if cell.rows and cell.failed == "no time was left":
                cell.failed = ""
    header = ["cell", "ms", "predicted ms", "each turn", "tokens/s a card", "share", "to one card", "collectives ms", "exposed ms", "launches", "peak GiB"]
    print(render(header, [line_of(c, cells, options.context) for c in cells]))
    problems = [p for c in cells for p in problems_of(c)]
    for cell in cells:
        if cell.failed.startswith("not run"):
            print(f"left out: {cell.text}: {cell.failed}")
    print("\n".join(f"WRONG  {p}" for p in problems) or "ok     all bytes are as predicted, on each rank where that was counted")
    if options.json:
        kept = {c.text: {"rows": c.rows, "predicted": c.predicted, "failed": c.failed} for c in cells}
        pathlib.Path(options.json).write_text(json.dumps(kept, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
