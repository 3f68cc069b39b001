"""A checkpoint gives back the very state that was written."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.agents.state.state import (
    VERSION,
    Feedback,
    KernelText,
    RunState,
    Step,
    dump_state,
    load_state,
)
from sketchc.base.diagnostics import UsageError

_TEXT = st.text(max_size=40)
_NUMBER = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_MAPPING = st.dictionaries(_TEXT, _JSON, max_size=3)
_COUNT = st.integers(min_value=0, max_value=10**9)
_STEP = st.builds(
    Step, _COUNT, _TEXT, _COUNT, _TEXT, _TEXT, _TEXT, _NUMBER, _COUNT, _COUNT, _COUNT, _NUMBER,
    _MAPPING,
)  # fmt: skip
_STATE = st.builds(
    RunState,
    _TEXT,
    _COUNT,
    _TEXT,
    st.none() | st.builds(KernelText, _TEXT, _TEXT, _TEXT, _TEXT),
    st.none() | st.builds(Feedback, _TEXT, _TEXT, _MAPPING, _TEXT),
    st.none() | _MAPPING,
    st.none() | _MAPPING,
    st.lists(_STEP, max_size=3).map(tuple),
    _TEXT,
    _TEXT,
)


@settings(max_examples=60, deadline=None)
@given(_STATE)
def test_round_trip_through_json_text(state: RunState) -> None:
    assert load_state(json.loads(json.dumps(dump_state(state)))) == state


def test_every_field_is_written() -> None:
    data = dump_state(RunState("designer"))
    assert set(data) == {"version"} | {field.name for field in attrs.fields(RunState)}


def test_what_json_lacks_settles_after_one_pass() -> None:
    step = Step(1, "verifier", 1, "failed", "why", details={"worst": float("inf"), "index": (1, 2)})
    once = load_state(dump_state(RunState("conductor", history=(step,))))
    assert once.history[0].details == {"worst": "inf", "index": [1, 2]}
    assert load_state(dump_state(once)) == once
    json.dumps(dump_state(once), allow_nan=False)


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"version": VERSION + 1},
        {"version": VERSION, "node": "designer"},
        {**dump_state(RunState("designer")), "colour": "red"},
        {**dump_state(RunState("designer")), "history": [{"number": 1}]},
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        load_state(data)  # type: ignore[arg-type]
