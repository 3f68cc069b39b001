"""Prints a loop program as a TileLang kernel, which the threads of a block run together.

What a statement outside of all lane loops does, every thread does: it computes the same numbers.
Lanes are dealt out by `T.Parallel`, with a guard where their number is no multiple of the threads,
and reductions are combined through a fragment with one element for each thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.walk import references
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.loops import nodes
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.tilelang_cuda.expressions import TYPES, Expressions, cast
from sketchc.lowering.tilelang_cuda.facts import computes, is_of_bits
from sketchc.lowering.tilelang_cuda.fragments import ZERO, Fragments
from sketchc.lowering.tilelang_cuda.held import HOLDING, Held, Key, key
from sketchc.lowering.tilelang_cuda.products import (
    MatrixProduct,
    Operand,
    is_thin,
)
from sketchc.lowering.tilelang_cuda.vectors import Moved, moved

#: Threads of a block, among which lanes are dealt out.
THREADS = 128
#: Turns of a loop that are written out: so many reads of a thread are on their way at once.
_WRITTEN_OUT = 8
#: Macros of the library that combine what the threads have.
_REDUCTIONS = {
    "reduce_sum": "sum_of",
    "reduce_prod": "product_of",
    "reduce_max": "largest_of",
    "reduce_min": "smallest_of",
    "reduce_any": "largest_of",
    "reduce_all": "smallest_of",
}
#: The value that changes nothing.
_STARTS = {"reduce_sum": 0, "reduce_prod": 1, "reduce_any": 0, "reduce_all": 1}
#: How two values are combined, as an operation of the op table.
COMBINERS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_any": "logical_or",
    "reduce_all": "logical_and",
}
#: Macros of the library that scan, with their start.
_SCANS = {"cumsum": (0, "False"), "cumprod": (1, "True")}


@attrs.define
class KernelPrinter(Fragments):
    """Prints the statements of one program; `copies` are the storages of which every thread has
    one of its own."""

    copies: Collection[str] = attrs.field(default=(), kw_only=True)
    #: stages of loops around products
    stages: int = attrs.field(default=0, kw_only=True)
    #: parameters for the bits of floats, by tensor and type of integers
    bits: dict[tuple[str, DType], str] = attrs.field(factory=dict, kw_only=True)
    #: lanes that a thread moves at once where sizes and addresses are multiples of them
    width: int = attrs.field(default=1, kw_only=True)
    #: buffers in global memory: see `vectors.moved`
    memories: Mapping[str, ir.Expr] = attrs.field(factory=dict, kw_only=True)
    #: rows that threads hold between loops, and the fragment of each
    held: Held | None = attrs.field(default=None, kw_only=True)
    holding: dict[Key, str] = attrs.field(factory=dict, kw_only=True)
    _met: set[Key] = attrs.field(factory=set)
    #: names that are spelled as expressions, and rows that are elements of a fragment
    spelled: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    _partial: dict[str, Code] = attrs.field(factory=dict)

    # ------------------------------------------------------------ statements

    def statements(self, body: tuple[nodes.Statement, ...]) -> None:
        """Print statements in order."""
        for statement in body:
            with self.tracing(*statement.origins):
                self._statement(statement)

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Note(text):
                self.comment(text)
            case nodes.Define(name, dtype, value, mutable):
                self._define(name, dtype, value, mutable)
            case nodes.Assign(name, value):
                self._assign(Code(self.names[name]), value)
            case nodes.Write() | nodes.AtomicUpdate() | nodes.Accumulate(_, nodes.Element()):
                self._store(statement)
            case nodes.Accumulate(operation, target, value):
                self._accumulate(operation, target, value)
            case nodes.Call():
                self._call(statement)
            case nodes.LaneLoop():
                self._lanes(statement)
            case nodes.Loop():
                self._loop(statement)
            case nodes.SerialLoop():
                self._serial(statement)
            case nodes.Branch():
                self._branch(statement)
            case nodes.Barrier():
                self.line("T.sync_threads()")
            case _:
                raise AssertionError(f"{type(statement).__name__} in a kernel")

    def _define(self, name: str, dtype: DType, value: nodes.Value, mutable: bool) -> None:
        code = self.value(value)
        spelled = self.define(name)
        if isinstance(value, nodes.Scalar):
            self.known[name] = never_negative(value.value, self.known)
        variable = mutable or (dtype.is_integer and computes(value))
        for line in self.assigned(spelled, code, dtype, variable):
            self.line(line)

    def _assign(self, target: Code, value: nodes.Value) -> None:
        self.line(f"{target} = {self.value(value)}")

    def _store(self, statement: nodes.Statement) -> None:
        """A write to memory, which the first thread does where all of them run the statement."""
        match statement:
            case nodes.Write(buffer, index, value):
                code = self.value(value)
                text = f"{self.element(buffer, index)} = {code}"
            case nodes.AtomicUpdate(operation, buffer, index, value) if is_of_bits(statement):
                bound = self.bind("update", self.value(value), None)
                at = self.bind("place", self.wide(index), None)
                views = (self._bits(buffer, dtype) for dtype in (DType.I32, DType.U32))
                text = str(self.call(f"float_{operation}", *views, at, bound))
            case nodes.AtomicUpdate(operation, buffer, index, value):
                code = self.value(value)
                text = f"T.atomic_{operation}({self.element(buffer, index)}, {code})"
            case nodes.Accumulate(operation, nodes.Element(buffer) as target, value):
                text = f"{self.value(target)} = {self._combined(operation, target, value)}"
            case _:
                raise AssertionError("no write")
        if self._in_lane or buffer in self.copies:
            self.line(text)
            return
        self.line("if T.get_thread_binding() == 0:")
        self.line(text, "    ")

    def _bits(self, buffer: str, dtype: DType) -> str:
        """The parameter for the elements of a tensor as integers."""
        key = self.places.get(buffer, (buffer, ZERO))[0], dtype
        if key not in self.bits:
            self.bits[key] = self.names.fresh(f"{self.names[key[0]]}_{TYPES[dtype]}")
        return self.bits[key]

    def _combined(self, operation: str, target: nodes.Value, value: nodes.Value) -> Code:
        kind = target.dtype
        wide = kind.compute
        given = tuple(
            each if kind is wide else nodes.Convert(each, wide) for each in (target, value)
        )
        applied: nodes.Value = nodes.Apply(COMBINERS[operation], given, wide, wide)
        return self.value(applied if kind is wide else nodes.Convert(applied, kind))

    def _accumulate(
        self, operation: str, target: nodes.Local | nodes.Element, value: nodes.Value
    ) -> None:
        new = self._combined(operation, target, value)
        assert isinstance(target, nodes.Local)
        place = self._partial.get(target.name)
        if place is None:
            self.line(f"{self.names[target.name]} = {new}")
            return
        held = _carrier(target.dtype)
        self.line(f"{place} = {new if held is target.dtype else cast(new, held)}")

    def value(self, node: nodes.Value) -> Code:
        """See `Expressions`; a reduction inside of its loop is the thread's part."""
        if isinstance(node, nodes.Local) and node.name in self._partial:
            part = self._partial[node.name]
            if node.dtype is DType.BOOL:
                return PYTHON.binary("!=", part, Code("0"))
            return part if _carrier(node.dtype) is node.dtype else cast(part, node.dtype)
        return Expressions.value(self, node)

    # ------------------------------------------------------------ control

    def _serial(self, loop: nodes.SerialLoop) -> None:
        self.comment(loop.text)
        if self._is_pipeline(loop):
            self._pipeline(loop)
            return
        start, stop, step = self.wide(loop.start), self.wide(loop.stop), self.scalar(loop.step)
        variable = self.define(loop.variable)
        upwards = loop.direction > 0
        self.known[loop.variable] = upwards and never_negative(loop.start, self.known)
        if loop.direction == 0:
            turn = self.names.fresh("turn")
            trips = self.call("ceil_div", PYTHON.binary("-", stop, start), self.wide(loop.step))
            self.line(f"for {turn} in T.serial(T.max({trips}, T.int64(0))):")
            turned = PYTHON.binary("*", Code(turn), step)
            self.line(f"{variable} = {PYTHON.binary('+', start, turned)}", "    ")
        else:
            bounds = [start, stop] if loop.step == ir.Literal(1) else [start, stop, step]
            self.line(f"for {variable} in {PYTHON.call('T.serial', *bounds)}:")
        with self.block():
            self.statements(loop.body)

    def _is_pipeline(self, loop: nodes.SerialLoop) -> bool:
        """Whether a loop does nothing but products whose accumulators stay in fragments."""
        inside = [each for each in loop.body if not isinstance(each, nodes.Note)]
        plain = (loop.start, loop.step, loop.direction) == (ir.Literal(0), ir.Literal(1), 1)
        found = [self.products.get(id(each)) for each in inside]
        return plain and bool(found) and all(p is not None and p.kept for p in found)

    def _pipeline(self, loop: nodes.SerialLoop) -> None:
        """A loop whose loads run ahead of its products, where all of them are streamed: a tile that
        is filled in two steps (`fetch_within`) would be filled in two stages. Its variable has 32
        bits, as TileLang wants it."""
        variable = self.define(loop.variable)
        self.known[loop.variable] = True
        streamed = all(self.products[id(s)].streamed for s in loop.body if id(s) in self.products)
        stages = f"{self.stages} if {self.word('streamed')} else 0" if streamed else "0"
        turns = cast(self.wide(loop.stop), DType.I32)
        self.line(f"for {variable} in T.Pipelined({turns}, num_stages={stages}):")
        self.spelled[loop.variable] = f'T.cast({variable}, "int64")'
        with self.block():
            self.statements(loop.body)
        del self.spelled[loop.variable]

    def _reference(self, expression: ir.Ref) -> Code:
        if expression.name in self.spelled:
            return Code(self.spelled[expression.name])
        return Expressions._reference(self, expression)

    def _branch(self, branch: nodes.Branch) -> None:
        self.comment(branch.text)
        self.line(f"if {self.truth(branch.condition)}:")
        with self.block():
            self.statements(branch.body)
        if branch.orelse:
            self.line("else:")
            with self.block():
                self.statements(branch.orelse)

    def _loop(self, loop: nodes.Loop) -> None:
        """A loop over the lanes of an axis: in order, dealt out, or by one thread."""
        if self._in_lane:
            self._in_order(loop.variable, loop.lower, loop.upper, loop.step, loop.body)
        elif lanes := self._of_fragment(loop):
            self._fragment(loop, lanes)
        elif nest := self._rectangle_of(loop):
            self._rectangle(nest)
        elif nodes.is_scatter(loop):
            self._scatter(loop)
        else:
            self._in_order(loop.variable, loop.lower, loop.upper, loop.step, loop.body)

    def _in_order(
        self,
        variable: str,
        lower: ir.Expr,
        upper: ir.Expr,
        step: int,
        body: tuple[nodes.Statement, ...],
    ) -> None:
        self._serial(nodes.SerialLoop(variable, lower, upper, ir.Literal(step), body))

    # ------------------------------------------------------------ lanes

    @property
    def lane_threads(self) -> int:
        """Threads of a block, among which lanes are dealt out."""
        return THREADS if self.held is None else HOLDING

    @contextmanager
    def _dealt(
        self,
        count: Code,
        most: int | None,
        constant: int | None,
        several: bool = False,
        holds: bool = False,
    ) -> Iterator[tuple[Code, str]]:
        """What is printed in this context is run for each of `count` numbers by some thread, or,
        where it takes `several` lanes at once, for the first of each; gives the number, and the
        thread. There are at most `most` of them, or `constant`, where these are known. A loop that
        `holds` rows has its turns written out where threads do that."""
        thread, named, width = map(self.word, ("thread", "number", "width"))
        threads, before = self.lane_threads, self.indent
        if constant is not None and constant <= threads and not holds:
            number = cast(Code(thread), DType.I64)
        else:
            turn = self.word("turn")
            share = f"{threads} * {width}" if several else str(threads)
            turns = f"T.serial(T.ceildiv({count}, {share}))"
            if holds:
                turns = f"T.unroll({self.word('held')}) if {self.word('held')} else {turns}"
            elif several and most is not None and most <= _WRITTEN_OUT * threads * self.width:
                written = -(-most // (threads * self.width))
                turns = f"T.unroll({written}) if {width} > 1 else {turns}"
            self.line(f"for {turn} in {turns}:")
            self.indent += "    "
            number = Code(f"{turn} * T.int64({threads}) + {thread}", PYTHON.binary_levels["+"])
        if several:
            number = PYTHON.binary("*", number, Code(width))
        self.line(f"for {thread} in T.Parallel({threads}):")
        with self.block(), self.lane():
            self.line(f"{named} = {number}")
            if constant is not None and constant % threads == 0 and not several:
                yield Code(named), thread
            else:
                self.line(f"if {named} < {count}:")
                with self.block():
                    yield Code(named), thread
        self.indent = before

    def moved(self, loop: nodes.LaneLoop) -> Moved | None:
        """What a loop moves several lanes of at once."""
        if self.width == 1:
            return None
        return moved(loop, self.memories, self.width, self.constant)

    def _several(self, loop: nodes.LaneLoop, moving: Moved, first: Code) -> None:
        """The lanes that a thread moves at once, from `first` on: read, computed one by one, and
        written."""
        held, places, v, width = {}, {}, self.word("v"), self.word("width")
        for row in dict.fromkeys((*moving.read, *moving.written)):
            memory, start = self.places.get(row.name, (row.name, ZERO))
            self.buffers[memory] = None
            at = first if start == ZERO else PYTHON.binary("+", start, first)
            places[row.name] = f"{self.memory(memory)}[{at} + {v}]"
            held[row.name] = self.names.fresh(f"{self.names[row.name]}_lanes")
            self.line(f'{held[row.name]} = T.alloc_local(({width},), "{TYPES[row.dtype]}")')
        kept = self._kept_places(loop, moving)
        option = self.word("held")
        for row in moving.read:
            kept_at = kept.get(row.name)
            first_read = kept_at is not None and key(row) not in self._met
            source = places[row.name]
            if kept_at and not first_read:
                source = f"{kept_at} if {option} else {source}"
            self.line(f"for {v} in T.vectorized({width}):")
            self.line(f"{held[row.name]}[{v}] = {source}", "    ")
            if kept_at and first_read:
                self._met.add(key(row))
                self.line(f"if {option}:")
                self.line(f"for {v} in T.vectorized({width}):", "    ")
                self.line(f"{kept_at} = {held[row.name]}[{v}]", "        ")
        self.line(f"for {v} in T.unroll({width}):")
        with self.block():
            self.known[loop.variable] = never_negative(loop.lower, self.known)
            # A variable: without one, TileLang takes the loop apart by two lanes, as many indices
            # of 64 bits as 16 bytes hold, and moves no more at once.
            lane = self.define(loop.variable)
            self.line(f'{lane} = T.alloc_var("int64")')
            self.line(f"{lane} = {PYTHON.binary('+', first, Code(v))}")
            self._cells = {name: f"{own}[{v}]" for name, own in held.items()}
            self.statements(loop.body)
            self._cells = {}
        for row in moving.written:
            deeper = ""
            if kept_at := kept.get(row.name):
                self._met.add(key(row))
                self.line(f"if {option}:")
                self.line(f"for {v} in T.vectorized({width}):", "    ")
                self.line(f"{kept_at} = {held[row.name]}[{v}]", "        ")
                self.line("else:")
                deeper = "    "
            self.line(f"for {v} in T.vectorized({width}):", deeper)
            self.line(f"{places[row.name]} = {held[row.name]}[{v}]", deeper + "    ")

    def _kept_places(self, loop: nodes.LaneLoop, moving: Moved) -> dict[str, str]:
        """Where a thread holds rows of a loop, by their names."""
        if self.held is None or id(loop) not in self.held.loops:
            return {}
        thread, turn, v, width = map(self.word, ("thread", "turn", "v", "width"))
        return {
            row.name: f"{self.holding[key(row)]}[{thread}, {turn} * {width} + {v}]"
            for row in (*moving.read, *moving.written)
            if key(row) in self.holding
        }

    def _span(self, lower: ir.Expr, upper: ir.Expr) -> tuple[Code, int | None]:
        """The number of lanes of a loop, and its value where that is known."""
        least, most = self.constant(lower), self.constant(upper)
        if least is not None and most is not None:
            count = max(int(most) - int(least), 0)
            return Code(str(count)), count
        code = self.wide(upper)
        if least != 0:
            code = PYTHON.binary("-", code, self.wide(lower))
        return self.bind("count", code, None), None

    def _lane_of(self, loop: nodes.Loop | nodes.LaneLoop, number: Code) -> str:
        """Print the definition of a loop's variable in the turn with a number; gives its name."""
        lane = self.define(loop.variable)
        self.known[loop.variable] = never_negative(loop.lower, self.known)
        self.line(f"{lane} = {self._from(loop.lower, number)}")
        return lane

    def _from(self, lower: ir.Expr, number: Code) -> Code:
        """The lane of a loop from `lower` on, by its number."""
        return number if self.constant(lower) == 0 else PYTHON.binary("+", self.wide(lower), number)

    def _lanes(self, loop: nodes.LaneLoop) -> None:
        """The lanes of a loop, dealt out to the threads, and what they are combined to."""
        self._rows(loop.rows)
        if self._in_lane:
            self._in_order(loop.variable, loop.lower, loop.upper, 1, loop.body)
            return
        parts = {each.name: self._part(each) for each in loop.reductions}
        count, constant = self._span(loop.lower, loop.upper)
        moving = self.moved(loop)
        most = self._most(loop)
        holds = self.held is not None and id(loop) in self.held.loops
        several = moving is not None
        with self._dealt(count, most, constant, several, holds) as (number, thread):
            self._partial = {name: Code(f"{part}[{thread}]") for name, part in parts.items()}
            if moving is None:
                self._lane_of(loop, number)
                self.statements(loop.body)
            else:
                self._several(loop, moving, self._from(loop.lower, number))
            self._partial = {}
        for each in loop.reductions:
            self._close(each, parts[each.name])

    def _part(self, reduction: nodes.Reduction) -> str:
        """A fragment with one element for each thread, which holds what changes nothing."""
        name = self.names.fresh(f"{self.names[reduction.name]}_parts")
        kind = _carrier(reduction.dtype)
        self.line(f'{name} = T.alloc_fragment(({self.lane_threads},), "{TYPES[kind]}")')
        thread = self.word("thread")
        self.line(f"for {thread} in T.Parallel({self.lane_threads}):")
        self.line(f"{name}[{thread}] = {self._start(reduction, kind)}", "    ")
        return name

    def _start(self, reduction: nodes.Reduction, kind: DType) -> Code:
        if reduction.operation in _STARTS:
            return self.number(_STARTS[reduction.operation], kind)
        largest = reduction.operation == "reduce_max"
        if kind.is_float:
            return self.number(float("-inf" if largest else "inf"), kind)
        # Within the reduction's own type, to which it is converted.
        limits = reduction.dtype.limits
        assert limits is not None
        return self.number(limits[0 if largest else 1], kind)

    def _close(self, reduction: nodes.Reduction, part: str) -> None:
        """Combine what the threads have; all of them get it."""
        kind = reduction.dtype
        total = self.names.fresh(f"{self.names[reduction.name]}_total")
        self.line(f'{total} = T.alloc_local((1,), "{TYPES[_carrier(kind)]}")')
        self.line(str(self.call(_REDUCTIONS[reduction.operation], part, total)))
        self._partial = {total: Code(f"{total}[0]")}
        whole = self._combined(
            reduction.operation, nodes.Local(reduction.name, kind), nodes.Local(total, kind)
        )
        self._partial = {}
        self.line(f"{self.names[reduction.name]} = {whole}")

    # ------------------------------------------------------------ lanes of several axes

    def at_once(self, statement: nodes.Statement) -> bool:
        """Whether the threads share the lanes of a loop, and its turns, at the same time."""
        if not isinstance(statement, nodes.Loop):
            return False
        return (
            self._of_fragment(statement) is not None
            or bool(self._rectangle_of(statement))
            or nodes.is_scatter(statement)
        )

    def _rectangle_of(self, loop: nodes.Loop) -> list[nodes.Loop | nodes.LaneLoop]:
        """The loops of an independent nest whose lanes can be dealt out together: each but the last
        contains the next one and definitions alone, and the bounds do not depend on the turn."""
        found: list[nodes.Loop | nodes.LaneLoop] = []
        variables: set[str] = set()
        each: nodes.Statement = loop
        while True:
            if not isinstance(each, nodes.Loop | nodes.LaneLoop):
                return []
            if found and _names(each.lower, each.upper) & variables:
                return []
            found.append(each)
            if isinstance(each, nodes.LaneLoop):
                return [] if each.reductions or self._most(each) is None else found
            if not each.independent or each.step != 1:
                return []
            variables.add(each.variable)
            inner = [s for s in each.body if not isinstance(s, nodes.Note | nodes.Define)]
            variables |= {s.name for s in each.body if isinstance(s, nodes.Define)}
            if len(inner) != 1 or any(isinstance(s, nodes.Define) and s.mutable for s in each.body):
                return []
            each = inner[0]

    def _most(self, loop: nodes.Loop | nodes.LaneLoop) -> int | None:
        """The largest number of lanes of a loop that is known when the kernel is compiled."""
        return None if self.constant(loop.lower) is None else self.bound(loop.upper)

    def _rectangle(self, loops: list[nodes.Loop | nodes.LaneLoop]) -> None:
        """The lanes of a nest of loops, dealt out by their numbers in row-major order."""
        widths: list[Code] = []
        total: int | None = 1
        for loop in loops[1:]:
            most = self._most(loop)
            if most is None:
                span, _ = self._span(loop.lower, loop.upper)
                widths.append(PYTHON.call("T.max", span, "T.int64(1)"))
                total = None
            else:
                least = int(self.constant(loop.lower) or 0)
                widths.append(Code(str(max(most - least, 1))))
                total = None if total is None else total * max(most - least, 1)
        rows, known = self._span(loops[0].lower, loops[0].upper)
        if known is not None and total is not None:
            count, constant = Code(str(known * total)), known * total
        else:
            count, constant = self.bind("count", PYTHON.fold("*", [rows, *widths]), None), None
        outer = self._most(loops[0])
        most = None if outer is None or total is None else outer * total
        inner = loops[-1]
        assert isinstance(inner, nodes.LaneLoop)
        moving = self.moved(inner)
        whole = widths[-1].text.isdigit() and int(widths[-1].text) % self.width == 0
        if not whole:  # lanes moved at once are of one row
            moving = None
        with self._dealt(count, most, constant, moving is not None) as (number, _):
            self._nest(loops, widths, number, moving)

    def _nest(
        self,
        loops: list[nodes.Loop | nodes.LaneLoop],
        widths: list[Code],
        number: Code,
        moving: Moved | None,
    ) -> None:
        """The bodies of a nest at the lane with a number, or at the lanes `moving` from it on."""
        rest = number
        places: list[Code] = []
        for width in reversed(widths):
            places.append(PYTHON.call("T.truncmod", rest, width))
            rest = PYTHON.call("T.truncdiv", rest, width)
        places.append(rest)
        outer = self.indent
        for loop, place in zip(loops, reversed(places), strict=True):
            lane = self._lane_of(loop, place)
            if loop is not loops[0] and self.constant(loop.upper) is None:
                self.line(f"if {lane} < {self.wide(loop.upper)}:")
                self.indent += "    "
            if isinstance(loop, nodes.LaneLoop):
                self._rows(loop.rows)
                if moving is None:
                    self.statements(loop.body)
                else:
                    first = self.word("first")
                    self.line(f"{first} = {lane}")
                    self._several(loop, moving, Code(first))
            else:
                own = tuple(s for s in loop.body if isinstance(s, nodes.Note | nodes.Define))
                self.statements(own)
        self.indent = outer

    def _scatter(self, loop: nodes.Loop) -> None:
        """Lanes that are written to places known when the kernel runs: by all threads where each
        write is indivisible, else by one, in order."""
        if all(isinstance(each, nodes.AtomicUpdate) for each in nodes.memory_writes(loop.body)):
            count, constant = self._span(loop.lower, loop.upper)
            with self._dealt(count, None, constant) as (number, _):
                self._lane_of(loop, number)
                self.statements(loop.body)
            return
        self.line("if T.get_thread_binding() == 0:")
        with self.block(), self.lane():
            self._in_order(loop.variable, loop.lower, loop.upper, 1, loop.body)

    # ------------------------------------------------------------ calls of the library

    def _call(self, call: nodes.Call) -> None:
        """A macro of the library on tiles in memory, or a product of tiles."""
        if id(call) in self.products:
            self._product(self.products[id(call)])
            return
        if call.name == "multiply":
            self._by_threads(call)
            return
        views = [self._tile(view) for view in call.views if isinstance(view, nodes.TileView)]
        flags = [parameter.capitalize() for parameter in call.parameters]
        match call.name:
            case "cumsum" | "cumprod":
                start, multiplies = _SCANS[call.name]
                kind = call.views[0].dtype
                first = self.number(start, DType.F64 if kind.is_float else kind)
                text = self.call("running", *views, *flags, first, multiplies)
            case name:
                text = self.call(name, *views, *flags)
        self.line(str(text))

    def _product(self, product: MatrixProduct) -> None:
        """A product whose operands go to tiles in shared memory."""
        rows, columns, depth = product.call.extents
        left, right, result = product.call.views
        assert isinstance(result, nodes.MatrixView)
        operands = ((product.left, left, (rows, depth)), (product.right, right, (depth, columns)))
        if product.streamed:
            self.line(f"if {self.word('streamed')}:")
            with self.block():
                for operand, view, _ in operands:
                    assert isinstance(view, nodes.MatrixView)
                    place = self._window(view.buffer, view.shape, view.window)
                    self.line(f"T.copy({place}, {operand.name})")
            self.line("else:")
            with self.block():
                self._fetch(operands)
        else:
            self._fetch(operands)
        name = self.names[product.result] if product.kept else product.result
        if not product.kept:
            self.line(f"T.clear({name})")
        tiles = product.left.name, product.right.name, name
        turned = product.left.transposed, product.right.transposed
        if product.on_units:
            options = zip(("A", "B"), turned, strict=True)
            shown = "".join(f", transpose_{side}=True" for side, is_so in options if is_so)
            self.line(f"T.gemm({', '.join(tiles)}{shown})")
        else:
            self.line(str(self.call("multiply_tiles", *tiles, *map(str, turned))))
        if not product.kept:
            self.line(str(self.call("deliver", name, self._matrix(result, rows, columns))))

    def _fetch(
        self,
        operands: Iterable[
            tuple[Operand, nodes.MatrixView | nodes.TileView, tuple[ir.Expr, ir.Expr]]
        ],
    ) -> None:
        for operand, view, extents in operands:
            assert isinstance(view, nodes.MatrixView)
            stored = self._matrix(view, extents[0], extents[1], operand.transposed)
            name = "fetch" if operand.inside else "fetch_within"
            self.line(str(self.call(name, operand.name, stored)))

    def _place(self, buffer: str) -> tuple[str, Code]:
        memory, first = self.places.get(buffer, (buffer, ZERO))
        self.buffers[memory] = None
        return self.memory(memory), first

    def _by_threads(self, call: nodes.Call) -> None:
        """A product in blocks of a fixed size, or of which each thread computes elements."""
        rows, columns, depth = call.extents
        extents = ((rows, depth), (depth, columns), (rows, columns))
        matrices = [
            self._matrix(view, *own)
            for view, own in zip(call.views, extents, strict=True)
            if isinstance(view, nodes.MatrixView)
        ]
        name = "multiply" if is_thin(call, self.bound) else "multiply_in_blocks"
        self.line(str(self.call(name, *matrices)))

    def _tile(self, view: nodes.TileView) -> Code:
        memory, first = self._place(view.buffer)
        bounds = (
            f"[{', '.join(str(self.wide(each)) for each in part)}]"
            for part in (view.lower, view.upper, view.strides)
        )
        return self.call("Tile", memory, first, *bounds)

    def _matrix(
        self, view: nodes.MatrixView, rows: ir.Expr, columns: ir.Expr, transposed: bool = False
    ) -> Code:
        memory, first = self._place(view.buffer)
        origin = self.wide(view.origin)
        if first != ZERO:
            origin = PYTHON.binary("+", first, origin)
        steps = [str(self.wide(step)) for step in (view.row, view.column)]
        extents = [self.wide(extent) for extent in (rows, columns)]
        if transposed:
            steps, extents = steps[::-1], extents[::-1]
        return self.call("Matrix", memory, origin, f"({', '.join(steps)})", *extents)


def _carrier(kind: DType) -> DType:
    """The type in which values of the threads are combined."""
    if kind.is_float:
        return kind.compute
    return DType.I32 if kind is DType.BOOL or kind.bytes < 4 else kind


def _names(*values: ir.Expr) -> set[str]:
    return {reference.name for value in values for reference in references(value)}
