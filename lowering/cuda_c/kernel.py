"""Prints a loop program as the body of a CUDA kernel, which the threads of a block run together.

The threads run one program of the grid in step. What a statement outside of all lane loops does,
every thread does: it computes the same numbers, and the first one alone writes them. The lanes of a
lane loop are dealt out to the threads, and reductions are combined through shuffles. The turns of
an independent loop around lane loops are dealt out to the warps, whose threads then share the lanes
of one turn.

Threads wait for each other where a statement touches memory that another one may have written, or
writes what another one may still read: `_meet` keeps what was touched since the last barrier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TypeAlias

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import equal
from sketchc.ir.walk import names, substitute
from sketchc.lowering.c_source.printer import Printer
from sketchc.lowering.cuda_c.maps import Maps, Operand
from sketchc.lowering.cuda_c.products import Products, along, lies_along
from sketchc.lowering.cuda_c.sums import Sums, Use
from sketchc.lowering.cuda_c.vectors import BYTES, Vectors, at_lanes, most_lanes, vectors_of
from sketchc.lowering.loops import nodes
from sketchc.lowering.precedence import CPP, Code
from sketchc.ops.table import OPS, Category

#: How the library combines lanes.
COMBINERS = {
    "reduce_sum": "plus",
    "reduce_prod": "times",
    "reduce_max": "largest",
    "reduce_min": "smallest",
    "reduce_any": "either",
    "reduce_all": "both",
}

#: Bytes of shared memory at its start through which the warps of a block exchange values.
EXCHANGE_BYTES = 256
#: Neighbouring sums of a product that a thread has at once at most.
_MOST_SUMS = 8
#: Names of what all lanes of a loop are divided by.
DIVISORS = ("divisor", "divisor_2", "divisor_3")


class Group(Enum):
    """Threads that run a statement in step: its number among them, how many they are, how they wait
    for each other, and what combines a value of each."""

    BLOCK = ("thread", "threads", "__syncthreads()", "combined")
    WARP = ("thread % 32", "32", "__syncwarp()", "combined_in_warp")
    LANE = ("", "", "", "")


#: A buffer, and how a thread gets to its element of it: the loop whose lanes are dealt out, by the
#: group, the lanes at a time and the first lane, and the index (of a row, behind its start), in
#: which `_LANE` stands for the lane. None: any thread.
Place: TypeAlias = "tuple[Group, int, ir.Expr, ir.Expr, ir.Expr] | None"
Access: TypeAlias = tuple[str, Place]
_LANE = ir.Ref("lane", ir.NameKind.LOOP)


@attrs.frozen
class Touched:
    """Memory that statements read and write."""

    read: frozenset[Access] = frozenset()
    written: frozenset[Access] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.read | other.read, self.written | other.written)

    def conflicts(self, other: Touched) -> bool:
        """Whether one thread may write here what another touches there."""
        mine, its = self.read | self.written, other.read | other.written
        return _meet_in(self.written, its) or _meet_in(mine, other.written)

    def by_anyone(self) -> Touched:
        """The same, whichever thread it is."""
        read, written = (
            frozenset((buffer, None) for buffer, _ in accesses)
            for accesses in (self.read, self.written)
        )
        return Touched(read, written)


def _meet_in(some: Iterable[Access], others: Collection[Access]) -> bool:
    """Whether different threads may get to one element."""
    return any(
        buffer == other and (place is None or place != its)
        for buffer, place in some
        for other, its in others
    )


@attrs.define(kw_only=True)
class KernelPrinter(Printer):
    """Prints the statements of one program. `written` are the buffers that the launch writes, and
    `owners` gives for a buffer in the memory of another one the name of that one; `locals` are the
    program's, whose values may differ from place to place; `constants` are the values of the
    sketch's constants. Operands of `products` lie in shared memory from `staging` on, where they do
    not take the destination's place; those that are `mapped` may come by `maps`."""

    written: Collection[str] = ()
    locals: frozenset[str] = frozenset()
    owners: Mapping[str, str] = attrs.field(factory=dict)
    constants: Mapping[str, ir.Expr] = attrs.field(factory=dict)
    products: Products
    sums: Sums
    staging: int = 0
    mapped: Mapping[int, tuple[Operand, Operand]] = attrs.field(factory=dict)
    maps: Maps = Maps()
    group: Group = Group.BLOCK
    _pending: Touched = Touched()
    _rows: dict[str, nodes.Row] = attrs.field(factory=dict)
    _partial: dict[str, str] = attrs.field(factory=dict)
    #: what holds a thread's lanes of a buffer, by the loop's variable; when one of them exists
    _lanes_of: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _exists: str = ""
    #: the names of what quotients of lanes are divided by
    _divisors: dict[nodes.Value, str] = attrs.field(factory=dict)

    # ------------------------------------------------------------ waiting

    def _touched(
        self, statements: Iterable[nodes.Statement], dealt: nodes.LaneLoop | None = None
    ) -> Touched:
        """What statements touch, in the lanes of the loop `dealt` if there is one."""
        everything = nodes.walk(tuple(statements))
        rows = {
            row.name: row
            for loop in everything
            if isinstance(loop, nodes.LaneLoop)
            for row in loop.rows
        }
        self._rows |= rows
        read: set[Access] = set()
        written: set[Access] = set()
        vectors = None if dealt is None else self._vectors(dealt)
        width = 1 if vectors is None else vectors.width

        def add(found: set[Access], buffer: str, index: ir.Expr | None) -> None:
            memory, row = self._memory(buffer), self._rows.get(buffer)
            place: Place = None
            if dealt is not None and index is not None:
                start = ir.Literal(0) if row is None else row.base
                own = substitute(index, {dealt.variable: _LANE})
                if not any(self.locals & names(each) for each in (dealt.lower, start, index)):
                    place = (self.group, width, dealt.lower, start, own)
            found.add((memory, place))

        for statement in everything:
            for part in nodes.parts(statement):
                match part:
                    case nodes.Element(buffer, index):
                        add(read, buffer, index)
                    case nodes.MatrixView(writable=writable) | nodes.TileView(writable=writable):
                        add(written if writable else read, part.buffer, None)
            match statement:
                case nodes.Write(buffer, index) | nodes.AtomicUpdate(_, buffer, index):
                    add(written, buffer, index)
                case nodes.Accumulate(_, nodes.Element(buffer, index)):
                    add(written, buffer, index)
        known = frozenset(access for access in read if access[0] in self.written)
        return Touched(known, frozenset(written))

    def _memory(self, buffer: str) -> str:
        row = self._rows.get(buffer)
        buffer = buffer if row is None else row.buffer
        return self.owners.get(buffer, buffer)

    def _meet(self, statement: nodes.Statement) -> None:
        """Print a barrier if a statement must not run before all threads have done what is pending;
        what it touches is pending from here on."""
        dealt = statement if isinstance(statement, nodes.LaneLoop) else None
        touched = self._touched([statement], dealt)
        if self._pending.conflicts(touched):
            self.line(f"{self.group.value[2]};")
            self._pending = Touched()
        self._pending |= touched

    @contextmanager
    def _run_by(self, group: Group) -> Iterator[None]:
        """What is printed in this context is run by a smaller group of threads, each such group for
        itself."""
        before, pending = self.group, self._pending
        self.group, self._pending = group, Touched()
        yield
        self.group, self._pending = before, pending

    # ------------------------------------------------------------ statements

    def _statement(self, statement: nodes.Statement) -> None:
        if self.group is Group.LANE:
            self._of_lane(statement)
            return
        match statement:
            case nodes.Write() | nodes.AtomicUpdate() | nodes.Accumulate(_, nodes.Element()):
                self._meet(statement)
                self.open(f"if ({self.group.value[0]} == 0)")
                Printer._statement(self, statement)
                self.close()
            case nodes.Call():
                self._meet_product(statement, statement)
                Printer._statement(self, statement)
            case nodes.Define() | nodes.Assign() | nodes.Accumulate():
                self._meet(statement)
                Printer._statement(self, statement)
            case nodes.LaneLoop():
                self._lanes(statement)
            case nodes.Loop(independent=True) if self._is_shared_out(statement):
                self._turns(statement)
            case nodes.SerialLoop() if self.group is Group.BLOCK and along(statement) is not None:
                self._products(statement)
            case nodes.Loop() if nodes.is_scatter(statement):
                self._scatter(statement)
            case _:
                Printer._statement(self, statement)

    def _of_lane(self, statement: nodes.Statement) -> None:
        """A statement that one thread runs for itself."""
        match statement:
            case nodes.LaneLoop():
                for row in statement.rows:
                    self._row(row)
                bounds = (statement.lower, statement.upper, ir.Literal(1))
                self._serial(nodes.SerialLoop(statement.variable, *bounds, statement.body))
            case nodes.Write(buffer, ir.Ref(name), value) if (buffer, name) in self._lanes_of:
                self.line(f"{self._lanes_of[buffer, name]}[part] = {self.value(value)};")
            case _:
                Printer._statement(self, statement)

    def _serial(self, loop: nodes.SerialLoop) -> None:
        if self.group is Group.LANE:
            Printer._serial(self, loop)
            return
        before, inside = self._pending, self._touched(loop.body).by_anyone()
        # A turn comes after the one before; what that touched is pending as well.
        self._pending |= inside if inside.written else Touched()
        Printer._serial(self, loop)
        # There may have been a barrier in a turn, or no turn.
        self._pending |= before | inside

    def _branch(self, branch: nodes.Branch) -> None:
        """All threads take the same side."""
        before = self._pending
        Printer._branch(self, attrs.evolve(branch, orelse=()))
        after = self._pending
        if branch.orelse:
            self._pending = before
            self.open("else")
            self.statements(branch.orelse)
            self.close()
        self._pending |= before | after

    def _call(self, call: nodes.Call) -> None:
        """The library's functions deal their work out to the threads of the block."""
        if call.name == "multiply":
            self._multiply(call, None)
        else:
            Printer._call(self, call)

    def _arguments(self, call: nodes.Call) -> list[str]:
        """See `Printer`; threads that scan a line together exchange values through memory."""
        arguments = Printer._arguments(self, call)
        if call.name in OPS and OPS[call.name].category is Category.SCAN:
            arguments.append("block_memory")
        return arguments

    # ------------------------------------------------------------ products

    def _products(self, loop: nodes.SerialLoop) -> None:
        """A loop whose turns all add to one product, whose elements stay in registers."""
        if loop.text:
            self.comment(loop.text)
        call = along(loop)
        assert call is not None
        for statement in loop.body:
            if statement is call:
                self._meet_product(loop, call)
                with self.tracing(*call.origins):
                    self._multiply(call, loop)
            else:
                self.statement(statement)

    def _meet_product(self, statement: nodes.Statement, call: nodes.Call) -> None:
        """See `_meet`; what is done with the sums is done in the product's place."""
        self._meet(statement)
        if id(call) in self.sums.uses:
            self._meet(self.sums.uses[id(call)].rows)

    def _multiply(self, call: nodes.Call, loop: nodes.SerialLoop | None) -> None:
        """The product of all turns of a loop, or of one call."""
        shape = self.products.shapes[id(call)]
        left, right, to = call.views
        assert isinstance(left, nodes.MatrixView)
        assert isinstance(right, nodes.MatrixView)
        deep = (lies_along(left.column) or not lies_along(left.row), lies_along(right.row))
        told = [*map(str, shape.arguments), *("true" if each else "false" for each in deep)]
        told += [self.library(shape.units)] if shape.units else []
        turns, first, step = "1", "", ""
        if loop is not None:
            turns = str(self.scalar(loop.stop))
            if loop.start != ir.Literal(0) or loop.step != ir.Literal(1):
                span = self.scalar(ir.Binary("-", loop.stop, loop.start))
                turns = str(self.helper("ceil_div", span, self.scalar(loop.step)))
                first, step = str(self.scalar(loop.start)), str(self.scalar(loop.step))
        staging = f"block_memory + {self.staging}"
        if id(call) in self.products.places:
            staging = f"reinterpret_cast<char *>({self.name(to.buffer)})"
        how = f"{self.library(shape.how)}<{', '.join(told)}>"
        most = most_lanes(call.extents[2], self.constants)
        single = "true" if most is not None and most <= shape.depth else "false"
        operands = self.mapped.get(id(call), ())
        multiply = self.library("multiply_mapped" if operands else "multiply_along")
        self.line(f"{multiply}<{how}, {single}>(")
        self.depth += 1
        if operands:
            maps = (self.maps.names[each.map] for each in operands)
            self.line(f"{', '.join((self.maps.flag, *maps))},")
        self.line(f"{turns},")
        variable = "" if loop is None else self.name(loop.variable)
        turn = f"{variable}_turn" if first else variable
        self.open(f"[&]([[maybe_unused]] int64_t {turn})" if loop else "[&](int64_t)")
        if first:
            self.line(f"const int64_t {variable} = {first} + {turn} * {step};")
        kinds = f"{self.kind(left.dtype)}, {self.kind(right.dtype)}"
        self.line(f"return {self.library('factors')}<{kinds}>{{")
        self.depth += 1
        self.line(f"{self.listed(call.extents)},")
        self.line(f"{self._view(left)},")
        windows = [f"{{{self.listed(each.window)}}}" for each in operands]
        self.line(f"{', '.join((self._view(right), *windows))}}};")
        self.depth -= 2
        self.line("},")
        use = self.sums.uses.get(id(call))
        if use is None:
            begun = "true" if id(call) in self.sums.begun else "false"
            kind = f"{self.library('sums_in')}<{self.kind(to.dtype)}, {begun}>"
            self.line(f"{kind}{{{self._view(to)}}}, {staging});")
        else:
            self._used(use, to.dtype, staging)
        self.depth -= 1

    def _used(self, use: Use, dtype: DType, staging: str) -> None:
        """What takes the sums of a product, some neighbouring columns at a time."""
        vectors = at_lanes(use.columns)
        assert vectors is not None
        kind, number = self.kind(dtype), self.name(use.rows.variable)
        rows = [row for row in use.columns.rows if row.name != use.name]
        # Sums are in registers: what lies in memory says how many lanes are 16 bytes.
        named = {row.name for row in use.columns.rows}
        memory = {**dict(vectors.read), **dict(vectors.written)}
        whole = [self.name(buffer) for buffer in memory if buffer not in named]
        kinds = (each for buffer, each in memory.items() if buffer != use.name)
        largest = max((each.bytes for each in kinds), default=dtype.bytes)
        width = min(BYTES // largest, _MOST_SUMS)
        even = self._even(rows, whole, use.rows, width)
        self.line(f"{self.library('sums_for')}<{kind}, {width}>({even},")
        self.depth += 1
        sums = f"{use.name}_lanes"
        # A buffer of the sketch may be called as a parameter is: its rows are told from it.
        called = {
            name: f"{name}_" for name in ("first", "left") if name in {r.buffer for r in rows}
        }
        first, left = (called.get(name, name) for name in ("first", "left"))
        self.open(
            f"[&]([[maybe_unused]] int64_t {number}, int64_t {first}, auto {left}, auto {sums})"
        )
        with self._run_by(Group.LANE):
            for each in use.rows.body:
                if each is not use.columns:
                    self.statement(each)
            for row in rows:
                self._row(row)
            for name, parameter in called.items():
                self.line(f"const auto {name} = {parameter};")
            self._at_lanes(use.columns, vectors, f"{sums}.size", {use.name})
        self.depth -= 2
        self.line(f"}}), {staging});")

    def _even(
        self, rows: Iterable[nodes.Row], whole: Iterable[str], loop: nodes.Loop, width: int
    ) -> str:
        """Whether so many lanes may be read and written at once in every turn of a loop: of buffers
        that are read as a `whole`, and of rows, if in the first two turns, where places move by the
        same from turn to turn."""
        variable = ir.Ref(loop.variable, ir.NameKind.LOOP)
        places = list(whole)
        for row in rows:
            first, second = (
                substitute(row.base, {loop.variable: ir.Literal(turn)}) for turn in (0, 1)
            )
            moved = ir.Binary("*", variable, ir.Binary("-", second, first))
            if not equal(row.base, ir.Binary("+", first, moved)):
                return "false"
            places += [self._offset(row.buffer, base) for base in (first, second)]
        return str(self.helper("aligned", *dict.fromkeys(places), types=str(width)))

    # ------------------------------------------------------------ lanes

    def _is_shared_out(self, loop: nodes.Loop) -> bool:
        inside = nodes.walk(loop.body)
        loops = any(isinstance(each, nodes.LaneLoop) for each in inside)
        return self.group is Group.BLOCK and loops and not _calls(inside)

    def _turns(self, loop: nodes.Loop) -> None:
        """The turns of an independent loop, dealt out to the warps."""
        self._meet(loop)
        with self._run_by(Group.WARP):
            self.open(
                self._dealt(loop.variable, loop.lower, loop.upper, "thread / 32", "threads / 32")
            )
            self.statements(loop.body)
            self.close()

    def _scatter(self, loop: nodes.Loop) -> None:
        """Lanes that are written to places known when the kernel runs: by all threads where each
        write is indivisible, else by one, in order."""
        self._meet(loop)
        number, count = self.group.value[:2]
        atomic = all(
            isinstance(each, nodes.AtomicUpdate) for each in nodes.memory_writes(loop.body)
        )
        with self._run_by(Group.LANE):
            if atomic:
                self.open(self._dealt(loop.variable, loop.lower, loop.upper, number, count))
                self.statements(loop.body)
            else:
                self.open(f"if ({number} == 0)")
                Printer._statement(self, loop)
            self.close()

    def _lanes(self, loop: nodes.LaneLoop) -> None:
        """The lanes of a loop, dealt out to the threads, and what they are combined to."""
        self._meet(loop)
        for row in loop.rows:
            self._row(row)
        partial = {}
        for reduction in loop.reductions:
            kind, how = self.kind(reduction.dtype), self.library(COMBINERS[reduction.operation])
            partial[reduction.name] = f"{self.name(reduction.name)}_of_thread"
            self.line(f"{kind} {partial[reduction.name]} = {how}<{kind}>::start;")
        number, count, _, combine = self.group.value
        vectors = self._vectors(loop)
        with self._run_by(Group.LANE):
            self._partial = partial
            if vectors is None:
                self.open(self._dealt(loop.variable, loop.lower, loop.upper, number, count))
                self.statements(loop.body)
                self.close()
            else:
                self._several(loop, vectors, number, count)
            self._partial = {}
        if loop.reductions and self.group is Group.BLOCK:
            self._pending = Touched()  # all threads meet where values are combined
        for reduction in loop.reductions:
            how = f"sketch::{COMBINERS[reduction.operation]}<{self.kind(reduction.dtype)}>"
            memory = ["block_memory"] if self.group is Group.BLOCK else []
            whole = self.helper(combine, partial[reduction.name], *memory, types=how)
            name = self.name(reduction.name)
            self.line(f"{name} = {how}::combine({name}, {whole});")

    def _vectors(self, loop: nodes.LaneLoop) -> Vectors | None:
        """How many lanes of a loop a thread runs at a time."""
        threads = {Group.BLOCK: 32 * self.products.warps, Group.WARP: 32, Group.LANE: 0}[self.group]
        return vectors_of(loop, threads, self.constants) if threads else None

    def _several(self, loop: nodes.LaneLoop, vectors: Vectors, number: str, count: str) -> None:
        """The lanes of a loop, several at a time by one thread."""
        width = vectors.width
        start = CPP.binary("*", Code(number, CPP.binary_levels["%"]), Code(str(width)))
        places = [self.name(name) for name in dict(vectors.read) | dict(vectors.written)]
        if loop.lower != ir.Literal(0):
            lower = self.scalar(loop.lower)
            start = CPP.binary("+", lower, start)
            places = [str(CPP.binary("+", Code(place), lower)) for place in places]
        given = [start, f"{count} * {width}", self.scalar(loop.upper)]
        given.append(self.helper("aligned", *places, types=str(width)))
        head = f"{self.library('over_lanes')}<{width}, {vectors.turns}>"
        divisors = zip(DIVISORS, vectors.divisors, strict=False)
        self._divisors = {value: name for name, value in divisors}
        library = self.library("divisor") if self._divisors else ""
        kept = [f"{n} = {library}({self.value(value)})" for value, n in self._divisors.items()]
        turn = f"[{', '.join(['&', *kept])}](int64_t first, auto left)"
        self.open(f"{head}({', '.join(map(str, given))}, {turn}")
        self._at_lanes(loop, vectors, str(vectors.width))
        self._divisors = {}
        self.depth -= 1
        self.line("});")

    def _at_lanes(
        self, loop: nodes.LaneLoop, vectors: Vectors, width: str, given: Collection[str] = ()
    ) -> None:
        """`width` lanes from `first` on, of which so many are `left`; those of buffers that are
        `given` are there."""
        written = dict(vectors.written)
        for buffer, dtype in {**written, **dict(vectors.read)}.items():
            name = self._lanes_of[buffer, loop.variable] = f"{self.name(buffer)}_lanes"
            if buffer in given:
                continue
            if buffer in dict(vectors.read):
                place = f"{self.name(buffer)} + first"
                constant = "" if buffer in written else "const "
                loaded = self.helper("load_lanes", place, "left", types=width)
                self.line(f"{constant}auto {name} = {loaded};")
            else:
                self.line(f"{self.library('lanes')}<{self.kind(dtype)}, {width}> {name};")
        self.line("#pragma unroll")
        self.open(f"for (int part = 0; part < {width}; ++part)")
        if vectors.numbered:
            self.line(f"const int64_t {self.name(loop.variable)} = first + part;")
        self._exists = "part < left"
        self.statements(loop.body)
        self._exists = ""
        self.close()
        for buffer in written:
            place = f"{self.name(buffer)} + first"
            values = self._lanes_of[buffer, loop.variable]
            self.line(f"{self.helper('store_lanes', place, 'left', values)};")
        self._lanes_of = {}

    def _dealt(self, variable: str, lower: ir.Expr, upper: ir.Expr, number: str, count: str) -> str:
        """The head of a loop that one of `count` threads or warps runs its share of."""
        name, start = self.name(variable), Code(number, CPP.binary_levels["%"])
        if lower != ir.Literal(0):
            start = CPP.binary("+", self.scalar(lower), start)
        end = self.scalar(upper)
        return f"for (int64_t {name} = {start}; {name} < {end}; {name} += {count})"

    def value(self, node: nodes.Value) -> Code:
        """See `Expressions`; a reduction inside of its loop is the thread's part, and an element at
        one of several lanes is in the thread's hands."""
        match node:
            case nodes.Element(buffer, ir.Ref(name)) if (buffer, name) in self._lanes_of:
                return Code(f"{self._lanes_of[buffer, name]}[part]")
            case nodes.Local(name) if name in self._partial:
                return Code(self._partial[name])
            case nodes.Apply("div", (dividend, by)) if by in self._divisors:
                return CPP.binary("/", self.value(dividend), Code(self._divisors[by]))
        return Printer.value(self, node)

    def _accumulate(self, statement: nodes.Accumulate) -> None:
        target = self.value(statement.target)
        how = self.library(COMBINERS[statement.operation])
        kind = self.kind(statement.target.dtype)
        value = str(self.value(statement.value))
        if self._exists:
            value = f"{self._exists} ? {value} : {how}<{kind}>::start"
        self.line(f"{target} = {how}<{kind}>::combine({target}, {value});")


def _calls(statements: Iterable[nodes.Statement]) -> bool:
    return any(isinstance(statement, nodes.Call) for statement in statements)
