"""A safe fix keeps what a sketch means, bit by bit; what can be read in several ways is left alone.

Golden diagnostics, features, examples (spoilt in ways that bring warnings with fixes, or damaged)
and sketches whose tiles have their types from what is first loaded are mended as `--fix` would, and
by each safe fix alone; before and after they are interpreted on the same inputs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from damaged_texts import damaged
from example_sizes import inputs_for, params_for
from untyped_texts import untyped

from sketchc.api import Request, check_text
from sketchc.base import diagnostics
from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.base.types import DType
from sketchc.checker.api import CheckedSketch, CheckResult, check
from sketchc.cli.check_fix import mend
from sketchc.interpreter.api import Options, interpret
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import writes
from sketchc.runtime.cases.sizes import nearest

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden" / "diagnostics").glob("SK0[1-7]*.sketch"))
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
FEATURES = sorted((ROOT / "tests" / "e2e" / "features").glob("*.sketch"))
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


IN_ORDER, SHUFFLED = Options(), Options(shuffle=7)


def meaning(
    checked: CheckedSketch, sizes: dict[str, int], orders: Sequence[Options] = (IN_ORDER, SHUFFLED)
) -> dict[str, bytes] | None:
    """The results at these sizes, the same in all orders; None where it may not be launched."""
    sketch = checked.sketch
    params = params_for(sketch)
    arrays = inputs_for(sketch, sizes, seed=3)
    found: list[dict[str, bytes]] = []
    for options in orders:
        try:
            result = interpret(sketch, arrays, sizes, params, options)
        except DiagnosticError:
            return None
        found.append({name: np.asarray(a).tobytes() for name, a in result.outputs.items()})
    assert found[0] == found[-1] or _has_atomics(sketch)
    return found[0]


def _has_atomics(sketch: ir.Sketch) -> bool:
    return any(isinstance(s, ir.Atomic) for s in _statements(sketch))


def _statements(sketch: ir.Sketch) -> list[ir.Statement]:

    return list(walk.in_phases(sketch.phases))


def assert_kept(text: str, name: str) -> int:
    """Mend a text as `--fix` does, and carry out each safe fix alone; the results of its sketches
    stay, where they had any, and so do the types and extents of tiles. Gives how many results were
    compared."""
    before = check(Source(name, text))
    found = check_text(Source(name, text), STATIC).diagnostics
    alone = [
        diagnostics.apply_edits(text, fix.edits) for each in found for fix in each.fixes if fix.safe
    ]
    mended = {*alone, mend(Source(name, text), STATIC).text} - {text}
    known = [meant(old) for old in before.judged] if mended else []
    return sum(compared(before, known, after, name) for after in sorted(mended))


Meant = list[tuple[dict[str, int], dict[str, bytes]]]


def meant(old: CheckedSketch) -> Meant:
    """What a sketch means, at all sizes at which it may be launched."""
    found = []
    for wanted in SIZES:
        wishes = {s.name: wanted[place % 3] for place, s in enumerate(old.sketch.symbols)}
        sizes = nearest(old.sketch, wishes, params_for(old.sketch), least=1)
        if sizes is not None and (first := meaning(old, sizes)) is not None:
            found.append((sizes, first))
    return found


def compared(before: CheckResult, known: list[Meant], text: str, name: str) -> int:
    """Compare what the sketches of a text mean with what is `known` of them before."""
    if not before.judged:
        return 0
    after = check(Source(name, text))
    assert len(after.judged) == len(before.judged), text
    for old, new, means in zip(before.judged, after.judged, known, strict=True):
        assert not (tiles(new.sketch) - tiles(old.sketch)), text
        # The results before were the same in both orders.
        order = IN_ORDER if _has_atomics(old.sketch) else SHUFFLED
        for sizes, first in means:
            assert first == meaning(new, sizes, (order,)), (sizes, text)
    return sum(map(len, known))


def tiles(sketch: ir.Sketch) -> set[tuple[str, DType, tuple[ir.Expr, ...]]]:
    """The tiles that hold anything, by the names that the text gives them."""
    written = {name for each in _statements(sketch) for name in writes(each)}
    used = (tile for tile in sketch.tiles if tile.name in written)
    return {(tile.source_name, tile.dtype, tile.extents) for tile in used}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_input_keeps_its_meaning(path: Path) -> None:
    text = path.read_text("utf-8", errors="replace")
    assert_kept(text, path.name)


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES[::4], ids=lambda path: path.stem)
def test_an_example_keeps_its_meaning(path: Path) -> None:
    text = path.read_text("utf-8")
    everything = text
    for pattern, by in SPOILT.values():
        everything = re.sub(pattern, by, everything)
    numbers = itertools.count()
    everything = re.sub("NUMBER", lambda _: str(next(numbers)), everything)
    assert assert_kept(everything, path.name) > 0


@pytest.mark.sweep
@pytest.mark.parametrize("start", range(0, 100, 20))
def test_tiles_without_a_type_keep_the_one_that_they_have(start: int) -> None:
    kept = [
        assert_kept(untyped(number), f"untyped_{number}") for number in range(start, start + 20)
    ]
    assert sum(count > 0 for count in kept) >= 6, kept


def test_an_order_is_mended_only_where_the_call_is_right_otherwise() -> None:
    text = untyped(4).replace("add(c, b, d)", "add(c, right=b, d)")
    assert "right=b" in text
    found = check_text(Source("a", text), STATIC).diagnostics
    assert "SK0211" in [each.code for each in found]
    assert "SK0603" not in [each.code for each in found]


@pytest.mark.sweep
@pytest.mark.parametrize("path", FEATURES, ids=lambda path: path.stem)
def test_a_feature_keeps_its_meaning(path: Path) -> None:
    assert_kept(path.read_text("utf-8"), path.name)


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_a_damaged_text_keeps_what_meaning_it_has(start: int) -> None:
    for number in range(start, start + 20):
        assert_kept(damaged(number).text, f"damaged_{number}")


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
