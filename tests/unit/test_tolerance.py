"""The benchmark of the rule runs: right kernels of many phases pass, faults in them do not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tolerance.py"


@pytest.fixture(scope="module")
def tolerance() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_tolerance", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


#: With seeds at which an earlier rule failed the right kernel.
@pytest.mark.parametrize(
    ("name", "seeds"),
    [("distillation", (18, 27)), ("residual_block", (44,)), ("gru", (33,)), ("gate", (0,))],
)
def test_right_kernels_pass_and_faults_do_not(
    name: str, seeds: tuple[int, ...], tolerance: ModuleType
) -> None:
    found = tolerance.calibrate(name, seeds)
    assert found["cases"] == 5 * len(seeds)
    assert found["failed"] == []
    assert set(found["missed"].values()) == {0}


def test_there_are_enough_kernels(tolerance: ModuleType) -> None:
    assert len(tolerance.KERNELS) >= 20
    assert len(tolerance.FAULTS) == 4
