"""What a command found: tables, the sentence that answers its question, and charts."""
from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._program import InputError

SHOWN_ROWS, SHOWN_COLUMNS = 40, 10
# What a result is made of, as far as it is there: names of members, of what kind each is.
TEXTS = dict.fromkeys(("kind", "unit", "title", "description", "role", "shown"), str)
FACTS = TEXTS | {"words": dict, "asked_for": bool}
TABLE = {"columns": dict, "rows": list, "title": str, "notes": list}
RESULT = TABLE | {"schema": str, "answer": str, "environment": dict, "table": str, "tables": dict}


def parsed(text: str, what: str) -> dict[str, Any]:
    """An object in JSON. Errors: InputError, which says what `text` is."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is no JSON: {error}", 3) from None
    if not isinstance(data, dict):
        raise InputError(f"{what} is no object of JSON", 3)
    return data


def _check_members(of: Any, kinds: Mapping[str, type], what: str) -> None:
    if not isinstance(of, dict):
        raise InputError(f"this is no result of tracestep: {what} is no object", 3)
    for name, kind in kinds.items():
        if not isinstance(of.get(name, kind()), kind):
            raise InputError(f"this is no result of tracestep: {name} of {what} is no {kind.__name__}", 3)


def _check_table(table: Any, what: str) -> None:
    _check_members(table, TABLE, what)
    for name, facts in table.get("columns", {}).items():
        _check_members(facts, FACTS, f"column {name!r}")
    for row in table.get("rows", []):
        _check_members(row, {}, f"a row of {what}")
    for note in table.get("notes", []):
        _check_members({"note": note}, {"note": str}, what)


@dataclass
class Table:
    """Rows as the program measured them, and what its columns mean.

    Each row is a dict by column; a value that there is not is None. `columns` has the kind, unit, title and
    description of each.
    """

    name: str
    columns: dict[str, dict[str, Any]]
    rows: list[dict[str, Any]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, in order."""
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column, one for each row."""
        if column not in self.columns:
            raise KeyError(f"{column!r}; there are {', '.join(self.columns)}")
        return [row.get(column) for row in self.rows]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame, what matters first, with what the columns mean in its `attrs`."""
        import pandas

        frame = pandas.DataFrame(self.rows, columns=self._ordered())
        frame.attrs = {"name": self.name, "columns": self.columns}
        return frame

    def to_polars(self) -> Any:
        """A polars.DataFrame, what matters first."""
        import polars

        return polars.DataFrame({name: self[name] for name in self._ordered()}, strict=False)

    def _rank(self, name: str) -> int:
        """The order of columns: 0 identifies the row, 1 is asked for, 2 differs, 3 is the same everywhere, 4 holds
        lists or objects.
        """
        facts, values = self.columns[name], self[name]
        if any(isinstance(value, (list, dict)) for value in values):
            return 4
        if all(value is None for value in values):
            return 3
        is_key = facts.get("role") == "key"
        if len(values) == 1:  # of which it is known
            is_said = not is_key and "shown" not in facts
        else:
            is_said = len({repr(value) for value in values}) > 1
        if is_key and is_said:
            return 0
        if facts.get("asked_for"):
            return 1
        return 2 if is_said else 3

    def _ordered(self) -> list[str]:
        """All columns, the most important ones first."""
        return sorted(self.columns, key=self._rank)

    def _shown(self) -> list[str]:
        """The columns worth showing, as many as fit on a screen."""
        return [name for name in self._ordered() if self._rank(name) < 3][:SHOWN_COLUMNS]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and texts of what is shown."""
        names = self._shown()
        heads = [_head(name, self.columns[name]) for name in names]
        rows = [[_text(row.get(name), self.columns[name]) for name in names]
                for row in self.rows[:SHOWN_ROWS]]
        return heads, rows

    def __repr__(self) -> str:
        """The columns that differ, as text."""
        heads, rows = self._cells()
        widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
        if not rows:
            return "\n".join([self.title or self.name, *(self.notes or ["no rows"])])
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                 for row in [heads, ["-" * width for width in widths], *rows]]
        if len(self) > SHOWN_ROWS:
            lines.append(f"and {len(self) - SHOWN_ROWS} more rows")
        return "\n".join([self.title or self.name, *lines])

    def _repr_html_(self) -> str:
        """The same for a notebook; a column's meaning shows under the pointer."""
        heads, rows = self._cells()
        descriptions = [self.columns[name].get("description", name) for name in self._shown()]
        head = "".join(f'<th title="{html.escape(text)}">{html.escape(name)}</th>'
                       for name, text in zip(heads, descriptions))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                       for row in rows)
        more = f"<p>and {len(self) - SHOWN_ROWS} more rows</p>" if len(self) > SHOWN_ROWS else ""
        return (f"<table><caption>{html.escape(self.title or self.name)}</caption>"
                f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")


def _head(name: str, facts: Mapping[str, Any]) -> str:
    """A column's title with its unit, "mean (ms)"; bytes have theirs in every cell."""
    title, unit = facts.get("title") or name, facts.get("unit")
    return f"{title} ({unit})" if unit and facts.get("kind") != "bytes" else str(title)


def _text(value: Any, facts: Mapping[str, Any]) -> str:
    """A cell: the words of the program for a value, bytes in their binary unit, numbers to four digits."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(facts.get("words", {}).get(value, value))
    if facts.get("kind") == "bytes":
        for unit in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or unit == "GiB":
                return f"{value:.2f} {unit}" if unit != "B" else f"{value} B"
            value /= 1024
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


class Result:
    """What a command found.

    `status` is the program's exit status, which tells of a gate of `compare`; `answer` is the sentence that it
    prints first, `table` its main table, `tables` all of them by name, `environment` the machine and build, `pictures` its charts as SVG by name, and `data` the JSON itself.
    """

    def __init__(self, data: dict[str, Any], pictures: Mapping[str, str] | None = None) -> None:
        _check_members(data, RESULT, "it")
        tables = data.get("tables") or {data.get("table", "result"): data}
        for name, table in tables.items():
            _check_table(table, f"table {name!r}")
        self.data = data
        self.pictures = dict(pictures or {})
        self.status = 0
        self.answer: str = data.get("answer", "")
        self.schema: str = data.get("schema", "")
        self.environment: dict[str, Any] = data.get("environment", {})
        self.tables = {name: Table(name, entry.get("columns", {}), entry.get("rows", []),
                                   entry.get("title", ""), entry.get("notes", []))
                       for name, entry in tables.items()}

    @property
    def table(self) -> Table:
        """The main table."""
        first = next(iter(self.tables))
        return self.tables[self.data.get("table", first) if self.data.get("table") in self.tables else first]

    def __getitem__(self, name: str) -> Table:
        """A table by its name."""
        if name not in self.tables:
            raise KeyError(f"{name!r}; there are {', '.join(self.tables)}")
        return self.tables[name]

    def to_pandas(self) -> Any:
        """The main table as a pandas.DataFrame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The main table as a polars.DataFrame."""
        return self.table.to_polars()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON, as `--format json --output PATH` does; `load` and `tracestep compare` read it."""
        Path(path).write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")

    def _shown(self) -> Table:
        """The main table; if it is empty, the first table that is not."""
        return next((table for table in [self.table, *self.tables.values()] if len(table)), self.table)

    def __repr__(self) -> str:
        """The answer, and the table that supports it."""
        table = self._shown()
        return "\n\n".join(part for part in (self.answer, repr(table) if table.columns else "") if part)

    def _repr_html_(self) -> str:
        """The answer, the main table and the charts, for a notebook."""
        answer = f"<p><b>{html.escape(self.answer)}</b></p>" if self.answer else ""
        table = self._shown()
        return answer + (table._repr_html_() if table.columns else "") + "".join(self.pictures.values())


def load(path: str | os.PathLike[str]) -> Result:
    """A result that `save` or the program's `--format json --output PATH` has written.

    Errors: OSError for a file that cannot be read, InputError for one that holds no such result.
    """
    data = parsed(Path(path).read_bytes().decode("utf-8", "replace"), os.fspath(path))
    if not data.keys() & {"schema", "answer"}:
        raise InputError(f"{os.fspath(path)} is no result of tracestep: there is no schema", 3)
    return Result(data)
