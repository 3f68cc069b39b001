"""Rendering: carets under the right characters, labels, fixes, JSON and SARIF."""

from __future__ import annotations

import json
import re

import pytest

from sketchc.base.diagnostics import (
    Diagnostic,
    Edit,
    Fix,
    Label,
    Severity,
    Source,
    Span,
    apply_edits,
)
from sketchc.base.explain import page
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse
from sketchc.reporting.machine import render_json, render_sarif
from sketchc.reporting.text import WIDTH, SketchReport, render_proofs, render_text


def span(source: Source, part: str, end: str | None = None) -> Span:
    """Where `part` stands in a source, through the end of `end` where given."""
    start = source.text.index(part)
    stop = start + len(part) if end is None else source.text.index(end) + len(end)
    before, through = source.text[:start], source.text[:stop]
    return Span(
        source.name,
        start,
        stop,
        before.count("\n") + 1,
        start - (before.rfind("\n") + 1) + 1,
        through.count("\n") + 1,
        stop - (through.rfind("\n") + 1) + 1,
    )


def error(place: Span, **more) -> Diagnostic:
    return Diagnostic("SK0100", Severity.ERROR, "message", place, **more)


def marked(text: str) -> str:
    """What the carets of a rendered diagnostic stand under (one cell per character)."""
    lines = text.splitlines()
    index = next(i for i, line in enumerate(lines) if re.search(r"\| *\^", line))
    carets = [i for i, character in enumerate(lines[index]) if character == "^"]
    return lines[index - 1][carets[0] : carets[-1] + 1]


@pytest.mark.parametrize("line", ["a = WRONG + b", "\ta = WRONG\t+ b", "  \t  WRONG", "WRONG"])
def test_carets_stand_under_the_span(line):
    source = Source("t", f"first\n{line}\nlast\n")
    text = render_text([error(span(source, "WRONG"), label="here")], [source])
    assert marked(text) == "WRONG"
    assert "\t" not in text
    assert f"--> t:2:{line.index('WRONG') + 1}" in text


def test_wide_and_combining_characters_count_as_shown():
    source = Source("t", "# \u6f22\u5b57 e\u0301 WRONG\n")
    shown, caret = render_text([error(span(source, "WRONG"))], [source]).splitlines()[-3:-1]
    widths = {"\u6f22": 2, "\u5b57": 2, "\u0301": 0}
    cells = sum(widths.get(character, 1) for character in shown[: shown.index("W")])
    assert caret.index("^") == cells
    assert caret.count("^") == 5


def test_long_lines_are_cut_around_the_span():
    source = Source("t", "a" * 5000 + "WRONG" + "b" * 5000)
    text = render_text([error(span(source, "WRONG"))], [source])
    assert marked(text) == "WRONG"
    assert max(map(len, text.splitlines())) < WIDTH + 20


def test_spans_over_lines_show_the_first_and_the_last():
    source = Source("t", "one (\n  two\n  three)\nfour\n")
    text = render_text([error(span(source, "(", "three)"), label="all of it")], [source])
    assert "1 | one (" in text
    assert "3 |   three)" in text
    assert "  ^^^^^^ all of it" in text
    assert "four" not in text


def test_labels_notes_help_and_order():
    source = Source("t", "first = 1\nsecond\nthird\nfourth = first\n")
    place = span(source, "fourth")
    labels = (Label(span(source, "first"), "defined here"),)
    text = render_text([error(place, labels=labels, notes=("n",), help="h\ni")], [source])
    assert text.index("first = 1") < text.index("...") < text.index("fourth = first")
    assert "----- defined here" in text
    assert "= note: n" in text
    assert "= help: h\n          i" in text


def test_fixes_are_shown_as_lines_before_and_after():
    source = Source("t", "a\nload(x, y)\nb\n")
    fix = Fix("write `->`", (Edit(span(source, ", "), " -> "),))
    text = render_text([error(span(source, "load"), fixes=(fix,))], [source])
    assert "2 - load(x, y)\n2 + load(x -> y)\n" in text
    assert apply_edits(source.text, fix.edits) == "a\nload(x -> y)\nb\n"


def test_control_characters_do_not_reach_the_terminal():
    source = Source("t", "a \x1b[31m WRONG\n")
    text = render_text([error(span(source, "WRONG"))], [source])
    assert "\x1b" not in text
    assert marked(text) == "WRONG"


def test_colour_adds_nothing_but_escapes():
    source = Source("t", "a = WRONG\n")
    found = [error(span(source, "WRONG"), label="l", notes=("n",))]
    plain = render_text(found, [source])
    coloured = render_text(found, [source], True)
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_diagnostic_without_its_source_still_has_its_place():
    text = render_text([error(Span("elsewhere", 0, 1, 3, 4, 3, 5))], [])
    assert "--> elsewhere:3:4" in text


PROOF = ir.Proof(
    "in-bounds",
    "X[i, 0:N]",
    ir.Tier.REFUTED,
    "a detail",
    ir.CounterExample({"M": 1}, ({"i": 0}, {"i": 1}), (2,), "more"),
)


def test_proofs_show_tier_and_counter_example():
    text = render_proofs("t: name", [PROOF, ir.Proof("covered", "Y", ir.Tier.PROVED)])
    assert "in-bounds  X[i, 0:N]: refuted (a detail)" in text
    assert "covered    Y: proved" in text
    for words in ("M = 1", "iteration 1: i = 0", "iteration 2: i = 1", "element [2]", "more"):
        assert words in text


TEXT = "sketch a {\n    for i in range(3)\n        pass\n    x = 1 \u2192 2\n}\n"


def reported() -> tuple[Source, list[Diagnostic]]:
    source = Source("folder/a b.sketch", TEXT)
    _, found = parse(source)
    assert [diagnostic.code for diagnostic in found] == ["SK0111", "SK0101"]
    return source, found


def test_json_holds_everything():
    _, found = reported()
    sketches = [SketchReport("f", "a", (PROOF,))]
    document = json.loads(render_json(found, sketches, 1))
    assert document["version"] == 1
    assert document["summary"] == {"files": 1, "errors": 2, "warnings": 0}
    first = document["diagnostics"][0]
    assert (first["code"], first["severity"]) == ("SK0111", "error")
    assert first["span"]["line"] == 2
    assert first["span"]["start"] == first["span"]["end"] == TEXT.index(")\n") + 1
    assert first["fixes"][0]["edits"][0]["replacement"] == ":"
    (proof,) = document["sketches"][0]["proofs"]
    assert proof["tier"] == "refuted"
    assert proof["counter_example"]["symbols"] == {"M": 1}


def test_sarif_is_what_the_standard_says():
    source, found = reported()
    log = json.loads(render_sarif(found, [], [source.name]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    for result, diagnostic in zip(run["results"], found, strict=True):
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"] == diagnostic.code
        assert rule["help"]["text"] == page(diagnostic.code)
        assert result["level"] == "error"
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == "folder/a%20b.sketch"
        region = physical["region"]
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1
        (fix,) = result["fixes"]
        (change,) = fix["artifactChanges"]
        (replacement,) = change["replacements"]
        deleted = replacement["deletedRegion"]
        start, size = deleted["charOffset"], deleted["charLength"]
        inserted = replacement["insertedContent"]["text"]
        mended = TEXT[:start] + inserted + TEXT[start + size :]
        assert mended == apply_edits(TEXT, diagnostic.fixes[0].edits)
