"""The plan: a typed sketch mapped onto one target. Printed for people, read by both Coders.

Passes (lowering/passes, one file each, in the order of passes/pipeline.PASSES) fill the plan in. An
emitter walks the plan and makes no decision that the plan records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeGuard

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.memo import per_sketch
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import constant_value, has_floats, product
from sketchc.ir.walk import expressions
from sketchc.lowering.aims import Aims, aims_of
from sketchc.ops.table import OPS, Category, Fact


@attrs.frozen
class Hardware:
    """One chip, read from lowering/hardware/<name>.toml, rates in bytes/s. `facts` keeps the whole
    file, with the source of each fact."""

    name: str
    family: str  # "nvidia", "ascend", "cpu"
    cores: int  # SMs, vector cores, or CPU cores
    matrix_cores: int  # cube cores; equal to `cores` elsewhere
    memory_bandwidth: float
    facts: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @cached_property
    def aims(self) -> Aims:
        """The tile sizes that a plan aims at on this chip."""
        return aims_of(self.facts)


@attrs.frozen
class LoopStyle:
    """How a target runs loop programs (`lowering.loops`). Storages of a compile-time size, and with
    `near_at_bounds` those whose size has a bound, lie in the memory `near`, where one of them takes
    no more than `near_bytes` and all of a program no more than `program_bytes`; others in an
    "arena". With `sums_leave`, what matrix products add to may take all that the chip has of that
    memory but for so many bytes. `on_cores`: lanes are the vectors of a CPU's
    core, for which rows are jammed, large outputs written past the caches, and operands of products
    packed. No local of a program has one of the `names`, which the emitter itself uses."""

    near: str  # "stack", "shared"
    near_bytes: int
    program_bytes: int
    on_cores: bool
    names: tuple[str, ...] = ()
    near_at_bounds: bool = False
    sums_leave: int | None = None
    arena_bytes: int | None = None  # of one program, where no memory of the chip is the arena

    def most_bytes(self, facts: Mapping[str, Any]) -> int:
        """The bytes of the near memory that a program's storages take at most on a chip with these
        `Hardware.facts`."""
        if self.sums_leave is None:
            return self.program_bytes
        return max(self.program_bytes, int(facts["memory"][self.near]["bytes"]) - self.sums_leave)

    def settled(
        self, storages: Iterable[Storage], sketch: ir.Sketch, facts: Mapping[str, Any]
    ) -> tuple[Storage, ...]:
        """The storages of one program of a sketch with their memories decided by their sizes at its
        constants' values, the first ones first; see `most_bytes`."""
        constants = literals(sketch)
        named: tuple[ir.Symbol | ir.Let, ...] = (*sketch.symbols, *sketch.lets)
        bounded = named if self.near_at_bounds else ()
        bounds = {s.name: ir.Literal(s.upper_bound) for s in bounded if s.upper_bound is not None}
        found, taken, limit = [], 0, self.program_bytes
        sums = {each.destination for each in walk.in_phases(sketch.phases) if is_product(each)}
        for storage in storages:
            # An extent that is computed of bounded ones may be largest somewhere else.
            largest = [bounds.get(getattr(e, "name", ""), e) for e in storage.extents]
            elements = constant_value(walk.substitute(product(largest), constants))
            size = None if elements is None else max(elements, 0) * storage.dtype.bytes
            may = self.sums_leave is not None and storage.tile in sums
            of_sums = may and size is not None and size > self.near_bytes
            most = max(limit, self.most_bytes(facts)) if of_sums else limit
            near = size is not None and (size <= self.near_bytes or of_sums)
            if storage.memory or size is None or not near or taken + size > most:
                found.append(attrs.evolve(storage, memory=storage.memory or ARENA))
            else:
                found.append(attrs.evolve(storage, memory=self.near))
                taken += -(-size // LINE_BYTES) * LINE_BYTES
                limit = most
        return tuple(found)


#: The memory of storages that are large, or of sizes known only at launch.
ARENA = "arena"
#: Storages begin on such borders.
LINE_BYTES = 128


@attrs.frozen
class LaunchOption:
    """What a launch can be told beside its arguments, as `--set` names it, with the `values` that
    are worth trying; 0, for which the emitter has a rule, is always one. `of_loops`: it means
    something only where a loop loads tiles ahead."""

    name: str
    values: tuple[int, ...]
    of_loops: bool = False


@attrs.frozen
class Capabilities:
    """What a target can do; passes ask this, never the target's name."""

    name: str  # "triton_cuda"
    default_hardware: str
    dtypes: frozenset[str]  # spellings of DType
    precisions: frozenset[str]  # of gemm; "ieee" is always one
    power_of_two_extents: bool  # physical extents are padded to powers of two
    symbolic_extents: bool  # a tile axis may have a run-time physical extent (arena), else bucket
    persistent_grid: bool  # 1-D grid over the cores, each looping over its share
    maximum_elements: int  # per tile
    program_bits: int | None = None  # a launch has fewer than 2**program_bits programs
    matrix_minimum: Mapping[str, int] = attrs.field(factory=dict)  # dtype -> smallest M, N, K
    ops_missing: frozenset[str] = frozenset()
    #: set where the emitter prints programs of `lowering.loops`, whose fusion decides which tiles
    #: take memory
    loops: LoopStyle | None = None
    #: "add", "max", "min" -> spellings of the types updated atomically; no entry: all of `dtypes`
    atomics: Mapping[str, frozenset[str]] = attrs.field(factory=dict)
    #: memories for tiles by name, with their bytes, in place of those of the chip's file
    own_memory: tuple[tuple[str, int], ...] = ()
    launch_options: tuple[LaunchOption, ...] = ()
    #: predictions for kernels of this target have been compared with times of whole tuning spaces
    #: (docs/COST.md): what is predicted to take less than this share of another choice's time may
    #: be chosen in its place; None: not compared
    trusted_below: float | None = None

    def memories(self, facts: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """The memories of one program's tiles on a chip with these `Hardware.facts`, by name: how
        many "bytes" each has, and a "note" on some."""
        if self.own_memory:
            return {name: {"bytes": size} for name, size in self.own_memory}
        style = self.loops
        if style is None or style.arena_bytes is None:
            found: Mapping[str, Mapping[str, Any]] = facts["memory"]
            return found
        note = "global memory for each program, for what does not fit elsewhere; slower"
        return {
            style.near: {"bytes": style.most_bytes(facts)},
            ARENA: {"bytes": style.arena_bytes, "note": note},
        }

    def places(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """The memory that a tile is planned into on such a chip, by the tile's role ("default",
        "matrix_left", ...)."""
        roles: Mapping[str, str] = facts["placement"]
        if self.own_memory:
            return dict.fromkeys(roles, self.own_memory[0][0])
        arena = self.loops is not None and self.loops.arena_bytes is not None
        return dict.fromkeys(roles, ARENA) if arena else roles


@attrs.frozen
class GridAxis:
    """One parallel loop of the grid, outermost first: variable = start + step * index, with `count`
    iterations (an expression over host scalars). `start` may name variables of axes further out;
    then `count` is the maximum over their iterations, and an `If` in the body skips those in
    excess."""

    variable: str
    start: ir.Expr
    step: ir.Expr
    count: ir.Expr
    text: str = ""  # the loop as written in the sketch
    span: Span = attrs.field(default=NOWHERE, eq=False, repr=False)


@attrs.frozen
class PhysicalExtent:
    """The extent that a tile axis has on the target.

    Exactly one form: `value` (a compile-time integer), or `bucket_of` (a host scalar expression
    whose next power of two is compiled in, one variant per bucket), or neither (`run_time`: an
    arena axis with the logical extent).
    """

    value: int | None = None
    bucket_of: ir.Expr | None = None
    name: str = ""  # the compile-time parameter that carries a bucket, e.g. "D2_BLOCK"
    padded: bool = False  # physical may exceed logical: `lane < extent` joins every domain


@attrs.frozen
class TilePlan:
    """Where one tile lives. `bytes` is the physical size, None when it depends on a bucket."""

    tile: ir.Tile
    extents: tuple[PhysicalExtent, ...]
    memory: str  # "register", "shared", "unified_buffer", "l0", "stack", "arena", "fused"
    bytes: int | None
    reason: str = ""
    home: str = ""  # the target's memory for such tiles; `memory` is where its fusion leaves it


@attrs.frozen
class MemoryUse:
    """How much of one memory a phase's tiles take at the fullest moment, in bytes."""

    memory: str
    bytes: int
    capacity: int
    parts: tuple[tuple[str, int], ...]  # (tile, bytes) at that moment


@attrs.frozen
class Storage:
    """Memory private to one program (grid point): `extents` elements, row-major, which hold `tile`
    or what the emitter needs beside tiles. `memory` is "" until `LoopStyle.settled` decides."""

    name: str
    tile: str
    dtype: DType
    extents: tuple[ir.Expr, ...]
    memory: str = ""


@attrs.frozen
class PhasePlan:
    """One launch. `body` runs once per grid point with the grid variables bound; loops that remain
    in it are sequential for this target. `lives` gives the first write and the last use of each
    tile, as positions in the walk of `body`; `storages` what a target that fuses by itself reserves
    for one program, buffers that no tile asked for included (None for other targets). `work` is
    what one launch does, in operations and in bytes of loads and stores, over host scalars (None
    where the host does not know)."""

    index: int
    name: str  # "rms_norm_optimized", or "..._phase_2"
    grid: tuple[GridAxis, ...]
    body: tuple[ir.Statement, ...]
    lives: Mapping[str, tuple[int, int]] = attrs.field(factory=dict, repr=False)
    storages: tuple[Storage, ...] | None = None
    memory_use: tuple[MemoryUse, ...] = ()  # physical sizes, buckets at their largest or a sample
    work: ir.Expr | None = None


@attrs.frozen
class HintAnswer:
    """What one hint of the sketch became on this target: `subject` is the loop or tile that carries
    it ("loop k", "tile acc"), `became` what was done ("num_stages=3", "not used"), `reason` why.
    `unfused` is the answer for code by others, where the emitter's own fusion decided `became`."""

    hint: str
    subject: str
    became: str
    reason: str = ""
    unfused: HintAnswer | None = None


#: `HintAnswer.became` of a hint that no pass and no emitter uses.
IGNORED = "ignored"


@attrs.frozen
class Plan:
    """The annotated sketch for one target.

    `fills` maps `(phase, position)` to the value that a masked Load puts into its void lanes
    (`other=` in Triton); `position` counts the statements of the phase body in the order of
    `ir.walk`. `neutral` maps the positions of cross-lane Computes to the operand indices whose void
    lanes are already the operation's identity (LOWERING 4), and those of masked additions to the
    operand that is the destination, where the others are zero on lanes that must not change: no
    select needed there. `options` are the values of `Capabilities.launch_options` that were asked
    for, of all launches.
    """

    sketch: ir.Sketch
    capabilities: Capabilities
    hardware: Hardware
    phases: tuple[PhasePlan, ...]
    tiles: Mapping[str, TilePlan]
    fills: Mapping[tuple[int, int], float | int | bool] = attrs.field(factory=dict)
    neutral: Mapping[tuple[int, int], frozenset[int]] = attrs.field(factory=dict)
    bytes_moved: ir.Expr | None = None  # compulsory traffic, over host scalars
    traffic: ir.Expr | None = None  # bytes of all loads and stores, each time they run
    flops: ir.Expr | None = None
    notes: tuple[str, ...] = ()
    answers: tuple[HintAnswer, ...] = ()
    options: Mapping[str, int] = attrs.field(factory=dict)

    def cores(self, phase: PhasePlan) -> int:
        """The cores that run a launch: matrix products take the matrix cores."""
        return self.hardware.matrix_cores if has_product(phase.body) else self.hardware.cores

    @property
    def positions(self) -> Iterator[tuple[tuple[int, int], ir.Statement]]:
        """The statements of all launches by `(phase, position)`."""
        for phase in self.phases:
            for position, statement in enumerate(walk.statements(phase.body)):
                yield (phase.index, position), statement

    @property
    def target(self) -> str:
        """The target's name."""
        return self.capabilities.name


def stores(body: Iterable[ir.Statement]) -> bool:
    """True where `body` writes to memory (a store or an atomic update), at any depth."""
    return any(isinstance(s, ir.Store | ir.Atomic) for s in walk.statements(body))


def is_product(statement: ir.Statement) -> TypeGuard[ir.Compute]:
    """True for a matrix product."""
    return (
        isinstance(statement, ir.Compute) and OPS[statement.operation].category is Category.MATRIX
    )


def has_product(body: tuple[ir.Statement, ...]) -> bool:
    """True where `body` contains a matrix product, at any depth."""
    return any(is_product(statement) for statement in walk.statements(body))


def float_parts(statement: ir.Statement) -> Iterator[ir.Binary]:
    """The binary operations on float scalars, such as comparisons, that a kernel evaluates in
    `statement`; none for a tile operation, whose scalar float operands the host computes."""
    if not isinstance(statement, ir.Compute):
        for expression in expressions(statement):
            yield from _float_parts(expression)


def takes_as_it_is(statement: ir.Compute) -> bool:
    """Whether `statement` is a conversion that reads a scalar operand in the operand's own type:
    one to an integer or bool, or one that rounds in a direction. Any other statement reads it in
    the type of its operation."""
    rounding = statement.attributes.get("round", "nearest")
    converts = Fact.CONVERTS in OPS[statement.operation].facts
    return converts and (not statement.dtype.is_float or rounding != "nearest")


def carried(statement: ir.Compute) -> Iterator[ir.ScalarOperand]:
    """The scalar operands, numbers excepted, that `statement` reads in their own types: those of
    some conversions (`takes_as_it_is`), and those of the type of the statement itself."""
    for operand in statement.operands:
        if not isinstance(operand, ir.ScalarOperand) or _is_number(operand.value):
            continue
        if takes_as_it_is(statement) or operand.dtype is statement.dtype:
            yield operand


def _is_number(expression: ir.Expr) -> bool:
    match expression:
        case ir.Literal() | ir.Unary("-", ir.Literal()) | ir.Ref(_, ir.NameKind.CONSTANT):
            return True
        case _:
            return False


def _float_parts(expression: ir.Expr) -> Iterator[ir.Binary]:
    match expression:
        case ir.Binary("and" | "or", left, right):
            yield from _float_parts(left)
            yield from _float_parts(right)
        case ir.Unary("not", operand):
            yield from _float_parts(operand)
        case ir.Binary() if has_floats(expression):
            yield expression


def literals(sketch: ir.Sketch) -> dict[str, ir.Expr]:
    """The values of the sketch's constants as literals, by name."""
    return {constant.name: ir.Literal(constant.value) for constant in sketch.constants}


def with_constants(sketch: ir.Sketch, values: Mapping[str, int | float | bool]) -> ir.Sketch:
    """The sketch with the constants in `values` set to these and marked as chosen by the plan."""
    constants = tuple(
        attrs.evolve(c, value=values[c.name], chosen_by="plan") if c.name in values else c
        for c in sketch.constants
    )
    return attrs.evolve(sketch, constants=constants)


def subject(plan: Plan, loop: ir.For) -> str:
    """A loop in words: `loop k`, or `loop k of line 7` where several loops have that name."""
    name = _source_name(loop)
    alike = sum(_source_name(other) == name for other in source_loops(plan.sketch))
    return f"loop {name}" if alike == 1 else f"loop {name} of line {loop.span.line}"


def _source_name(loop: ir.For) -> str:
    return loop.text.split()[1] if loop.text else loop.variable


@per_sketch
def source_loops(sketch: ir.Sketch) -> tuple[ir.For, ...]:
    """The loops of the sketch, those on the grid included, in program order."""
    return tuple(each for each in walk.in_phases(sketch.phases) if isinstance(each, ir.For))
