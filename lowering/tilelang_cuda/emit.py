"""From a finished plan to one Python file: TileLang kernels, and a wrapper that launches them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value, product
from sketchc.ir.walk import substitute
from sketchc.launch.conditions import actual_extent
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.loops import build, nodes
from sketchc.lowering.loops.nests import step_name
from sketchc.lowering.loops.waiting import with_barriers
from sketchc.lowering.plan import ARENA, Plan, Storage, literals
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import Host, Names
from sketchc.lowering.python_host.library import definitions, part_of
from sketchc.lowering.python_host.wrapper import Wrapper, python_kernel
from sketchc.lowering.tilelang_cuda.expressions import TYPES, word
from sketchc.lowering.tilelang_cuda.facts import is_dealt, is_of_bits
from sketchc.lowering.tilelang_cuda.held import HOLDING, MOST_BYTES, Held, held, key
from sketchc.lowering.tilelang_cuda.kernel import KernelPrinter
from sketchc.lowering.tilelang_cuda.products import (
    products,
    rectangles,
    threads_for,
    touches,
)
from sketchc.lowering.tilelang_cuda.target import RESERVED
from sketchc.lowering.tilelang_cuda.vectors import lanes_at_once
from sketchc.lowering.workspaces import shared_memory

#: Blocks that a launch starts at most where each has scratch memory of its own.
SCRATCH_BLOCKS = 1024
#: Rows of blocks that run together in the grouped order of a product.
GROUP = 8
#: Stages of a loop with products; with more, no further latency is hidden.
MOST_STAGES = 4
#: Elements of a storage of which every thread has one of its own.
_COPIED = 64
#: What kernels may carry with them.
FUNCTIONS = tuple(
    Path(__file__).with_name(f"{name}_functions.py") for name in ("element", "line", "host")
)


@attrs.frozen
class KernelText:
    """One kernel's source and what its launch passes: `arguments`, then the numbers of programs
    along axes of the grid, then how many there are in all. `scratch` are the storages in global
    memory, with the parameter of each. `streamed` are the tensors that tell whether tiles can be
    streamed, `delivered` those that tell whether they are delivered, and `width` the lanes that
    threads may move at once, with the sizes and tensors that tell whether they do.
    `held` are rows that threads hold, where these are short enough; `holds_all`: those launches
    need no scratch memory."""

    phase: int
    name: str
    lines: tuple[str, ...]
    arguments: tuple[str, ...]
    counts: tuple[ir.Expr, ...]
    scratch: tuple[tuple[Storage, str], ...]
    origins: Mapping[int, tuple[int, ...]]
    called: frozenset[str]
    canonical: Mapping[str, str]
    streamed: tuple[str, ...]
    delivered: tuple[str, ...]
    width: tuple[int, tuple[str, ...], tuple[str, ...]] | None
    held: Held | None
    holds_all: bool


@attrs.define(kw_only=True)
class TileLangWrapper(Wrapper):
    """The wrapper of TileLang kernels."""

    kernels: Mapping[int, KernelText]

    def launch(self, phase: int) -> None:
        """See `Wrapper`."""
        kernel = self.kernels.get(phase)
        if kernel is None:
            return  # a phase that stores nothing
        planned = next(each for each in self.plan.phases if each.index == phase)
        self.lines.append("")
        for tensor, nan in kernel.canonical.items():
            self.comment(f"Of all NaN, this one wins an atomic update of {tensor}.")
            self.line(f"{self.dense(tensor)}.masked_fill_({self.dense(tensor)}.isnan(), {nan})")
        programs = self.own_name("programs")
        self.once(lambda: self.count_programs(planned, programs))
        self.line(f"if {programs} > 0:")
        deeper = "    "
        counts = [str(self.expression(count)) for count in kernel.counts]
        arguments = [*kernel.arguments, *counts, programs]
        blocks = word(self.names, "blocks")
        options = []
        width = word(self.names, "width")
        for option, told in (("streamed", kernel.streamed), ("delivered", kernel.delivered)):
            if told:
                asked = self.names.functions.get("streams", "streams")
                spelled = word(self.names, option)
                self.line(f"{spelled} = {asked}({', '.join(told)})", deeper)
                options.append(spelled)
        if kernel.width is not None:
            lanes, sizes, tensors = kernel.width
            asked = self.names.functions.get("lanes_at_once", "lanes_at_once")
            shown = ", ".join(self.names[size] for size in sizes)
            given = ", ".join((str(lanes), f"[{shown}]", *tensors))
            self.line(f"{width} = {asked}({given})", deeper)
            options.append(width)
        option = word(self.names, "held")
        if kernel.held is not None:
            asked = self.names.functions.get("turns_held", "turns_held")
            upper = self.expression(kernel.held.upper)
            most = f"{MOST_BYTES // kernel.held.lane_bytes} // {width}"
            self.line(f"{option} = {asked}({upper}, {HOLDING} * {width}, {most})", deeper)
            options.append(option)
        if kernel.scratch:
            most = f"min({programs}, {SCRATCH_BLOCKS})"
            most = f"{programs} if {option} else {most}" if kernel.holds_all else most
            self.line(f"{blocks} = {most}", deeper)
            arguments.append(blocks)
        for storage, name in kernel.scratch:
            size = self.expression(size_of(storage))
            count = PYTHON.call("max", PYTHON.binary("*", Code(blocks), size), "1")
            shown = f"1 if {option} else {count}" if kernel.holds_all else str(count)
            kind = f"dtype=torch.{TYPES[storage.dtype]}, device=device"
            self.line(f"{name} = torch.empty({shown}, {kind})", deeper)
            arguments.append(name)
        self.line(f"{kernel.name}({', '.join(options)})({', '.join(arguments)})", deeper)


def emit(plan: Plan) -> Kernel:
    """The source for `plan`; deterministic. The wrapper is called as that of a Triton kernel."""
    names = _names(plan)
    kernels = {
        phase.plan.index: _Phase(plan, phase, names).text() for phase in build.build_phases(plan)
    }
    called = sorted({name for kernel in kernels.values() for name in kernel.called})
    everything = {tensor.name for tensor in plan.sketch.tensors}
    wrapper = TileLangWrapper(
        names, "tilelang.cdiv", plan=plan, read_anyway=everything, kernels=kernels
    )
    functions = part_of(FUNCTIONS, called, names.functions)
    imports = ["import tilelang", "import tilelang.language as T", "import torch"]
    imports = (
        imports
        if not functions.text or "math." not in functions.text
        else ["import math", "", *imports]
    )
    bodies = [(kernel.lines, kernel.origins) for kernel in kernels.values()]
    return python_kernel(wrapper, imports, functions, bodies)


def _names(plan: Plan) -> Names:
    """The names of the kernels' file: params and tensors keep theirs, by which the wrapper is
    called; a device function of such a name gets another."""
    functions = definitions(FUNCTIONS).keys()
    own = {param.name for param in plan.sketch.params} | {t.name for t in plan.sketch.tensors}
    names = Names(plan.sketch, RESERVED | (functions - own))
    names.taken.update(functions)
    taken = {names[name] for name in own}
    names.functions = {name: names.fresh(name) for name in functions if name in taken}
    _ = names[plan.sketch.name]
    return names


class _Phase:
    """Makes the kernel of one phase."""

    def __init__(self, plan: Plan, phase: build.BuiltPhase, names: Names) -> None:
        self.plan, self.phase, self.names = plan, phase, names
        self.sketch = plan.sketch
        storages = phase.program.storages
        self.scratch = [storage for storage in storages if storage.memory == ARENA]
        self.near = [storage for storage in storages if storage.memory != ARENA]
        copies = {s.name for s in self.near if self._copied(s)}
        self.printer = KernelPrinter(self.sketch, names, copies=copies, indent=" " * 12)
        printer = self.printer
        named = {storage.name: storage for storage in storages}
        printer.products = products(
            phase.program.body, named, printer.bound, names.fresh, self._left() // 2
        )
        self.near = [storage for storage in self.near if storage.name not in printer.kept]
        self.scratch = [storage for storage in self.scratch if storage.name not in printer.kept]
        self.threads = threads_for(printer.products)
        printer.outputs = {
            tensor.name: tensor.extents
            for tensor in self.sketch.tensors
            if tensor.role is ir.Role.OUT
            and sum(touches(s, tensor.name) for s in nodes.walk(phase.program.body)) == 1
        }
        printer.stages = self._stages()
        body = phase.program.body
        printer.memories = {
            **{tensor.name: ir.Literal(0) for tensor in self.sketch.tensors},
            **{storage.name: size_of(storage) for storage in self.scratch},
        }
        printer.width = lanes_at_once(body, printer.memories, printer.constant)
        inputs = {t.name for t in self.sketch.tensors if t.role is ir.Role.IN}
        printer.held = held(body, {s.name for s in self.scratch}, inputs, printer.moved)
        self.threads = max(self.threads, printer.lane_threads)
        #: whether launches that hold rows need no scratch memory
        self.holds_all = printer.held is not None and {s.name for s in self.scratch} == {
            row.buffer for row in printer.held.stored
        }
        #: the sizes that must be multiples of the lanes that a thread moves at once
        self.sizes = {
            name
            for each in nodes.walk(body)
            if isinstance(each, nodes.LaneLoop) and (found := printer.moved(each))
            for name in found.sizes
        }
        #: the numbers of programs along axes of the grid, by parameter
        self.counts: dict[str, ir.Expr] = {}
        self._counted: dict[int, str] = {}
        #: what of a tensor's shape the kernel reads by a name of its own
        self.shapes = {
            name: (tensor, f"shape[{axis}]{test}")
            for tensor in self.sketch.tensors
            for axis in range(len(tensor.extents))
            for name, test in (
                (step_name(tensor.name, axis), " != 1"),
                (actual_extent(tensor.name, axis), ""),
            )
        }

    def text(self) -> KernelText:
        """The kernel with what its launch passes."""
        printer, names = self.printer, self.names
        name = names.fresh(f"{self.phase.plan.name}_kernel")
        passed = [names.fresh(f"{storage.name}_memory") for storage in self.scratch]
        self._body(passed)
        tensors = self._tensors()
        dense = [given.partition(".view(")[0] for _, given in tensors]
        scalars = self._scalars()
        matrices = self._matrices(printer.matrices, "streamed")
        targets = self._matrices(printer.targets, "delivered")
        tensors += [(text, given) for text, given, _ in (*matrices, *targets)]
        parameters = [text for text, _ in (*tensors, *scalars)]
        parameters += [f"{count}: T.int64" for count in self.counts]
        parameters.append("programs: T.int64")
        if self.scratch:
            parameters.append(f"{word(names, 'blocks')}: T.int64")
        for storage, own in zip(self.scratch, passed, strict=True):
            parameters.append(_buffer(own, storage.dtype))
        wide = printer.width > 1
        options = [
            *([word(names, "streamed")] if matrices else []),
            *([word(names, "delivered")] if targets else []),
            *([word(names, "width")] if wide else []),
            *([word(names, "held")] if printer.held else []),
        ]
        lines = self._head(name, options, parameters)
        origins = printer.carried_out(len(lines))
        lines += [*printer.lines, "", "    return kernel"]
        return KernelText(
            self.phase.plan.index,
            name,
            tuple(lines),
            tuple(given for _, given in (*tensors, *scalars)),
            tuple(self.counts.values()),
            tuple(zip(self.scratch, passed, strict=True)),
            origins,
            frozenset(
                {
                    *printer.functions,
                    *(["streams"] if matrices or targets else []),
                    *(["lanes_at_once"] if wide else []),
                    *(["turns_held"] if printer.held else []),
                }
            ),
            self._canonical(),
            tuple(dense for _, _, dense in matrices),
            tuple(dense for _, _, dense in targets),
            (printer.width, tuple(sorted(self.sizes)), tuple(dense)) if wide else None,
            printer.held,
            self.holds_all,
        )

    def _head(self, name: str, options: list[str], parameters: list[str]) -> list[str]:
        """The lines above the body."""
        block = word(self.names, "block")
        count = word(self.names, "blocks") if self.scratch else "programs"
        return [
            '@tilelang.jit(pass_configs={"tl.disable_safe_memory_legalize": True})',
            f"def {name}({', '.join(options)}):",
            "    @T.prim_func",
            "    def kernel(",
            *(f"        {parameter}," for parameter in parameters),
            "    ):",
            f'        with T.Kernel(T.cast({count}, "int32"), threads={self.threads}) as {block}:',
        ]

    # ------------------------------------------------------------ the body

    def _body(self, passed: list[str]) -> None:
        printer, names = self.printer, self.names
        for name in sorted(self.sizes):
            symbols = {symbol.name for symbol in self.sketch.symbols}
            of = ir.NameKind.SYMBOL if name in symbols else ir.NameKind.LET
            spelled = printer.scalar(ir.Ref(name, of))
            printer.line(f"{spelled} = {spelled}_units * {printer.word('width')}")
        printer.tiles()
        for row in (*printer.held.read, *printer.held.stored) if printer.held else ():
            printer.holding[key(row)] = own = names.fresh(f"{names[row.buffer]}_held")
            lanes = f"{printer.word('held')} * {printer.word('width')}"
            printer.line(f"if {printer.word('held')}:")
            shape = f"({printer.lane_threads}, {lanes})"
            printer.line(f'{own} = T.alloc_fragment({shape}, "{TYPES[row.dtype]}")', "    ")
        for storage in self.near:
            kind = "local" if storage.name in printer.copies else "shared"
            where = f'({max(self._elements(storage), 1)},), "{TYPES[storage.dtype]}"'
            printer.line(f"{printer.define(storage.name)} = T.alloc_{kind}({where})")
        for storage, memory in zip(self.scratch, passed, strict=True):
            size = printer.wide(size_of(storage))
            first = PYTHON.binary("*", Code(f'T.cast({printer.word("block")}, "int64")'), size)
            names.mapping[memory] = memory
            printer.places[storage.name] = memory, printer.bind(f"{memory}_start", first, None)
        if self.scratch:
            turn, program, block, blocks = map(printer.word, ("turn", "program", "block", "blocks"))
            printer.comment("Each block runs every blocks-th program.")
            turns = f"T.ceildiv(programs - {block}, {blocks})"
            turns = f"1 if {printer.word('held')} else {turns}" if self.holds_all else turns
            printer.line(f"for {turn} in T.serial({turns}):")
            printer.indent += "    "
            printer.line(f"{program} = {block} + {turn} * {blocks}")
        else:
            program = printer.word("program")
            printer.line(f'{program} = T.cast({printer.word("block")}, "int64")')
        self._decode(Code(program))
        body = with_barriers(
            self.phase.program.body,
            self._shared(),
            shared_memory(self.sketch),
            printer.at_once,
        )
        printer.statements(body)
        if self.scratch:
            printer.line("T.sync_threads()")

    def _decode(self, program: Code) -> None:
        """The grid's variables by the number of the program, the outermost axis slowest; the two
        innermost axes of a product run in groups of rows."""
        printer = self.printer
        made = [build.grid_loop(axis, self.sketch) for axis in self.phase.plan.grid]
        places: list[Code] = []
        rest = program
        if self.printer.products and len(made) > 1:
            places, rest = self._grouped(program)
        while len(places) < len(made):
            number = len(made) - len(places) - 1
            if number:
                count = self._count(number)
                places.append(PYTHON.call("T.truncmod", rest, count))
                rest = PYTHON.call("T.truncdiv", rest, count)
            else:
                places.append(rest)
        for axis in self.phase.plan.grid:
            printer.comment(axis.text)
        for (loop, _), place in zip(reversed(made), places, strict=True):
            index = place
            if loop.step != ir.Literal(1):
                index = PYTHON.binary("*", index, printer.scalar(loop.step))
            self._define(loop.variable, index, len(made) > 1)
        printer.statements(tuple(variable for _, variable in made if variable is not None))

    def _define(self, variable: str, index: Code, divided: bool) -> None:
        """A variable of the grid; one for divisions, which the compiler would repeat."""
        name = self.printer.define(variable)
        self.printer.known[variable] = True
        if divided:
            self.printer.line(f'{name} = T.alloc_var("int64")')
        self.printer.line(f"{name} = {index}")

    def _count(self, number: int) -> Code:
        """The parameter with the number of programs along an axis of the grid. The host counts: the
        compiler takes a quotient apart, and fails for some."""
        axis = self.phase.plan.grid[number]
        if number not in self._counted:
            self._counted[number] = self.names.fresh(f"{self.names[axis.variable]}_programs")
            self.counts[self._counted[number]] = axis.count
        return Code(self._counted[number])

    def _grouped(self, program: Code) -> tuple[list[Code], Code]:
        """The places along the innermost axis and the next one, and the number of the program along
        the others. Groups of `GROUP` rows of blocks: programs that run together share operands."""
        printer, last = self.printer, len(self.phase.plan.grid) - 1
        rows, columns = self._count(last - 1), self._count(last)
        plane = printer.bind("plane", PYTHON.binary("*", rows, columns), None)
        whole = PYTHON.binary("*", Code(str(GROUP)), columns)

        def variable(name: str, value: Code) -> Code:
            spelled = self.names.fresh(name)
            printer.line(f'{spelled} = T.alloc_var("int64")')
            printer.line(f"{spelled} = {value}")
            return Code(spelled)

        printer.comment(f"Groups of {GROUP} rows of blocks: neighbouring programs share operands.")
        within = variable("in_plane", PYTHON.call("T.truncmod", program, plane))
        groups = PYTHON.call("T.truncdiv", within, whole)
        first = variable("group_start", PYTHON.binary("*", groups, Code(str(GROUP))))
        left = PYTHON.binary("-", rows, first)
        height = variable("group_rows", PYTHON.call("T.min", left, f"T.int64({GROUP})"))
        place = variable("in_group", PYTHON.call("T.truncmod", within, whole))
        row = PYTHON.binary("+", first, PYTHON.call("T.truncmod", place, height))
        column = PYTHON.call("T.truncdiv", place, height)
        return [column, row], PYTHON.call("T.truncdiv", program, plane)

    def _shared(self) -> set[str]:
        """The buffers that the threads of a block have in common and the launch writes."""
        mine = {s.name for s in (*self.near, *self.scratch)} - set(self.printer.copies)
        owners = shared_memory(self.sketch)
        written = {t.name for t in self.sketch.tensors if t.role is not ir.Role.IN}
        return mine | {owners.get(name, name) for name in written}

    def _stages(self) -> int:
        """How many turns of a loop its loads are ahead at most: as many tiles fit in the shared
        memory of the chip beside the rest."""
        streamed = [p for p in self.printer.products.values() if p.streamed]
        each = sum(
            math.prod(operand.extents) * operand.dtype.bytes
            for product in streamed
            for operand in (product.left, product.right)
        )
        # A tile that is delivered after the loop lies where the operands did; inside of another
        # loop it has a place of its own.
        outermost = {id(each) for each in self.phase.program.body}
        left = self._left() - sum(
            math.prod(streamed[0].extents) * found.row.dtype.bytes
            for loop, lanes in rectangles(self.phase.program.body)
            if (found := self.printer.delivery(loop, lanes)) and id(loop) not in outermost
        )
        return max(min(left // max(each, 1), MOST_STAGES), 1)

    def _left(self) -> int:
        """The bytes of the chip's shared memory beside the storages in it."""
        used = sum(self._elements(s) * s.dtype.bytes for s in self.near)
        return int(self.plan.hardware.facts["memory"]["shared"]["bytes"]) - used

    def _elements(self, storage: Storage) -> int:
        size = constant_value(substitute(size_of(storage), literals(self.sketch)))
        assert size is not None
        return int(size)

    def _copied(self, storage: Storage) -> bool:
        """Whether every thread has a copy of a storage: it is small, and only statements write it
        that all threads run."""
        if self._elements(storage) > _COPIED:
            return False
        return not is_dealt(self.phase.program.body, storage.name)

    # ------------------------------------------------------------ parameters

    def _tensors(self) -> list[tuple[str, str]]:
        """The tensors of the launch: as parameters, and what is passed."""
        found = []
        for tensor in self.sketch.tensors:
            if tensor.name in self.printer.buffers:
                dense = self.names[f"{tensor.name}_dense"]
                found.append((_buffer(self.names[tensor.name], tensor.dtype), f"{dense}.view(-1)"))
        for (name, dtype), own in self.printer.bits.items():
            dense = self.names[f"{self.sketch.tensor(name).name}_dense"]
            found.append((_buffer(own, dtype), f"{dense}.view(torch.{TYPES[dtype]}).view(-1)"))
        return found

    def _canonical(self) -> dict[str, str]:
        """The tensors that may hold NaN before they are updated to a maximum or minimum, each with
        the NaN that wins there: atomic updates compare bits."""
        found = {}
        for each in nodes.walk(self.phase.program.body):
            if isinstance(each, nodes.AtomicUpdate) and is_of_bits(each):
                sign = "-" if each.operation == "min" else ""
                found[each.buffer] = f'{sign}float("nan")'
        return {
            name: nan for name, nan in found.items() if self.sketch.tensor(name).initial is None
        }

    def _matrices(
        self, made: Mapping[tuple[str, tuple[ir.Expr, ...]], str], option: str
    ) -> list[tuple[str, str, str]]:
        """The tensors that the copy engine reads tiles of, or writes, in their own shapes: as
        parameters, what is passed, and the tensor itself."""
        found = []
        host = Host(self.names, "tilelang.cdiv")
        for (name, shape), own in made.items():
            tensor = self.sketch.tensor(name)
            sizes = ", ".join(f'T.dynamic("{own}_{axis}")' for axis in range(len(shape)))
            dense = self.names[f"{tensor.name}_dense"]
            wanted = ", ".join(str(host.expression(extent)) for extent in shape)
            flat = ", ".join(["1"] * (len(shape) - 1) + ["-1"])
            asked = word(self.names, option)
            given = f"{dense}.view({wanted}) if {asked} else {dense}.view({flat})"
            found.append((f'{own}: T.Tensor(({sizes}), "{TYPES[tensor.dtype]}")', given, dense))
        return found

    def _scalars(self) -> list[tuple[str, str]]:
        """The host's scalars that the kernel reads: as parameters, and what is passed."""
        found = []
        for name, read in self.printer.scalars.items():
            if read.kind is ir.NameKind.PRESENT:
                spelled = self.names.given(read.name)
                found.append((f"{spelled}: T.bool", spelled))
            elif name in self.shapes:
                tensor, asked = self.shapes[name]
                dense = self.names[f"{tensor.name}_dense"]
                found.append((f"{self.names[name]}: T.int64", f"int({dense}.{asked})"))
            else:
                spelled = self.names[name]
                if name in self.sizes:
                    found.append(
                        (f"{spelled}_units: T.int64", f"{spelled} // {word(self.names, 'width')}")
                    )
                    continue
                kind = "int64" if read.dtype.is_integer else TYPES[read.dtype]
                kind = "float64" if read.dtype.is_float else kind
                found.append((f"{spelled}: T.{kind}", spelled))
        return found


def size_of(storage: Storage) -> ir.Expr:
    """The elements of a storage."""
    return product(storage.extents) if storage.extents else ir.Literal(1)


def _buffer(name: str, dtype: DType) -> str:
    """A parameter for the elements of a tensor, in row-major order."""
    return f'{name}: T.Tensor((T.dynamic("{name}_size", "int64"),), "{TYPES[dtype]}")'
