"""Elaboration: from the syntax tree of one sketch to its typed IR, for given constants.

Names are resolved, shapes and element types checked, roles and phases settled, tiles proved to be
assigned before they are read. Domains stay empty: `domains.infer_domains` fills them in. Nothing is
raised for a user's mistake; all that can be found is reported in one go.

Where the language contract is silent, these rules hold:

* A param without type takes that of its default (f32 for a float, i64, bool), and i64 without one.
  A constexpr without type is i64, f64 or bool as its value; one that stays a parameter is f32.
* A constant is tunable when it has choices, when an `available_tiling` block names it, or when it
  shapes tiles and has no value. A constant with one value is fixed, and may be data.
* A scalar beside an integer tile promotes like a tile, but an integer literal takes the tile's
  type; a float scalar makes it f32. Where all operands are scalars, they take the destination's
  type.
* A result broadcasts to its destination; it is never reduced to it.
* Host functions and float arithmetic on scalars are computed once, at launch, in `let`s (`scalar`).
* Integers bound outside all loops are host values; only in terms of constants, they are constants.
* Integers bound outside all loops in terms of a host loop's variable or of what the host fetched
  are steps of the host, known before the launch of the run that they stand in (`hosts`).
* Of an `if` whose condition is known at compile time only the branch taken is elaborated; the other
  is read for unknown names, and what it accesses counts as used.
* `present(X)` stands in conditions of `if` alone, so that every access to `X` can be judged.
* What `fetch` gives is i64, bool, f64 or f32. At the top level the host reads, which ends the run
  of statements before it; everywhere else it is a scalar of the phase.
* A tile of integers in an infix expression is an index tile of i64 (a snapshot where it is bound),
  a tile of bool a predicate.
* A visible name is not made again. A name made in a block ends with it.
* A zero divisor is excluded at launch: divisors over host values become generated `require`s, and
  no divisor depends on a loop variable that may be 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sketchc.base import records, verification
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Span, has_errors
from sketchc.checker.calls.shorthand import compare
from sketchc.checker.context.context import Context, Value
from sketchc.checker.context.names import identifier
from sketchc.checker.context.roles import check_symbols, settle_roles
from sketchc.checker.elaboration.declarations import DEFAULT_TILE, declare, declare_constants
from sketchc.checker.elaboration.flow import add_carried, check_assignment
from sketchc.checker.elaboration.phases import phases_of
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax
from sketchc.parsing.prepass import prepass

_MISSPELT = "avaliable_tiling"  # as in the public listings

__all__ = ["DEFAULT_TILE", "Elaboration", "bindable", "elaborate", "elaboration"]


@records.frozen
class Elaboration:
    """One sketch as elaborated for some constants: None with errors. `context` is what elaboration
    knew in the end."""

    sketch: ir.Sketch | None
    diagnostics: tuple[Diagnostic, ...]
    context: Context

    def bind(self, constants: Mapping[str, Value]) -> ir.Sketch | None:
        """The sketch for other constants, as `elaborate` gives it with the same diagnostics.

        The IR keeps constants by name, so other values of tunable integers are all that changes,
        as long as what elaboration asked about values has the same answers. None where it has not,
        and where more is bound otherwise than such constants: then the sketch may be another one.
        """
        known = self.context
        if self.sketch is None:
            return None
        context = Context(known.tree, constants, known.prepass, compare=compare)
        declare_constants(context)
        if has_errors(context.diagnostics) or not self._only_constants(context):
            return None
        context.values = {**known.values, **context.values}
        if not context.again(known.asked):
            return None
        rest = self.sketch.constants[len(context.constants) :]
        return _verified(records.evolve(self.sketch, constants=(*context.constants, *rest)))

    def _only_constants(self, context: Context) -> bool:
        """Whether nothing but tunable integers has other values there."""
        known = self.context
        names = {item.name for item in context.constants}
        names |= {context.sources[name] for name in names}
        bound = bindable(known.tree)
        bound |= {item.name for item in known.constants} | {item.name for item in known.params}
        for name in bound - names:
            if repr(known.given.get(name)) != repr(context.given.get(name)):
                return False
        before = known.constants[: len(context.constants)]
        params = [param for param in known.params if param.from_constexpr]
        return (
            len(before) == len(context.constants)
            and params == context.params
            and context.tunable == known.tunable & names
            and all(map(partial(_alike, context), before, context.constants))
        )


def _alike(context: Context, one: ir.Constant, other: ir.Constant) -> bool:
    """Whether two declarations of a constant differ in nothing that a binding may not change."""
    free = one.name in context.tunable and one.dtype.is_integer
    same = records.evolve(other, value=one.value, chosen_by=one.chosen_by)
    return one == same and (free or repr(one.value) == repr(other.value))


def elaborate(
    tree: syntax.Sketch, constants: Mapping[str, Value]
) -> tuple[ir.Sketch | None, tuple[Diagnostic, ...]]:
    """The sketch for these constants, and what was found: see `elaboration`."""
    done = elaboration(tree, constants)
    return done.sketch, done.diagnostics


def elaboration(tree: syntax.Sketch, constants: Mapping[str, Value]) -> Elaboration:
    """Elaborate one sketch.

    `constants` binds constexprs and replaces the defaults of params, by the names of the sketch;
    names that the sketch does not have are ignored (see `bindable`). Gives None for the sketch when
    there are errors; only reads of unassigned tiles (SK0401-SK0404) leave it usable, so that
    `initialisation` can tell at which sizes they happen.
    """
    context = Context(tree, constants, prepass(tree), compare=compare)
    declare(context)
    if tree.misspelt_tiling:
        _warn_misspelt(context, tree.tiling_span)
    _check_tilings(context)
    phases, schedule = phases_of(context)
    if has_errors(context.diagnostics):
        return Elaboration(None, tuple(context.diagnostics), context)
    tensors = settle_roles(context, phases, schedule)
    check_symbols(context, tensors)
    tiles = tuple(
        ir.Tile(
            tile.name,
            tile.source_name,
            tile.extents,
            tile.dtype,
            tile.initial,
            tile.hints,
            depth=len(tile.loops),
            span=tile.span,
        )
        for tile in context.tiles
    )
    by_name = {tile.name: tile for tile in tiles}
    unassigned = check_assignment(phases, by_name, context.allocs)
    if has_errors(context.diagnostics):
        return Elaboration(None, (*context.diagnostics, *unassigned), context)
    context.diagnostics.extend(unassigned)
    sketch = ir.Sketch(
        identifier(tree.name),
        tuple(context.symbols),
        tuple(context.params),
        tuple(context.constants),
        tuple(context.lets),
        tensors,
        tuple(context.views),
        tuple(context.requires),
        tiles,
        tuple(add_carried(phase, by_name) for phase in phases),
        schedule,
        span=tree.span,
    )
    return Elaboration(_verified(sketch), tuple(context.diagnostics), context)


def _verified(sketch: ir.Sketch) -> ir.Sketch:
    """The sketch; where verifiers are switched on, it keeps what `ir.verify` says of sketches."""
    if verification.enabled():
        from sketchc.ir.verify import verify

        verify(sketch)
    return sketch


def bindable(tree: syntax.Sketch) -> frozenset[str]:
    """The names that `constants` may bind: constexprs, params, and constants bound in the body."""
    found: set[str] = set()
    for section in tree.sections:
        match section:
            case syntax.ConstexprSection(constants=constants):
                found.update(item.name for item in constants)
            case syntax.ParamsSection(params=params):
                found.update(item.name for item in params)
            case _:
                pass
    for statement in tree.body:
        if isinstance(statement, syntax.Binding):
            for name, value in zip(statement.names, statement.values, strict=False):
                if isinstance(value, syntax.Number) and isinstance(value.value, int):
                    found.add(name.id)
    return frozenset(found)


def _warn_misspelt(context: Context, block: Span) -> None:
    end = block.start + len(_MISSPELT)
    word = records.evolve(
        block, end=end, end_line=block.line, end_column=block.column + len(_MISSPELT)
    )
    fix = Fix("spell it `available_tiling`", (Edit(word, "available_tiling"),), safe=True)
    context.warn(word, "SK0608", f"`{_MISSPELT}` is misspelt", "accepted", fixes=(fix,))


def _check_tilings(context: Context) -> None:
    """Every name of an `available_tiling` point is a constexpr of the sketch."""
    known = bindable(context.tree)
    for point in context.tree.tilings:
        for name, _ in point.values:
            if name not in known:
                context.error(
                    point.span,
                    "SK0215",
                    f"`{name}` is not a constexpr of this sketch",
                    "a tiling point names constants",
                )
