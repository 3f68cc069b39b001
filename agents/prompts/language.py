"""What the prompts say of the language, read from its sources: the op table, the vocabulary of
hints and types, and the example sketches; and of the sizes that work is verified at (`reach`).

Nothing here is written twice: an operation with a row appears in the prompts by itself.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from sketchc.agents.prompts.rendering import render
from sketchc.base.types import DType
from sketchc.checker.api import LOOP_HINTS, TILE_HINTS
from sketchc.ops.table import OPS, Attribute, Category, Op, Result, Shape
from sketchc.parsing.syntax import SECTIONS
from sketchc.reporting.language_pages import call_of
from sketchc.runtime.cases.shapes import INTERPRETED, OWN
from sketchc.runtime.tasks.description import TaskDescription
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.machine import memory_note, within_memory

#: The complete sketches that the prompts show, the simplest first.
EXAMPLES: tuple[str, ...] = (
    "scaled_tanh",
    "log_sum_exp",
    "min_max_rows",
    "batch_norm",
    "linear_tanh",
    "scale_by_total",
)


def language(examples: bool = True) -> str:
    """The chapter on the language. Without `examples` it is shorter by about a quarter."""
    return render(
        "language.jinja",
        groups=_operation_groups(),
        loop_hints=sorted(LOOP_HINTS),
        tile_hints=sorted(TILE_HINTS),
        dtypes=[dtype.value for dtype in DType],
        sections=sorted(SECTIONS - {"types"}),  # a run is for the types of one task
        examples=example_sketches() if examples else (),
    )


def _operation_groups() -> list[dict[str, Any]]:
    """The operations in the order of the op table, grouped by the rule for shape and dtype of their
    results."""
    found: dict[tuple[Category, Shape, Result], list[Op]] = {}
    for row in OPS.values():
        found.setdefault((row.category, row.shape, row.result), []).append(row)
    return [
        {
            "category": category.value,
            "shape": shape.value,
            "dtype": result.value,
            "rows": [
                {"call": call_of(row, ("dst", "dst_indices"), _values), "doc": row.doc}
                for row in rows
            ],
        }
        for (category, shape, result), rows in sorted(
            found.items(), key=lambda item: list(Category).index(item[0][0])
        )
    ]


def _values(attribute: Attribute) -> str:
    """The values an attribute takes, the default first."""
    if attribute.choices:
        rest = [choice for choice in attribute.choices if choice != attribute.default]
        return "|".join(f'"{choice}"' for choice in (str(attribute.default), *rest))
    if attribute.kind == "bool":
        return f"{attribute.default}|{not attribute.default}"
    return str(attribute.kind) if attribute.default is None else str(attribute.default)


def example_sketches() -> list[str]:
    """The texts of `EXAMPLES`."""
    folder = files("sketchc.agents.prompts") / "examples"
    return [(folder / f"{name}.sketch").read_text(encoding="utf-8") for name in EXAMPLES]


def reach(task: TaskDescription, target: str) -> str:
    """Whether the task's own sizes will be run, in a sentence or two. Memory is named only where
    there is too little of it, so that other machines have the same prompt for the same task."""
    own = task.elements
    status = toolchain(target).status()
    limits = INTERPRETED if status.interpreted else within_memory(OWN, task)
    if own <= limits.elements:
        return "Verification runs the task's own sizes, too."
    scaled = (
        f"Verification scales the task's own sizes ({own:,} elements in all tensors) down to some "
        f"{limits.elements:,} elements"
    )
    short = "" if status.interpreted else memory_note(OWN, limits)
    return f"{scaled}: {short}." if short else f"{scaled}."
