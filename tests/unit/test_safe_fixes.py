"""A safe fix keeps what a sketch means, bit by bit; what can be read in several ways is left alone.

Every golden diagnostic and every example, as it is and spoilt in ways that bring warnings with
fixes, is mended as `--fix` would; before and after it is interpreted on the same inputs.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from example_sizes import inputs_for, params_for

from sketchc import ir
from sketchc.checker.api import CheckedSketch, check
from sketchc.cli.check import Request, check_text
from sketchc.cli.check_fix import mend
from sketchc.diagnostics import DiagnosticError, has_errors
from sketchc.interpreter import Options, interpret
from sketchc.runtime.frontends.sizes import nearest
from sketchc.source import Source

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden" / "diagnostics").glob("SK0[1-7]*.sketch"))
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
STATIC = Request(static=True)
SIZES = ((1, 1, 1), (5, 7, 3), (17, 2, 9))
LOAD = re.compile(r"^( +)load\((.*) -> (\w+)\)( *(#.*)?)$", re.MULTILINE)

#: How an example is spoilt: a pattern and what takes its place, once for each match.
SPOILT = {
    "loaded twice": (LOAD, r"\1load(\2 -> \3)\n\1load(\2 -> \3)\4"),
    "a tile for nothing": (LOAD, r"\1nothing_NUMBER = alloc([1])\n\1load(\2 -> \3)\4"),
    "axis as a keyword": (
        re.compile(r"(reduce_\w+|argmax|cumsum)\((\w+), (\d), (\w+)\)"),
        r"\1(\2, axis=\3, \4)",
    ),
    "hardware": (re.compile(r'"(fastest|fast)"'), r'"\1", "l1_buffer"'),
    "misspelt": (re.compile(r'"input_cache"'), '"input_cach"'),
    "two on a line": (
        re.compile(r"^( +)for (\w+) in (.*):$", re.MULTILINE),
        r"\1for \2 in \3:\n\1    one_\2, two_\2 = \2, \2 + 1",
    ),
}


def meaning(checked: CheckedSketch, sizes: dict[str, int]) -> dict[str, bytes] | None:
    """The results at these sizes, in order and shuffled; None where it may not be launched."""
    sketch = checked.sketch
    params = params_for(sketch)
    arrays = inputs_for(sketch, sizes, seed=3)
    found: list[dict[str, bytes]] = []
    for options in (Options(), Options(shuffle=7)):
        try:
            result = interpret(sketch, arrays, sizes, params, options)
        except DiagnosticError:
            return None
        found.append({name: np.asarray(a).tobytes() for name, a in result.outputs.items()})
    assert found[0] == found[1] or any(isinstance(s, ir.Atomic) for s in _statements(sketch))
    return found[0]


def _statements(sketch: ir.Sketch) -> list[ir.Statement]:
    from sketchc.lowering.plan import walk

    return [each for phase in sketch.phases for each in walk(phase.body)]


def assert_kept(text: str, name: str) -> int:
    """Mend a text; the results of its sketches stay, where they had any. Gives how many results
    were compared."""
    mended = mend(Source(name, text), STATIC)
    before = check(Source(name, text))
    if not mended.answered or has_errors(before.diagnostics):
        return 0
    after = check(Source(name, mended.text))
    compared = 0
    assert len(after.sketches) == len(before.sketches), mended.text
    for old, new in zip(before.sketches, after.sketches, strict=True):
        for wanted in SIZES:
            wishes = {s.name: wanted[place % 3] for place, s in enumerate(old.sketch.symbols)}
            sizes = nearest(old.sketch, wishes, params_for(old.sketch), least=1)
            if sizes is None:
                continue
            first = meaning(old, sizes)
            assert first == meaning(new, sizes), (sizes, mended.text)
            compared += first is not None
    return compared


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_input_keeps_its_meaning(path: Path) -> None:
    text = path.read_text("utf-8", errors="replace")
    assert_kept(text, path.name)


@pytest.mark.parametrize("path", EXAMPLES[::4], ids=lambda path: path.stem)
def test_an_example_keeps_its_meaning(path: Path) -> None:
    text = path.read_text("utf-8")
    everything = text
    for pattern, by in SPOILT.values():
        everything = re.sub(pattern, by, everything)
    numbers = itertools.count()
    everything = re.sub("NUMBER", lambda _: str(next(numbers)), everything)
    assert assert_kept(everything, path.name) > 0


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_can_be_read_in_several_ways_is_left_alone(path: Path) -> None:
    text = path.read_text("utf-8", errors="replace")
    found = check_text(Source(path.name, text), STATIC).diagnostics
    several = [each for each in found if len(each.fixes) > 1]
    assert not any(fix.safe for each in several for fix in each.fixes)
    mended = mend(Source(path.name, text), STATIC)
    assert not [each for each in mended.answered if len(each.fixes) > 1]
    if several and len([each for each in found if each.fixes]) == len(several):
        assert mended.text == text


def test_what_changes_results_is_asked_for() -> None:
    """One of each kind that a careless `--fix` would carry out."""
    unsafe = {"SK0601", "SK0602", "SK0607", "SK0613", "SK0651", "SK0301", "SK0401", "SK0402"}
    unsafe |= {"SK0201", "SK0210", "SK0307", "SK0309", "SK0303", "SK0609"}
    seen = set()
    for path in GOLDEN:
        text = path.read_text("utf-8", errors="replace")
        for found in check_text(Source(path.name, text), STATIC).diagnostics:
            if found.code in unsafe and found.fixes:
                seen.add(found.code)
                assert not any(fix.safe for fix in found.fixes), found
    assert len(seen) >= 9, seen
