"""Carrying out fix-its: edits of spans, applied to a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sketchc.base.diagnostics import Edit, Fix, InternalError

#: Between two statements of one line.
_SEPARATOR = re.compile(r"[ \t]*;[ \t]*")


def apply(text: str, fix: Fix) -> str:
    """`text` with all edits of one fix carried out. Raises InternalError when they overlap."""
    return apply_edits(text, fix.edits)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with edits carried out, given in any order."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end)):
        if edit.span.start < position or edit.span.end > len(text):
            message = "edits of one fix overlap or lie outside the text"
            raise InternalError(message)
        start, end = (edit.span.start, edit.span.end)
        if not edit.replacement:
            start, end = _removed(text, start, end)
        parts += [text[position : max(start, position)], edit.replacement]
        position = end
    return "".join([*parts, text[position:]])


def _removed(text: str, start: int, end: int) -> tuple[int, int]:
    """What to cut so that the removal of `text[start:end]` leaves no blank line behind, nor the
    `;` between it and its neighbour."""
    before = text.rfind("\n", 0, start) + 1
    if start < end and (follows := _SEPARATOR.match(text, end)):
        end = follows.end()
    elif start < end and text[before:start].rstrip().endswith(";"):
        start = text.rindex(";", before, start)
    after = text.find("\n", end)
    last = len(text) if after < 0 else after + 1
    if start < end and not text[before:start].strip() and not text[end:last].strip():
        return before, last
    return start, end


def combine(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Those of the fixes, in order, whose edits touch nothing that an earlier one changes."""
    taken: list[tuple[int, int]] = []
    kept: list[Fix] = []
    for fix in fixes:
        spans = [(edit.span.start, edit.span.end) for edit in fix.edits]
        if all(_apart(span, other) for span in spans for other in taken):
            taken += spans
            kept.append(fix)
    return tuple(kept)


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return (one[1] <= other[0] and one != other) or (other[1] <= one[0] and one != other)
