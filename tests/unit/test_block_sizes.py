"""`--set` takes the sizes of blocks into which the plan splits an axis, where it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.api import sketches
from sketchc.base.diagnostics import UsageError
from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.lowering.plan import Plan

RMS = Path(__file__).resolve().parents[2] / "examples" / "rms.sketch"


def values(plan: Plan) -> dict[str, object]:
    return {constant.name: constant.value for constant in plan.sketch.constants}


def test_a_block_of_the_plan_takes_the_size_that_is_set() -> None:
    source, tree = sketches.load_sketch(str(RMS))
    for size in (32, 128):
        constants = {"TILE_SIZE": 4, "D2_BLOCK": size}
        planned = sketches.plan_sketch(source, tree, "triton_cuda", None, dict(constants))
        assert values(planned.plan) == constants
        found = lower(VerifyRequest(str(RMS), "triton_cuda", constants=constants))
        assert values(found.plan) == constants
        assert f"D2_BLOCK = {size}" in found.kernel.source


@pytest.mark.parametrize(
    ("target", "known"), [("triton_cuda", "D2_BLOCK, TILE_SIZE, eps"), ("cpp", "TILE_SIZE, eps")]
)
def test_what_is_no_name_here_is_refused_with_those_that_are(target: str, known: str) -> None:
    source, tree = sketches.load_sketch(str(RMS))
    name = "D2_BLOC" if target == "triton_cuda" else "D2_BLOCK"
    with pytest.raises(UsageError, match=f"no constexpr or param '{name}' to set; it has: {known}"):
        sketches.plan_sketch(source, tree, target, None, {name: 64})
    with pytest.raises(UsageError, match=f"it has: {known}"):
        lower(VerifyRequest(str(RMS), target, constants={name: 64}))
