"""What compare_gpu.py measured, as tables: times with their ratios, peaks, clocks, what is missing.
"""

import math
import statistics

from gpu_runners import slowed_by

FORMS = ("course", "course-compiled", "best", "best-eager", "graph")
GRANULARITIES = ("primitive", "fused")


class Results:
    """Rows by group, runner and mode; the samples of several rounds are pooled."""

    def __init__(self):
        self.rows = {}

    def add(self, group, runner, row):
        key = (group, runner, row["mode"])
        before = self.rows.get(key)
        if before and before["status"] == row["status"] == "ok":
            samples = before["samples_ms"] + row["samples_ms"]
            row = {**row, "samples_ms": samples, "median_ms": statistics.median(samples),
                   "min_ms": min(samples)}
        self.rows[key] = {**row, "runner": runner}

    def fail(self, group, runner, modes, status, detail):
        for mode in modes:
            if (group, runner, mode) not in self.rows:
                self.rows[(group, runner, mode)] = {"mode": mode, "status": status,
                                                    "detail": detail, "runner": runner}

    def get(self, group, runner, mode):
        return self.rows.get((group, runner, mode), {"status": "not measured"})

    def median(self, group, runner, mode):
        row = self.get(group, runner, mode)
        return statistics.median(row["samples_ms"]) if row["status"] == "ok" else None

    def as_json(self):
        return [{**group._asdict(), **row} for (group, _, _), row in self.rows.items()]


def shown(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def cell_text(results, group, runner, mode, field, digits, scale=1.0):
    """A figure of a row, or its status where it has none."""
    row = results.get(group, runner, mode)
    if row["status"] != "ok":
        return "–" if row["status"] == "not measured" else row["status"]
    value = results.median(group, runner, mode) if field == "wall" else row.get(field)
    return shown(None if value is None else value * scale, digits)


def render(header, lines):
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |"
            for line in [header, *lines]]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)


def measured_cells(results, groups, modes):
    reached = {(group, mode) for group, _, mode in results.rows}
    return [(g, m) for g in groups for m in modes if (g, m) in reached]


def ratio_pairs(runners):
    """Every PyTorch runner over every granularity of tracestep."""
    return [(t, o) for t in runners if t in FORMS for o in runners if o in GRANULARITIES]


def ratio(results, cell, pair):
    torch_ms, own_ms = (results.median(cell[0], runner, cell[1]) for runner in pair)
    return torch_ms / own_ms if torch_ms and own_ms else None


def figures_table(results, cells, columns, title):
    """columns: (heading, runner, field, digits, scale)."""
    header = ["model", "context", "precision", "mode", *(c[0] for c in columns)]
    lines = [[g.size, str(g.context), g.precision, mode,
              *(cell_text(results, g, runner, mode, field, digits, scale)
                for _, runner, field, digits, scale in columns)] for g, mode in cells]
    return f"## {title}\n\n{render(header, lines)}\n"


def ratio_table(results, cells, runners):
    pairs = ratio_pairs(runners)
    header = ["model", "context", "precision", "mode", *(f"{r} ms" for r in runners),
              *(f"{t} / {o}" for t, o in pairs)]
    lines = []
    for g, mode in cells:
        lines.append([g.size, str(g.context), g.precision, mode,
                      *(cell_text(results, g, r, mode, "wall", 3) for r in runners),
                      *(shown(ratio(results, (g, mode), p), 2) for p in pairs)])
    return ("## Time of a call\n\nMedian wall time from the call to the finished device. Ratios "
            "above 1: tracestep is faster.\n\n" + render(header, lines) + "\n")


def ratio_summary(results, cells, runners):
    lines = []
    for pair in ratio_pairs(runners):
        known = [(r, c) for c in cells if (r := ratio(results, c, pair))]
        if not known:
            continue
        lowest, (group, mode) = min(known, key=lambda k: k[0])
        mean = math.exp(statistics.fmean(math.log(r) for r, _ in known))
        slower = sum(r < 1 for r, _ in known)
        lines.append(f"- {pair[0]} / {pair[1]}: lowest {lowest:.2f} ({group} {mode}), geometric "
                     f"mean {mean:.2f}, below 1 in {slower} of {len(known)} cells")
    return "\n".join(lines) + "\n" if lines else ""


def environment_lines(environment):
    card, torch = environment["card"], environment.get("torch") or {}
    smi = card[0]["state"] if card else {}
    lines = [f"- {environment['date']}, {smi.get('name', torch.get('device', 'no GPU seen'))}, "
             f"driver {smi.get('driver_version', 'unknown')}, {environment['machine']}",
             f"- torch {torch.get('torch', '–')} (CUDA {torch.get('cuda', '–')}, cuDNN "
             f"{torch.get('cudnn', '–')}), {environment.get('tracestep') or 'no tracestep'}",
             f"- {environment['protocol']}"]
    for when in (card[:1] + card[-1:] if len(card) > 1 else card):
        s = when["state"]
        if s:
            lines.append(f"- {when['when']}: SM {s['clocks.sm']} of {s['clocks.max.sm']} MHz, "
                         f"memory {s['clocks.mem']} MHz, {s['power.draw']} of {s['power.limit']} "
                         f"W, {s['temperature.gpu']} °C")
    slow = [f"{c['when']} ({', '.join(slowed_by(c['state']))})" for c in card
            if slowed_by(c["state"])]
    if slow:
        lines.append("- throttled when read " + "; ".join(slow))
    return "\n".join(lines) + "\n"


def report(results, groups, modes, runners, environment):
    """Everything as one Markdown text."""
    cells = measured_cells(results, groups, modes)
    torch = [r for r in runners if r in FORMS]
    own = [r for r in runners if r in GRANULARITIES]
    mib = 1 / 2**20
    peaks = [(f"{r} MiB", r, "peak_bytes", 1, mib) for r in torch]
    for r in own:
        peaks += [(f"{r} MiB", r, "peak_bytes", 1, mib),
                  (f"{r} predicted", r, "predicted_peak_bytes", 1, mib)]
    clocks = [(f"{r} issue", r, "issue_ms", 3, 1.0) for r in torch]
    for r in own:
        clocks += [(f"{r} issue", r, "issue_ms", 3, 1.0),
                   (f"{r} span", r, "device_span_ms", 3, 1.0),
                   (f"{r} busy", r, "device_busy_ms", 3, 1.0),
                   (f"{r} launches", r, "launches", 0, 1.0)]
    parts = ["# PyTorch and tracestep on one GPU\n", environment_lines(environment),
             ratio_summary(results, cells, runners), ratio_table(results, cells, runners),
             figures_table(results, cells, peaks, "Peak memory (PyTorch: max_memory_allocated; "
                           "tracestep: requested bytes)"),
             figures_table(results, cells, clocks, "Issue time of the host, and the device's "
                           "clocks (ms)")]
    missing = missing_lines(results, groups, modes, runners)
    if missing:
        parts.append("## Not measured\n\n" + missing + "\n")
    return "\n".join(p for p in parts if p)


def missing_lines(results, groups, modes, runners):
    lines = []
    for group in groups:
        absent = [r for r in runners
                  if all((group, r, m) not in results.rows for m in modes)]
        part = [f"{r} {m}" for r in runners if r not in absent for m in modes
                if (group, r, m) not in results.rows]
        if absent or part:
            whole = "all" if len(absent) == len(runners) else ", ".join(absent + part)
            lines.append(f"- {group}: {whole}")
    return "\n".join(lines)
