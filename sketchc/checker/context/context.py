"""The state that elaboration carries from declaration to declaration and statement to statement.

`Context` is the one mutable object of the stage. Errors are recorded through `Context.error`, which
returns the exception that unwinds to the enclosing statement; the statement is then skipped, so
that one mistake gives one message and the rest of the sketch is still checked.

Blocks scope names as the indentation suggests: a name made inside a loop ends with it, and two
loops may each make their own. A name that is still visible is never made a second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, Unpack

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Label, More, Span, error, warning
from sketchc.base.reserved import RESERVED
from sketchc.base.types import DType
from sketchc.ir import guards, symbolic, walk
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import free_name, tiles_read
from sketchc.parsing import syntax
from sketchc.parsing.errors import nearest
from sketchc.parsing.prepass import Prepass


@records.frozen
class ScalarName:
    """A symbol, param, constant, let, loop variable or scalar binding."""

    name: str  # in the IR
    kind: ir.NameKind
    dtype: DType
    span: Span


@records.frozen
class IndexName:
    """A binding that is an index tile."""

    name: str
    dtype: DType
    extents: tuple[ir.Expr, ...]
    phase: int
    span: Span


@records.frozen
class TileName:
    """A tile, and the phase that made it."""

    tile: ir.Tile
    phase: int

    @property
    def span(self) -> Span:
        """Where the name was made."""
        return self.tile.span


@records.frozen
class TensorName:
    """A tensor, workspace or view."""

    name: str
    extents: tuple[ir.Expr, ...]
    dtype: DType
    base: str
    span: Span
    optional: bool = False


@records.frozen
class PoisonedName:
    """A name whose declaration was already reported: uses of it say nothing more."""

    span: Span


Entry: TypeAlias = ScalarName | IndexName | TileName | TensorName | PoisonedName


def describe(entry: Entry) -> str:
    """What a name is, for messages: "a tile", "a loop variable"."""
    match entry:
        case ScalarName(kind=kind):
            return {
                ir.NameKind.SYMBOL: "a symbol",
                ir.NameKind.PARAM: "a param",
                ir.NameKind.CONSTANT: "a constant",
                ir.NameKind.LET: "a host value",
                ir.NameKind.LOOP: "a loop variable",
                ir.NameKind.BINDING: "an integer binding",
                ir.NameKind.HOST: "a value of the host",
                ir.NameKind.PRESENT: "whether a tensor was given",
            }[kind]
        case IndexName():
            return "an index tile"
        case TileName():
            return "a tile"
        case TensorName(name=name, base=base):
            return "a tensor" if name == base else "a view"
        case PoisonedName():
            return "a name with an error"


@records.define(eq=False)
class Scopes:
    """The names visible at one place, innermost block last; `ended` remembers where names that are
    no longer visible were made."""

    blocks: list[dict[str, Entry]] = records.field(factory=lambda: [{}])
    ended: dict[str, Entry] = records.field(factory=dict)

    def find(self, name: str) -> Entry | None:
        """What a name stands for; None for one that is not visible."""
        return next((block[name] for block in reversed(self.blocks) if name in block), None)

    def add(self, name: str, entry: Entry) -> None:
        """Make a name in the innermost block."""
        self.blocks[-1][name] = entry

    def visible(self) -> list[str]:
        """All names that can be used here."""
        return [name for block in self.blocks for name in block]


def identifier(name: str) -> str:
    """`name` as an identifier that neither Python nor C++ reserves."""
    cleaned = re.sub(r"[^0-9A-Za-z_]", "_", name) or "_"
    if cleaned[0].isdigit():
        cleaned = f"_{cleaned}"
    return f"{cleaned}_" if cleaned in RESERVED else cleaned


Value = int | float | bool
#: The least and the greatest value that an integer may have; infinite where there is none.
Interval = tuple[float, float]
_Answer = TypeVar("_Answer")


class InvalidError(Exception):
    """Unwinds to the enclosing statement or declaration; its cause was already reported."""


@records.frozen
class Typed:
    """An elaborated expression: scalar when `extents` is None, else an index tile."""

    value: ir.Expr
    dtype: DType
    extents: tuple[ir.Expr, ...] | None = None


@records.define(eq=False)
class Context:
    """State of one elaboration; see the module docstring."""

    tree: syntax.Sketch
    given: Mapping[str, Value]
    prepass: Prepass
    diagnostics: list[Diagnostic] = records.field(factory=list)
    scopes: Scopes = records.field(factory=Scopes)
    taken: set[str] = records.field(factory=set)  # all names of the IR
    definitions: dict[str, symbolic.Polynomial] = records.field(factory=dict)
    #: compile-time values by IR name, which are read in questions alone (see `ask`), and which of
    #: them are tunable (or depend on one: lets)
    values: dict[str, Value] = records.field(factory=dict)
    tunable: set[str] = records.field(factory=set)
    #: what integer names can be, where known; read in questions alone
    intervals: dict[str, Interval] = records.field(factory=dict)
    #: the questions asked so far about values of constants, and their answers
    asked: list[tuple[Callable[[Context], object], object]] = records.field(factory=list)
    sources: dict[str, str] = records.field(factory=dict)  # IR name -> name in the sketch
    index_ranks: dict[str, int] = records.field(factory=dict)  # of bound index tiles
    loaded: set[str] = records.field(factory=set)  # bindings with lanes that come from a tile
    symbols: list[ir.Symbol] = records.field(factory=list)
    params: list[ir.Param] = records.field(factory=list)
    constants: list[ir.Constant] = records.field(factory=list)
    lets: list[ir.Let] = records.field(factory=list)
    requires: list[ir.Require] = records.field(factory=list)
    tensors: list[ir.Tensor] = records.field(factory=list)
    declared_roles: set[str] = records.field(factory=set)  # tensors whose role is written
    dtype_spans: dict[str, Span] = records.field(factory=dict)
    views: list[ir.View] = records.field(factory=list)
    tiles: dict[str, ir.Tile] = records.field(factory=dict)
    allocs: dict[str, syntax.Alloc] = records.field(factory=dict)  # by IR name
    loops: list[syntax.For] = records.field(factory=list)  # around the statement, in its phase
    phase: int = 0
    present: set[str] = records.field(factory=set)  # optional tensors known to be given here
    #: conditions of the host that hold here, by the branches around
    guards: tuple[ir.Expr, ...] = ()
    #: by `let`, the optional tensors without which nothing uses it; None: not looked at yet
    needed_with: dict[str, frozenset[str]] | None = None
    mentioned: set[str] = records.field(factory=set)  # tensors that branches never taken access
    asking: bool = False  # in the condition of an `if`, where `present` may stand
    host_steps: list[ir.HostStep] = records.field(factory=list)  # bindings before the next launch
    bound_symbols: set[str] = records.field(factory=set)  # symbols that were warned of
    #: statements to insert before the current one, which its shorter forms stand for
    before: list[ir.Statement] = records.field(factory=list)
    #: elaborates a comparison or predicate of data tiles: `calls.operations.predicate`
    predicate: Callable[[Context, syntax.Binary | syntax.Call], Typed] = records.field(kw_only=True)

    # ------------------------------------------------------------ diagnostics

    def error(
        self, span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
    ) -> InvalidError:
        """Record an error; returns the exception to raise where the statement cannot go on."""
        self.diagnostics.append(error(span, code, message, label, **more))
        return InvalidError(message)

    def warn(
        self, span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
    ) -> None:
        """Record a warning."""
        self.diagnostics.append(warning(span, code, message, label, **more))

    def unknown(
        self, span: Span, code: str, message: str, label: str, candidates: Iterable[str]
    ) -> InvalidError:
        """Record an error for the unknown name that `message` has last in backticks; where it
        resembles one of `candidates`, that suggestion and its fix replace `label`."""
        meant = nearest(message.split("`")[-2], candidates, 0.7)
        if meant is None:
            return self.error(span, code, message, label)
        fix = Fix(f"use `{meant}`", (Edit(span, meant),))
        return self.error(span, code, message, f"did you mean `{meant}`?", fixes=(fix,))

    # ------------------------------------------------------------ names

    def lookup(self, name: str, span: Span) -> Entry:
        """What `name` stands for; raises `InvalidError` for an unknown or poisoned name."""
        entry = self.scopes.find(name)
        ended = self.scopes.ended.get(name)
        if isinstance(entry or ended, PoisonedName):
            raise InvalidError(name)
        if entry is not None:
            return entry
        if ended is not None:
            raise self.error(
                span,
                "SK0203",
                f"`{name}` is used outside the block that made it",
                "not visible here",
                labels=(Label(ended.span, f"{describe(ended)} of that block"),),
                notes=("a name made inside a loop ends with the loop",),
                help=f"make `{name}` before the loop, in the block that uses it",
            )
        visible = self.scopes.visible()
        raise self.unknown(span, "SK0201", f"unknown name `{name}`", "not declared", visible)

    def fresh(self, wanted: str) -> str:
        """A new identifier of the IR for the name `wanted`, valid in Python and in C++."""
        name = free_name(identifier(wanted), self.taken)
        self.taken.add(name)
        return name

    def declare(self, name: str, span: Span) -> str:
        """Check that a top-level name is new; reserve and return its identifier."""
        self.check_new(name, span)
        spelt = self.fresh(name)
        self.sources[spelt] = name
        if spelt != name:
            self.warn(
                span,
                "SK0610",
                f"`{name}` is a reserved word in generated code",
                f"appears there as `{spelt}`",
            )
        return spelt

    def poison(self, name: str, span: Span) -> None:
        """Mark a name whose declaration failed, so that its uses report nothing more."""
        if self.scopes.find(name) is None:
            self.scopes.add(name, PoisonedName(span))

    def check_new(self, name: str, span: Span) -> None:
        """Raises `InvalidError` if `name` is already visible."""
        entry = self.scopes.find(name)
        if entry is None:
            return
        raise self.error(
            span,
            "SK0202",
            f"`{name}` is already defined",
            "second definition",
            labels=(Label(entry.span, f"{describe(entry)} of that name"),),
            notes=("a name may be made again only where the first is no longer visible",),
        )

    def check_assignable(self, name: str, span: Span) -> None:
        """Raises `InvalidError` if a binding or loop in the body cannot make this name."""
        entry = self.scopes.find(name)
        if isinstance(entry, ScalarName):
            what = describe(entry)
            raise self.error(
                span,
                "SK0204",
                f"`{name}` is {what}: it cannot be assigned",
                "assigned here",
                labels=(Label(entry.span, f"{what} of that name"),),
                help="bind another name",
            )
        self.check_new(name, span)

    def make_tile(
        self,
        stem: str,
        extents: tuple[ir.Expr, ...],
        dtype: DType,
        span: Span,
        source_name: str | None = None,
        initial: Value | None = None,
        hints: tuple[str, ...] = (),
    ) -> ir.Tile:
        """A new tile whose name begins with `stem`; the caller adds its alloc. Where the tile
        stands for one of the sketch, diagnostics name that one: `source_name`."""
        name = self.fresh(stem)
        known = source_name or name
        depth = len(self.loops)
        tile = ir.Tile(name, known, extents, dtype, initial, hints, depth=depth, span=span)
        self.tiles[name] = tile
        return tile

    def binding(self, name: str, spelt: str) -> Value | None:
        """The caller's value for a constant or param, under its name in the sketch or in the IR."""
        return self.given.get(name, self.given.get(spelt))

    @contextmanager
    def branch(
        self, present: frozenset[str], condition: ir.Expr | None = None, holds: bool = True
    ) -> Iterator[None]:
        """A block with names of its own, in which the optional tensors `present` are known to be
        given and `condition` holds, or with `holds=False` does not."""
        before, outer = set(self.present), self.guards
        self.present |= present
        if condition is not None:
            parts = map(self.host_form, guards.consequences(condition, holds))
            self.guards += tuple(part for part in parts if part is not None)
        self.scopes.blocks.append({})
        try:
            yield
        finally:
            self.scopes.ended.update(self.scopes.blocks.pop())
            self.present, self.guards = before, outer

    def trial(self) -> Context:
        """A copy for elaborating something on trial, which shares `mentioned` alone."""

        def copied(value: object) -> object:
            return value.copy() if isinstance(value, list | dict | set) else value

        changes: dict[str, Any] = {
            field.name: copied(getattr(self, field.name)) for field in records.fields(Context)
        }
        changes["diagnostics"] = []
        changes["asked"] = []
        changes["scopes"] = Scopes(
            [dict(block) for block in self.scopes.blocks], dict(self.scopes.ended)
        )
        changes["mentioned"] = self.mentioned
        return records.evolve(self, **changes)

    # ------------------------------------------------------------ facts

    def ask(self, question: Callable[[Context], _Answer]) -> _Answer:
        """The answer to `question`, which reads the values of constants and may note intervals.

        The values of constants affect elaboration only through questions: values that give the same
        answers give the same sketch, but for the values themselves (see `binding`). So a question
        asks for no more than is needed, such as a sign."""
        answer: object = None
        try:
            answer = found = question(self)
        except Exception as problem:
            answer = type(problem)
            raise
        finally:
            self.asked.append((question, answer))
        return found

    def note_interval(self, name: str, found: Callable[[Context], Interval]) -> None:
        """Record the interval that `found` gives for the integer `name`, for later questions."""

        def question(context: Context) -> None:
            context.intervals[name] = found(context)

        self.ask(question)

    def again(self, asked: list[tuple[Callable[[Context], object], object]]) -> bool:
        """Whether the questions `asked` in another context have the same answers in this one."""
        return all(repr(_answer(question, self)) == repr(answer) for question, answer in asked)

    def define(self, name: str, value: ir.Expr) -> None:
        """Record the value of an integer name (IR spelling); later comparisons substitute it."""
        polynomial = symbolic.normalize(value, self.definitions)
        if symbolic.is_small(polynomial):
            self.definitions[name] = polynomial

    def equal(self, left: ir.Expr, right: ir.Expr) -> bool:
        """Symbolic equality; lets, bindings and fixed constants are seen through, tunable
        constants are not: their values must not matter (R6b)."""
        return symbolic.equal(left, right, self.definitions)

    def host_form(self, value: ir.Expr) -> ir.Expr | None:
        """`value` over host scalars alone, with bindings substituted; None if it depends on a loop
        variable."""
        if is_host(value):
            return value
        expanded = symbolic.rebuild(symbolic.normalize(value, self.definitions))
        return expanded if is_host(expanded) else None

    def tunable_in(self, value: ir.Expr) -> str | None:
        """The first tunable constant (or name made from one) that an expression uses."""
        references = walk.references(value)
        return next((one.name for one in references if one.name in self.tunable), None)

    def is_one(self, extent: ir.Expr) -> bool:
        """Whether an extent is 1 at all sizes."""
        return symbolic.constant_value(extent, self.definitions) == 1

    def require(self, condition: ir.Expr, span: Span) -> None:
        """Add a launch check of `condition`, once, for the launches that get to this branch."""
        needed = guards.where(self.guards, condition)
        if needed is None or any(r.condition in (condition, needed) for r in self.requires):
            return
        self.requires.append(ir.Require(needed, show(needed), generated=True, span=span))


def _answer(question: Callable[[Context], object], context: Context) -> object:
    """The answer to a question, or the type of the exception that it raises."""
    try:
        return question(context)
    except (ArithmeticError, ValueError, TypeError, InvalidError) as problem:
        return type(problem)


def is_host(expression: ir.Expr) -> bool:
    """Whether an expression is known at launch: it uses nothing that exists only inside loops, on
    the device or on the host, or that was fetched."""
    kinds = {reference.kind for reference in walk.references(expression)}
    return not in_phase(expression) and ir.NameKind.HOST not in kinds


def in_phase(expression: ir.Expr) -> bool:
    """Whether an expression uses what exists only inside a launch."""
    kinds = {reference.kind for reference in walk.references(expression)}
    return bool(tiles_read(expression) or kinds & {ir.NameKind.LOOP, ir.NameKind.BINDING})
