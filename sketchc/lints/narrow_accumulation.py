"""Sums and products accumulated in f16 or bf16 (SK0651): in a tile, or by atomics in a tensor."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, warning
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lints.uses import alloc_of, updates
from sketchc.ops.table import OPS, Fact, Result
from sketchc.parsing import syntax
from sketchc.parsing.unparse import dtype_fix

#: The narrow types, with the bits that a number of each has.
_DIGITS = {DType.F16: "11", DType.BF16: "8"}
_NOTE = "the error grows with the number of terms, and small terms are lost altogether"


def narrow_accumulation(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """One warning for each narrow tile or tensor, at the first statement that accumulates into it;
    tiles hinted as accumulators have one already (SK0602)."""
    seen: set[str] = set()
    for phase in sketch.phases:
        for statement in _accumulations(phase.body):
            tile = sketch.tile(statement.destination)
            if "accumulator" in tile.hints:
                continue
            if tile.dtype in _DIGITS and tile.name not in seen:
                seen.add(tile.name)
                advice = "; a store rounds it once, at the end"
                found = _report(statement, statement.operation, tile.source_name, tile, advice)
                made = alloc_of(tree, tile)
                fixes = () if made is None else (dtype_fix(made, DType.F32),)
                yield records.evolve(found, fixes=fixes)
        for atomic in walk.statements(phase.body):
            if isinstance(atomic, ir.Atomic) and atomic.operation == "add":
                tensor = sketch.tensor(atomic.access.tensor)
                if tensor.dtype in _DIGITS and tensor.name not in seen:
                    seen.add(tensor.name)
                    advice = ", or add up in an f32 workspace and convert in a second phase"
                    yield _report(atomic, "atomic_add", tensor.name, tensor, advice)


def _accumulations(body: tuple[ir.Statement, ...]) -> Iterator[ir.Compute]:
    """Computes that accumulate, in program order; element-wise ones only inside a loop whose
    iterations run in order and that did not make the tile."""
    for statement in walk.statements(body):
        match statement:
            case ir.Compute() if OPS[statement.operation].result is Result.ACCUMULATOR:
                yield statement
            case ir.For(parallel=False, body=inner):
                made = {each.tile for each in walk.statements(inner) if isinstance(each, ir.Alloc)}
                for each in inner:
                    if isinstance(each, ir.Compute) and _steps(each, made):
                        yield each


def _steps(statement: ir.Compute, made: set[str]) -> bool:
    row = OPS[statement.operation]
    return (
        row.result is Result.PROMOTE
        and not row.facts.isdisjoint((Fact.ADDS, Fact.SCALES))
        and statement.destination not in made
        and updates(statement)
    )


def _report(
    statement: ir.Statement, operation: str, name: str, narrow: ir.Tile | ir.Tensor, advice: str
) -> Diagnostic:
    return warning(
        statement.span,
        "SK0651",
        f"`{operation}` accumulates in {narrow.dtype.value}",
        f"each partial result is rounded to {_DIGITS[narrow.dtype]} bits",
        labels=(Label(narrow.span, f"`{name}` is {narrow.dtype.value}"),),
        notes=(_NOTE,),
        help=f"make `{name}` f32{advice}",
    )
