"""The Python module of CUDA-C kernels: it checks its arguments and launches the kernels' machine
code through the driver, so that no compiler is needed where it runs.

`NAME_host.py` has a function like that of the Triton targets; `LOADED`, which the drop-in sets, has
the kernels (`runtime/toolchains/cuda_c/loading.py`).
"""

from __future__ import annotations

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import product
from sketchc.lowering.cuda_c.maps import ELEMENTS, Maps
from sketchc.lowering.kernel import LibraryPart
from sketchc.lowering.loops.nests import step_name
from sketchc.lowering.plan import Plan, Storage
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.python_host.wrapper import Wrapper, python_kernel

#: Names of the file beside the sketch's.
_RESERVED = frozenset(
    {"torch", "LOADED", "blocks", "scratch", "pieces", "shared", "places", "cdiv"}
)


@attrs.frozen
class Launched:
    """A kernel as the host launches it: its name, what it takes of the host (tensors, and numbers
    with their C++ types), its threads, bytes of shared memory, the storages behind them whose sizes
    the host knows, storages in scratch memory, for at most `most_blocks` blocks, and maps."""

    entry: str
    takes: tuple[tuple[str, str], ...]
    threads: int
    shared_bytes: int
    shared: tuple[Storage, ...]
    scratch: tuple[Storage, ...]
    most_blocks: int
    maps: Maps = Maps()


def module_text(plan: Plan, launches: dict[int, Launched]) -> str:
    """The text of the module; `launches` by the number of the phase."""
    wrapper = CudaWrapper(Names(plan.sketch, _RESERVED), "cdiv", plan=plan, launches=launches)
    imports = ["import torch", "", "LOADED = None"]
    return python_kernel(wrapper, imports, LibraryPart((), _CDIV), ()).source


_CDIV = '''def cdiv(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)'''


@attrs.define(kw_only=True)
class CudaWrapper(Wrapper):
    """The wrapper of CUDA kernels."""

    launches: dict[int, Launched]

    def launch(self, phase: int) -> None:
        """See `Wrapper`."""
        launched = self.launches.get(phase)
        if launched is None:
            return  # a phase that stores nothing
        placed = next(each for each in self.plan.phases if each.index == phase)
        self.lines.append("")
        programs = self.own_name("programs")
        self.once(lambda: self.count_programs(placed, programs))
        self.line(f"if {programs} > 0:")
        deeper = "    "
        self.line(f"blocks = min({programs}, {launched.most_blocks})", deeper)
        arguments = [self._argument(name, kind) for name, kind in launched.takes]
        arguments.append(("q", programs))
        bytes_ = str(launched.shared_bytes)
        if launched.shared:
            bytes_ = "shared"
            sizes = ", ".join(self._size(storage) for storage in launched.shared)
            self.line(f"shared, *places = LOADED.pieces({launched.shared_bytes}, {sizes})", deeper)
            arguments.append(("q" * len(launched.shared), "*places[1:]"))
        if launched.scratch:
            sizes = ", ".join(self._size(storage) for storage in launched.scratch)
            self.line(f"pieces = LOADED.pieces({sizes})", deeper)
            self.line("scratch = LOADED.scratch(pieces, blocks, device)", deeper)
            kinds = "q" * (len(launched.scratch) + 1)
            arguments += [("P", "scratch.data_ptr()"), (kinds, "*pieces")]
        for map_, name in launched.maps.names.items():
            told = [self._dense(map_.buffer), str(ELEMENTS[map_.dtype]), str(map_.lines)]
            told += (str(self.expression(extent)) for extent in map_.extents)
            self.line(f"{name} = LOADED.described({', '.join(told)})", deeper)
            arguments.append(("T", f'{name} or b""'))
        if launched.maps.names:
            names = ", ".join(launched.maps.names.values())
            arguments.append(("?", f"None not in ({names})"))
        shape = f'"{launched.entry}", blocks, {launched.threads}, {bytes_}'
        kinds = "".join(kind for kind, _ in arguments)
        given = ", ".join(value for _, value in arguments)
        self.line(f'LOADED.launch(device, {shape}, "{kinds}", {given})', deeper)

    def _argument(self, name: str, kind: str) -> tuple[str, str]:
        """How C holds an argument ("P" an address, "q" an integer, "d" a double, "?" a truth value;
        "T", of no argument of the sketch, is a tensor's map), and its expression."""
        sketch = self.plan.sketch
        tensors = {tensor.name: tensor for tensor in sketch.tensors}
        if name in tensors:
            address = f"{self.dense(name)}.data_ptr()"
            if tensors[name].optional:
                address = f"{address} if {self.names.given(name)} else 0"
            return "P", address
        letter = {"double": "d", "bool": "?"}.get(kind, "q")
        for tensor in sketch.tensors:
            for axis, repeats in enumerate(tensor.broadcast):
                if repeats and step_name(tensor.name, axis) == name:
                    extent = f"{self.names[tensor.name]}.shape[{axis}]"
                    return "q", f"0 if {extent} == 1 else 1"
        return letter, self.names[name]

    def _dense(self, name: str) -> str:
        """The memory of a tensor, or None where it is not given."""
        dense = self.dense(name)
        optional = next(t.optional for t in self.plan.sketch.tensors if t.name == name)
        return f"{dense} if {self.names.given(name)} else None" if optional else dense

    def _size(self, storage: Storage) -> str:
        """The bytes of a storage."""
        elements = product(storage.extents)
        size = ir.Binary("*", elements, ir.Literal(storage.dtype.bytes))
        return str(self.expression(ir.Binary("max", size, ir.Literal(0))))
