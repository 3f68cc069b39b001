"""Functions of x and w as tasks, and the sketches that the built-in Designer writes for them."""

from __future__ import annotations

from pathlib import Path

from sketchc.agents.autosketch.designer import design
from sketchc.base.diagnostics import Source, has_errors
from sketchc.checker.api import check
from sketchc.ir import nodes as ir
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.parsing.parser import parse
from sketchc.runtime.tasks.task import load_task

HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"


def written(folder: Path, body: str, shapes: tuple[tuple[int, ...], ...]) -> Path:
    """A file with the task that returns `body`, whose own inputs have these shapes."""
    names = "xw"[: len(shapes)]
    inputs = ", ".join(f"torch.randn{shape} * 3 - 1" for shape in shapes)
    path = folder / "task.py"
    text = f"{HEAD}def f({', '.join(names)}):\n    return {body}\n\n\n"
    path.write_text(f"{text}def get_inputs():\n    return [{inputs}]\n", "utf-8")
    return path


def designed(path: Path, *, planes: bool = False) -> tuple[str, ir.Sketch]:
    """The sketch of a task as text, which is checked and proved, and with its constants chosen;
    `planes`: as for `design`."""
    with load_task(str(path)) as task:
        text = design(task, planes=planes)
    checked = check(Source("t.sketch", text))
    assert checked.ok, [found.message for found in checked.diagnostics]
    tree, found = parse(Source("t.sketch", text))
    assert tree is not None
    assert not has_errors(found)
    return text, build_plan(tree.entries[0], "cpp").plan.sketch
