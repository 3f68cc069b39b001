"""Frozen data as JSON and back: what was written is read, what is missing or odd is nothing."""

from __future__ import annotations

import json
import math

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.base.json_form import from_plain, to_plain
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.verify.compare import Comparison, PaperRule, Waiver, WrongElement
from sketchc.runtime.verify.verdict import CaseResult, Verdict, from_json, to_json

text = st.text(max_size=8)
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False)
index = st.lists(st.integers(0, 99), max_size=2).map(tuple)
values = st.dictionaries(text, numbers | st.booleans(), max_size=2)
floats = st.floats(allow_nan=False)
waivers = st.builds(
    Waiver, st.integers(0, 9), text, index, expected=numbers, actual=numbers, error=floats,
    allowed=floats,
)  # fmt: skip
first = st.builds(WrongElement, index, expected=numbers, actual=numbers, before=st.none() | floats)
comparisons = st.builds(
    Comparison, text, text, text, st.integers(0, 9), first=st.none() | first, worst=floats,
    paper=st.none() | st.builds(PaperRule, floats, floats),
    waivers=st.lists(waivers, max_size=1).map(tuple),
)  # fmt: skip
sizes = st.dictionaries(text, st.integers(0, 99), max_size=2)
shapes = st.builds(
    ShapeCase, text, sizes, own=st.booleans(), absent=st.lists(text, max_size=2).map(tuple),
    numbers=values, tiles=values, init=st.dictionaries(st.integers(0, 9), numbers, max_size=2),
)  # fmt: skip
cases = st.builds(
    CaseResult, shapes, text, st.integers(0, 99), text, text,
    comparisons=st.lists(comparisons, max_size=1).map(tuple),
    sketch_right=st.none() | st.booleans(), log=text,
)  # fmt: skip
verdicts = st.builds(
    Verdict, text, text, text, text, text, st.integers(0, 99),
    cases=st.lists(cases, max_size=2).map(tuple), notes=st.lists(text, max_size=2).map(tuple),
    versions=st.dictionaries(text, text, max_size=1), constants=values,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(verdicts)
def test_a_verdict_is_read_as_it_was_written(verdict: Verdict) -> None:
    assert from_json(json.loads(json.dumps(to_json(verdict)))) == verdict


anything = st.recursive(
    st.none() | st.booleans() | numbers | text | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
fields = (*attrs.fields(Verdict), *attrs.fields(CaseResult))
names = st.sampled_from([field.name for field in fields])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(names, anything, max_size=6))
def test_odd_data_is_no_error(data: dict[str, object]) -> None:
    found = from_json({**data, "cases": [data, data.get("cases")]})
    assert found.word in ("passed", "failed", "incomplete")
    assert json.dumps(to_json(found), allow_nan=False)


def test_what_is_missing_is_nothing() -> None:
    found = from_json({"cases": [{"comparisons": [{"worst": "inf"}, 7]}, "x"]})
    assert found.sketch == ""
    (case,) = found.cases
    assert case.shape == ShapeCase("", {})
    (comparison,) = case.comparisons
    assert math.isinf(comparison.worst)
    assert to_plain(comparison.worst) == "inf"


def test_a_strict_reader_refuses_what_is_missing_or_odd() -> None:
    whole = {"index": [1], "expected": 1, "actual": 2.5, "before": None}
    assert from_plain(WrongElement, whole, strict=True) == WrongElement((1,), 1, 2.5)
    with pytest.raises(KeyError, match="before"):
        from_plain(WrongElement, {k: v for k, v in whole.items() if k != "before"}, strict=True)
    for odd in ({**whole, "index": ["a"]}, {**whole, "expected": "x"}, [whole]):
        with pytest.raises(TypeError):
            from_plain(WrongElement, odd, strict=True)
