"""The code of every example on the targets for GPUs and NPUs, beside what it must be (rewrite with
--update-golden).

Each golden holds the kernels and their wrapper, and the names of what they take from the library,
whose texts are in the golden of the library (`test_library_golden.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from example_targets import LOWERED
from golden_files import check_golden, own_source
from triton_cases import example, lower

#: Where the goldens of a target lie, and what follows the example's name in theirs.
PLACES = {
    "triton_cuda": ("triton", ".triton_cuda.py"),
    "triton_ascend": ("triton", ".triton_ascend.py"),
    "cuda_c": ("cuda_c", ".cu"),
    "tilelang_cuda": ("tilelang", ".py"),
}
CASES = [(name, target) for name, target in LOWERED if target != "cpp"]


def golden(name: str, target: str) -> Path:
    """The golden of an example on a target."""
    folder, ending = PLACES[target]
    return Path(__file__).parent / folder / f"{name}{ending}"


@pytest.mark.parametrize(("name", "target"), CASES)
def test_emitted_code_is_as_recorded(name: str, target: str, update_golden: bool) -> None:
    kernel = lower(example(name), target)[1]
    check_golden(golden(name, target), own_source(kernel), update_golden)


def test_every_golden_has_its_example() -> None:
    folders = {golden("", target).parent for target in PLACES}
    assert sorted(path for folder in folders for path in folder.iterdir()) == sorted(
        golden(name, target) for name, target in CASES
    )
