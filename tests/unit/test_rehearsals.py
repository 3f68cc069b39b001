"""What a run takes is known before it is tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.testing import settings as module
from sketchc.checker.testing.goals import Planner
from sketchc.checker.testing.settings import Settings, rehearse, sample_params
from sketchc.ir import nodes as ir
from sketchc.ir.walk import statements

ROOT = Path(__file__).resolve().parents[2]
SKETCHES = sorted(
    [*(ROOT / "examples").glob("*.sketch"), *(ROOT / "tests").glob("features/*.sketch")]
)


def loop_variables(sketch: ir.Sketch) -> Iterator[str]:
    for body in (sketch.steps, *(phase.body for phase in sketch.phases)):
        for step in statements(body):
            if isinstance(step, ir.For | ir.HostFor):
                yield step.variable


@pytest.mark.sweep
@pytest.mark.parametrize("path", SKETCHES, ids=lambda path: path.stem)
def test_one_iteration_stands_for_those_like_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop counts as if each of its iterations were walked through."""
    result = check(Source(path.name, path.read_text()))
    for checked in result.sketches:
        sketch = checked.sketch
        planner = Planner((sketch,), sketch, (), Settings(sketch, sample_params(sketch), 3), 0)
        for setting in islice(planner.plain(), 3):
            host = planner.settings.host_values(sketch, setting)
            if host is None:
                continue
            with monkeypatch.context() as changed:
                every = frozenset(loop_variables(sketch))
                changed.setattr(module, "_deciding", lambda _, every=every: every)
                walked = rehearse(sketch, host, 40_000_000)
            assert rehearse(sketch, host, 40_000_000) == walked
