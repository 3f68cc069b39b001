"""Emits CUDA-C: kernels, a plain C entry point around them, and no header but CUDA's own.

Takes a finished plan, returns a `Kernel`. `lowering/loops` makes the loop programs of the phases,
`lowering/c_source` prints what is C++ on any machine, `kernel` what the threads of a block do, and
`library` has what generated files carry; this file prints the function of the host and launches.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value, product
from sketchc.ir.walk import declared_names, substitute
from sketchc.lowering.c_source.abi import actual_extents, scalars
from sketchc.lowering.c_source.expressions import entry_name, identifier
from sketchc.lowering.c_source.host import HostPrinter, constant_lines
from sketchc.lowering.c_source.printer import INDENT, Printer
from sketchc.lowering.cuda_c.apart import apart
from sketchc.lowering.cuda_c.copies import with_copies
from sketchc.lowering.cuda_c.kernel import EXCHANGE_BYTES, KernelPrinter
from sketchc.lowering.cuda_c.library.texts import LIBRARY
from sketchc.lowering.cuda_c.maps import ELEMENTS, Map, Maps, Operand, mapped, written_by
from sketchc.lowering.cuda_c.module import Launched, module_text
from sketchc.lowering.cuda_c.products import Products, products_of
from sketchc.lowering.cuda_c.sums import Sums, sums_of
from sketchc.lowering.cuda_c.target import (
    LANGUAGE_FLAGS,
    SHARED_BYTES,
    SHARED_FLAGS,
    made_for,
)
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.loops import build, nodes
from sketchc.lowering.loops.build import style_of
from sketchc.lowering.loops.nests import step_name
from sketchc.lowering.plan import ARENA, LINE_BYTES, Plan, Storage, literals
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.workspaces import shared_memory

#: Blocks that a launch starts at most; each of them runs several programs where there are more.
MOST_BLOCKS = 65536
#: The same where each has scratch memory of its own.
_SCRATCH_BLOCKS = 1024
#: Bytes of shared memory that a kernel may have without asking.
_FREE_BYTES = 48 * 1024
_FAILED = "return -2;"


def emit(plan: Plan) -> Kernel:
    """The CUDA-C source for a finished plan; deterministic."""
    sketch = plan.sketch
    host = _Host(plan=plan)
    body = host.function()
    library = LIBRARY.namespace(host.used)
    includes = [*LIBRARY.includes, "#include <cuda_runtime.h>"]
    parts = [
        _title(plan),
        "\n".join(includes),
        *([library] if library else []),
    ]
    origins: dict[int, tuple[int, ...]] = {}
    for above, below, printer in host.kernels:
        # All kernels of a file name the same memory, whose alignment must be one.
        memory = f"{INDENT}extern __shared__ __align__({host.border}) char block_memory[];"
        head = [*above, memory, *below]
        lines = "\n\n".join(parts).count("\n") + 2 + len(head)
        origins |= printer.carried_out(lines)
        parts.append("\n".join([*head, *printer.lines, f"{INDENT}}}", "}"]))
    source = "\n\n".join([*parts, body]) + "\n"
    origins |= host.carried_out(source.count("\n") - len(host.lines) - 1)
    return Kernel(
        "cuda_c",
        plan.hardware.name,
        sketch.name,
        entry_name(sketch.name),
        "cuda",
        source,
        sketch,
        extras=((f"{sketch.name}_host.py", module_text(plan, host.launched)),),
        source_map=tuple(sorted(origins.items())),
        library=(LibraryPart(tuple(LIBRARY.used(host.used)), library),) if library else (),
    )


def _title(plan: Plan) -> str:
    """What the file is, and the command that makes a library of it."""
    name, chip = plan.sketch.name, plan.hardware
    return "\n".join(
        (
            f"// {name}: a CUDA-C kernel for {chip.name}, made from a sketch. To build a library:",
            f"//   nvcc {' '.join(LANGUAGE_FLAGS)} {made_for(chip.facts)}",
            f"//     {' '.join(SHARED_FLAGS)} -o {name}.so {name}.cu",
        )
    )


@attrs.frozen
class _Memory:
    """Where the storages of a program lie: in shared memory, each from an offset on, there behind
    these `bytes` where the host knows their sizes, or in global memory. `most` is the size of all
    that is shared, at most; operands of products lie from `staging` on where no other place is
    theirs."""

    shared: tuple[tuple[Storage, int], ...]
    sized: tuple[Storage, ...]
    scratch: tuple[Storage, ...]
    bytes: int
    most: int
    staging: int
    products: Products


@attrs.define
class _Host(HostPrinter):
    """Prints the exported function; `kernels` are the kernels that it launches: the lines of each
    above and below the declaration of its shared memory, which begins on a multiple of `border`
    bytes, and its body."""

    kernels: list[tuple[list[str], list[str], KernelPrinter]] = attrs.field(factory=list)
    border: int = 1
    #: what the Python module launches, by the number of the phase
    launched: dict[int, Launched] = attrs.field(factory=dict)
    #: the C++ types of what the host knows, by name
    _known: dict[str, str] = attrs.field(factory=dict)

    def launches(self) -> None:
        """The steps of the host, with the launches in them."""
        sketch = self.sketch
        for tensor in sketch.tensors:
            constant = "const " if tensor.role is ir.Role.IN else ""
            self._known[tensor.name] = f"{constant}{self.kind(tensor.dtype)} *__restrict "
        self._known |= {name: f"{kind} " for kind, name in scalars(sketch)}
        kinds = {DType.I64: "int64_t ", DType.BOOL: "bool "}
        self._known |= {let.name: kinds.get(let.dtype, "double ") for let in sketch.lets}
        steps = ((tensor.name, axis) for _, tensor, axis in actual_extents(sketch))
        self._known |= {step_name(*step): "int64_t " for step in steps}
        self.statements(build.host_program(self.plan))

    def fill(self, tensor: ir.Tensor, count: Code, value: Code) -> None:
        """See `HostPrinter`."""
        kind = self.kind(tensor.dtype)
        done = self.helper("fill", self.name(tensor.name), count, value, types=kind)
        self.open(f"if (!{done})")
        self.line(_FAILED)
        self.close()

    def value(self, node: nodes.Value) -> Code:
        """See `Expressions`; the host fetches elements from the device."""
        if isinstance(node, nodes.Element):
            return self.helper("fetched", self._offset(node.buffer, node.index))
        return HostPrinter.value(self, node)

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Define(name, dtype):
                self._known[name] = f"{self.kind(dtype)} "
            case nodes.SerialLoop(variable):
                self._known[variable] = "int64_t "
        if isinstance(statement, nodes.Launch):
            self._launch(statement)
        else:
            HostPrinter._statement(self, statement)

    # ------------------------------------------------------------ launches

    def _own(self, name: str) -> str:
        """A name for something of the generated code that no name of the sketch is."""
        taken = declared_names(self.sketch)
        while name in taken:
            name += "_"
        return name

    def _launch(self, launch: nodes.Launch) -> None:
        owners = shared_memory(self.sketch)
        sums = sums_of(apart(launch.program, owners), owners)
        memory = self._placed(sums.program)
        written = written_by(launch.program, owners)
        operands = mapped(sums.program, memory.products, literals(self.sketch), written)
        maps = self._maps(operands.values())
        printer = self._kernel(launch, sums, memory, operands, maps)
        self.used |= printer.used
        known = [name for name in self._known if name in printer.names]
        self.names |= set(known)
        entry = f"{entry_name(self.sketch.name)}_{len(self.kernels) + 1}"
        self.kernels.append((*self._head(entry, known, printer, memory, maps), printer))
        self.border = max(self.border, memory.products.border)
        self.launched[launch.phase] = Launched(
            entry,
            tuple((name, self._known[name].strip()) for name in known),
            32 * memory.products.warps,
            memory.bytes,
            memory.sized,
            memory.scratch,
            _SCRATCH_BLOCKS if memory.scratch else MOST_BLOCKS,
            maps,
        )
        programs, blocks = self._own("programs"), self._own("blocks")
        self.open("")
        counts = [self._count(self, loop) for loop in launch.grid]
        self.line(f"const int64_t {programs} = {CPP.fold('*', counts) if counts else 1};")
        most = _SCRATCH_BLOCKS if memory.scratch else MOST_BLOCKS
        self.line(f"const int64_t {blocks} = std::min<int64_t>({programs}, {most});")
        arguments = [*map(identifier, known), programs]
        shared_bytes = str(memory.bytes)
        if memory.sized:
            shared = self._own("shared")
            self.line(f"{self.library('layout')} {shared}{{{memory.bytes}}};")
            arguments += self.placed(shared, memory.sized)
            shared_bytes = f"static_cast<unsigned>({shared}.bytes())"
        if memory.scratch:
            arena = self._own("arena")
            self.comment("Scratch memory of each block.")
            self.reserve(arena, memory.scratch, blocks)
            arguments += [f"{arena}.memory()", f"{arena}.bytes()"]
            arguments += [f"{identifier(storage.name)}_place" for storage in memory.scratch]
        arguments += self._described(maps)
        if memory.most > _FREE_BYTES:
            self.line(f"{self.helper('allow_shared', entry, str(memory.most))};")
        threads = 32 * memory.products.warps
        shape = f"static_cast<unsigned>({blocks}), {threads}, {shared_bytes}"
        self.open(f"if ({blocks} > 0)")
        self.line(f"{entry}<<<{shape}>>>({', '.join(arguments)});")
        self.close()
        self.open("if (cudaGetLastError() != cudaSuccess)")
        self.line(_FAILED)
        self.close()
        self.close()

    def _maps(self, operands: Iterable[tuple[Operand, Operand]]) -> Maps:
        """Names for the maps of a launch."""
        names: dict[Map, str] = {}
        for each in (operand.map for pair in operands for operand in pair):
            if each not in names:
                name = self._own(f"{identifier(each.buffer)}_map")
                while name in names.values():
                    name += "_"
                names[each] = name
        return Maps(names, self._own("mapped")) if names else Maps()

    def _described(self, maps: Maps) -> list[str]:
        """The arguments for maps, which are made here."""
        made = []
        for each, name in maps.names.items():
            self.line(f"{self.library('tensor_map')} {name}{{}};")
            extents = f"{{{self.listed(each.extents)}}}"
            told = (name, str(ELEMENTS[each.dtype]), self.name(each.buffer), extents)
            made.append(self.helper("described_tensor", *told, str(each.lines)))
        if made:
            self.line(f"const bool {maps.flag} = {CPP.fold('&&', made)};")
        return [*maps.names.values(), maps.flag] if made else []

    def _placed(self, program: nodes.Program) -> _Memory:
        constants = literals(self.sketch)
        near: dict[str, Storage] = {}
        sized, sizes = [], {}
        for storage in program.storages:
            elements = constant_value(substitute(product(storage.extents), constants))
            if storage.memory != ARENA and elements is None:
                sized.append(storage)
            elif storage.memory != ARENA:
                assert elements is not None
                near[storage.name] = storage
                sizes[storage.name] = elements * storage.dtype.bytes
        facts = self.plan.hardware.facts
        taken = sum(-(-size // LINE_BYTES) * LINE_BYTES for size in sizes.values())
        room = SHARED_BYTES if taken <= SHARED_BYTES else style_of(self.plan).most_bytes(facts)
        left = facts["memory"]["shared"]["bytes"] - EXCHANGE_BYTES - (room if sized else taken)
        products = products_of(program, self.plan, constants, sizes, left)
        shared, used = [], EXCHANGE_BYTES
        for name, storage in near.items():
            border = products.border if name in products.places.values() else LINE_BYTES
            used = -(-used // border) * border
            shared.append((storage, used))
            used += products.sizes[name]
        staging = used = -(-used // products.border) * products.border
        used += products.beside
        scratch = tuple(storage for storage in program.storages if storage.memory == ARENA)
        most = used + (room - taken if sized else 0)
        return _Memory(tuple(shared), tuple(sized), scratch, used, most, staging, products)

    def _kernel(
        self,
        launch: nodes.Launch,
        sums: Sums,
        memory: _Memory,
        operands: dict[int, tuple[Operand, Operand]],
        maps: Maps,
    ) -> KernelPrinter:
        """The body of a kernel: the place of a program in the grid, its memory, its statements."""
        owners = shared_memory(self.sketch)
        tensors = [t.name for t in self.sketch.tensors if t.role is not ir.Role.IN]
        written = {owners.get(name, name) for name in tensors}
        written |= {storage.name for storage in sums.program.storages}
        inside = nodes.walk(launch.program.body)
        own = frozenset(each.name for each in inside if isinstance(each, nodes.Define))
        printer = KernelPrinter(
            depth=2,
            written=written,
            owners=owners,
            locals=own,
            constants=literals(self.sketch),
            products=memory.products,
            sums=sums,
            staging=memory.staging,
            mapped=operands,
            maps=maps,
        )
        rest = Code(self._own("program"))
        for number, loop in reversed(list(enumerate(launch.grid))):
            count = self._count(printer, loop)
            index = CPP.binary("%", rest, count) if number else rest
            if loop.step != ir.Literal(1):
                index = CPP.binary("*", index, printer.scalar(loop.step))
            printer.line(f"const int64_t {printer.name(loop.variable)} = {index};")
            rest = CPP.binary("/", rest, count)
        variables = len(printer.lines)
        printer.statements(launch.variables)
        places = [(storage, f"block_memory + {offset}") for storage, offset in memory.shared]
        places += [(s, f"block_memory + {identifier(s.name)}_place") for s in memory.sized]
        places += [(s, f"scratch + {identifier(s.name)}_place") for s in memory.scratch]
        for storage, place in places:
            kind, name = printer.kind(storage.dtype), printer.name(storage.name)
            printer.line(f"{kind} *const {name} = reinterpret_cast<{kind} *>({place});")
        near = {storage.name for storage in (*(each for each, _ in memory.shared), *memory.sized)}
        inputs = {t.name for t in self.sketch.tensors} - written - set(owners)
        printer.statements(with_copies(sums.program.body, near, inputs))
        printer.line("__syncthreads();")
        _mark_unused(printer.lines, variables)
        return printer

    def _count(self, printer: Printer, loop: nodes.SerialLoop) -> Code:
        """The number of turns of a loop of the grid."""
        stop = printer.scalar(loop.stop)
        if loop.step == ir.Literal(1):
            return stop
        return printer.helper("ceil_div", stop, printer.scalar(loop.step))

    def _head(
        self,
        entry: str,
        known: list[str],
        printer: KernelPrinter,
        memory: _Memory,
        maps: Maps,
    ) -> tuple[list[str], list[str]]:
        """The lines of a kernel before its body, above and below its shared memory."""
        program, programs = self._own("program"), self._own("programs")
        parameters = [f"{self._known[name]}{identifier(name)}" for name in known]
        parameters.append(f"int64_t {programs}")
        parameters += [f"int64_t {identifier(s.name)}_place" for s in memory.sized]
        lines = []
        if memory.scratch:
            parameters += ["char *scratch_memory", "int64_t scratch_bytes"]
            parameters += [f"int64_t {identifier(s.name)}_place" for s in memory.scratch]
            lines.append("char *const scratch = scratch_memory + blockIdx.x * scratch_bytes;")
        kind = f"const __grid_constant__ {self.library('tensor_map')}" if maps.names else ""
        parameters += [f"{kind} {name}" for name in maps.names.values()]
        parameters += [f"bool {maps.flag}"] if maps.names else []
        lines.append("[[maybe_unused]] const int64_t thread = threadIdx.x;")
        lines.append("[[maybe_unused]] const int64_t threads = blockDim.x;")
        turn = f"{program} < {programs}; {program} += gridDim.x"
        lines.append(f"for (int64_t {program} = blockIdx.x; {turn}) {{")
        shown = ", ".join(each.replace(" ", "\u00a0") for each in parameters)
        listed = textwrap.wrap(f"{shown})", 98, initial_indent=INDENT, subsequent_indent=INDENT)
        listed = [line.replace("\u00a0", " ") for line in listed]
        opening = [f'extern "C" __global__ void {entry}(', *listed, "{"]
        opening += [f"{INDENT}{line}" for line in constant_lines(self.sketch, printer)]
        return opening, [f"{INDENT}{line}" for line in lines]


def _mark_unused(lines: list[str], count: int) -> None:
    """Mark the variables that the first `count` lines define where nothing below reads them."""
    for number in range(count):
        name = lines[number].split(" = ")[0].split()[-1]
        rest = "\n".join(lines[number + 1 :])
        if not re.search(rf"\b{name}\b", rest):
            bare = lines[number].lstrip()
            lines[number] = lines[number].replace(bare, f"[[maybe_unused]] {bare}")
