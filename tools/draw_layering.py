#!/usr/bin/env python3
"""Draws the folders of src/ and who may include whom: docs/layering.svg, from check_layering.py.

A folder stands above all that it may include. An arrow is left out where others lead there too.
With --check nothing is written; the exit status is 1 when the picture is not what it would be.
Usage: draw_layering.py [--check]
"""
import sys
from html import escape
from pathlib import Path

from check_layering import ROWS

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "layering.svg"
WIDTH, BOX, HEIGHT, GAP, MARGIN = 1080, 142, 30, 44, 16
# The drawing leaves this out: everybody includes it.
GROUND = "base"


def graph():
    """Folder -> the folders its arrows lead to. A row that may include all has arrows to none."""
    rows = {row: deps for row, deps in ROWS.items()
            if row != GROUND and (ROOT / "src" / row).is_dir()}
    direct = {}
    for row, deps in rows.items():
        names = []
        for dep in deps:
            if dep == "*":
                continue
            names += ([other for other in rows if other.startswith(dep[:-1]) and other != row]
                      if dep.endswith("/*") else [dep])
        direct[row] = [name for name in names if name in rows]
    return direct


def reachable(direct, row):
    seen, todo = set(), list(direct[row])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += direct[name]
    return seen


def reduced(direct):
    """Without the arrows that longer ways make superfluous."""
    return {row: [dep for dep in deps
                  if not any(dep in reachable(direct, other) for other in deps if other != dep)]
            for row, deps in direct.items()}


def levels_of(direct):
    levels = {}

    def level(row):
        if row not in levels:
            levels[row] = 1 + max((level(dep) for dep in direct[row]), default=-1)
        return levels[row]

    for row in direct:
        level(row)
    top = max(levels.values()) + 1
    for row, deps in ROWS.items():  # what may include everything stands above everything
        if row in levels and "*" in deps:
            levels[row] = top
    return levels


def places_of(direct, levels):
    """Folder -> x and y of its box's middle. Rows are ordered by where their arrows lead."""
    by_level = {}
    for row in direct:
        by_level.setdefault(levels[row], []).append(row)
    top, places = max(by_level), {}
    for level in sorted(by_level):
        rows = by_level[level]
        rows.sort(key=lambda row: (sum(places[d][0] for d in direct[row]) / len(direct[row])
                                   if direct[row] else WIDTH / 2, row))
        step = min(BOX + 20, (WIDTH - 2 * MARGIN) / len(rows))
        first = WIDTH / 2 - step * (len(rows) - 1) / 2
        for i, row in enumerate(rows):
            places[row] = (first + i * step, MARGIN + HEIGHT / 2 + (top - level) * (HEIGHT + GAP))
    return places


def svg():
    direct = graph()
    arrows, levels = reduced(direct), levels_of(direct)
    places = places_of(arrows, levels)
    bottom = max(y for _, y in places.values()) + HEIGHT / 2 + GAP
    height = bottom + HEIGHT + MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
           f'font-family="sans-serif" font-size="13">',
           "<title>The folders of src/ and what they may include</title>",
           '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
           'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
           f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>']
    for row, deps in arrows.items():
        x, y = places[row]
        for dep in deps:
            to_x, to_y = places[dep]
            out.append(f'<path d="M{x:g} {y + HEIGHT / 2:g}C{x:g} {y + HEIGHT / 2 + GAP / 2:g} '
                       f'{to_x:g} {to_y - HEIGHT / 2 - GAP / 2:g} {to_x:g} '
                       f'{to_y - HEIGHT / 2:g}" fill="none" stroke="#99a" '
                       'marker-end="url(#tip)"/>')

    def box(name, x, y, width, fill):
        out.append(f'<rect x="{x - width / 2:g}" y="{y - HEIGHT / 2:g}" width="{width:g}" '
                   f'height="{HEIGHT}" rx="5" fill="{fill}" stroke="#556"/>'
                   f'<text x="{x:g}" y="{y + 4.5:g}" text-anchor="middle">{escape(name)}</text>')

    for row, (x, y) in places.items():
        all_below = "*" in ROWS[row]
        box(row + (": may include everything" if all_below else ""), x, y,
            2.2 * BOX if all_below else BOX, "#eef3ff" if "/" in row else "#fff8e6")
    box("base: included by everybody", WIDTH / 2, bottom + HEIGHT / 2, WIDTH - 2 * MARGIN, "#f0f0f0")
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    text = svg()
    if sys.argv[1:] == ["--check"]:
        if PICTURE.is_file() and PICTURE.read_text() == text:
            return 0
        print("docs/layering.svg is out of date: run tools/draw_layering.py")
        return 1
    PICTURE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
