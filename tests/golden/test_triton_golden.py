"""The Triton code of every example, beside what it must be (rewrite with --update-golden)."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_targets import LOWERED
from triton_cases import example, lower

FOLDER = Path(__file__).parent / "triton"
CASES = [(name, target) for name, target in LOWERED if target != "cpp"]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_emitted_code_is_as_recorded(
    name: str, target: str, request: pytest.FixtureRequest
) -> None:
    source = lower(example(name), target)[1].source
    path = FOLDER / f"{name}.{target}.py"
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, "utf-8")
    assert path.exists(), "no golden: run pytest --update-golden"
    assert source == path.read_text("utf-8")
