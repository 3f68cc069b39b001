"""Ten sketches that the built-in Designer writes, of the operators of `level1`, beside what they
must be (rewrite with --update-golden): they are read by people, so a change to one is looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_files import check_golden

from sketchc.agents.autosketch.designer import design
from sketchc.agents.suites.level1 import rows
from sketchc.runtime.tasks.task import load_task

FOLDER = Path(__file__).parent / "designed"
#: A name of each form: a map, products, norms, a window, an index, convolutions, a scan, losses.
NAMES = (
    *("matmul_transposed_left", "matmul_upper", "gelu", "softmax", "group_norm", "max_pool2d"),
    *("argmax_middle", "conv2d_transposed_grouped_ragged", "cumsum", "triplet_margin_loss"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_sketch_is_as_recorded(name: str, tmp_path: Path, update_golden: bool) -> None:
    (row,) = (row for row in rows() if row.name == name)
    path = tmp_path / f"{name}.py"
    path.write_text(row.source(), "utf-8")
    with load_task(str(path)) as task:
        check_golden(FOLDER / f"{name}.sketch", design(task), update_golden)


def test_every_golden_has_its_operator() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(NAMES)
