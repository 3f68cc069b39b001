"""Every access of a sketch with where it stands, and the elements it touches as facts.

Conditions are alternatives here: `i < n or j == 0` as systems of affine facts, one of which holds.
`Scope.compare` gives what follows from a condition, which is all that a bound needs. Whether a
store under a condition covers an element needs the condition itself: here nothing is lost. A part
that is not affine becomes an atom of its own, the same one wherever it is written, so that the two
sides of an `if` on it exclude each other and leave nothing out.

Index tiles are written out (`lane_forms.pointwise`). Where quotients and remainders are taken of a
sum such as `i*T + lane`, the sum becomes one quantity: its digits are then those of one number, as
the digits of a loop variable are. Lanes that come from memory are opaque: a system with them proves
independence where it is without points whatever they are, and never coverage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.checker.facts.affine import ONE, Fact, Linear, add, constant, constant_value, relation
from sketchc.checker.facts.lane_forms import lane_facts, loaded_names, pointwise
from sketchc.checker.facts.scope import Branch, Scope, Step, host_path, is_float, phase_scope
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import BINARY
from sketchc.ir.show import show
from sketchc.ir.symbolic import OPPOSITE
from sketchc.ir.walk import element_indices, names, references


@records.frozen
class Site:
    """One load, store, atomic or fetch in a phase. `path` lists the steps that lead there (loops,
    branches, bindings, fetches), those of the host first, so that its scope can be made again under
    renamed loop variables. A fetch touches one element, as with a tile of rank 0."""

    statement: ir.Load | ir.Store | ir.Atomic | ir.Fetch
    tile: ir.Tile
    tensor: ir.Tensor
    path: tuple[Step, ...]
    scope: Scope
    phase: int
    host_steps: int = 0  # so many steps of the path are the host's

    @property
    def access(self) -> ir.Access:
        """The tensor that is accessed, and its subscripts."""
        return self.statement.access

    @property
    def stores(self) -> bool:
        """Whether memory is written: by a store or an atomic."""
        return isinstance(self.statement, ir.Store | ir.Atomic)

    @property
    def loads(self) -> bool:
        """Whether memory is read: an atomic does both."""
        return not isinstance(self.statement, ir.Store)

    @property
    def atomic(self) -> str | None:
        """The operation of an atomic; None for other accesses."""
        return self.statement.operation if isinstance(self.statement, ir.Atomic) else None

    @property
    def domain(self) -> ir.Domain:
        """The lanes that are read or written, as far as intervals per axis can tell."""
        match self.statement:
            case ir.Load(read=read, domain=domain):
                found = read or domain
            case ir.Store(domain=domain) | ir.Atomic(domain=domain):
                found = domain
            case ir.Fetch():
                found = ()
            case _:
                assert_never(self.statement)
        return found or (ir.FULL,) * len(self.tile.extents)

    @property
    def guards(self) -> tuple[ir.Expr, ...]:
        """The conditions, beside `domain`, under which a lane is read or written."""
        return () if isinstance(self.statement, ir.Fetch) else self.statement.guards

    @property
    def loops(self) -> tuple[ir.For, ...]:
        """The loops around the access in its phase."""
        return self.scope.loops

    @property
    def span(self) -> Span:
        """The place of the statement in the source."""
        return self.statement.span


@records.frozen
class Computation:
    """A statement that computes, with its scope and the steps that lead to it, as in `Site`."""

    statement: ir.Compute
    path: tuple[Step, ...]
    scope: Scope


#: A statement, its scope, the steps that lead there, and its phase.
Placed: TypeAlias = tuple[ir.Statement, Scope, tuple[Step, ...], int]


def collect(sketch: ir.Sketch, root: Scope) -> tuple[Site, ...]:
    """All sites in program order."""
    tiles = {tile.name: tile for tile in sketch.tiles}
    found = []
    for statement, scope, path, phase in placed(sketch, root):
        if not isinstance(statement, ir.Load | ir.Store | ir.Atomic | ir.Fetch):
            continue
        hosts = len(host_path(sketch, phase))
        tensor = sketch.tensor(statement.access.tensor)
        if isinstance(statement, ir.Fetch):
            tile = ir.Tile(statement.name, statement.name, (), statement.dtype)
        else:
            tile = tiles[statement.tile]
        found.append(Site(statement, tile, tensor, path, scope, phase, hosts))
    return tuple(found)


def computations(sketch: ir.Sketch, root: Scope) -> tuple[Computation, ...]:
    """All statements that compute, in program order."""
    return tuple(
        Computation(statement, path, scope)
        for statement, scope, path, _ in placed(sketch, root)
        if isinstance(statement, ir.Compute)
    )


def placed(sketch: ir.Sketch, root: Scope) -> Iterator[Placed]:
    """Every statement, with its scope, the steps that lead there, its phase."""

    def visit(
        body: tuple[ir.Statement, ...], scope: Scope, path: tuple[Step, ...], phase: int
    ) -> Iterator[Placed]:
        for statement in body:
            yield statement, scope, path, phase
            match statement:
                case ir.Fetch() | ir.Bind():
                    scope, path = scope.after(statement), (*path, statement)
                case ir.For():
                    inner = (*path, statement)
                    yield from visit(statement.body, scope.after(statement), inner, phase)
                case ir.If(condition, body=then, orelse=orelse):
                    for holds, part in ((True, then), (False, orelse)):
                        step = Branch(condition, holds)
                        yield from visit(part, scope.after(step), (*path, step), phase)

    for phase, nest in enumerate(sketch.phases):
        path = host_path(sketch, phase)
        yield from visit(nest.body, phase_scope(sketch, root, phase), path, phase)


def loops_of(site: Site) -> tuple[ir.For | ir.HostFor, ...]:
    """The loops around a site, those of the host first."""
    return tuple(step for step in site.path if isinstance(step, ir.For | ir.HostFor))


#: Alternatives, each a conjunction; none: never; an empty one: always.
Cases: TypeAlias = tuple[tuple[Fact, ...], ...]
ALWAYS: Cases = ((),)

#: More alternatives than this are not told apart.
CASE_LIMIT = 16

#: What the names of atoms for conditions that the host knows start with.
HOST_CONDITION = "'if "


def cases(scope: Scope, condition: ir.Expr, holds: bool = True) -> Cases:
    """The alternatives in which a condition without lanes holds (or does not)."""
    match condition:
        case ir.Literal(value):
            return ALWAYS if bool(value) == holds else ()
        case ir.Unary("not", operand):
            return cases(scope, operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right):
            sides = (cases(scope, left, holds), cases(scope, right, holds))
            if (operator == "and") == holds:
                return both(*sides)
            return ALWAYS if ALWAYS in sides else sides[0] + sides[1]
        case ir.Binary(operator, left, right) if operator in OPPOSITE and not is_float(condition):
            gap = add(scope.form(right), scope.form(left), -1)
            return _related(operator if holds else OPPOSITE[operator], gap)
        case ir.Ref(dtype=dtype) if dtype.is_integer and dtype is not DType.BOOL:
            return _related("!=" if holds else "==", scope.form(condition))
        case _:
            return _opaque(scope, condition, holds)


def both(left: Cases, right: Cases) -> Cases:
    """The alternatives in which two conditions both hold."""
    if left == ALWAYS or not right:
        return right
    if right == ALWAYS or not left:
        return left
    return tuple((*one, *two) for one in left for two in right)


def _related(operator: str, gap: Linear) -> Cases:
    """The alternatives of `left operator right`, for `gap` = right - left."""
    known = constant_value(gap)
    if known is not None:
        return ALWAYS if BINARY[operator](0, known) else ()
    operators = ("<", ">") if operator == "!=" else (operator,)
    return tuple((relation(each, gap),) for each in operators)


def _opaque(scope: Scope, condition: ir.Expr, holds: bool) -> Cases:
    """The alternatives of a condition that is not affine: its form is 1 where it holds, else 0."""
    if isinstance(condition, ir.Ref) and condition.name in scope.forms:
        form: Linear = scope.forms[condition.name]
        known = constant_value(form)
        if known is not None:
            return ALWAYS if bool(known) == holds else ()
    elif all(
        name.kind.on_host and name.kind is not ir.NameKind.HOST for name in references(condition)
    ):
        form = {scope.atoms.variable(HOST_CONDITION + show(condition), True): 1}
    else:
        form = unknown(scope, condition)
    return ((Fact(add(form, {ONE: -1} if holds else {}), equality=True),),)


def unknown(scope: Scope, expression: ir.Expr, suffix: str | None = None) -> Linear:
    """The atom for a quantity of which nothing is known but its expression and the values of the
    names in it. `suffix`, or else the scope's own, tells apart its values in two iterations."""
    places = [
        f"{name}={scope.atoms.describe(scope.forms[name])}"
        for name in sorted(names(expression))
        if name in scope.forms
    ]
    tag = scope.suffix if suffix is None else suffix
    key = f"{expression!r}{tag} at {', '.join(places)}"
    return {scope.atoms.opaque(key, frozenset(scope.counters)): 1}


@records.frozen
class Resolved:
    """An access with its lanes as names, see `lane_forms.pointwise`: scalar expressions.

    `indices`: one per dimension of the tensor. `places`: names for the sums of which the indices
    and guards take quotients or remainders, with these sums. `guards`: the conditions on each lane.
    `loaded`: some index comes from memory."""

    indices: tuple[ir.Expr, ...]
    places: tuple[tuple[str, ir.Expr], ...]
    guards: tuple[ir.Expr, ...]
    loaded: bool


def resolve(site: Site) -> Resolved:
    """The access of a site with index tiles and guards written out for one lane."""
    extents, bindings = site.tile.extents, site.scope.bindings
    written = element_indices(site.access, extents)
    places: dict[ir.Expr, str] = {}
    plain = [
        _placed(pointwise(value, extents, bindings), places) for value in (*written, *site.guards)
    ]
    loaded = any(loaded_names(value, extents, bindings) for value in written)
    named = tuple((name, value) for value, name in places.items())
    return Resolved(tuple(plain[: len(written)]), named, tuple(plain[len(written) :]), loaded)


def _placed(value: ir.Expr, places: dict[ir.Expr, str]) -> ir.Expr:
    """The expression with names for the sums of lanes that stand to the left of a `//` or `%`."""
    match value:
        case ir.Function():
            return value
        case ir.Binary("//" | "%", ir.Binary("+" | "-") as left) if _is_sum_of_lanes(left):
            name = places.setdefault(left, f"'place{len(places)}")
            return records.evolve(value, left=ir.Ref(name, ir.NameKind.BINDING))
        case _:
            return walk.changed(value, lambda part: _placed(part, places))


def _is_sum_of_lanes(value: ir.Expr) -> bool:
    """Whether lanes occur in `value`, and no quotients or remainders."""
    has_lane = any(name.startswith("'lane") for name in names(value))
    parts = (part for part in walk.parts(value) if isinstance(part, ir.Binary))
    return has_lane and not any(part.operator in ("//", "%") for part in parts)


# ---------------------------------------------------------------- facts


@records.frozen
class Footprint:
    """The elements of one access: per dimension, the index as a form over loop variables and lanes,
    the facts that bound the lanes, and the alternatives that its conditions leave. `scope` is that
    of the access, its loop variables renamed; its facts are not repeated in `facts`. `places` gives
    the quantities that stand for sums in quotients and remainders, each with its sum."""

    scope: Scope
    indices: tuple[Linear, ...]
    lanes: tuple[int, ...]
    facts: tuple[Fact, ...]
    cases: Cases
    resolved: Resolved
    places: tuple[tuple[int, Linear], ...]

    @property
    def systems(self) -> Cases:
        """Everything known of a touched element, one system per alternative."""
        return tuple((*self.scope.facts, *self.facts, *case) for case in self.cases)


def footprint(
    site: Site, root: Scope, suffix: str = "", fetched: str | None = None, tag: str | None = None
) -> Footprint:
    """The elements that `site` touches in one iteration, its loop variables renamed with `suffix`;
    values that the host fetched with `fetched`, and the lanes with `tag`, where these are given."""
    scope, alternatives = arrived(site, root, suffix, suffix if fetched is None else fetched)
    resolved = resolve(site)
    facts: list[Fact] = []
    lanes = []
    forms = dict(scope.forms)
    tag = suffix if tag is None else tag
    for axis, (extent, valid) in enumerate(zip(site.tile.extents, site.domain, strict=True)):
        number = scope.atoms.variable(f"'lane{axis}{tag}", non_negative=True)
        lanes.append(number)
        forms[f"'lane{axis}"] = {number: 1}
        facts.extend(lane_facts(scope, {number: 1}, extent, valid))
    inner = records.evolve(scope, forms=forms, facts=(*scope.facts, *facts), suffix=tag)
    places: list[tuple[int, Linear]] = []
    for name, value in resolved.places:
        form = inner.form(value)
        known = inner.proves(form)
        title = f"{name}{tag}{'+' * known}={scope.atoms.describe(form)}"
        place = scope.atoms.defined(title, form, known)
        places.extend((atom, form) for atom in place)
        inner = records.evolve(inner, forms={**inner.forms, name: place})
    for guard in resolved.guards:
        alternatives = _narrowed(inner, alternatives, guard, True)
    indices = tuple(inner.form(index) for index in resolved.indices)
    return Footprint(
        scope, indices, tuple(lanes), tuple(facts), alternatives, resolved, tuple(places)
    )


def arrived(site: Site, root: Scope, suffix: str, fetched: str) -> tuple[Scope, Cases]:
    """The scope at a site with its loop variables renamed, and the alternatives in which its
    branches are taken. A loop's step or a fetched value that is not known becomes an opaque
    quantity, so that no system that depends on it can pass for exact."""
    scope = records.evolve(root, suffix=suffix)
    alternatives = ALWAYS
    for number, step in enumerate(site.path):
        tag = fetched if number < site.host_steps else suffix
        scope, alternatives = _step(scope, alternatives, step, tag)
    return scope, alternatives


def _step(scope: Scope, alternatives: Cases, step: Step, tag: str) -> tuple[Scope, Cases]:
    match step:
        case ir.For() | ir.HostFor():
            inner = scope.after(step)
            if constant_value(scope.form(step.step)) is None:
                missed = Fact(unknown(inner, step.step))
                alternatives = both(alternatives, ((missed,),))
            return inner, alternatives
        case ir.Fetch(name):
            value = unknown(scope, ir.Ref(name, ir.NameKind.BINDING), tag)
            inner = scope.after(step)
            return records.evolve(inner, forms={**inner.forms, name: value}), alternatives
        case Branch(condition, holds):
            alternatives = _narrowed(scope, alternatives, condition, holds)
            return scope.after(step), alternatives
        case ir.Bind():
            return scope.after(step), alternatives
        case _:
            assert_never(step)


def _narrowed(scope: Scope, known: Cases, condition: ir.Expr, holds: bool) -> Cases:
    found = both(known, cases(scope, condition, holds))
    if len(found) <= CASE_LIMIT:
        return found
    opaque = (Fact(add(unknown(scope, condition), constant(-1)), equality=True),)
    return both(known, (opaque,))
