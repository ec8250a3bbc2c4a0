"""What a command found: tables, the sentence that answers its question, and charts."""
from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN_ROWS, SHOWN_COLUMNS = 40, 14


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
        """How many rows there are."""
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
        """A pandas.DataFrame, with what the columns mean in its `attrs`."""
        import pandas

        frame = pandas.DataFrame(self.rows, columns=list(self.columns))
        frame.attrs = {"name": self.name, "columns": self.columns}
        return frame

    def to_polars(self) -> Any:
        """A polars.DataFrame."""
        import polars

        return polars.DataFrame({name: self[name] for name in self.columns}, strict=False)

    def _shown(self) -> list[str]:
        """The columns that have something to say: what differs, and of a single row what was found."""
        def is_said(name: str, facts: dict[str, Any]) -> bool:
            values = self[name]
            if any(isinstance(value, (list, dict)) for value in values) or not any(
                    value is not None for value in values):
                return False
            if len(values) == 1:
                return "shown" not in facts and facts.get("role") != "key"
            return len({repr(value) for value in values}) > 1
        names = [name for name, facts in self.columns.items() if is_said(name, facts)]
        return names[:SHOWN_COLUMNS]

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
        self.data = data
        self.pictures = dict(pictures or {})
        self.status = 0
        self.answer: str = data.get("answer", "")
        self.schema: str = data.get("schema", "")
        self.environment: dict[str, Any] = data.get("environment", {})
        named = data.get("tables") or {data.get("table", "result"): data}
        self.tables = {name: Table(name, entry.get("columns", {}), entry.get("rows", []),
                                   entry.get("title", ""), entry.get("notes", []))
                       for name, entry in named.items()}

    @property
    def table(self) -> Table:
        """The main table."""
        return self.tables[self.data.get("table", next(iter(self.tables)))]

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
        """The main table, or where it is empty the first that is not."""
        return next((table for table in [self.table, *self.tables.values()] if len(table)), self.table)

    def __repr__(self) -> str:
        """The answer and the table that bears it out."""
        table = self._shown()
        return "\n\n".join(part for part in (self.answer, repr(table) if table.columns else "") if part)

    def _repr_html_(self) -> str:
        """The answer, the main table and the charts, for a notebook."""
        answer = f"<p><b>{html.escape(self.answer)}</b></p>" if self.answer else ""
        table = self._shown()
        return answer + (table._repr_html_() if table.columns else "") + "".join(self.pictures.values())


def load(path: str | os.PathLike[str]) -> Result:
    """A result that `save` or the program's `--format json --output PATH` has written."""
    return Result(json.loads(Path(path).read_text(encoding="utf-8")))
