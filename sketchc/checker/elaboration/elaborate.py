"""Elaboration: from the syntax tree of one sketch to its typed IR, for given constants.

Names are resolved, shapes and element types checked, roles and phases settled, tiles proved to be
assigned before they are read. Domains stay empty: `domains.inference` fills them in. Nothing is
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
  are steps of the host, known before the launch of the run that they stand in (`statements`).
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

Roles of tensors (LANGUAGE section 1): a tensor that is only loaded is an input, one that is only
stored an output; one that is loaded before any phase wrote it must be declared `inout`. Workspaces
and outputs may be loaded only where an earlier phase wrote them, or `= c` did. Where a loop of the
host is around both, an earlier iteration may have written what is loaded: `coverage` looks whether
it has.

Data flow over tiles: a loop may run zero times, so nothing is assigned after it that was not
assigned before (R12); a tile that was may be written in the loop and read after it, for at the
loop's header its valid lanes do not change (`domains`). After an `if` a tile is assigned where both
branches leave it so. A loop carries a tile that is live at its header and written in its body, an
`if` one that a branch writes and that is read afterwards (LOWERING 6).

Every verdict must hold wherever a plan or a search may go, so proofs run at the default values of
tunable constants and at each of the `tuning_points`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias, assert_never

from sketchc.base import records, verification
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Label, Span, has_errors
from sketchc.checker.calls.expressions import constant
from sketchc.checker.calls.operations import predicate
from sketchc.checker.context.context import Context, InvalidError, Value, identifier
from sketchc.checker.elaboration.assignment import check_assignment
from sketchc.checker.elaboration.declarations import declare, declare_constants
from sketchc.checker.elaboration.statements import phases_of
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.inputs import symbol_sources
from sketchc.parsing import syntax
from sketchc.parsing.prepass import prepass


def _exposed(
    body: tuple[ir.Statement, ...], live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> frozenset[str]:
    """The tiles live before a block, from those live after it."""
    for statement in reversed(body):
        match statement:
            case ir.For(body=inner):
                live |= _exposed(inner, frozenset(), tiles)
            case ir.If(body=inner, orelse=orelse):
                live = _exposed(inner, live, tiles) | _exposed(orelse, live, tiles)
            case _:
                live = _before(statement, live, tiles)
    return live


def _carry(
    body: tuple[ir.Statement, ...], live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> tuple[tuple[ir.Statement, ...], frozenset[str]]:
    """Fill in `carried` of every loop and branch of a block, backwards from the tiles live after
    the block; gives the tiles live before it too.

    Live at a loop's header is what is live after the loop and what its body exposes: a body only
    takes away what it writes first, and the loop may run zero times.
    """
    result: list[ir.Statement] = []
    for statement in reversed(body):
        match statement:
            case ir.For():
                live |= _exposed(statement.body, frozenset(), tiles)
                inner, _ = _carry(statement.body, live, tiles)
                carried = _kept(statement.body, live)
                result.append(records.evolve(statement, body=inner, carried=carried))
            case ir.If():
                carried = _kept((*statement.body, *statement.orelse), live)
                inner, first = _carry(statement.body, live, tiles)
                orelse, second = _carry(statement.orelse, live, tiles)
                live = first | second
                result.append(records.evolve(statement, body=inner, orelse=orelse, carried=carried))
            case _:
                live = _before(statement, live, tiles)
                result.append(statement)
    return tuple(reversed(result)), live


def _kept(body: tuple[ir.Statement, ...], live: frozenset[str]) -> tuple[str, ...]:
    """The live tiles that a block writes, in order of first write."""
    written = (tile for each in walk.statements(body) for tile in walk.writes(each))
    return tuple(name for name in dict.fromkeys(written) if name in live)


def _before(
    statement: ir.Statement, live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> frozenset[str]:
    """The tiles live before a simple statement."""
    if isinstance(statement, ir.Alloc):
        return live - {statement.tile}
    written = walk.writes(statement)
    # writing a tile with `init=` is a masked update: it reads what it keeps
    kept = {name for name in written if tiles[name].initial is not None}
    return live.difference(written).union(kept, walk.reads(statement))


@records.define(eq=False)
class _Accesses:
    """The first load, store and atomic of a tensor, each as (phase, span), and the loops of the
    host around the first load and around all stores."""

    load: tuple[int, Span] | None = None
    store: tuple[int, Span] | None = None
    atomic: tuple[int, Span] | None = None
    read_in: frozenset[str] = frozenset()
    stored_in: set[str] = records.field(factory=set)

    def note(self, access: _Access, phase: int, around: frozenset[str]) -> None:
        """Record an access in a phase, or of the host before it, in the host's loops `around`."""
        place = (phase, access.access.span)
        match access:
            case ir.Load() | ir.Fetch():
                if self.load is None:
                    self.load, self.read_in = place, around
            case ir.Atomic():
                self.atomic = self.atomic or place
            case ir.Store():
                self.store = self.store or place
                self.stored_in |= around
            case _:
                assert_never(access)


_Access: TypeAlias = ir.Load | ir.Fetch | ir.Atomic | ir.Store


def settle_roles(
    context: Context, phases: tuple[ir.Phase, ...], steps: tuple[ir.HostStep, ...]
) -> tuple[ir.Tensor, ...]:
    """Give every tensor its role, and report accesses that contradict it."""
    bases = {view.name: view.base for view in context.views}
    accesses = {tensor.name: _Accesses() for tensor in context.tensors}
    launched = 0

    def note(steps: tuple[ir.HostStep, ...], around: frozenset[str]) -> None:
        nonlocal launched
        for step in steps:
            found: Iterable[ir.Statement] = ()
            match step:
                case ir.Launch(phase):
                    found = walk.statements(phases[phase].body)
                case ir.Fetch():
                    found = (step,)
                case ir.HostFor(variable, body=inner):
                    note(inner, around | {variable})
                case ir.HostIf(body=inner, orelse=orelse):
                    note((*inner, *orelse), around)
                case ir.Bind():
                    pass
                case _:
                    assert_never(step)
            for statement in found:
                if isinstance(statement, _Access):
                    name = statement.access.tensor
                    accesses[bases.get(name, name)].note(statement, launched, around)
            launched += isinstance(step, ir.Launch)

    note(steps, frozenset())
    return tuple(_settle(context, tensor, accesses[tensor.name]) for tensor in context.tensors)


def _settle(context: Context, tensor: ir.Tensor, seen: _Accesses) -> ir.Tensor:
    declared = tensor.name in context.declared_roles
    role = tensor.role
    writes = [place for place in (seen.store, seen.atomic) if place is not None]
    write = min(writes, key=lambda place: place[0], default=None)
    if not declared:
        role = ir.Role.IN if write is None else ir.Role.OUT
    if seen.load is None and write is None and tensor.name not in context.mentioned:
        context.warn(
            tensor.span, "SK0611", f"`{tensor.name}` is never loaded or stored", "not used"
        )
    early = (
        seen.load is not None
        and tensor.initial is None
        and (write is None or write[0] >= seen.load[0])
    )
    if role is ir.Role.IN and tensor.initial is not None:
        _contradiction(context, tensor, tensor.span, "is an input, and has an initial value", ())
    if tensor.optional and write is not None:
        _contradiction(context, tensor, write[1], "is optional, hence an input, and stored", ())
    elif role is ir.Role.IN and write is not None:
        _contradiction(context, tensor, write[1], "is declared `in`, and stored", ())
    elif role in (ir.Role.OUT, ir.Role.WORKSPACE) and early and seen.load is not None:
        if (declared or role is ir.Role.WORKSPACE) and seen.read_in & seen.stored_in:
            return records.evolve(tensor, role=role)
        fixes: tuple[Fix, ...] = ()
        if not declared:
            edit = Edit(context.dtype_spans[tensor.name].before, "inout ")
            fixes = (Fix(f"declare `{tensor.name}` as `inout`", (edit,)),)
        early_help = (
            f"write it in an earlier phase, or give it an initial value: `{tensor.name}"
            f"[...]: {tensor.dtype.value} = 0`"
        )
        what = "is loaded before any phase has written it"
        _contradiction(context, tensor, seen.load[1], what, fixes, "" if fixes else early_help)
        role = ir.Role.INOUT if role is ir.Role.OUT else role  # as it would be mended
    elif role in (ir.Role.OUT, ir.Role.WORKSPACE):
        _check_atomic(context, tensor, seen)
    broadcast = any(tensor.broadcast)
    if broadcast and write is not None:
        _contradiction(context, tensor, write[1], "may have extent 1, so it is load-only", ())
    return records.evolve(tensor, role=role)


def _check_atomic(context: Context, tensor: ir.Tensor, seen: _Accesses) -> None:
    """Report an atomic on a tensor with no value from `= c`, `inout`, or an earlier phase."""
    if seen.atomic is None or tensor.initial is not None:
        return
    if seen.store is not None and seen.store[0] < seen.atomic[0]:
        return
    context.error(
        seen.atomic[1],
        "SK0220",
        f"`{tensor.name}` has no value that this could be combined with",
        "not initialised",
        labels=(Label(tensor.span, f"`{tensor.name}` is declared here"),),
        help="give it an initial value, as in `= 0`, or declare it `inout`",
    )


def _contradiction(
    context: Context,
    tensor: ir.Tensor,
    span: Span,
    what: str,
    fixes: tuple[Fix, ...],
    help: str = "",
) -> None:
    context.error(
        span,
        "SK0207",
        f"`{tensor.name}` {what}",
        "against its role",
        labels=(Label(tensor.span, f"`{tensor.name}` is declared here"),),
        help=help,
        fixes=fixes,
    )


def check_symbols(context: Context, tensors: tuple[ir.Tensor, ...]) -> None:
    """Report symbols that do not follow from shapes of inputs, from which launches bind them."""
    constants = {constant.name: constant.value for constant in context.constants}
    names = [symbol.name for symbol in context.symbols]
    bound = symbol_sources(names, tensors, constants)
    for symbol in context.symbols:
        if symbol.name not in bound:
            context.error(
                symbol.span,
                "SK0205",
                f"no input's shape says what `{symbol.name}` is",
                "cannot be bound at launch",
                notes=(
                    "a symbol takes its value from the shape of an input: from an extent that is "
                    f"just `{symbol.name}`, or a multiple of it plus what other extents say",
                ),
                help=f"use `{symbol.name}` as an input's extent, or make it a param: "
                f"`params: {symbol.name}: i64;`",
            )


_MISSPELT = "avaliable_tiling"  # as in the public listings


@records.frozen
class Elaboration:
    """One sketch as elaborated for some constants: `sketch` is None where there are errors.
    `context` is the state in which elaboration ended."""

    sketch: ir.Sketch | None
    diagnostics: tuple[Diagnostic, ...]
    context: Context

    def bind(self, constants: Mapping[str, Value]) -> ir.Sketch | None:
        """The sketch for other constants, as `elaborate` would give it, with the same diagnostics.

        The IR keeps constants by name, so other values of tunable integers change nothing else, as
        long as the questions that elaboration asked about values have the same answers. None where
        an answer differs, or anything but tunable integers: then the sketch may be another one.
        """
        known = self.context
        if self.sketch is None:
            return None
        context = Context(known.tree, constants, known.prepass, predicate=predicate)
        declare_constants(context)
        if has_errors(context.diagnostics) or not self._only_constants(context):
            return None
        context.values = {**known.values, **context.values}
        if not context.again(known.asked):
            return None
        rest = self.sketch.constants[len(context.constants) :]
        return _verified(records.evolve(self.sketch, constants=(*context.constants, *rest)))

    def _only_constants(self, context: Context) -> bool:
        """Whether `context` differs from this elaboration's in values of tunable integers alone."""
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
    """Whether two declarations of a constant differ at most in what a binding may change."""
    free = one.name in context.tunable and one.dtype.is_integer
    same = records.evolve(other, value=one.value, chosen_by=one.chosen_by)
    return one == same and (free or repr(one.value) == repr(other.value))


def elaborate(
    tree: syntax.Sketch, constants: Mapping[str, Value]
) -> tuple[ir.Sketch | None, tuple[Diagnostic, ...]]:
    """The sketch for these constants, and the diagnostics: see `elaboration`."""
    done = elaboration(tree, constants)
    return done.sketch, done.diagnostics


def elaboration(tree: syntax.Sketch, constants: Mapping[str, Value]) -> Elaboration:
    """Elaborate one sketch.

    `constants` binds constexprs and replaces the defaults of params, by the names of the sketch;
    names that the sketch does not have are ignored (see `bindable`). Gives None for the sketch when
    there are errors; only reads of unassigned tiles (SK0401-SK0404) leave it usable, so that
    `initialisation` can tell at which sizes they happen.
    """
    context = Context(tree, constants, prepass(tree), predicate=predicate)
    declare(context)
    if tree.misspelt_tiling:
        word = tree.tiling_span.first(len(_MISSPELT))
        fix = Fix("spell it `available_tiling`", (Edit(word, "available_tiling"),), safe=True)
        context.warn(word, "SK0608", f"`{_MISSPELT}` is misspelt", "accepted", fixes=(fix,))
    _check_tilings(context)
    phases, steps = phases_of(context)
    if has_errors(context.diagnostics):
        return Elaboration(None, tuple(context.diagnostics), context)
    tensors = settle_roles(context, phases, steps)
    check_symbols(context, tensors)
    unassigned = check_assignment(phases, context.tiles, context.allocs)
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
        tuple(context.tiles.values()),
        tuple(
            records.evolve(phase, body=_carry(phase.body, frozenset(), context.tiles)[0])
            for phase in phases
        ),
        () if all(isinstance(step, ir.Launch) for step in steps) else steps,
        span=tree.span,
    )
    return Elaboration(_verified(sketch), tuple(context.diagnostics), context)


def _verified(sketch: ir.Sketch) -> ir.Sketch:
    """The sketch, after `ir.verify` has checked it where verifiers are switched on."""
    if verification.enabled():
        from sketchc.ir.verify import verify

        verify(sketch)
    return sketch


def bindable(tree: syntax.Sketch) -> frozenset[str]:
    """The names that `constants` may bind: constexprs, params, and constants bound in the body."""
    found = {item.name for item in syntax.declared(tree, "constexpr", "params")}
    for statement in tree.body:
        if isinstance(statement, syntax.Binding):
            for name, value in zip(statement.names, statement.values, strict=False):
                if isinstance(value, syntax.Number) and isinstance(value.value, int):
                    found.add(name.id)
    return frozenset(found)


def _check_tilings(context: Context) -> None:
    """Report names of `available_tiling` points that are no constexpr of the sketch."""
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


#: Where a tile size that the sketch leaves open is tried, beside `declarations.DEFAULT_TILE`.
OPEN_TILE_SIZES = (16, 256)

#: Beyond this many points in all, constants vary one at a time around the default.
FULL_PRODUCT = 16


def tuning_points(tree: syntax.Sketch, constants: Mapping[str, Value]) -> list[dict[str, Value]]:
    """The points beside the default one, each as values by constexpr name, without repeats.

    An `available_tiling` block wins over `in [...]`. Otherwise every constant with choices takes
    each of them, one at a time around the default, and in all combinations if these are at most
    `FULL_PRODUCT`. Tile sizes without value are tried together at `OPEN_TILE_SIZES`. Names in
    `constants` are bound and do not vary. A sketch with errors in its declarations has no points.
    """
    context = Context(tree, constants, prepass(tree), predicate=predicate)
    declare(context)
    points = _tilings(context) if tree.tilings else [*_choices(context), *_open_tiles(context)]
    sources = context.sources
    default = {sources.get(item.name, item.name): item.value for item in context.constants}
    result: list[dict[str, Value]] = []
    seen = [default]
    for point in points:
        free = {name: value for name, value in point.items() if name not in constants}
        whole = {**default, **free}
        if whole not in seen:
            seen.append(whole)
            result.append(free)
    return result


def _tilings(context: Context) -> Iterator[dict[str, Value]]:
    for point in context.tree.tilings:
        with suppress(InvalidError):  # elaboration reports it
            yield {
                name: constant(context, value, "a tile size", tunable=True)
                for name, value in point.values
            }


def _choices(context: Context) -> Iterator[dict[str, Value]]:
    varying = [item for item in context.constants if item.choices and item.chosen_by != "user"]
    names = [context.sources[item.name] for item in varying]
    for name, item in zip(names, varying, strict=True):
        for choice in item.choices:
            yield {name: choice}
    values = [tuple(dict.fromkeys((item.value, *item.choices))) for item in varying]
    if len(varying) > 1 and math.prod(map(len, values)) <= FULL_PRODUCT:
        for combination in itertools.product(*values):
            yield dict(zip(names, combination, strict=True))


def _open_tiles(context: Context) -> Iterator[dict[str, Value]]:
    names = [context.sources[item.name] for item in context.constants if item.chosen_by == "plan"]
    if names:
        for size in OPEN_TILE_SIZES:
            yield dict.fromkeys(names, size)
