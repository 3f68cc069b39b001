"""What a sketch asks of documents: its operations, and what else it shows (`schema.TOPICS`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.walk import in_phases
from sketchc.ops.table import OPS, Category, Fact

_CATEGORIES = {
    Category.ELEMENTWISE: "elementwise",
    Category.REDUCTION: "reduction",
    Category.MATRIX: "matrix",
    Category.LAYOUT: "layout",
    Category.INDEX: "reduction",
    Category.SCAN: "scan",
    Category.SORTING: "sorting",
    Category.RANDOM: "random",
}

_Access = ir.Load | ir.Store | ir.Atomic


@attrs.frozen
class Needs:
    """The multiset of operations (sorted, repeated; "load", "store" and the atomics among them) and
    topics."""

    operations: tuple[str, ...]
    topics: tuple[str, ...]


def needs_of(sketch: ir.Sketch) -> Needs:
    """The needs of a sketch. The order of its statements does not matter."""
    operations: list[str] = []
    topics = {*_of_declarations(sketch), *_of_types(sketch), *_of_host(sketch.steps)}
    for statement in in_phases(sketch.phases):
        match statement:
            case ir.For():
                topics |= _holding({"loop": not statement.parallel, "carried": statement.carried})
            case ir.If():
                topics.add("branch")
            case ir.Fetch():
                topics.add("fetch")
            case ir.Load() | ir.Store():
                operations.append(type(statement).__name__.lower())
                topics |= _of_access(sketch, statement)
            case ir.Atomic():
                operations.append(f"atomic_{statement.operation}")
                topics |= _of_access(sketch, statement)
            case ir.Compute():
                operations.append(statement.operation)
                topics |= _of_compute(sketch, statement)
            case ir.Alloc() | ir.Bind():
                pass
            case _:
                assert_never(statement)
    return Needs(tuple(sorted(operations)), tuple(sorted(topics)))


def _holding(shown: Mapping[str, object]) -> set[str]:
    """The topics whose value in `shown` is true."""
    return {topic for topic, holds in shown.items() if holds}


def _of_declarations(sketch: ir.Sketch) -> set[str]:
    return _holding(
        {
            "phases": len(sketch.phases) > 1,
            "params": sketch.params,
            "require": sketch.requires,
            "view": sketch.views,
            "workspace": any(tensor.role is ir.Role.WORKSPACE for tensor in sketch.tensors),
            "inout": any(tensor.role is ir.Role.INOUT for tensor in sketch.tensors),
            "broadcast-extent": any(any(tensor.broadcast) for tensor in sketch.tensors),
            "optional": any(tensor.optional for tensor in sketch.tensors),
            "grid": max((_grid_axes(phase.body) for phase in sketch.phases), default=0) > 1,
        }
    )


def _of_host(steps: tuple[ir.HostStep, ...]) -> set[str]:
    topics: set[str] = set()
    for step in steps:
        match step:
            case ir.HostFor():
                topics |= {"host", *_of_host(step.body)}
            case ir.HostIf():
                topics |= {"host", *_of_host((*step.body, *step.orelse))}
            case ir.Fetch():
                topics |= {"host", "fetch"}
            case ir.Launch() | ir.Bind():
                pass
            case _:
                assert_never(step)
    return topics


def _of_types(sketch: ir.Sketch) -> set[str]:
    stored = {tensor.dtype for tensor in sketch.tensors}
    used = stored | {tile.dtype for tile in sketch.tiles}
    shown = {
        "convert": len(stored) > 1,
        "low-precision": used & {DType.F16, DType.BF16},
        "integer": any(dtype.is_integer for dtype in used),
    }
    return {dtype.value for dtype in used} | _holding(shown)


def _of_access(sketch: ir.Sketch, statement: _Access) -> set[str]:
    subscripts = statement.access.subscripts
    loads = isinstance(statement, ir.Load)
    computed = any(isinstance(subscript, ir.IndexSubscript) for subscript in subscripts)
    return _holding(
        {
            "ragged": _may_cross_edge(sketch, statement),
            "gather": loads and computed,
            "scatter": not loads and computed,
            "stride": any(
                isinstance(subscript, ir.SliceSubscript) and subscript.step != ir.Literal(1)
                for subscript in subscripts
            ),
            "padding": isinstance(statement, ir.Load) and statement.pad is not None,
            "mask": statement.where is not None,
            "atomic": isinstance(statement, ir.Atomic),
        }
    )


def _may_cross_edge(sketch: ir.Sketch, statement: _Access) -> bool:
    """Whether a slice of several lanes ends elsewhere than its axis, as `i*T:(i+1)*T` does. Domains
    would say it exactly, but they are inferred later than a sketch is first looked at."""
    access = statement.access
    extents = sketch.extents(access.tensor)
    lanes = iter(sketch.tile(statement.tile).extents)
    for subscript, extent in zip(access.subscripts, extents, strict=True):
        if isinstance(subscript, ir.SliceSubscript):
            single = next(lanes, None) == ir.Literal(1)
            if not single and subscript.upper != extent:
                return True
        elif isinstance(subscript, ir.IndexSubscript):
            next(lanes, None)
    return False


def _of_compute(sketch: ir.Sketch, compute: ir.Compute) -> set[str]:
    row = OPS.get(compute.operation)
    topics = {_CATEGORIES[row.category]} if row and row.category in _CATEGORIES else set()
    if any(isinstance(operand, ir.IndexOperand) for operand in compute.operands):
        topics.add("index")
    if row is not None and Fact.CONVERTS in row.facts:
        topics.add("convert")
    if row is not None and row.category is Category.REDUCTION:
        source = compute.operands[0]
        axes = compute.attributes.get("axis")
        if isinstance(source, ir.TileOperand) and isinstance(axes, tuple):
            last = len(sketch.tile(source.tile).extents) - 1
            topics.update("inner-axis" if axis == last else "outer-axis" for axis in axes)
    return topics


def _grid_axes(body: tuple[ir.Statement, ...]) -> int:
    """The largest number of parallel loops inside one another."""
    loops = [statement for statement in body if isinstance(statement, ir.For)]
    return max((int(loop.parallel) + _grid_axes(loop.body) for loop in loops), default=0)
