"""The generated parts of docs/LANGUAGE.md: the tables of operations, types, hints and diagnostics.

`python -m sketchc.reporting.language_pages docs/LANGUAGE.md` writes the tables between markers such
as `<!-- table: operations -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sketchc.base.types import DType
from sketchc.ops.table import OPS, Attribute, Category, Op

_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
_IDENTITIES = {
    "zero": "0",
    "one": "1",
    "lowest": "-inf, or the smallest integer",
    "highest": "inf, or the largest integer",
    "false": "False",
    "true": "True",
}


def operation_tables() -> str:
    """One table per category, in the order of the op table."""
    parts = []
    for category in Category:
        rows = [row for row in OPS.values() if row.category is category]
        if rows:
            parts.append(_operation_table(category, rows))
    return "\n\n".join(parts)


def _operation_table(category: Category, rows: list[Op]) -> str:
    identities = any(row.identity for row in rows)
    head = ["call", "result", "shape", "dtype", *(["of no lanes"] if identities else [])]
    cells = [
        (
            f"`{call_of(row)}`",
            _cell(row.doc),
            row.shape.value,
            row.result.value,
            *([_IDENTITIES.get(row.identity or "", "")] if identities else []),
        )
        for row in rows
    ]
    return f"**{category.value.capitalize()}**\n\n{table(head, cells)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join((next(lines), "|" + "---|" * len(head), *lines))


def call_of(
    row: Op,
    two: Sequence[str] = ("dst_values", "dst_indices"),
    shown: Callable[[Attribute], str] = lambda attribute: _default(attribute.default),
) -> str:
    """The call of an operation as text: operands, positional attributes, destinations (`two`, where
    there are several), and keywords with the values that `shown` gives."""
    arguments = [*row.operands, *(a.name for a in row.attributes if a.positional)]
    destinations = two if row.outputs > 1 else ["dst"]
    keywords = [f"{a.name}={shown(a)}" for a in row.attributes if not a.positional]
    return f"{row.name}({', '.join([*arguments, *destinations, *keywords])})"


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "..." if value is None else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def type_table() -> str:
    """Every element type: size, kind, and the type that its element-wise results pass through."""
    rows = []
    for dtype in DType:
        if dtype.is_float:
            kind = "float"
        elif dtype is DType.BOOL:
            kind = "truth value"
        else:
            kind = "signed integer" if dtype.is_signed else "unsigned integer"
        rows.append((f"`{dtype.value}`", str(dtype.bytes), kind, f"`{dtype.compute.value}`"))
    return table(("type", "bytes", "kind", "computed in"), rows)


def hint_table() -> str:
    """Every hint that is known, and where it may stand."""
    from sketchc.checker.api import LOOP_HINTS, TILE_HINTS

    places = (LOOP_HINTS, TILE_HINTS)
    rows = (
        (f'`"{word}"`', *("yes" if word in words else "" for words in places))
        for word in sorted(LOOP_HINTS | TILE_HINTS)
    )
    return table(("hint", "on loops", "on tiles"), rows)


def diagnostic_table() -> str:
    """Every code with the title of its page."""
    from sketchc.base.explain import codes, title

    return table(("code", "says"), ((code, _cell(title(code))) for code in codes()))


TABLES: dict[str, Callable[[], str]] = {
    "operations": operation_tables,
    "types": type_table,
    "hints": hint_table,
    "diagnostics": diagnostic_table,
}


def filled(text: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """The text with every table between markers replaced by a new one. Raises `KeyError` for an
    unknown table."""
    return _MARKED.sub(lambda found: f"{found[1]}{tables[found[2]]()}\n{found[3]}", text)


def main(tables: Mapping[str, Callable[[], str]] = TABLES) -> None:
    """Fill the tables of the files that the command line names."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text("utf-8"), tables), "utf-8")


if __name__ == "__main__":
    main()
