"""The last stage of the built-in Designer: phases as the text of a sketch.

One axis of a phase becomes the lanes of its tiles: the one along which most accesses run through
memory. Where that is an axis of the rows, a tile holds as many rows side by side, and what a row
reduces is added up lane by lane; else a row is cut into tiles, and each tile is reduced across its
lanes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Index,
    Number,
    Scalar,
    elements,
    parts,
)
from sketchc.agents.autosketch.phases import Pass, Phase, Phases
from sketchc.base.diagnostics import InternalError, Source, UsageError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names, substitute
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

_IDENTITIES = {"sum": "0", "prod": "1", "max": "-inf", "min": "inf"}
_COMBINES = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
#: Lanes up to which an axis of a known extent is one tile.
_ONE_TILE = 1024
_SIZES = "[256, 512, 1024, 2048]"


def write_sketch(phases: Phases, name: str) -> str:
    """The sketch in canonical form."""
    lines = [f"sketch {name} {{"]
    lines += [f"    {line}" for line in _declarations(phases)]
    bodies = [_PhaseWriter(phases, phase) for phase in phases.phases]
    written = [list(writer.lines()) for writer in bodies]
    if any(writer.tunable for writer in bodies):
        lines.append(f"    constexpr: T in {_SIZES};")
    lines.append("")
    for body in written:
        lines += [*(f"    {line}" for line in body), ""]
    source = Source(f"{name}.sketch", "\n".join([*lines, "}", ""]))
    tree, found = parse(source)
    if tree is None or found:
        msg = f"the built-in Designer wrote what is no sketch: {found}\n{source.text}"
        raise InternalError(msg)
    return format_file(tree, source)


def _declarations(phases: Phases) -> Iterator[str]:
    declared = phases.declared
    if declared.symbols:
        yield f"symbols: {', '.join(symbol.name for symbol in declared.symbols)};"
    tensors = [
        f"{t.name}[{_listed(t.extents)}]: {t.role.value} {t.dtype.value};" for t in declared.tensors
    ]
    yield f"tensors: {' '.join(tensors)}"
    if phases.workspaces:
        held = [
            f"{name}[{_listed(phases.shapes[name])}]: {dtype.value};"
            for name, dtype in phases.workspaces.items()
        ]
        yield f"workspace: {' '.join(held)}"
    if phases.views:
        shown = [f"{n}[{_listed(phases.shapes[n])}] = {base};" for n, base in phases.views.items()]
        yield f"views: {' '.join(shown)}"


def _listed(extents: Sequence[ir.Expr]) -> str:
    return ", ".join(map(show, extents))


# ---------------------------------------------------------------- lanes


@attrs.frozen
class _Lanes:
    """The axis that lies along a tile, and how many lanes a tile has: "T", or all of the axis."""

    axis: Axis
    tile: str

    @property
    def whole(self) -> bool:
        """Whether one tile holds the axis."""
        return self.tile != "T"

    @property
    def variable(self) -> str:
        """Counts the tiles."""
        return f"{self.axis.name}_tile"

    @property
    def count(self) -> str:
        return f"ceil({show(self.axis.extent)}, T)"


def _lanes(axis: Axis) -> _Lanes:
    match axis.extent:
        case ir.Literal(int(extent)) if extent <= _ONE_TILE:
            return _Lanes(axis, str(extent))
        case _:
            return _Lanes(axis, "T")


def _runs_along(phase: Phase) -> Counter[str]:
    """How many accesses run through memory along each axis."""
    found: Counter[str] = Counter()
    indices = [e.index for s in phase.scalars() for e in set(elements(s))] + [phase.place]
    for index in indices:
        if index:
            found.update(names(index[-1]))
    return found


@attrs.define(eq=False)
class _Scope:
    """The statements of one body. `bound` are the axes that have a value there, and `held` the
    tiles that hold scalars. What is said goes to the end, or above the loop that is being written,
    so that a loop needs nothing but what its scalars need."""

    bound: frozenset[str]
    parent: _Scope | None = None
    lines: list[str | _Scope] = attrs.field(factory=list)
    held: dict[Scalar, str] = attrs.field(factory=dict)
    named: set[str] = attrs.field(factory=set)
    place: int = 0
    in_loop: bool = False

    @property
    def names(self) -> set[str]:
        """Of tiles that exist here."""
        return self.named if self.parent is None else self.named | self.parent.names

    def say(self, line: str) -> None:
        self.lines.insert(self.place, line)
        self.place += 1

    def finished(self) -> None:
        """What is said from now on stands below the loops so far."""
        self.place = len(self.lines)

    def inner(self, variable: str, *header: str, in_loop: bool = False) -> _Scope:
        """The body of a loop over `variable`; `in_loop` where one program runs it."""
        scope = _Scope(self.bound | {variable}, self, in_loop=in_loop)
        self.lines[self.place : self.place] = [*header, scope]
        return scope

    def text(self, indent: str = "") -> Iterator[str]:
        for line in self.lines:
            if isinstance(line, _Scope):
                yield from line.text(indent + "    ")
            else:
                yield indent + line

    def of(self, used: set[str]) -> _Scope:
        """The outermost body of this program in which these axes have values."""
        if self.in_loop and self.parent is not None and used <= self.parent.bound:
            return self.parent.of(used)
        return self


def _spelled(dtype: DType) -> str:
    """The type of a tile, which is f32 where nothing is said."""
    return "" if dtype is DType.F32 else f", {dtype.value}"


def _identity(each: Pass) -> str:
    limits = each.dtype.limits
    if each.operation in ("max", "min") and limits is not None:
        return str(limits[0] if each.operation == "max" else limits[1])
    return _IDENTITIES[each.operation]


def _uses(scalar: Scalar) -> Counter[Scalar]:
    """How often each part is an operand, where what is the same is computed once."""
    found: Counter[Scalar] = Counter()
    seen: set[Scalar] = set()
    left = [scalar]
    while left:
        part = left.pop()
        if part not in seen and isinstance(part, Apply):
            found.update(part.operands)
            left += part.operands
        seen.add(part)
    return found


def _indices(scalar: Scalar) -> set[str]:
    """The names in all indices and numbers."""
    found: set[str] = set()
    for part in parts(scalar):
        match part:
            case Element(index=index):
                found |= {name for each in index for name in names(each)}
            case Number(value) if isinstance(value, ir.Expr):
                found |= names(value)
            case _:
                pass
    return found


def _widens(source: Scalar, cast: Apply) -> bool:
    """Whether a load does what a cast does."""
    return source.dtype.is_float and cast.dtype.is_float and cast.dtype.bytes >= source.dtype.bytes


class _PhaseWriter:
    """One phase as statements."""

    def __init__(self, phases: Phases, phase: Phase) -> None:
        self.phases = phases
        self.phase = phase
        self.tunable = False
        self.passes = {each.name for each in phase.passes}
        self.used: set[str] = set(self.passes)
        axes = (*phase.rows, *phase.columns, *(axis for each in phase.passes for axis in each.over))
        self.axes = {axis.name for axis in axes}
        self.along = _runs_along(phase)
        rows = max(phase.rows, key=lambda axis: self.along[axis.name], default=None)
        inner = [*phase.columns, *(axis for each in phase.passes for axis in each.over)]
        most = max((self.along[axis.name] for axis in inner), default=-1)
        #: the axis of the rows that lies along the tiles, where there is one
        self.beside = rows if rows is not None and self.along[rows.name] > most else None
        self.uses: Counter[Scalar] = Counter()

    def lines(self) -> Iterator[str]:
        """The statements, with a comment above them."""
        top = _Scope(frozenset())
        top.say(f"# {self.about()}")
        phase = self.phase
        if phase.passes or not phase.columns:
            lanes = None if self.beside is None else self.lanes(self.beside)
            grid = phase.rows
        else:
            lanes = self.lanes(self.longest(phase.columns))
            grid = (*phase.rows, *phase.columns)
        scope = top
        for axis in grid:
            if lanes is None or axis != lanes.axis:
                scope = self.parallel(scope, axis.name, show(axis.extent))
        if lanes is not None:
            if not lanes.whole:
                scope = self.parallel(scope, lanes.variable, lanes.count)
            scope.bound |= {lanes.axis.name}
        for each in phase.passes:
            self.reduced(scope, each, lanes)
            scope.finished()
        self.result(scope, lanes)
        yield from top.text()

    def about(self) -> str:
        words = {"sum": "sum", "prod": "product", "max": "maximum", "min": "minimum"}
        target = self.phases.views.get(self.phase.target, self.phase.target)
        if not self.phase.passes:
            return f"{target}: each element by itself."
        steps = ", then ".join(f"a {words[each.operation]}" for each in self.phase.passes)
        last = ", then each element" if self.phase.columns else ""
        return f"{target}: of each row {steps}{last}."

    def longest(self, axes: Sequence[Axis]) -> Axis:
        """The axis that most accesses run along; the last of several."""
        return max(enumerate(axes), key=lambda each: (self.along[each[1].name], each[0]))[1]

    def lanes(self, axis: Axis) -> _Lanes:
        found = _lanes(axis)
        self.tunable = self.tunable or not found.whole
        return found

    def parallel(self, scope: _Scope, variable: str, count: str) -> _Scope:
        head = ('@llm_hint("parallel", "grididx")', f"for {variable} in range({count}):")
        return scope.inner(variable, *head)

    # ------------------------------------------------------------ passes

    def reduced(self, scope: _Scope, each: Pass, lanes: _Lanes | None) -> None:
        """One pass over the row."""
        along = (
            None
            if self.beside is not None or not each.over
            else self.lanes(self.longest(each.over))
        )
        loops = [axis for axis in each.over if along is None or axis != along.axis]
        looped = bool(loops) or (along is not None and not along.whole)
        own = lanes if along is None else along
        width = "1" if lanes is None else lanes.tile
        dtype = _spelled(each.dtype)
        start = f", init={_identity(each)}" if looped else ""
        hint = '"fastest", "accumulator"' if looped else '"fastest"'
        scope.say(f"{each.name} = alloc([{width}]{dtype}{start}, llm_hint=[{hint}])")
        inner = self.opened(scope, loops, along)
        operand = self.evaluated(inner, each.body, own)
        if along is not None:
            block = each.name
            if looped:
                block = self.name(inner, "block")
                inner.say(f'{block} = alloc([1]{dtype}, llm_hint=["fastest"])')
            inner.say(f"reduce_{each.operation}({operand}, 0, {block})")
            operand = block
        if looped:
            inner.say(f"{_COMBINES[each.operation]}({each.name}, {operand}, {each.name})")
        elif along is None:
            inner.say(f"copy({operand}, {each.name})")

    def opened(self, scope: _Scope, loops: Sequence[Axis], along: _Lanes | None) -> _Scope:
        """The body of loops of one program, with names of tiles of its own."""
        inner = scope
        for axis in loops:
            head = f"for {axis.name} in range({show(axis.extent)}):"
            inner = inner.inner(axis.name, head, in_loop=True)
        if along is not None and not along.whole:
            hint = '@llm_hint("pipeline")'
            head = f"for {along.variable} in range({along.count}):"
            inner = inner.inner(along.variable, "", hint, head, in_loop=True)
        if along is not None:
            inner.bound |= {along.axis.name}
        return inner

    def result(self, scope: _Scope, lanes: _Lanes | None) -> None:
        """The last pass: each element of the row."""
        phase = self.phase
        if phase.passes and phase.columns:
            along = None if self.beside is not None else self.lanes(self.longest(phase.columns))
            loops = [axis for axis in phase.columns if along is None or axis != along.axis]
            scope, lanes = self.opened(scope, loops, along), lanes if along is None else along
        tile = self.evaluated(scope, phase.result, lanes)
        target = self.access(scope, phase.target, phase.place, lanes)
        scope.say(f"store({tile} -> {target})")

    # ------------------------------------------------------------ scalars

    def evaluated(self, scope: _Scope, scalar: Scalar, lanes: _Lanes | None) -> str:
        """A tile with all lanes of a scalar."""
        self.uses = _uses(scalar)
        operand = self.operand(scope, scalar, lanes)
        if not isinstance(scalar, Number) and (lanes is None or self.varies(scalar, lanes)):
            return operand
        name = self.alloc(scope, "value", scalar.dtype, "1" if lanes is None else lanes.tile)
        scope.say(f"{'fill' if isinstance(scalar, Number) else 'copy'}({operand}, {name})")
        return name

    def varies(self, scalar: Scalar, lanes: _Lanes) -> bool:
        """Whether it differs from lane to lane."""
        if self.beside is not None and any(not e.index for e in elements(scalar)):
            return True
        return lanes.axis.name in _indices(scalar)

    def operand(self, scope: _Scope, scalar: Scalar, lanes: _Lanes | None) -> str:
        """What stands for a scalar in a call; statements that compute it are said, in the outermost
        body in which they can stand."""
        if isinstance(scalar, Number):
            if isinstance(scalar.value, ir.Expr) and names(scalar.value) & self.axes:
                msg = "the built-in Designer has no form for an index as a number yet"
                raise UsageError(msg)
            return _number(scalar)
        if isinstance(scalar, Element) and scalar.source in self.passes:
            return scalar.source
        where = scope.of(_indices(scalar) & self.axes)
        if scalar not in where.held:
            match scalar:
                case Apply("cast", (Element() as source,)) if _widens(source, scalar):
                    where.held[scalar] = self.loaded(where, source, lanes, scalar.dtype)
                case Element():
                    where.held[scalar] = self.loaded(where, scalar, lanes, scalar.dtype)
                case Apply():
                    where.held[scalar] = self.applied(where, scalar, lanes)
        return where.held[scalar]

    def loaded(self, scope: _Scope, element: Element, lanes: _Lanes | None, dtype: DType) -> str:
        wide = lanes if lanes is not None and self.varies(element, lanes) else None
        width = "1" if wide is None else wide.tile
        base = self.phases.views.get(element.source, element.source).lower()
        name = self.alloc(scope, base, dtype, width, hint='"fast", "input_cache"')
        scope.say(f"load({self.access(scope, element.source, element.index, wide)} -> {name})")
        return name

    def applied(self, scope: _Scope, scalar: Apply, lanes: _Lanes | None) -> str:
        """A call; it writes into an operand that nobody else needs, where there is one."""
        operands = [self.operand(scope, each, lanes) for each in scalar.operands]
        wide = lanes is not None and self.varies(scalar, lanes)
        for each, operand in zip(scalar.operands, operands, strict=True):
            alone = (
                self.uses[each] == 1 and not isinstance(each, Number) and operand not in self.passes
            )
            here = each in scope.held and each.dtype is scalar.dtype
            if alone and here and (lanes is None or self.varies(each, lanes) == wide):
                name = operand
                break
        else:
            width = lanes.tile if wide and lanes is not None else "1"
            name = self.alloc(scope, _NOUNS.get(scalar.operation, "value"), scalar.dtype, width)
        keywords = "".join(f", {key}={_keyword(value)}" for key, value in scalar.attributes)
        scope.say(f"{scalar.operation}({', '.join((*operands, name))}{keywords})")
        return name

    def alloc(
        self, scope: _Scope, wanted: str, dtype: DType, width: str, hint: str = '"fastest"'
    ) -> str:
        name = self.name(scope, wanted)
        scope.say(f"{name} = alloc([{width}]{_spelled(dtype)}, llm_hint=[{hint}])")
        return name

    def name(self, scope: _Scope, wanted: str) -> str:
        """A name that is free in this body and those around it; in the body of a row, also in the
        loops so far."""
        numbered = (f"{wanted}_{n}" for n in range(2, 1 << 16))
        taken = scope.names if scope.in_loop else self.used
        found = next(n for n in (wanted, *numbered) if n not in taken and n not in self.passes)
        self.used.add(found)
        scope.named.add(found)
        return found

    # ------------------------------------------------------------ accesses

    def access(self, scope: _Scope, tensor: str, index: Index, lanes: _Lanes | None) -> str:
        """`X[i, j*T:(j+1)*T]`: a slice where one subscript is linear in the lanes, else lanes by
        their indices."""
        if lanes is None:
            return f"{tensor}[{_listed(index)}]"
        lane = lanes.axis.name
        held = [n for n, each in enumerate(index) if lane in names(each)]
        if not held:
            return f"{tensor}[{_listed(index)}]"
        if len(held) == 1 and (line := _line(index[held[0]], lane)) is not None:
            shown = [show(each) for each in index]
            shown[held[0]] = self.slice(line, lanes, self.phases.shapes[tensor][held[0]])
            return f"{tensor}[{', '.join(shown)}]"
        bound = self.name(scope, f"{lane}_lane")
        start = "0" if lanes.whole else f"{lanes.variable}*T"
        scope.say(f"{bound} = iota({lanes.tile}, {start}, {show(lanes.axis.extent)})")
        replaced = {lane: ir.Ref(bound, ir.NameKind.BINDING)}
        return f"{tensor}[{_listed([substitute(each, replaced) for each in index])}]"

    def slice(self, line: tuple[int, ir.Expr], lanes: _Lanes, extent: ir.Expr) -> str:
        step, rest = line
        tile: ir.Expr = ir.Ref(lanes.variable, ir.NameKind.LOOP)
        size: ir.Expr = ir.Ref("T", ir.NameKind.CONSTANT)
        if lanes.whole:
            tile, size = ir.Literal(0), lanes.axis.extent

        def end(turn: ir.Expr) -> ir.Expr:
            place = ir.Binary("*", ir.Binary("*", turn, size), ir.Literal(step))
            if rest == ir.Literal(0):
                return place
            return ir.Binary("+", rest, place)

        first = end(tile)
        last = end(ir.Binary("+", tile, ir.Literal(1)))
        if lanes.whole:
            first, last = symbolic.simplify(first), symbolic.simplify(last)
        stays = symbolic.equal(ir.Binary("*", ir.Literal(step), lanes.axis.extent), extent)
        if not lanes.whole and not (step > 0 and rest == ir.Literal(0) and stays) and step > 0:
            whole = ir.Binary("*", ir.Literal(step), lanes.axis.extent)
            last = ir.Binary("min", last, symbolic.simplify(ir.Binary("+", rest, whole)))
        ends = f"{_plain(first)}:{_plain(last)}"
        return ends if step == 1 else f"{ends}:{step}"


#: What the result of an operation is called.
_NOUNS = {
    "add": "sum_of",
    "sub": "difference",
    "mul": "product_of",
    "div": "quotient",
    "exp": "power",
    "pow": "power",
    "cast": "converted",
    "sqrt": "root",
    "rsqrt": "scale",
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "condition"),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), "condition"),
}


def _plain(expression: ir.Expr) -> str:
    """Text of an end of a slice, without factors of 1."""
    match expression:
        case ir.Binary("*", left, ir.Literal(1)):
            return _plain(left)
        case ir.Binary("+", left, right):
            return f"{_plain(left)} + {_plain(right)}"
        case ir.Binary("min", left, right):
            return f"min({_plain(left)}, {_plain(right)})"
        case _:
            return show(expression)


def _line(expression: ir.Expr, lane: str) -> tuple[int, ir.Expr] | None:
    """Step and rest where an index is step*lane + rest."""
    ref = ir.Ref(lane, ir.NameKind.LOOP)
    moved = substitute(expression, {lane: ir.Binary("+", ref, ir.Literal(1))})
    step = symbolic.constant_value(ir.Binary("-", moved, expression))
    if step is None or step == 0:
        return None
    rest = symbolic.simplify(ir.Binary("-", expression, ir.Binary("*", ir.Literal(step), ref)))
    return None if lane in names(rest) else (step, rest)


def _number(number: Number) -> str:
    match number.value:
        case bool():
            return str(number.value)
        case float() if math.isnan(number.value):
            return "nan"
        case float() | int():
            return repr(number.value)
        case _:
            return show(number.value)


def _keyword(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
