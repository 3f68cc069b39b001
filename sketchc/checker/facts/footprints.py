"""Which elements an access touches: every access form as facts over loop variables and lanes.

Index tiles are written out (`index_ranges.pointwise`). Where quotients and remainders are taken of
a sum such as `i*T + lane`, the sum becomes one quantity: its digits are then those of one number,
as the digits of a loop variable are. Lanes that come from memory are opaque: a system with them
proves independence where it is without points whatever they are, and never coverage.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.checker.facts.affine import Fact, Linear, add, constant, constant_value
from sketchc.checker.facts.conditions import ALWAYS, CASE_LIMIT, Cases, both, cases, unknown
from sketchc.checker.facts.lane_forms import loaded_names, pointwise
from sketchc.checker.facts.scope import Branch, Scope, Step
from sketchc.checker.facts.sites import Site, lane_facts
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.lanes import element_indices


@records.frozen
class Resolved:
    """An access with its lanes as names, see `index_ranges.pointwise`: scalar expressions.

    `indices`: one per dimension of the tensor. `places`: names for what the digits in them are
    digits of, with their values. `guards`: the conditions on each lane. `loaded`: some index comes
    from memory."""

    indices: tuple[ir.Expr, ...]
    places: tuple[tuple[str, ir.Expr], ...]
    guards: tuple[ir.Expr, ...]
    loaded: bool


def resolve(site: Site) -> Resolved:
    """The lanes of an access written out."""
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
    """Names for the sums with lanes of which quotients and remainders are taken."""
    match value:
        case ir.Function():
            return value
        case ir.Binary("//" | "%", ir.Binary("+" | "-") as left) if _has_lane(
            left
        ) and not _has_quotient(left):
            name = places.setdefault(left, f"'place{len(places)}")
            return records.evolve(value, left=ir.Ref(name, ir.NameKind.BINDING))
        case _:
            return walk.changed(value, lambda part: _placed(part, places))


def _has_lane(value: ir.Expr) -> bool:
    return any(reference.name.startswith("'lane") for reference in walk.references(value))


def _has_quotient(value: ir.Expr) -> bool:
    return any(
        isinstance(part, ir.Binary) and part.operator in ("//", "%") for part in walk.parts(value)
    )


# ---------------------------------------------------------------- facts


@records.frozen
class Touch:
    """The elements of one access: per dimension, the index as a form over loop variables and lanes,
    the facts that bound the lanes, and the alternatives that its conditions leave. `scope` is where
    it stands, its loop variables renamed; its facts are not repeated in `facts`. `places` gives the
    quantities whose digits occur, each with the sum that it is."""

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


def touched(
    site: Site, root: Scope, suffix: str = "", fetched: str | None = None, tag: str | None = None
) -> Touch:
    """What `site` touches in one iteration, its loop variables renamed with `suffix`; what the host
    fetched with `fetched`, and the lanes with `tag`, where these are given."""
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
    return Touch(scope, indices, tuple(lanes), tuple(facts), alternatives, resolved, tuple(places))


def arrived(site: Site, root: Scope, suffix: str, fetched: str) -> tuple[Scope, Cases]:
    """The scope at a site with its loop variables renamed, and the alternatives in which its
    branches are taken. What a loop or a fetch leaves open becomes an opaque quantity, so that no
    system that depends on it can pass for exact."""
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
