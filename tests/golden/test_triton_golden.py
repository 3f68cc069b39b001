"""The Triton code of every example, beside what it must be (rewrite with --update-golden).

Each golden holds the kernels and their wrapper, and the names of what they take from the library,
whose texts are in the golden of the library (`test_library_golden.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from example_targets import LOWERED
from golden_files import check_golden, own_source
from triton_cases import example, lower

FOLDER = Path(__file__).parent / "triton"
CASES = [(name, target) for name, target in LOWERED if target != "cpp"]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_emitted_code_is_as_recorded(name: str, target: str, update_golden: bool) -> None:
    kernel = lower(example(name), target)[1]
    check_golden(FOLDER / f"{name}.{target}.py", own_source(kernel), update_golden)


def test_every_golden_has_its_example() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(
        f"{name}.{target}.py" for name, target in CASES
    )
