"""Tasks of the examples at sizes that a test can afford: their own are for measurements."""

from __future__ import annotations

import re
from pathlib import Path

from sketchc.base.types import DType
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec

TASKS = Path(__file__).resolve().parents[1] / "examples" / "tasks"
#: Their sizes stand on lines of their own: `rows = 8192`. Each of a task becomes one of these.
SIZES = (37, 130, 67, 41, 29)


def small_task(name: str, folder: Path) -> Path:
    """A copy of an example's task in `folder`, under its own name; equal sizes stay equal."""
    text = (TASKS / f"{name}.py").read_text("utf-8")
    large = dict.fromkeys(re.findall(r"^\w+ = (\d{3,})$", text, re.M))
    chosen = dict(zip(large, SIZES, strict=False))
    assert len(chosen) == len(large) > 0, f"{name} has no sizes, or too many"
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{name}.py"
    copy.write_text(
        re.sub(r"^(\w+ = )(\d{3,})$", lambda m: m[1] + str(chosen[m[2]]), text, flags=re.M)
    )
    return copy


def described(path: Path) -> TaskDescription:
    """The description of a task from a matrix to a matrix, without running it."""
    matrix = TensorSpec("x", DType.F32, (37, 130))
    return TaskDescription(path, (matrix,), (), (), {}, (matrix,))
