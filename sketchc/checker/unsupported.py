"""Constructs that parse and are documented, but that this version does not carry through.

Each family has one code, so that `sketchc explain` says what to write instead.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.checker.context import Context, InvalidError
from sketchc.ops import Category, Op
from sketchc.source import Span


def unsupported_operation(context: Context, row: Op, span: Span) -> InvalidError:
    """Report an operation whose row is not lowered yet."""
    match row.category:
        case Category.SCAN:
            code = "SK0901"
        case Category.INDEX | Category.SORTING:
            code = "SK0902"
        case Category.COMPOSITE:
            code = "SK0903"
        case Category.RANDOM:
            code = "SK0904"
        case Category.LAYOUT | Category.ELEMENTWISE | Category.REDUCTION | Category.MATRIX:
            code = "SK0905"
        case _:
            assert_never(row.category)
    return _report(context, code, f"`{row.name}`", span)


def _report(context: Context, code: str, what: str, span: Span) -> InvalidError:
    return context.error(
        span,
        code,
        f"{what} parses, but is not carried through in this version",
        "not lowered yet",
    )
