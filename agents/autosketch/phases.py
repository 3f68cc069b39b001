"""The third stage of the built-in Designer: which values are computed together, in which launch.

A phase computes one tensor. Its rows are independent of each other; what a row needs of itself (its
maximum, then the sum of its exponentials) is reduced in passes over the row, and the last pass
gives the result. All maps are computed where they are needed. A reduction over other rows than the
phase's is a phase of its own and goes through a workspace.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Index,
    Loops,
    Number,
    Reduction,
    Scalar,
    at,
    elements,
    parts,
    resolved,
    text,
)
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names

#: What a reduction is called.
_NAMES = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}


@attrs.frozen
class Pass:
    """A reduction of a row: `body` over the axes `over`. Earlier passes are elements without an
    index of the pass's name."""

    name: str
    operation: str
    dtype: DType
    over: tuple[Axis, ...]
    body: Scalar


@attrs.frozen
class Phase:
    """`result` at each index of rows and columns goes to `target`, at the index `place`."""

    target: str
    dtype: DType
    place: Index
    rows: tuple[Axis, ...]
    passes: tuple[Pass, ...]
    columns: tuple[Axis, ...]
    result: Scalar

    def scalars(self) -> tuple[Scalar, ...]:
        """All that is computed."""
        return (*(each.body for each in self.passes), self.result)


@attrs.frozen
class Phases:
    """The launches in order; `shapes` of all tensors, workspaces and views by name, and what the
    last two are: types, and the tensors that they are views of."""

    declared: ir.Sketch
    phases: tuple[Phase, ...]
    shapes: Mapping[str, tuple[ir.Expr, ...]]
    workspaces: Mapping[str, DType]
    views: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """The phases as text."""
        for phase in self.phases:
            rows = ", ".join(f"{a.name}<{show(a.extent)}" for a in phase.rows)
            yield f"{phase.target} for each [{rows}]:"
            for each in phase.passes:
                over = ", ".join(f"{a.name}<{show(a.extent)}" for a in each.over)
                yield f"    {each.name} = {each.operation}[{over}] {text(each.body)}"
            columns = ", ".join(f"{a.name}<{show(a.extent)}" for a in phase.columns)
            place = ", ".join(map(show, phase.place))
            yield f"    [{columns}] {phase.target}[{place}] = {text(phase.result)}"


def build_phases(loops: Loops) -> Phases:
    """Decide what is computed together."""
    builder = _Builder(loops)
    for tensor, value in loops.outputs:
        found = loops.values[value]
        axes = _renamed(found.axes, "ijklmnpq")
        index = tuple(axis.ref for axis in axes)
        builder.tensor(tensor, axes, Element(value, index, found.dtype))
    return builder.phases()


def _renamed(axes: Sequence[Axis], letters: str) -> tuple[Axis, ...]:
    return tuple(
        Axis(letters[n] if n < len(letters) else f"{letters[0]}{n}", axis.extent)
        for n, axis in enumerate(axes)
    )


class _Builder:
    """Phases so far, and the reductions that workspaces hold."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.found: list[Phase] = []
        self.shapes = {tensor.name: tensor.extents for tensor in loops.declared.tensors}
        self.workspaces: dict[str, DType] = {}
        self.views: dict[str, str] = {}
        self.held: dict[str, str] = {}

    def phases(self) -> Phases:
        flat = tuple(map(self.flattened, self.found))
        return Phases(self.loops.declared, flat, self.shapes, self.workspaces, self.views)

    # ------------------------------------------------------------ one tensor

    def tensor(self, target: str, axes: tuple[Axis, ...], wanted: Scalar) -> None:
        """Phases that compute a tensor."""
        extents = {axis.name: axis.extent for axis in axes}
        result = resolved(self.loops, wanted, extents)
        rows = self.rows(axes, result)
        passes: dict[str, Pass] = {}
        result = self.within(result, rows, extents, passes)
        columns = tuple(axis for axis in axes if axis not in rows and axis.extent != ir.Literal(1))
        place = tuple(ir.Literal(0) if axis.extent == ir.Literal(1) else axis.ref for axis in axes)
        dtype = wanted.dtype
        self.found.append(
            Phase(target, dtype, place, rows, tuple(passes.values()), columns, result)
        )

    def rows(self, axes: Sequence[Axis], result: Scalar) -> tuple[Axis, ...]:
        """The axes of the reductions in a result: those of the one that has the most."""
        best: tuple[Axis, ...] = ()
        for element in elements(result):
            if isinstance(self.loops.values.get(element.source), Reduction):
                used = {name for each in element.index for name in names(each)}
                own = tuple(axis for axis in axes if axis.name in used)
                plain = all(isinstance(each, ir.Ref | ir.Literal) for each in element.index)
                if plain and len(own) > len(best):
                    best = own
        return best

    def within(
        self,
        scalar: Scalar,
        rows: tuple[Axis, ...],
        extents: Mapping[str, ir.Expr],
        passes: dict[str, Pass],
    ) -> Scalar:
        """The scalar with its reductions as passes of the row, or as elements of workspaces."""
        match scalar:
            case Element(source, index, dtype):
                reduction = self.loops.values.get(source)
                if not isinstance(reduction, Reduction):
                    return scalar
                if not _of_row(index, rows):
                    return Element(self.workspace(reduction), index, dtype)
                return Element(self.passed(reduction, index, rows, extents, passes), (), dtype)
            case Apply():
                operands = (self.within(each, rows, extents, passes) for each in scalar.operands)
                return attrs.evolve(scalar, operands=tuple(operands))
            case _:
                return scalar

    def passed(
        self,
        reduction: Reduction,
        index: Index,
        rows: tuple[Axis, ...],
        extents: Mapping[str, ir.Expr],
        passes: dict[str, Pass],
    ) -> str:
        """The name of the pass that computes a reduction of this row."""
        over = _renamed(reduction.over, "rstuvwxyz")
        replaced = dict(zip((axis.name for axis in reduction.axes), index, strict=True))
        replaced |= {old.name: new.ref for old, new in zip(reduction.over, over, strict=True)}
        inner = {**extents, **{axis.name: axis.extent for axis in over}}
        body = resolved(self.loops, at(reduction.body, replaced), inner)
        body = self.within(body, rows, inner, passes)
        over = tuple(axis for axis in over if axis.extent != ir.Literal(1))
        for each in passes.values():
            if (each.operation, each.over, each.body) == (reduction.operation, over, body):
                return each.name
        name = _free(_NAMES[reduction.operation], passes)
        passes[name] = Pass(name, reduction.operation, reduction.dtype, over, body)
        return name

    def workspace(self, reduction: Reduction) -> str:
        """The tensor that holds a reduction, after a phase of its own."""
        if reduction.name not in self.held:
            name = _free("PARTIAL", self.shapes)
            self.held[reduction.name] = name
            self.shapes[name] = tuple(axis.extent for axis in reduction.axes)
            self.workspaces[name] = reduction.dtype
            axes = _renamed(reduction.axes, "ijklmnpq")
            index = tuple(axis.ref for axis in axes)
            self.tensor(name, axes, Element(reduction.name, index, reduction.dtype))
        return self.held[reduction.name]

    # ------------------------------------------------------------ fewer axes

    def flattened(self, phase: Phase) -> Phase:
        """The phase with neighbouring axes made one, where every access allows it: a view of the
        tensor has one axis there."""
        while True:
            groups = [phase.rows, phase.columns, *(each.over for each in phase.passes)]
            pairs = (pair for group in groups for pair in itertools.pairwise(group))
            pair = next((pair for pair in pairs if self.joinable(phase, *pair)), None)
            if pair is None:
                return phase
            phase = self.joined(phase, *pair)

    def accesses(self, phase: Phase) -> Iterator[tuple[str, Index]]:
        yield phase.target, phase.place
        for scalar in phase.scalars():
            for element in elements(scalar):
                yield element.source, element.index

    def joinable(self, phase: Phase, first: Axis, second: Axis) -> bool:
        pair = {first.name, second.name}
        for scalar in phase.scalars():
            for part in parts(scalar):
                number = part.value if isinstance(part, Number) else None
                if isinstance(number, ir.Expr) and names(number) & pair:
                    return False
        for source, index in self.accesses(phase):
            held = [n for n, each in enumerate(index) if names(each) & pair]
            if not held:
                continue
            if len(held) != 2 or held[1] != held[0] + 1:
                return False
            if [index[held[0]], index[held[1]]] != [first.ref, second.ref]:
                return False
            if not symbolic.equal(self.shapes[source][held[1]], second.extent):
                return False
        return True

    def joined(self, phase: Phase, first: Axis, second: Axis) -> Phase:
        extent = symbolic.simplify(ir.Binary("*", first.extent, second.extent))
        axis = Axis(first.name, extent)

        def axes(own: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(axis if each == first else each for each in own if each != second)

        def element(source: str, index: Index) -> tuple[str, Index]:
            place = next((n for n, e in enumerate(index) if e == second.ref), None)
            if place is None:
                return source, index
            return self.view(source, place - 1), (*index[:place], *index[place + 1 :])

        target, place = element(phase.target, phase.place)
        return Phase(
            target,
            phase.dtype,
            place,
            axes(phase.rows),
            tuple(
                attrs.evolve(each, over=axes(each.over), body=_mapped(each.body, element))
                for each in phase.passes
            ),
            axes(phase.columns),
            _mapped(phase.result, element),
        )

    def view(self, source: str, place: int) -> str:
        """The tensor with the axes `place` and the next one as one."""
        own = self.shapes[source]
        extent = symbolic.simplify(ir.Binary("*", own[place], own[place + 1]))
        shape = (*own[:place], extent, *own[place + 2 :])
        base = self.views.get(source, source)
        for name, other in self.views.items():
            if other == base and self.shapes[name] == shape:
                return name
        name = _free(f"{base}_FLAT", self.shapes)
        self.shapes[name], self.views[name] = shape, base
        return name


def _of_row(index: Index, rows: Sequence[Axis]) -> bool:
    """Whether an index is that of the row itself."""
    held = [e for e in index if e != ir.Literal(0)]
    return [r.ref for r in rows] == held


def _mapped(scalar: Scalar, change: Callable[[str, Index], tuple[str, Index]]) -> Scalar:
    """The scalar with its elements changed."""
    match scalar:
        case Element(source, index, dtype):
            return Element(*change(source, index), dtype)
        case Apply():
            operands = tuple(_mapped(each, change) for each in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            return scalar


def _free(wanted: str, used: Mapping[str, object]) -> str:
    numbered = (f"{wanted}_{n}" for n in range(2, 1 << 16))
    return next(name for name in (wanted, *numbered) if name not in used)
