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
from collections.abc import Iterable, Sequence
from typing import Any

from sketchc import __version__
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Severity, Span
from sketchc.ir import nodes as ir
from sketchc.reporting.text import SketchReport

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(
    diagnostics: Sequence[Diagnostic], sketches: Sequence[SketchReport], files: int
) -> str:
    """The JSON document described above, ending in a newline."""
    document = {
        "version": 1,
        "tool": {"name": "sketchc", "version": __version__},
        "diagnostics": [diagnostic_json(found) for found in diagnostics],
        "sketches": [_sketch(report) for report in sketches],
        "summary": {
            "files": files,
            "errors": sum(d.severity is Severity.ERROR for d in diagnostics),
            "warnings": sum(d.severity is Severity.WARNING for d in diagnostics),
        },
    }
    return json.dumps(document, indent=2) + "\n"


def diagnostic_json(found: Diagnostic) -> dict[str, Any]:
    """One diagnostic as plain data."""
    return {
        "code": found.code,
        "severity": found.severity.value,
        "message": found.message,
        "label": found.label,
        "span": _span(found.span),
        "labels": [{"span": _span(label.span), "text": label.text} for label in found.labels],
        "notes": list(found.notes),
        "help": found.help,
        "fixes": [
            {
                "title": fix.title,
                "safe": fix.safe,
                "edits": [
                    {"span": _span(edit.span), "replacement": edit.replacement}
                    for edit in fix.edits
                ],
            }
            for fix in found.fixes
        ],
    }


def _span(span: Span) -> dict[str, Any]:
    names = ("start", "end", "line", "column", "end_line", "end_column")
    return {"file": span.source, **{name: getattr(span, name) for name in names}}


def _sketch(report: SketchReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "name": report.name,
        "proofs": [_proof(proof) for proof in report.proofs],
    }


def _proof(proof: ir.Proof) -> dict[str, Any]:
    example = proof.counter_example
    return {
        "claim": proof.claim,
        "subject": proof.subject,
        "tier": proof.tier.value,
        "detail": proof.detail,
        "span": _span(proof.span),
        "counter_example": None
        if example is None
        else {
            "symbols": dict(example.symbols),
            "iterations": [dict(iteration) for iteration in example.iterations],
            "element": list(example.element),
            "text": example.text,
        },
    }


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
        "properties": {"sketches": [_sketch(report) for report in sketches]},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    from sketchc.base.explain import page

    text = page(code)
    if text is None:
        return {"id": code, "shortDescription": {"text": code}, "help": {"text": code}}
    title = text.splitlines()[0].lstrip("# ").partition(": ")[2]
    return {
        "id": code,
        "shortDescription": {"text": title},
        "help": {"text": text, "markdown": text},
    }


def _result(found: Diagnostic, rule: int) -> dict[str, Any]:
    lines = [found.message]
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"help: {found.help}"] if found.help else []
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": _LEVELS[found.severity],
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
                "replacements": [_replacement(e) for e in fix.edits if e.span.source == name],
            }
            for name in names
        ],
    }


def _replacement(edit: Edit) -> dict[str, Any]:
    return {
        "deletedRegion": _region(edit.span),
        "insertedContent": {"text": edit.replacement},
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace("\\", "/"))
