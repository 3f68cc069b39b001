"""Which outcomes of comparisons runs see, on the way to the accesses of a claim; which loops run
twice; and which tiles are followed by a second one and by a ragged tail.

`min(GM, G)` is right for `min(GM - first, G)` while GM is no more than G, and `p % 27` for
`p % OD` while OD is no more than 27. So what `min`, `max`, `//`, `%`, `ceil` and comparisons
compare should be in either order in some run, a loop should have no, one and several iterations,
and whole and ragged tiles. Which outcomes sizes of any magnitude show is seen without running: one
iteration and one lane after the other is drawn, and the names on the way get their values.

A loop that is cut to one iteration is right at all sizes at which it has no other, and a tile that
forgets its neighbours where it has none. So a run shows something of a loop where that has two
iterations, and of a tile where the axis that it runs along goes on behind it, by a part of a tile.
The axis is seen apart from the loop, since what is wrong may be the loop. One more element behind
4096 is no second tile yet: a maximum rarely lies there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.checker.facts import (
    Branch,
    Computation,
    Site,
    Step,
    accessed,
    budget,
    collect,
    concrete,
    placed,
    root_scope,
)
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import BINARY, FUNCTION, Value
from sketchc.ir.show import show
from sketchc.ir.symbolic import OPPOSITE
from sketchc.ir.walk import has_lanes, names, own_axes

#: Which comparison, and how it came out.
Outcome: TypeAlias = tuple[int, str]

#: Iterations and lanes drawn at one setting: to choose it, and to see what a run there saw.
DRAWN = 10
SEEN = 40

#: The outcome of a last tile that leaves out what comes after it.
ENDS_BEFORE = "ends before"


class Unknown(Exception):
    """A value that is not known without data, or a lane or iteration that does not exist."""


#: The value of an expression at one lane of a draw.
_Evaluator: TypeAlias = "Callable[[Draw, tuple[int, ...]], Value]"

#: Operators whose operands are compared.
COMPARING = {"min", "max", "//", "%", "cdiv", *OPPOSITE}

NO_VALUE = (Unknown, KeyError, ArithmeticError, ValueError, InternalError)


@records.define(eq=False)
class Draw:
    """One iteration and lane on the way to a site: the first, the last or any of each."""

    crossings: Crossings
    values: dict[str, Value]
    random: random.Random
    draw: int
    found: set[Outcome]
    trips: dict[int, tuple[range, int]]  # of loops that are the same in all draws, with the work
    ways: dict[tuple[int, ...], int]  # sites with iterations that a draw took before: the work
    spots: list[int] = records.field(factory=list)  # which iterations these are, so far
    lanes: dict[str, ir.Expr] = records.field(factory=dict)  # names of index tiles
    last: bool = True  # in the last iteration of all loops so far
    work: int = 0

    def site(self, site: Site, used: Collection[str]) -> None:
        """Draw the steps to a site, then its access; of bound names, only those in `used`."""
        try:
            self.path(site.path, used)
            extents = [int(self.value(extent, ())) for extent in site.tile.extents]
            lanes = tuple(self.place(extent) for extent in extents)
        except NO_VALUE:
            return
        if id(site) not in self.crossings.alike:
            self.access(site, extents, lanes)
            return
        way = (id(site), *self.spots)
        work = self.ways.get(way)
        if work is None:
            before = self.work
            self.access(site, extents, lanes)
            self.ways[way] = self.work - before
        else:
            self.work += work

    def computation(self, computation: Computation, used: Collection[str]) -> None:
        """Draw the steps that lead to a computation, then what it computes from indices."""
        try:
            self.path(computation.path, used)
            for operand in computation.statement.operands:
                match operand:
                    case ir.IndexOperand(value, extents=extents):
                        sizes = [int(self.value(extent, ())) for extent in extents]
                        self.known(value, tuple(self.place(size) for size in sizes))
                    case ir.ScalarOperand(value):
                        self.known(value, ())
                    case ir.TileOperand():
                        pass
                    case _:
                        assert_never(operand)
        except NO_VALUE:
            return

    def path(self, steps: Sequence[Step], used: Collection[str]) -> None:
        """Draw one way along these steps; of bound names, only those in `used`."""
        for let in self.crossings.sketch.lets:
            if let.name in used:
                self.known(let.value, ())
        for step in steps:
            if not isinstance(step, ir.Bind) or step.name in used:
                self.step(step)

    def place(self, count: int) -> int:
        """One of `count` places: the first in draw 0, the last in draw 1, then any."""
        if count <= 0:
            raise Unknown
        kind = self.draw if self.draw < 2 else self.random.randrange(4)
        return 0 if kind == 0 else count - 1 if kind == 1 else self.random.randrange(count)

    def step(self, step: Step) -> None:
        """Take one step: its names get values; raises `Unknown` for a branch that is not taken."""
        match step:
            case ir.For() | ir.HostFor():
                self.loop(step)
            case ir.Bind(name, value):
                self.values.pop(name, None)
                self.lanes.pop(name, None)
                if has_lanes(value, self.lanes):
                    self.lanes[name] = value
                elif (known := self.known(value, ())) is not None:
                    self.values[name] = known
            case ir.Fetch(name):
                self.values.pop(name, None)
            case Branch(condition, holds):
                known = self.known(condition, ())
                if known is not None:
                    self.crossings.note(self.found, condition, str(bool(known)))
                if known is not None and bool(known) != holds:
                    raise Unknown
            case _:
                assert_never(step)

    def loop(self, loop: ir.For | ir.HostFor) -> None:
        """Draw an iteration of a loop."""
        trips, work = self.trips.get(id(loop)) or self.head(loop)
        self.work += work
        spot = self.place(len(trips))
        self.spots.append(spot)
        self.last = self.last and spot == len(trips) - 1
        self.values[loop.variable] = trips[spot]

    def head(self, loop: ir.For | ir.HostFor) -> tuple[range, int]:
        """The iterations of a loop, and the work still to be counted; notes how often the loop
        runs. The iterations are kept for all draws where the launch alone decides them."""
        before = self.work
        start, stop, step = (int(self.value(e, ())) for e in (loop.start, loop.stop, loop.step))
        if step == 0:
            raise Unknown
        trips = range(start, stop, step)
        count = len(trips)
        self.crossings.note(self.found, loop, f"{min(count, 2)} iterations")
        if count and abs(step) > 1:
            self.rest(loop, abs(stop - start), abs(step))
        if id(loop) in self.crossings.steady:
            self.trips[id(loop)] = (trips, self.work - before)
        return trips, 0

    def rest(self, node: object, length: int, step: int) -> None:
        """Note whether a length is a multiple of a step, one more or one less."""
        rest, several = length % step, "several" if length >= step else "one"
        if rest in (0, 1, step - 1):
            word = "more" if rest == 1 else "whole" if rest == 0 else "less"
            self.crossings.note(self.found, node, f"{several}, {word}")

    def access(self, site: Site, extents: Sequence[int], lanes: tuple[int, ...]) -> None:
        """Note what a site accesses at one lane of its tile."""
        axes = iter(range(len(extents)))
        shape = self.crossings.shapes.get(site.access.tensor, site.tensor.extents)
        for place, subscript in enumerate(site.access.subscripts):
            match subscript:  # the commonest first
                case ir.SliceSubscript(lower, upper, _, step):
                    low, high = self.known(lower, ()), self.known(upper, ())
                    if low is not None and high is not None:
                        self.inside(subscript, lower, int(low), int(high), shape[place])
                    self.known(step, ())
                    axis = next(axes, None)
                    if low is not None and high is not None and axis is not None:
                        fits = "short" if high - low < extents[axis] else "whole"
                        self.crossings.note(self.found, subscript, fits)
                        self.end(subscript, int(high), shape[place], False)
                    if axis is not None:
                        self.slice(site, subscript, place, axis)
                case ir.ScalarSubscript(index):
                    self.known(index, ())
                case ir.IndexSubscript(value, axis=axis):
                    at = self.known(value, lanes)
                    if at is not None:
                        self.inside(subscript, value, int(at), int(at) + 1, shape[place])
                    if axis is not None:
                        next(axes, None)
                case _:
                    assert_never(subscript)
        if not isinstance(site.statement, ir.Fetch) and site.statement.where is not None:
            self.known(site.statement.where, lanes)

    def slice(self, site: Site, subscript: ir.SliceSubscript, place: int, axis: int) -> None:
        """Look at a slice of dimension `place` along one axis of the tile; for subclasses."""

    def inside(self, node: object, lower: ir.Expr, low: int, high: int, extent: ir.Expr) -> None:
        """Note that part of what is accessed along an axis exists: runs in which nothing is read or
        written show nothing of it."""
        known = self.known(extent, ())
        if known is None or max(low, 0) >= min(high, known):
            return
        if (id(node), "inside") not in self.found:
            text = show(ir.Binary("<", lower, extent))
            self.crossings.note(self.found, node, "inside", text)

    # ------------------------------------------------------------ values

    def known(self, expression: ir.Expr, lanes: tuple[int, ...]) -> Value | None:
        """The value of an expression; None where it has none, or data decides it."""
        try:
            return self.value(expression, lanes)
        except NO_VALUE:
            return None

    def value(self, expression: ir.Expr, lanes: tuple[int, ...]) -> Value:
        """The value of an expression at one lane; raises one of `NO_VALUE` where it has none."""
        known = self.crossings.evaluators.get(id(expression))
        return (known[1] if known else self.crossings.evaluator(expression))(self, lanes)

    def iota(
        self, extent: ir.Expr, lower: ir.Expr, upper: ir.Expr | None, lanes: tuple[int, ...]
    ) -> Value:
        """The index at one lane; `Unknown` for a lane that is not valid."""
        count = int(self.value(extent, ()))
        lane = lanes[-1] if lanes and count > 1 else 0
        start = int(self.value(lower, ()))
        found = start + lane
        if upper is not None:
            self.end(upper, start + count, upper, True)
        if lane >= count or (upper is not None and found >= self.value(upper, ())):
            raise Unknown
        return found

    def end(self, node: object, end: int, bound: ir.Expr, needed: bool) -> None:
        """Note whether the last tile ends before its bound, at it, or after it. With `needed`, a
        claim may need the first: not of slices, as a window with long steps leaves a rest."""
        if not (self.crossings.ends and self.last):
            return
        known = self.known(bound, ())
        if known is None:
            return
        word = ENDS_BEFORE if end < known else "ends at" if end == known else "ends after"
        text = f"a last tile that ends before `{show(bound)}`" if needed and end < known else ""
        self.crossings.note(self.found, node, word, text)

    def compared(self, node: ir.Binary, left: Value, right: Value, result: Value) -> None:
        """Note how an operation came out that compares its operands."""
        match node.operator:
            case "min" | "max":
                if 1 < right <= left:
                    self.rest(node, int(left), int(right))
                self.order(node, "<" if left < right else ">" if left > right else "==")
                self.apart(node, left, right)
            case "//" | "%" if right > 0:
                self.order(node, "<" if left < right else ">=")
                self.quotient(node, int(left), int(right))
            case "cdiv" if right > 0:
                self.order(node, "<=" if left <= right else ">")
                self.quotient(node, int(left), int(right))
            case operator if operator in OPPOSITE:
                self.order(node, operator if result else OPPOSITE[operator])
                self.apart(node, left, right)

    def order(self, node: ir.Binary, word: str) -> None:
        """Note the order of two operands; a claim needs no equal ones of `min` and `max`."""
        if (id(node), word) not in self.found:
            plain = word == "==" and node.operator in ("min", "max")
            text = "" if plain else show(ir.Binary(word, node.left, node.right))
            self.crossings.note(self.found, node, word, text)

    def apart(self, node: ir.Binary, left: Value, right: Value) -> None:
        """Note that one side is twice the other: a tile may hide what lies between."""
        if 0 < 2 * left <= right or 0 < 2 * right <= left:
            self.crossings.note(self.found, node, "far less" if left < right else "far more")

    def quotient(self, node: ir.Binary, left: int, right: int) -> None:
        """Note how often a divisor goes into a number, and what is left."""
        if left >= 2 * right:
            self.crossings.note(self.found, node, "twice")
        if 1 < right <= left:
            self.rest(node, left, right)


def _evaluator(expression: ir.Expr) -> _Evaluator:
    """The function that gives the value of an expression at one lane, counts the work, and notes
    the outcomes of comparisons."""
    match expression:
        case ir.Literal(constant):

            def literal(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                return constant

            return literal
        case ir.Ref(name, layout=layout):

            def reference(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                if name in draw.lanes:
                    return draw.value(draw.lanes[name], own_axes(lanes, layout))
                return draw.values[name]

            return reference
        case ir.Unary(operator, operand):
            inner = _evaluator(operand)

            def unary(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                value = inner(draw, lanes)
                return -value if operator == "-" else not value

            return unary
        case ir.Binary():
            return _binary_evaluator(expression)
        case ir.Choice(condition, then, otherwise):
            test, one, other = map(_evaluator, (condition, then, otherwise))

            def choice(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                return (one if test(draw, lanes) else other)(draw, lanes)

            return choice
        case ir.Function(name, arguments):
            parts = [_evaluator(argument) for argument in arguments]

            def function(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                return FUNCTION[name](*[part(draw, lanes) for part in parts])

            return function
        case ir.Iota(extent, lower, upper, layout):

            def iota(draw: Draw, lanes: tuple[int, ...]) -> Value:
                draw.work += 1
                return draw.iota(extent, lower, upper, own_axes(lanes, layout))

            return iota
        case ir.TileLanes():
            return _unknown
        case _:
            assert_never(expression)


def _unknown(draw: Draw, lanes: tuple[int, ...]) -> Value:
    draw.work += 1
    raise Unknown


def _binary_evaluator(node: ir.Binary) -> _Evaluator:
    left, right = _evaluator(node.left), _evaluator(node.right)
    compares = node.operator in COMPARING

    def junction(draw: Draw, lanes: tuple[int, ...]) -> Value:
        draw.work += 1
        one = bool(left(draw, lanes))
        return bool(right(draw, lanes)) if one == (node.operator == "and") else one

    def joined(draw: Draw, lanes: tuple[int, ...]) -> Value:
        draw.work += 1
        one, other = left(draw, lanes), right(draw, lanes)
        result = operation(one, other)
        if compares:
            draw.compared(node, one, other, result)
        return result

    operation = BINARY[node.operator]
    return junction if node.operator in ("and", "or") else joined


class Crossings:
    """Comparisons on the way to some sites, and how they come out at settings."""

    draw_type: ClassVar = Draw  # what draws one iteration and lane

    def __init__(
        self,
        sketch: ir.Sketch,
        sites: Sequence[Site],
        ends: bool = False,
        computed: Sequence[Computation] = (),
    ) -> None:
        """`ends`: also notes how the last tiles end, before or after their bounds; the elements
        that they leave out there depend on their size. `computed`: computations whose comparisons
        are noted, too, on the way to them and in what they compute from indices."""
        self.sketch = sketch
        self.ends = ends
        self.shapes = {view.name: view.extents for view in sketch.views}
        self.sites = [(s, _used(sketch, s)) for s in _distinct(sites)]
        self.computed = [(c, _used(sketch, c)) for c in computed if _tells(c)]
        shapes = (extent for site, _ in self.sites for extent in site.tensor.extents)
        used = (names for _, names in (*self.sites, *self.computed))
        self.names = concrete.with_lets(sketch, frozenset().union(*used, *map(names, shapes)))
        #: Sites of which all lanes show the same.
        self.alike = frozenset(id(site) for site, _ in self.sites if _alike(site))
        #: Loops that run alike in all draws of one launch.
        self.steady = _steady([*self.sites, *self.computed])
        #: The outcomes that runs must see before a claim rests on them, each as text.
        self.needed: dict[Outcome, str] = {}
        self.nodes: list[object] = []  # keeps the ids in outcomes from being used again
        self.evaluators: dict[int, tuple[ir.Expr, _Evaluator]] = {}

    def at(self, host: Mapping[str, Value], draws: int) -> frozenset[Outcome]:
        """How comparisons come out at some of the iterations and lanes of a launch."""
        generator = random.Random(0)
        found: set[Outcome] = set()
        trips: dict[int, tuple[range, int]] = {}
        ways: dict[tuple[int, ...], int] = {}
        for draw in range(draws):
            ends: list[tuple[Site | Computation, frozenset[str]]] = [*self.sites, *self.computed]
            for end, used in ends:
                drawn = self.draw_type(self, dict(host), generator, draw, found, trips, ways)
                if isinstance(end, Site):
                    drawn.site(end, used)
                else:
                    drawn.computation(end, used)
                budget.spend(drawn.work)
        return frozenset(found)

    def evaluator(self, expression: ir.Expr) -> _Evaluator:
        """The evaluator of an expression, made once: draws ask for the same ones many times."""
        found = _evaluator(expression)
        self.evaluators[id(expression)] = (expression, found)
        return found

    def note(self, found: set[Outcome], node: object, word: str, text: str = "") -> None:
        """Note the outcome of a comparison; with a text where a claim needs it."""
        outcome = (id(node), word)
        if outcome not in found:
            found.add(outcome)
            self.nodes.append(node)
            if text:
                self.needed[outcome] = text


def _alike(site: Site) -> bool:
    """Whether all lanes of an access show the same: scalars, slices of step 1, and no `where=`."""
    masked = not isinstance(site.statement, ir.Fetch) and site.statement.where is not None
    return walk.is_plain(site.access) and not masked


def _steady(places: Sequence[tuple[Site | Computation, frozenset[str]]]) -> frozenset[int]:
    """The loops, by identity, whose heads use nothing that is bound on the way to some place."""
    steps = {id(step): step for place, _ in places for step in place.path}
    loops = [step for step in steps.values() if isinstance(step, ir.For | ir.HostFor)]
    bound = {step.name for step in steps.values() if isinstance(step, ir.Bind | ir.Fetch)}
    bound |= {loop.variable for loop in loops}
    return frozenset(
        id(loop)
        for loop in loops
        if bound.isdisjoint(names(loop.start) | names(loop.stop) | names(loop.step))
    )


def _distinct(sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites without those whose access and path equal those of an earlier one."""
    seen: dict[tuple[object, ...], Site] = {}
    for site in sites:
        ways = tuple(
            id(s) if not isinstance(s, Branch) else (id(s.condition), s.holds) for s in site.path
        )
        seen.setdefault((ways, site.access, site.tile.extents), site)
    return tuple(seen.values())


def _tells(computation: Computation) -> bool:
    """Whether a computation computes with indices, beyond reading names of them, or stands in a
    branch."""
    return any(isinstance(step, Branch) for step in computation.path) or not all(
        isinstance(operand, ir.TileOperand) or isinstance(operand.value, ir.Ref | ir.Literal)
        for operand in computation.statement.operands
    )


def _used(sketch: ir.Sketch, place: Site | Computation) -> frozenset[str]:
    """The names that decide whether a place is reached, and what is read there."""
    used: set[str] = set().union(*map(names, accessed(place)))
    for step in reversed(place.path):
        if isinstance(step, ir.Bind) and step.name in used:
            used |= names(step.value)
    return concrete.with_lets(sketch, used)


#: Iterations looked at: the first of all loops, the last, and others (of a triangle).
_LOOKED = 6

AGAIN, SECOND, TAIL = "a second iteration", "a second tile", "a ragged tail"


@records.frozen
class Mark:
    """Something that a run may reach, as text: `what` of `where`. Equal marks of one sketch at
    different tile sizes are equal."""

    where: str
    what: str

    @property
    def text(self) -> str:
        """The mark as one text."""
        return f"{self.what} of {self.where}"


class _TileDraw(Draw):
    """Notes marks on its way to a site."""

    crossings: TileCrossings

    def mark(self, where: str, what: str) -> None:
        self.crossings.marks.add(Mark(where, what))

    def loop(self, loop: ir.For | ir.HostFor) -> None:
        """Draw an iteration of a loop, and mark a loop that runs again."""
        start, stop, step = (self.known(e, ()) for e in (loop.start, loop.stop, loop.step))
        if start is not None and stop is not None and step:
            count = len(range(int(start), int(stop), int(step)))
            if count > 1:
                self.mark(f"the loop `{_head(loop)}`", AGAIN)
        super().loop(loop)

    def slice(self, site: Site, subscript: ir.SliceSubscript, place: int, axis: int) -> None:
        """In draw 0, mark what follows the first tile of an axis, which begins there."""
        if self.draw > 0:
            return
        extent = self.crossings.shapes.get(site.access.tensor, site.tensor.extents)[place]
        tile = site.tile.extents[axis]
        where = f"axis {place + 1} of {site.access.tensor} in tiles of {show(tile)}"
        bounds = (extent, *_bounds(subscript.upper))
        self.tiled(where, subscript.lower, bounds, tile, subscript.step)

    def iota(
        self, extent: ir.Expr, lower: ir.Expr, upper: ir.Expr | None, lanes: tuple[int, ...]
    ) -> Value:
        """The index at one lane; in the first draw, marks what follows the first tile."""
        if self.draw == 0 and upper is not None:
            where = f"`{show(upper)}` in tiles of {show(extent)}"
            self.tiled(where, lower, (upper, *_bounds(upper)), extent, ir.Literal(1))
        return super().iota(extent, lower, upper, lanes)

    def tiled(
        self,
        where: str,
        lower: ir.Expr,
        bounds: Sequence[ir.Expr],
        tile: ir.Expr,
        step: ir.Expr,
    ) -> None:
        """Mark what follows a tile that begins at `lower`, up to each of the bounds."""
        try:
            start, width, by = (int(self.value(e, ())) for e in (lower, tile, step))
        except NO_VALUE:
            return
        for bound in bounds:
            end = self.known(bound, ())
            length = 0 if end is None else -(-(int(end) - start) // max(by, 1))
            if by >= 1 and width >= 1 and length >= 1:
                axes = self.crossings.axes
                axes[where] = max((length, width), axes.get(where, (0, 0)))
                for what in behind(length, width):
                    self.mark(where, what)


class TileCrossings(Crossings):
    """The loops and tiled axes of a sketch."""

    draw_type: ClassVar = _TileDraw

    def __init__(self, sketch: ir.Sketch) -> None:
        super().__init__(sketch, collect(sketch, root_scope(sketch)))
        #: The paths to loops without an access inside, which lie on the path to no site.
        self.bare = [
            (*path, statement)
            for statement, _, path, _ in placed(sketch, root_scope(sketch))
            if isinstance(statement, ir.For) and not _accesses(statement.body)
        ]
        self.marks: set[Mark] = set()
        #: The tiled axes of the last run: the longest that each was, and its tile.
        self.axes: dict[str, tuple[int, int]] = {}

    def reached(self, host: Mapping[str, Value]) -> frozenset[Mark]:
        """The marks that a run with these host scalars reaches."""
        self.marks, self.axes = set(), {}
        self.at(host, _LOOKED)
        generator = random.Random(0)
        for draw in range(_LOOKED):
            for way in self.bare:
                drawn = _TileDraw(self, dict(host), generator, draw, set(), {}, {})
                with suppress(*NO_VALUE):
                    for step in way:
                        drawn.step(step)
        return frozenset(self.marks)


def behind(length: int, width: int) -> Iterator[str]:
    """The marks `SECOND` and `TAIL`, where enough lies behind the first tile of an axis."""
    if 2 * length >= 3 * width and length > width:
        yield SECOND
        if 4 * (length % width) >= width:
            yield TAIL


def _accesses(body: tuple[ir.Statement, ...]) -> bool:
    moves = ir.Load | ir.Store | ir.Atomic | ir.Fetch
    return any(isinstance(statement, moves) for statement in walk.statements(body))


def _head(loop: ir.For | ir.HostFor) -> str:
    """The head of a loop as it is written, without the colon."""
    text = loop.text.strip().removesuffix(":")
    return text or f"for {loop.variable} in range({show(loop.start)}, {show(loop.stop)})"


def _bounds(upper: ir.Expr) -> tuple[ir.Expr, ...]:
    """The further bounds in the upper end of a slice: `H` in `min((j + 1)*T, H)`."""
    match upper:
        case ir.Binary("min", left, right):
            return (*_bounds(left), *_bounds(right))
        case ir.Binary() | ir.Unary() | ir.Function() | ir.Choice():
            return ()
        case _:
            return (upper,)
