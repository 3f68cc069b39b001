"""Diagnostics and proofs as JSON and as SARIF 2.1.0, for editors and CI.

The JSON document (version 1) is an object with

- `version`: 1, and `tool`: {"name", "version"};
- `diagnostics`: a list of {"code", "severity" ("error", "warning", "note"), "message", "label",
  "span", "labels" (a list of {"span", "text"}), "notes", "help", "fixes"}, where a fix is {"title",
  "safe", "edits"} and an edit {"span", "replacement"};
- `sketches`: a list of {"file", "name", "proofs"}, where a proof is {"claim", "subject", "tier",
  "detail", "span", "counter_example"}, the last null or {"symbols", "iterations", "element",
  "text"};
- `summary`: {"files", "errors", "warnings"}.

A span is {"file", "start", "end", "line", "column", "end_line", "end_column"}: offsets from 0 and
lines and columns from 1, in Unicode code points; ends are exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Label, Severity, Span
from sketchc.base.version import __version__
from sketchc.ir import nodes as ir
from sketchc.reporting.text import SketchReport

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(
    diagnostics: Sequence[Diagnostic], sketches: Sequence[SketchReport], files: int
) -> str:
    """The JSON document that the module's docstring describes, ending in a newline."""
    document = {
        "version": 1,
        "tool": {"name": "sketchc", "version": __version__},
        "diagnostics": [plain(found) for found in diagnostics],
        "sketches": [plain(report) for report in sketches],
        "summary": {
            "files": files,
            "errors": sum(d.severity is Severity.ERROR for d in diagnostics),
            "warnings": sum(d.severity is Severity.WARNING for d in diagnostics),
        },
    }
    return json.dumps(document, indent=2) + "\n"


#: The fields of each record that the document has, in the document's order.
_FIELDS: dict[type, str] = {
    Diagnostic: "code severity message label span labels notes help fixes",
    Label: "span text",
    Fix: "title safe edits",
    Edit: "span replacement",
    SketchReport: "file name proofs",
    ir.Proof: "claim subject tier detail span counter_example",
    ir.CounterExample: "symbols iterations element text",
    Span: "start end line column end_line end_column",
}


def plain(value: Any) -> Any:
    """A diagnostic, a sketch's report, or a part of one of them, as plain data."""
    match value:
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
        case tuple() | list():
            return [plain(one) for one in value]
        case _ if type(value) in _FIELDS:
            place = {"file": value.source} if isinstance(value, Span) else {}
            fields = _FIELDS[type(value)].split()
            return {**place, **{name: plain(getattr(value, name)) for name in fields}}
        case _:
            return value


# ---------------------------------------------------------------- SARIF


def render_sarif(
    diagnostics: Sequence[Diagnostic], sketches: Sequence[SketchReport], files: Iterable[str]
) -> str:
    """A SARIF 2.1.0 log of one run; the proofs stand in the run's property bag."""
    codes = sorted({found.code for found in diagnostics})
    run = {
        "tool": {
            "driver": {
                "name": "sketchc",
                "version": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": _uri(name)}} for name in files],
        "results": [_result(found, codes.index(found.code)) for found in diagnostics],
        "properties": {"sketches": [plain(report) for report in sketches]},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    from sketchc.base.explain import page, title

    text = page(code)
    if text is None:
        return {"id": code, "shortDescription": {"text": code}, "help": {"text": code}}
    advice = {"text": text, "markdown": text}
    return {"id": code, "shortDescription": {"text": title(code)}, "help": advice}


def _result(found: Diagnostic, rule: int) -> dict[str, Any]:
    lines = [found.message]
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"help: {found.help}"] if found.help else []
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": found.severity.value,
        "message": {"text": "\n".join(lines)},
        "locations": [_location(found.span, found.label)],
    }
    if found.labels:
        result["relatedLocations"] = [
            {"id": number, **_location(label.span, label.text)}
            for number, label in enumerate(found.labels, 1)
        ]
    if found.fixes:
        result["fixes"] = [_fix(fix) for fix in found.fixes]
    return result


def _location(span: Span, text: str) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(span.source)},
            "region": _region(span),
        }
    }
    if text:
        location["message"] = {"text": text}
    return location


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
        "charOffset": span.start,
        "charLength": span.end - span.start,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    names = dict.fromkeys(edit.span.source for edit in fix.edits)
    return {
        "description": {"text": fix.title},
        "properties": {"safe": fix.safe},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(name)},
                "replacements": [
                    {
                        "deletedRegion": _region(edit.span),
                        "insertedContent": {"text": edit.replacement},
                    }
                    for edit in fix.edits
                    if edit.span.source == name
                ],
            }
            for name in names
        ],
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace("\\", "/"))
