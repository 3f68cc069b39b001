"""Writes one phase as statements: what the templates of all forms share.

One axis of a phase becomes the lanes of its tiles: the one along which most accesses run through
memory. Where that is an axis of the rows, a tile holds as many rows side by side, and what a row
reduces is added up lane by lane; else a row is cut into tiles, and each tile is reduced across its
lanes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from sketchc.agents.autosketch.calls import (
    COMBINES,
    PERMUTED,
    call,
    in_expression,
    in_one_type,
    listed,
    named,
    noun,
    number_text,
    operands_of,
    spelled,
)
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Number,
    Scalar,
    below,
    below_it,
    elements,
    names_below,
    names_in,
)
from sketchc.agents.autosketch.phase import (
    SCORES,
    Attention,
    Chosen,
    Digits,
    Pass,
    Phase,
    Phases,
    Product,
    Ranked,
    Running,
    Scattered,
)
from sketchc.agents.autosketch.templates.attention import write_attention
from sketchc.agents.autosketch.templates.body import PIPELINE, Body
from sketchc.agents.autosketch.templates.doubles import Doubles
from sketchc.agents.autosketch.templates.extremes import is_place_of, write_extreme
from sketchc.agents.autosketch.templates.kept import Kept
from sketchc.agents.autosketch.templates.lanes import (
    Dims,
    Lanes,
    block_size,
    lanes_of,
    last_place,
    runs_along,
    shaped,
    step_in,
    width,
)
from sketchc.agents.autosketch.templates.moments import write_moments
from sketchc.agents.autosketch.templates.orders import write_best, write_places
from sketchc.agents.autosketch.templates.passes import together, write_passes
from sketchc.agents.autosketch.templates.products import write_product
from sketchc.agents.autosketch.templates.scans import write_scan
from sketchc.agents.autosketch.templates.scatters import write_scatter
from sketchc.agents.autosketch.templates.turned import turned_axes, write_turned
from sketchc.agents.autosketch.windows import ONE_BLOCK, windows
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import free_name, names, substitute

#: A longer expression is computed in steps.
_LONGEST = 48
_NAME = 6


def _length(text: str) -> int:
    """How long an expression is, where each name but the shortest counts for `_NAME` characters:
    names, and the numbers that they end in, do not decide how phases that are alike are written."""
    return len(re.sub(r"\w{4,}", "x" * _NAME, text))


def _uses(*scalars: Scalar) -> Counter[Scalar]:
    """How often each scalar is an operand in these scalars, or one of them itself, where equal
    scalars are computed once."""
    found = Counter(scalars)
    seen: set[Scalar] = set()
    left = [*scalars]
    while left:
        part = left.pop()
        if part not in seen:
            found.update(below_it(part))
            left += below_it(part)
        seen.add(part)
    return found


def _is_turned(element: Element, dims: Dims) -> bool:
    """Whether an element's tensor runs through memory along the first axis of a tile of two."""
    first, second = (last_place(element.index, lanes) for lanes in dims)
    return first > second


def _widens(source: Scalar, cast: Apply) -> bool:
    """Whether a load of `source` can do the cast: from a float to one of at least its bytes."""
    return source.dtype.is_float and cast.dtype.is_float and cast.dtype.bytes >= source.dtype.bytes


class PhaseWriter:
    """Writes one phase as statements."""

    def __init__(self, phases: Phases, phase: Phase, doubles: Doubles, kept: Kept) -> None:
        self.phases = phases
        self.doubles = doubles
        self.phase = phase
        self.sizes: set[str] = set()
        self.passes = {each.name for each in phase.passes}
        if phase.fold is not None:
            self.passes.add(phase.fold.name)
        #: by the name of a fold's tile, the axes on which it depends within the fold's loops
        self.varies: dict[str, set[str]] = {}
        if isinstance(phase.fold, Running):
            self.varies[phase.fold.name] = {phase.fold.axis.name}
        elif isinstance(phase.fold, Attention):
            self.passes.add(SCORES)
            self.varies[SCORES] = {phase.fold.down.name, phase.fold.over.name}
        #: what no tile may be called
        self.taken = {*self.passes, *(param.name for param in phases.declared.params)}
        self.axes = {axis.name: axis.extent for group in phase.groups for axis in group}
        counted = phase.fold.digits.values() if isinstance(phase.fold, Product) else ()
        for digits in (*counted, phase.digits):
            self.axes |= {axis.name: axis.extent for axis, _ in digits}
        if phase.step is not None:
            self.axes[phase.step.name] = phase.step.extent
        self.used = {*self.taken}
        self.along = runs_along(phase)
        # Each part of a reduction is a program's, whose loop runs from the part's number on.
        alone = {each.part for each in phase.passes}
        wide = (axis for axis in phase.rows if axis not in alone)
        rows = max(wide, key=lambda axis: self.along[axis.name], default=None)
        #: the axes that lie along tiles, where what is read is turned
        self.turned = turned_axes(phase) if phases.planes else None
        #: no tile lies along a window
        self.windows = windows(phase)
        if isinstance(phase.fold, Product):
            self.windows |= {axis.name for axis in phase.fold.taps}
        over = (axis for each in phase.passes for axis in each.over)
        scanned = (phase.fold.axis,) if isinstance(phase.fold, Running) else ()
        inner = [
            *phase.columns,
            *scanned,
            *(axis for axis in over if axis.name not in self.windows),
        ]
        most = max((self.along[axis.name] for axis in inner), default=-1)
        #: the axis of the rows that lies along the tiles, where there is one
        self.beside = rows if rows is not None and self.along[rows.name] > most else None
        if isinstance(phase.fold, Chosen | Ranked):
            self.beside = None
        elif isinstance(phase.fold, Scattered):
            self.beside = rows
        #: the block of a row that all passes share, where they share one, and the body of the last
        #: statements on it
        self.kept = kept.block(phase, self.beside)
        self.block_body: Body | None = None
        #: how often parts are used in the body of a row, and in that of the loop being written
        self.all_uses = _uses(*phase.scalars())
        self.uses = self.all_uses
        self.tile_of: Scalar | None = None  # what shall have a tile

    def lines(self) -> Iterator[str]:
        """The statements, with a comment above them."""
        step = self.phase.step
        top = Body(frozenset() if step is None else frozenset({step.name}))
        top.say(f"# {self.about()}")
        phase = self.phase
        if isinstance(phase.fold, Product):
            write_product(self, top, phase.fold)
        elif isinstance(phase.fold, Attention):
            write_attention(self, top, phase.fold)
        elif self.turned is not None:
            write_turned(self, top, self.turned)
        else:
            self.in_rows(top)
        yield from top.text()

    def in_rows(self, top: Body) -> None:
        """Write programs over rows: passes or a fold, then each element."""
        phase, scope = self.phase, top
        if phase.passes or phase.fold or not phase.columns:
            lanes = None if self.beside is None else self.lanes(self.beside)
            grid = phase.rows
        else:
            lanes = self.lanes(self.longest(phase.columns))
            grid = (*phase.rows, *phase.columns)
        for axis in grid:
            if lanes is None or axis != lanes.axis:
                scope = self.parallel(scope, axis.name, show(axis.extent))
        if isinstance(phase.fold, Ranked):
            lanes = self.block(phase.fold.axis, "TM")
        if lanes is not None and lanes.size is not None:
            scope = self.parallel(scope, lanes.variable, lanes.count)
        scope = self.in_a_launch(scope, top)
        if lanes is not None:
            scope.bound |= lanes.names
        dims: Dims = () if lanes is None else (lanes,)
        left = list(phase.passes)
        while left:
            first, *left = left
            if left and self.beside is not None and is_place_of(left[0], first):
                write_extreme(self, scope, first, left.pop(0), dims)
            elif left and write_moments(self, scope, first, left[0], dims):
                del left[0]
            else:
                group = together([first, *left], self.kept is None and self.in_turns(first.over))
                write_passes(self, scope, group, dims)
                del left[: len(group) - 1]
        if isinstance(phase.fold, Scattered):
            write_scatter(self, scope, phase.fold, dims)
            return
        if isinstance(phase.fold, Running):
            scope, dims = write_scan(self, scope, phase.fold, dims)
        elif isinstance(phase.fold, Chosen):
            dims = write_best(self, scope, phase.fold)
        elif isinstance(phase.fold, Ranked):
            write_places(self, scope, phase.fold, dims)
        self.result(scope, dims)

    def blocks(self, extents: Mapping[str, int]) -> dict[str, int]:
        """The extents of the blocks that the phase keeps, by their names."""
        own = () if self.kept is None else (self.kept.first, self.kept.size)
        return {name: extents[name] for name in own if name is not None}

    def about(self) -> str:
        """What a comment says of the phase."""
        words = {"sum": "sum", "prod": "product", "max": "maximum", "min": "minimum"}
        target = self.phases.views.get(self.phase.target, self.phase.target)
        if isinstance(self.phase.fold, Running):
            return f"{target}: a running {words[self.phase.fold.operation]} along each row."
        if isinstance(self.phase.fold, Product):
            return f"{target}: a matrix product, a block at a time."
        if isinstance(self.phase.fold, Attention):
            return f"{target}: sums weighted by the softmax of scores, a block of keys at a time."
        if isinstance(self.phase.fold, Chosen):
            which = "largest" if self.phase.fold.largest else "smallest"
            what = f"where the {which}" if self.phase.fold.places else f"the {which}"
            return f"{target}: {what} of each row{' are' if self.phase.fold.places else ''}."
        if isinstance(self.phase.fold, Ranked):
            goes = self.phase.fold.name in names_in(self.phase.place)
            what = "the elements of each row in order" if goes else "places in each row's order"
            return f"{target}: {what}; the place of one is the number of those before it."
        if isinstance(self.phase.fold, Scattered):
            if self.phase.fold.whole:
                return f"{target}: each element in its place."
            return f"{target}: then elements whose places are data, one after the other."
        if not self.phase.passes:
            return f"{target}: each element by itself."
        steps = ", then ".join(f"a {words[each.operation]}" for each in self.phase.passes)
        last = ", then each element" if self.phase.columns else ""
        return f"{target}: of each row {steps}{last}."

    def longest(self, axes: Sequence[Axis]) -> Axis:
        """The axis that most accesses run along; the last of several."""
        return max(enumerate(axes), key=lambda each: (self.along[each[1].name], each[0]))[1]

    def lanes(self, axis: Axis) -> Lanes:
        """The lanes of tiles along an axis, all of a short one."""
        joint = axis in self.phase.rows[-1:]
        found = lanes_of(axis, self.phase.digits if joint else ())
        if self.kept is not None and self.kept.size is not None and found.size is not None:
            found = attrs.evolve(found, size=self.kept.size)
        if found.size is not None:
            self.sizes.add(found.size)
        return found

    def block(self, axis: Axis, size: str, digits: Digits = (), most: int = ONE_BLOCK) -> Lanes:
        """The lanes of blocks of the tuned size `size` along an axis, of one block if its extent is
        constant and at most `most`; `digits` as in `Lanes`."""
        found = Lanes(axis, block_size(axis, size, most), digits)
        self.sizes |= set() if found.size is None else {found.size}
        return found

    def parallel(self, scope: Body, variable: str, count: str) -> Body:
        """Open a loop whose turns are programs of their own; returns its body."""
        head = ('@llm_hint("parallel", "grididx")', f"for {variable} in range({count}):")
        return scope.inner(variable, *head)

    def over_blocks(self, top: Body, blocks: Dims, innermost: Axis | None = None) -> Body:
        """Open the loops over rows and blocks, whose turns are programs, that over the row
        `innermost` within all others; returns the body."""
        scope = top
        for axis in (each for each in self.phase.rows if each != innermost):
            scope = self.parallel(scope, axis.name, show(axis.extent))
        for each in blocks:
            if each.size is not None:
                scope = self.parallel(scope, each.variable, each.count)
        if innermost is not None:
            scope = self.parallel(scope, innermost.name, show(innermost.extent))
        scope = self.in_a_launch(scope, top)
        for each in blocks:
            scope.bound |= each.names
        return scope

    def in_a_launch(self, scope: Body, top: Body) -> Body:
        """The body for a phase's statements: that of a loop with one iteration, where the phase has
        no loop around it and is not the only one, else `scope`."""
        alone = scope is not top or len(self.phases.phases) == 1
        return scope if alone else self.parallel(scope, "once", "1")

    # ------------------------------------------------------------ passes

    def carried(
        self, scope: Body, held: Pass | Running, loops: Sequence[Axis] = ()
    ) -> tuple[str, DType]:
        """The name and type of the tile that goes on from part to part, over the axes `loops` from
        term to term; it has a name of its own where its type is another than that of the result."""
        wide = self.doubles.type_of(held, loops)
        same = wide is held.dtype
        return held.name if same else self.name(scope, f"{held.name}_{wide.value}"), wide

    def rounded(self, scope: Body, name: str, held: Pass | Running, dims: Dims) -> None:
        """Write the tile `name` of `carried` as the result, in the type of that."""
        if name != held.name:
            dtype = spelled(held.dtype)
            scope.say(f'{held.name} = alloc([{width(dims)}]{dtype}, llm_hint=["fastest"])')
            scope.say(f"cast({name}, {held.name})")

    def cut(self, over: Sequence[Axis]) -> tuple[Lanes | None, list[Axis]]:
        """The lanes that a pass over `over` has across a row, None where rows lie side by side; and
        the axes that it runs through one index after the other."""
        wide = [axis for axis in over if axis.name not in self.windows]
        along = self.lanes(self.longest(wide)) if self.beside is None and wide else None
        return along, [axis for axis in over if along is None or axis != along.axis]

    def in_turns(self, over: Sequence[Axis]) -> bool:
        """Whether a pass over `over` is a loop: a row that is one tile, or one term, is none."""
        along, loops = self.cut(over)
        return bool(loops) or (along is not None and along.size is not None)

    def combined(
        self,
        inner: Body,
        operation: str,
        operand: str,
        total: tuple[str, DType],
        own: Dims,
        dims: Dims,
    ) -> None:
        """Write that a tile along `own` is combined with the result so far, of the name and type
        `total`, along `dims`; of a row's block, first its lanes with each other."""
        name, dtype = total
        if own != dims:
            block = self.name(inner, "block")
            inner.say(f'{block} = alloc([{width(dims)}]{spelled(dtype)}, llm_hint=["fastest"])')
            inner.say(f"reduce_{operation}({operand}, 0, {block})")
            operand = block
        inner.say(f"{COMBINES[operation]}({name}, {operand}, {name})")

    def turns(
        self, scope: Body, over: Sequence[Axis], dims: Dims, part: Axis | None = None
    ) -> Iterator[tuple[Body, Dims]]:
        """The bodies for the statements of one pass over the axes `over` of rows along `dims`, with
        the axes of their tiles: that of the loop which `opened` opens, and before it that of the
        row's first block where the phase keeps it."""
        along, loops = self.cut(over)
        own = dims if along is None else (along,)
        if self.kept is None:
            yield self.opened(scope, loops, along, part=part), own
            return
        first = Lanes(over[0], self.kept.first, first=True)
        self.block_body = scope.beside(first.names, self.block_body)
        yield self.block_body, (first, *dims)
        scope.finished()
        start = self.kept.first if along is None else f"{self.kept.first}//{along.size}"
        start = "1" if along is not None and along.size == self.kept.first else start
        yield self.opened(scope, loops, along, start=f"{start}, "), own

    def opened(
        self,
        scope: Body,
        loops: Sequence[Axis],
        along: Lanes | None,
        count: str = "",
        part: Axis | None = None,
        start: str = "",
        backwards: bool = False,
    ) -> Body:
        """Open loops of one program over `loops`, then tiles of `along`, the first `count` of them
        or all, or those from `start` on; returns the inner body. `part`: the outermost loop runs
        through every n-th turn of its own, where n is the extent of `part`, from the number of that
        on. `backwards`: the innermost loop runs from its end."""
        inner = scope
        start, step = (start, "") if part is None else (f"{part.name}, ", f", {show(part.extent)}")
        for axis in loops:
            turned = backwards and along is None and axis == loops[-1]
            variable = f"{axis.name}_turn" if turned else axis.name
            head = f"for {variable} in range({start}{show(axis.extent)}{step}):"
            ahead = along is None and axis == loops[-1] and axis.name not in self.windows
            if ahead and self.kept is None:  # what is left of a block is little, or nothing
                inner = inner.inner(axis.name, "", PIPELINE, head, in_loop=True)
            else:
                inner = inner.inner(axis.name, head, in_loop=True)
            if turned:
                inner.say(f"{axis.name} = {show(axis.extent)} - 1 - {variable}")
            start = step = ""
        if along is not None and along.size is not None:
            variable = f"{along.axis.name}_turn" if backwards else along.variable
            head = f"for {variable} in range({start}{count or along.count}{step}):"
            hint = [PIPELINE] if self.kept is None else []
            inner = inner.inner(along.variable, "", *hint, head, in_loop=True)
            if backwards:
                inner.say(f"{along.variable} = {along.count} - 1 - {variable}")
        if along is not None:
            inner.bound |= along.names
        return inner

    def result(self, scope: Body, dims: Dims) -> None:
        """Write the last pass: each element of the row."""
        phase = self.phase
        if phase.passes and phase.columns:
            for inner, own in self.turns(scope, phase.columns, dims):
                self.element(inner, own)
        else:
            self.element(scope, dims)

    def element(self, scope: Body, dims: Dims) -> None:
        """Write that the elements of one tile are computed and stored."""
        phase = self.phase
        tile = self.evaluated(scope, phase.result, dims, infix=True)
        target = self.access(scope, Element(phase.target, phase.place, phase.dtype), dims)
        moved = isinstance(phase.fold, Ranked) and phase.fold.name in names_in(phase.place)
        scope.say(f"store({tile} -> {target}{PERMUTED if moved else ''})")

    # ------------------------------------------------------------ scalars

    def evaluated(
        self,
        scope: Body,
        scalar: Scalar,
        dims: Dims,
        *,
        infix: bool = False,
        then: Sequence[Scalar] = (),
    ) -> str:
        """The name of a tile along all of `dims` with a scalar; `infix`: or such an expression.
        `then`: what is computed after it for the same statement."""
        self.uses = _uses(scalar, *then)
        self.tile_of = None if infix else scalar
        operand = self.operand(scope, scalar, dims)
        if not isinstance(scalar, Number) and self.along_tile(scalar, dims) == dims:
            return operand
        name = self.alloc(scope, "value", scalar.dtype, width(dims))
        filled = isinstance(scalar, Number) and not self.along_tile(scalar, dims)
        scope.say(f"{'fill' if filled else 'copy'}({operand}, {name})")
        return name

    def along_tile(self, scalar: Scalar, dims: Dims) -> Dims:
        """The axes, of those of the tile, along which a scalar differs."""
        used = names_below(scalar)
        held = self.beside or self.phase.fold
        if held and any(e.source in self.passes for e in elements(scalar)):
            if self.kept is None or self.beside is None:
                return dims
            used = used | {self.beside.name}
        return tuple(each for each in dims if each.names & used)

    def operand(self, scope: Body, scalar: Scalar, dims: Dims, beside: Dims = ()) -> str:
        """The text of a scalar as an argument of a call; statements that compute it are added to
        the outermost body in which they can stand."""
        return show(self.value(scope, scalar, dims, beside))

    def value(self, scope: Body, scalar: Scalar, dims: Dims, beside: Dims = ()) -> ir.Expr:
        """What `operand` gives, as an expression beside others along `beside`: tiles are names."""
        if isinstance(scalar, Number):
            if not self.is_narrow(scalar):
                return self.number(scope, scalar, beside or dims)
            scalar = Apply("cast", (attrs.evolve(scalar, dtype=DType.I64),), scalar.dtype)
        own = self.along_tile(scalar, dims)
        if isinstance(scalar, Element) and scalar.source in self.passes:
            return named(scalar.source + shaped(own, beside or own))
        where = scope.of(self.follows(scalar))
        if scalar not in where.held:
            match scalar:
                case Apply("cast", (Element(name) as source,)) if (
                    name not in self.passes and _widens(source, scalar)
                ):
                    where.held[scalar] = self.loaded(where, source, dims, scalar.dtype)
                case Element():
                    where.held[scalar] = self.loaded(where, scalar, dims, scalar.dtype)
                case Apply():
                    # What a loop does not change, or fewer lanes have, is computed once.
                    here = where is scope and own == (beside or own)
                    found = self.applied(where, scalar, dims, infix=here)
                    if isinstance(found, ir.Expr):
                        return found
                    where.held[scalar] = found
        return named(where.held[scalar] + shaped(own, beside or own))

    def follows(self, scalar: Scalar) -> set[str]:
        """The axes on which the value of a scalar depends, those of a fold's tile among them."""
        found = names_below(scalar) & self.axes.keys()
        sources = (e.source for e in elements(scalar)) if self.varies else ()
        return found.union(*(self.varies.get(source, ()) for source in sources))

    def is_narrow(self, number: Number) -> bool:
        """Whether a number is a formula over indices, whose values have 64 bits in a sketch, in
        integers of fewer."""
        narrow = number.dtype.is_integer and number.dtype is not DType.I64
        return narrow and bool(names_below(number) & self.axes.keys())

    def number(self, scope: Body, number: Number, dims: Dims) -> ir.Expr:
        """A number as an expression, with lane indices where it depends on axes."""
        value = number.value
        if not isinstance(value, ir.Expr):
            return named(number_text(value))
        if not names(value) & self.axes.keys():
            return value
        return substitute(value, self.bindings(scope, [value], dims))

    def loaded(self, scope: Body, element: Element, dims: Dims, dtype: DType) -> str:
        """Write the load of an element, as `dtype`; returns the name of the tile."""
        own = self.along_tile(element, dims)
        base = self.phases.views.get(element.source, element.source).lower()
        base = f"{base}_block" if base in self.axes else base  # a loop may be called so
        # A tile of no type takes the tensor's.
        told = f", {dtype.value}" if dtype is not element.dtype else spelled(dtype)
        hint = '"fast", "input_cache"'
        name = self.name(scope, base)
        turned = self.turned is not None and len(own) == 2 and _is_turned(element, own)
        own = own[::-1] if turned else own
        scope.say(f"{name} = alloc([{width(own)}]{told}, llm_hint=[{hint}])")
        pad = ""
        if element.pad is not None:
            pad = f", pad={number_text(element.pad)}"
        if element.where is not None:
            shown = substitute(element.where, self.bindings(scope, [element.where], own))
            pad += f", where={show(shown)}"
        scope.say(f"load({self.access(scope, element, own)} -> {name}{pad})")
        if not turned:
            return name
        other = self.alloc(scope, f"{base}_turned", dtype, width(own[::-1]))
        scope.say(f"transpose({name}, {other})")
        return other

    def applied(self, scope: Body, scalar: Apply, dims: Dims, *, infix: bool) -> str | ir.Expr:
        """An operation as an expression, where it is short and used once; else the name of the tile
        that a call writes: of an operand that nobody else needs, where there is one."""
        wide = self.along_tile(scalar, dims)
        operands = [self.value(scope, each, dims, wide) for each in operands_of(scalar)]
        alone = self.uses_of(scope, scalar) == 1 and scalar != self.tile_of
        if infix and alone and in_one_type(scalar):
            found = in_expression(scalar, operands)
            if _length(show(found)) <= _LONGEST:
                return found
        name = next(self.spare(scope, scalar, scalar.dtype, wide, dims), None)
        if name is None:
            name = self.alloc(scope, noun(scalar), scalar.dtype, width(wide))
        scope.say(call(scalar, [*map(show, operands), name]))
        return name

    def uses_of(self, scope: Body, part: Scalar) -> int:
        """How often a scalar that is computed in a body is used: in a loop's body by what is being
        written, in the body of a row by all that the phase computes."""
        return (self.uses if scope.in_loop and not scope.once else self.all_uses)[part]

    def spare(
        self, scope: Body, scalar: Apply, dtype: DType, wide: Dims, dims: Dims
    ) -> Iterator[str]:
        """The tiles of type `dtype` along `wide` that an operation reads, and nothing after it."""
        for each in scalar.operands:
            if self.uses_of(scope, each) != 1 or isinstance(each, Number):
                continue
            name = scope.held.get(each)
            if name is None and isinstance(each, Apply):
                yield from self.spare(scope, each, dtype, wide, dims)
            elif name is None or name in self.passes or each.dtype is not dtype:
                continue
            elif self.along_tile(each, dims) == wide:
                yield name

    def alloc(self, scope: Body, wanted: str, dtype: DType, width: str) -> str:
        """Write a new tile of no value yet; returns its name, `wanted` if that is free."""
        name = self.name(scope, wanted)
        scope.say(f'{name} = alloc([{width}]{spelled(dtype)}, llm_hint=["fastest"])')
        return name

    def name(self, scope: Body, wanted: str) -> str:
        """A name that is free in this body and those around it; in the body of a row, also in the
        loops so far."""
        taken = scope.names if scope.in_loop else self.used
        found = free_name(wanted, taken | self.taken)
        self.used.add(found)
        scope.named.add(found)
        return found

    # ------------------------------------------------------------ accesses

    def access(self, scope: Body, element: Element, dims: Dims) -> str:
        """`X[i, j*T:(j+1)*T]`: slices where each axis of the tile is linear in one subscript, and
        they come in order; else lanes by their indices."""
        shape = self.phases.shapes[element.source]
        index = list(element.index)
        if element.pad is not None or self.phase.clipped:
            index = [self.inside(e, x, dims) for e, x in zip(index, shape, strict=True)]
        if element.where is not None:  # whose lanes are those of the subscripts
            left = names(element.where) - names_in(index)
            for lanes in (each for each in dims if each.names & left):
                along = ir.Binary("*", ir.Literal(0), lanes.axis.ref)
                index[-1] = ir.Binary("+", index[-1], along)
        fetched: dict[str, ir.Expr] = {}
        for name, value in element.fetched:
            tile = self.operand(scope, value, dims, dims)
            fetched[name] = ir.Ref(tile, ir.NameKind.BINDING)
        used = [each for each in dims if each.names & names_in(index)]
        held = [[n for n, e in enumerate(index) if d.names & names(e)] for d in used]
        steps = [step_in(index[n[0]], d, used) for n, d in zip(held, used, strict=True)]
        sliced = sorted(held) == held and all(len(n) == 1 for n in held) and all(steps)
        if sliced and not fetched and not any(_IOTA in names(e) for e in index):
            shown = [show(each) for each in index]
            for (place,), lanes, line in zip(held, used, steps, strict=True):
                assert line is not None
                shown[place] = self.slice(line, lanes, shape[place])
            return f"{element.source}[{', '.join(shown)}]"
        replaced = {**self.bindings(scope, index, dims), **fetched}
        return f"{element.source}[{listed([substitute(each, replaced) for each in index])}]"

    def inside(self, index: ir.Expr, extent: ir.Expr, dims: Dims) -> ir.Expr:
        """The subscript `index`; one that may lie outside of `extent` and is the same for all lanes
        becomes one of lane indices."""
        varies = any(each.names & names(index) for each in dims)
        if varies or below(index, extent, self.axes):
            return index
        return ir.Binary("+", index, ir.Ref(_IOTA, ir.NameKind.BINDING))

    def bindings(self, scope: Body, index: Sequence[ir.Expr], dims: Dims) -> dict[str, ir.Expr]:
        """The lane indices of each axis in the subscripts, shaped as axes of the tile `dims`."""
        found: dict[str, ir.Expr] = {}
        used = names_in(index)
        for lanes in (each for each in dims if each.names & used):
            where = scope.of(lanes.names)
            if lanes.axis.name not in where.lanes:
                self.bind(where, lanes)
            shape = shaped((lanes,), dims)
            for name in lanes.names:
                found[name] = ir.Ref(where.lanes[name] + shape, ir.NameKind.BINDING)
        return found

    def bind(self, scope: Body, lanes: Lanes) -> None:
        """Write tiles of the indices of lanes, and of their digits."""
        axis = lanes.axis.name
        whole = self.name(scope, axis if lanes.digits else f"{axis}_lane")
        scope.lanes[axis] = whole
        scope.say(f"{whole} = iota({lanes.tile}, {lanes.start}, {show(lanes.axis.extent)})")
        number = {axis: ir.Ref(whole, ir.NameKind.BINDING)}
        for digit, value in lanes.digits:
            scope.lanes[digit.name] = self.name(scope, digit.name)
            scope.say(f"{scope.lanes[digit.name]} = {show(substitute(value, number))}")

    def slice(self, line: tuple[int, ir.Expr], lanes: Lanes, extent: ir.Expr) -> str:
        """The slice of a subscript that is linear, as `line` says, in the axis of `lanes`."""
        step, rest = line
        tile: ir.Expr = ir.Literal(0)
        size: ir.Expr = lanes.axis.extent
        if lanes.size is not None:
            size = ir.Ref(lanes.size, ir.NameKind.CONSTANT)
        if lanes.size is not None and not lanes.first:
            tile = ir.Ref(lanes.variable, ir.NameKind.LOOP)

        def end(turn: ir.Expr) -> ir.Expr:
            place = ir.Binary("*", ir.Binary("*", turn, size), ir.Literal(step))
            if rest == ir.Literal(0):
                return place
            return ir.Binary("+", rest, place)

        first = end(tile)
        last = end(ir.Binary("+", tile, ir.Literal(1)))
        if lanes.size is None or lanes.first:
            first, last = symbolic.simplify(first), symbolic.simplify(last)
        stays = symbolic.equal(ir.Binary("*", ir.Literal(step), lanes.axis.extent), extent)
        cut = lanes.size is not None and not (rest == ir.Literal(0) and stays)
        if cut and step > 0:
            whole = ir.Binary("*", ir.Literal(step), lanes.axis.extent)
            last = ir.Binary("min", last, symbolic.simplify(ir.Binary("+", rest, whole)))
        ends = f"{_plain(first)}:{_plain(last)}"
        return ends if step == 1 else f"{ends}:{step}"


#: The lane index 0, which makes a subscript that it is added to one of lane indices.
_IOTA = "iota(1)"


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
