"""A Python function for the shapes of what a kernel returns, for callers that propagate shapes
alone, such as the fake implementation of a torch operator."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.inputs import sources_of
from sketchc.lowering.python_host.abi import given as taken_by
from sketchc.lowering.python_host.abi import results
from sketchc.lowering.python_host.expressions import Host, Names, literal
from sketchc.lowering.python_host.wrapping import PythonLines


def shape_function(sketch: ir.Sketch, name: str, given: Collection[str], cdiv: str) -> str:
    """The definition of the function `name`, whose arguments are the tensors of `sketch` that are
    `given` and its params, by their names, and which returns the list of shapes of `abi.results`.

    The function reads the arguments' shapes only, and checks nothing. `cdiv` names a function in
    its scope that rounds quotients up.
    """
    return "\n".join(_Shapes(Names(sketch), cdiv, sketch=sketch).emit(name, given))


@attrs.define
class _Shapes(Host, PythonLines):
    sketch: ir.Sketch = attrs.field(kw_only=True)

    def emit(self, name: str, given: Collection[str]) -> list[str]:
        """All lines of the function."""
        tensors = taken_by(self.sketch)
        taken = [self.names[t.name] for t in tensors if t.name in given]
        taken += [self.names[param.name] for param in self.sketch.params]
        self.lines.append(f"def {name}({', '.join(taken)}):")
        self.lines.append('    """The shapes of what the kernel returns."""')
        for tensor in tensors:
            if tensor.name not in given:
                self.line(f"{self.names[tensor.name]} = None")
        shapes = [self._shape(tensor) for tensor in results(self.sketch)]
        for wanted, value in self._values():
            self.line(f"{wanted} = {value}")
        self.line(f"return [{', '.join(shapes)}]")
        return self.lines

    def _shape(self, tensor: ir.Tensor) -> str:
        if tensor.role is ir.Role.INOUT:
            return f"tuple({self.names[tensor.name]}.shape)"
        extents = [str(self.expression(extent)) for extent in tensor.extents]
        return f"({', '.join(extents)}{',' * (len(extents) == 1)})"

    def _values(self) -> Iterator[tuple[str, object]]:
        """(name, text) of each value that extents use, after the values that it uses itself."""
        wanted = self._wanted()
        for tensor in self.sketch.tensors:
            if tensor.optional and tensor.role is not ir.Role.OUT:
                yield self.names.given(tensor.name), f"{self.names[tensor.name]} is not None"
        for constant in self.sketch.constants:
            if constant.name in wanted:
                yield self.names[constant.name], literal(constant.value)
        # Symbols that are extents by themselves come first: the offsets of others use them.
        sources = sources_of(self.sketch).items()
        for symbol, found in sorted(sources, key=lambda one: not all(s.bare for s in one[1])):
            if symbol in wanted:
                yield self.names[symbol], self.solved(found)
        for let in self.sketch.lets:
            if let.name in wanted:
                yield self.names[let.name], self.expression(let.value)

    def _wanted(self) -> set[str]:
        """The names that the extents of results use, directly or through lets and symbols."""
        returned = (tensor for tensor in results(self.sketch) if tensor.role is ir.Role.OUT)
        wanted = {name for tensor in returned for e in tensor.extents for name in walk.names(e)}
        for let in reversed(self.sketch.lets):
            if let.name in wanted:
                wanted |= walk.names(let.value)
        for symbol, found in sources_of(self.sketch).items():
            if symbol in wanted:
                for source in found:
                    wanted |= walk.names(source.offset)
        return wanted
