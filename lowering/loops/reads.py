"""Values at the lanes of a loop: what has been read into locals, and what must be read.

A local holds each element that a loop's body reads, once; later readers take the local.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import scalar_dtype
from sketchc.ir.symbolic import conjunction
from sketchc.ir.walk import changed, names, parts, substitute
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.fusion import Home
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import (
    ONE,
    ZERO,
    LaneSource,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
    lane_variable,
    read_variable,
    row_major,
)


@attrs.frozen
class Key:
    """Equal for reads that can share one local: the element, the condition, and the padding where
    the condition fails. `as_index`: the value converted to i64."""

    name: str
    tensor: bool
    indices: tuple[ir.Expr, ...]
    condition: ir.Expr | None = None
    pad: object = 0
    as_index: bool = False


@attrs.define
class Scope:
    """A body that is being written, and what is known there: variables of the loops around it,
    values already read."""

    variables: tuple[ir.Ref, ...] = ()
    values: dict[Key, nodes.Local] = attrs.field(factory=dict)
    names: set[str] = attrs.field(factory=set)
    #: index calculations that have a local of their own
    known: dict[ir.Expr, ir.Ref] = attrs.field(factory=dict)
    #: the spans of the sketch that the statements written now implement
    origins: tuple[Span, ...] = ()
    body: list[nodes.Statement] = attrs.field(factory=list)

    def inner(self, variable: ir.Ref | None = None) -> Scope:
        """The scope of a loop over `variable`, or of a branch, that knows what is known here."""
        variables = self.variables if variable is None else (*self.variables, variable)
        known = dict(self.values), set(self.names), dict(self.known)
        return Scope(variables, *known, self.origins)

    def write(self, *statements: nodes.Statement) -> None:
        """Append statements; those without origins get the scope's origins."""
        self.body += (s if s.origins else attrs.evolve(s, origins=self.origins) for s in statements)


@attrs.define
class Reads:
    """Writes the reads of one phase; `homes` says where each tile's version lives. Methods that
    give a value write the reads and index calculations that it needs and the scope lacks first."""

    maker: NestMaker
    homes: Mapping[str, Home]

    def forget(self, written: Reference, scope: Scope) -> None:
        """Drop the values read from memory that `written` changes, and indices that use them."""
        home = "" if written.tensor else self.homes[written.name].name

        def changed(key: Key) -> bool:
            if key.tensor and written.tensor:
                return self.maker.sketch.tensor(key.name).name == written.base
            places = key.indices if key.condition is None else (*key.indices, key.condition)
            same = key.tensor == written.tensor and key.name == written.name
            return same or any(home in names(place) for place in places)

        scope.values = {k: local for k, local in scope.values.items() if not changed(k)}
        scope.known = {v: name for v, name in scope.known.items() if home not in names(v)}

    def local_name(self, stem: str, scope: Scope) -> str:
        """A name for a local, made from `stem`: free in this scope and in the loops around it."""
        name = f"{stem}_value" if stem in self.homes else stem
        count = 2
        candidate = name
        while candidate in scope.names or (
            candidate != stem and candidate in self.maker.versions.taken
        ):
            candidate = f"{name}_{count}"
            count += 1
        scope.names.add(candidate)
        return candidate

    def name_indices(self, reference: Reference, scope: Scope) -> None:
        """Give locals to indices that contain divisions: guards use the same indices again."""
        for lanes in reference.lanes:
            if divides(lanes.value):
                self.name(self.lane_value(lanes, scope), f"{reference.name}_index", scope)

    def name(self, value: ir.Expr, stem: str, scope: Scope) -> None:
        """Give a local to an index calculation, unless it has one."""
        if value not in scope.known:
            shown = self.shown(value, scope)
            name = self.local_name(stem, scope)
            scope.known[value] = ir.Ref(name, ir.NameKind.BINDING)
            scope.write(nodes.Define(name, DType.I64, nodes.Scalar(shown, DType.I64)))

    def shown(self, value: ir.Expr, scope: Scope) -> ir.Expr:
        """The expression with its parts that locals hold already replaced by these locals."""
        return replaced(value, scope.known) if scope.known else value

    def read(self, read: Read, scope: Scope) -> nodes.Local:
        """The local that holds the element of `read`, which is read now unless it has been."""
        for lanes in (*read.reference.lanes, *read.guards):
            self.lane_value(lanes, scope)
        self.name_indices(read.reference, scope)
        place = self.place(read.reference, read.stored, scope)
        if isinstance(place, nodes.Local):
            return place
        key = self.read_key(read, scope)
        if key not in scope.values:
            local = nodes.Local(self.local_name(read.tile, scope), read.held)
            origins = () if read.origin == NOWHERE else (read.origin,)
            value = self.element(read, scope)
            scope.write(nodes.Define(local.name, local.dtype, value, origins=origins))
            scope.values[key] = local
        return scope.values[key]

    def element(self, read: Read, scope: Scope) -> nodes.Value:
        """The value of `read`: the element where its guards hold, else the padding."""
        place = self.place(read.reference, read.stored, scope)
        condition = self.conjunction(read.guards, scope)
        if condition is None:
            return place
        condition = self.shown(condition, scope)
        held = read.held
        value = ir.Literal(read.pad) if isinstance(read.pad, int | float) else read.pad
        pad = scalar_value(value, held)
        return nodes.Select(condition, converted(place, held), pad, held)

    def _index_local(self, read: Read, scope: Scope) -> nodes.Local:
        """The local that holds an element in the type in which indices are calculated."""
        local = self.read(read, scope)
        if local.dtype in (DType.I64, DType.BOOL):
            return local
        key = attrs.evolve(self.read_key(read, scope), as_index=True)
        if key not in scope.values:
            index = nodes.Local(self.local_name(f"{read.tile}_index", scope), DType.I64)
            scope.write(nodes.Define(index.name, DType.I64, nodes.Convert(local, DType.I64)))
            scope.values[key] = index
        return scope.values[key]

    def lane_value(self, source: LaneSource, scope: Scope) -> ir.Expr:
        """The value of an index tile or predicate, over lane variables and locals."""
        names: dict[str, ir.Expr] = {
            lane_variable(axis).name: scope.variables[axis] for axis in source.axes
        }
        for number, read in enumerate(source.reads):
            local = self._index_local(read, scope)
            kind = DType.BOOL if local.dtype is DType.BOOL else DType.I64
            variable = read_variable(number, local.dtype)
            names[variable.name] = ir.Ref(local.name, ir.NameKind.BINDING, kind)
        return substitute(source.value, names)

    def conjunction(self, guards: tuple[LaneSource, ...], scope: Scope) -> ir.Expr | None:
        """The conjunction of guards, None for no condition."""
        return conjunction([self.lane_value(guard, scope) for guard in guards]) if guards else None

    def key(self, reference: Reference, scope: Scope) -> Key:
        """The `Key` of a read of an element, without guards."""
        indices = tuple(self.index(term, scope) for term in reference.terms)
        return Key(reference.name, reference.tensor, indices)

    def read_key(self, read: Read, scope: Scope) -> Key:
        """The `Key` of a read, with its guards and padding."""
        key = self.key(read.reference, scope)
        if not read.guards:
            return key
        return attrs.evolve(key, condition=self.conjunction(read.guards, scope), pad=read.pad)

    def index(self, term: Term, scope: Scope) -> ir.Expr:
        """The index that `term` gives at the lanes of the loops around `scope`."""
        if term.lanes is not None:
            return self.lane_value(term.lanes, scope)
        if term.axis is None:
            return term.offset
        lane: ir.Expr = scope.variables[term.axis]
        if term.step != ONE:
            lane = ir.Binary("*", lane, term.step)
        return lane if term.offset == ZERO else ir.Binary("+", term.offset, lane)

    def place(
        self, reference: Reference, stored: DType, scope: Scope
    ) -> nodes.Local | nodes.Element:
        """The local or the element of memory behind a reference."""
        indices = tuple(self.shown(self.index(term, scope), scope) for term in reference.terms)
        if reference.tensor:
            extents = self.maker.sketch.extents(reference.name)
            base = self.maker.sketch.tensor(reference.name)
            index = row_major(indices, extents, base)
            return nodes.Element(base.name, index, stored)
        home = self.homes[reference.name]
        if home.local:
            return nodes.Local(home.name, home.dtype)
        kept = tuple(indices[axis] for axis in home.kept)
        extents = tuple(home.extents[axis] for axis in home.kept)
        return nodes.Element(home.name, row_major(kept, extents, None), stored)

    def source(self, source: Source, scope: Scope) -> nodes.Value:
        """The value of an operand of a nest, in the operand's type."""
        match source:
            case Read(dtype=dtype):
                return converted(self.read(source, scope), dtype)
            case ScalarSource(value, dtype):
                return scalar_value(value, dtype)
            case LaneSource(dtype=dtype):
                resolved = self.shown(self.lane_value(source, scope), scope)
                return converted(nodes.Scalar(resolved, scalar_dtype(resolved)), dtype)
            case _:
                assert_never(source)


def divides(value: ir.Expr) -> bool:
    """Whether an index calculation contains a division or a remainder."""
    return any(
        isinstance(part, ir.Binary) and part.operator in ("//", "%", "cdiv")
        for part in parts(value)
    )


def by_constant(divisor: ir.Expr) -> bool:
    """Whether a division by this is one by a constant, of which a compiler makes multiplications
    and shifts."""
    return isinstance(divisor, ir.Literal) or (
        isinstance(divisor, ir.Ref) and divisor.kind is ir.NameKind.CONSTANT
    )


def replaced(value: ir.Expr, known: Mapping[ir.Expr, ir.Ref]) -> ir.Expr:
    """The expression with its largest parts that are in `known` replaced by their names."""
    if value in known:
        return known[value]
    return changed(value, lambda part: replaced(part, known))


def converted(value: nodes.Value, dtype: DType) -> nodes.Value:
    """The value converted to the type `dtype`."""
    if value.dtype is dtype:
        return value
    if isinstance(value, nodes.Number):
        return typed_number(value.value, dtype)
    return nodes.Convert(value, dtype)


def typed_number(value: int | float | bool, dtype: DType) -> nodes.Number:
    """A constant of the type `dtype`, held as Python's bool, float or int."""
    kind = bool if dtype is DType.BOOL else float if dtype.is_float else int
    return nodes.Number(kind(value), dtype)


def scalar_value(value: ir.Expr, dtype: DType) -> nodes.Value:
    """A scalar expression as a value of the type `dtype`."""
    match value:
        case ir.Literal(number):
            return typed_number(number, dtype)
        case ir.Unary("-", ir.Literal(number)):
            return typed_number(-number, dtype)
        case _:
            return converted(nodes.Scalar(value, scalar_dtype(value)), dtype)


def fetch(name: str, dtype: DType, element: nodes.Value) -> nodes.Define:
    """The definition of a fetched scalar: i64, bool, or, for any float, double, which is exact."""
    kind = DType.F64 if dtype.is_float else (DType.BOOL if dtype is DType.BOOL else DType.I64)
    return nodes.Define(name, kind, converted(element, kind))


def host_element(sketch: ir.Sketch, access: ir.Access) -> nodes.Element:
    """An element of a tensor at scalar subscripts, which are in range."""
    indices = tuple(s.index for s in access.subscripts if isinstance(s, ir.ScalarSubscript))
    base = sketch.tensor(access.tensor)
    index = row_major(indices, sketch.extents(access.tensor), base)
    return nodes.Element(base.name, index, base.dtype)
