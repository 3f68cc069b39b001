"""Carrying out fix-its: edits of spans, applied to a text."""

from __future__ import annotations

from collections.abc import Iterable

from sketchc.diagnostics import Edit, Fix, InternalError


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
        parts += [text[position : edit.span.start], edit.replacement]
        position = edit.span.end
    return "".join([*parts, text[position:]])
