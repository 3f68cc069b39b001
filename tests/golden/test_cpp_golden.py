"""Goldens of generated C++: every example, with the tile sizes that fit most machines.

Each holds the kernel and the names of what it takes from the C++ library, whose texts are in the
golden of the library (`test_library_golden.py`). `pytest --update-golden` rewrites them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cpp_cases import NAMES, example, lower
from golden_files import check_golden, own_source

from sketchc.ir import nodes as ir
from sketchc.ir.walk import statements

FOLDER = Path(__file__).parent / "cpp"

#: Fixed here, because the plan picks by the caches of the machine at hand.
CONSTANTS = {
    "add": {"TM": 4, "TN": 1024},
    "batched_matmul": {"TK": 256, "TM": 128, "TN": 128},
    "gelu": {"TILE": 4096},
    "gram": {"TK": 64, "TN": 64},
    "matmul": {"TK": 256, "TM": 128, "TN": 128},
    "matmul_half": {"TK": 32, "TM": 64, "TN": 64},
    "matmul_bias_gelu": {"TK": 256, "TM": 128, "TN": 128},
    "online_softmax": {"TILE": 4096},
    "relu": {"TILE": 4096},
    "rms": {"TILE_SIZE": 1},
    "sum_middle": {"TM": 8, "TN": 512},
}


@pytest.mark.parametrize("name", NAMES)
def test_generated_source(name: str, update_golden: bool) -> None:
    _, kernel = lower(example(name), CONSTANTS.get(name))
    own = own_source(kernel)
    check_golden(FOLDER / f"{name}.cpp", own, update_golden)
    carried = " ".join(part.text for part in kernel.library)
    assert set(re.findall(r"sketch::(\w+)", own)) <= set(re.findall(r"\w+", carried))


def test_every_golden_has_its_example() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.cpp")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_of_the_sketch_is_in_a_comment(name: str) -> None:
    """Loads, stores, computations and loops appear above the loop that carries them."""
    plan, kernel = lower(example(name), CONSTANTS.get(name))
    comments = {line.strip()[3:] for line in kernel.source.splitlines() if "// " in line}
    for phase in plan.phases:
        for statement in statements(phase.body):
            if not isinstance(statement, ir.Alloc):
                assert statement.text.splitlines()[0] in comments, statement.text
