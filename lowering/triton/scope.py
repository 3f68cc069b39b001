"""What the emitter of one kernel knows and collects: names, extents, lanes, arguments, helpers."""

from __future__ import annotations

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.plan import PhasePlan, PhysicalExtent, Plan
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import Names
from sketchc.lowering.triton.dialect import Dialect


@attrs.define
class Scope:
    """State of one kernel's emission.

    `guarded`: the index width is a compile-time parameter INDEX (else 32 bits are known to do).
    `memory_scalars`: float scalars travel through memory, as f64 (LOWERING 15).
    """

    plan: Plan
    dialect: Dialect
    phase: PhasePlan
    names: Names
    guarded: bool
    wide_literals: bool = False
    memory_scalars: bool = False
    scalars: dict[str, ir.NameKind] = attrs.field(factory=dict)  # sketch names read, host scalars
    buckets: dict[str, ir.Expr] = attrs.field(factory=dict)  # compile-time name -> bucket of
    hoisted: dict[ir.Expr, str] = attrs.field(factory=dict)  # host-computed float -> argument
    lanes: dict[str, str] = attrs.field(factory=dict)  # physical extent text -> lane vector
    strides: dict[tuple[str, int], str] = attrs.field(factory=dict)  # broadcast strides
    tensors: dict[str, None] = attrs.field(factory=dict)  # base tensors accessed
    functions: dict[str, None] = attrs.field(factory=dict)  # device functions called
    dtypes: dict[str, DType] = attrs.field(factory=dict)  # host scalar dtypes
    known: dict[str, bool] = attrs.field(factory=dict)  # name -> never negative
    lanes_of: dict[str, tuple[Code, ...]] = attrs.field(factory=dict)  # binding -> shape
    given: dict[str, None] = attrs.field(factory=dict)  # optional tensors asked for
    pending: list[str] = attrs.field(factory=list)  # assignments before the next line
    read_anyway: dict[str, None] = attrs.field(factory=dict)  # tensors read on void lanes too
    #: (float tensor, integer type) -> the argument that points to its bits
    bit_pointers: dict[tuple[str, str], str] = attrs.field(factory=dict)

    # ------------------------------------------------------------ extents

    def physical(self, logical: ir.Expr) -> PhysicalExtent:
        """The physical extent of an index tile's axis: that of a tile axis with the same extent."""
        for tile in self.plan.tiles.values():
            for mine, extent in zip(tile.tile.extents, tile.extents, strict=True):
                if mine == logical:
                    return extent
        value = self.constant(logical)
        if value is None:
            msg = "an index tile has an extent that no tile has"
            raise InternalError(msg)
        padded = self.plan.capabilities.power_of_two_extents
        size = 1 << max(int(value) - 1, 0).bit_length() if padded else int(value)
        return PhysicalExtent(value=size, padded=size != value)

    def constant(self, expression: ir.Expr) -> int | float | bool | None:
        """The value of an expression over compile-time constants only."""
        from sketchc.ir.evaluate import constants_of, evaluate

        try:
            return evaluate(expression, constants_of(self.plan.sketch))
        except KeyError:
            return None

    def extent_code(self, physical: PhysicalExtent, logical: ir.Expr) -> Code:
        """How a kernel writes a physical extent."""
        if physical.bucket_of is not None:
            self.buckets[physical.name] = physical.bucket_of
            return Code(self.names[physical.name])
        if physical.value is None:
            msg = "Triton has no run-time tile extents; the plan must bucket them"
            raise InternalError(msg)
        match logical:
            case ir.Ref(name, ir.NameKind.CONSTANT) if not physical.padded:
                self.scalars[name] = ir.NameKind.CONSTANT
                return Code(self.names[name])
            case _:
                return Code(str(physical.value))

    def shape(self, tile: str) -> tuple[Code, ...]:
        """Physical extents of a tile as code; () for a tile of one element, a Triton scalar."""
        planned = self.plan.tiles[tile]
        if all(extent.value == 1 for extent in planned.extents):
            return ()
        return tuple(
            self.extent_code(physical, logical)
            for physical, logical in zip(planned.extents, planned.tile.extents, strict=True)
        )

    def lane(self, extent: Code) -> str:
        """The name of the lane vector `0 .. extent-1`, defined at the top of the kernel."""
        if extent.text not in self.lanes:
            stem = extent.text.lower()
            wish = f"lanes_{stem}" if stem.isdigit() else f"{stem.removesuffix('_block')}_lanes"
            self.lanes[extent.text] = self.names.fresh(wish)
        return self.lanes[extent.text]

    def non_negative(self, expression: ir.Expr) -> bool:
        return never_negative(expression, self.known)

    def bind(self, wish: str, code: Code) -> Code:
        """A name for a value, assigned before the statement at hand."""
        name = self.names.fresh(wish)
        self.pending.append(f"{name} = {code}")
        return Code(name)

    def bit_pointer(self, tensor: str, integer: str) -> Code:
        """The argument that points to a float tensor's bits as integers of a type: "int32"."""
        key = (tensor, integer)
        if key not in self.bit_pointers:
            self.bit_pointers[key] = self.names.derived(tensor, f"{integer}_ptr")
        return Code(self.bit_pointers[key])

    def call(self, function: str, *arguments: Code | str) -> Code:
        """A call of a device function of this package."""
        return PYTHON.call(self.function(function), *arguments)

    def function(self, name: str) -> str:
        """The name here of a device function of this package; its source joins the file."""
        self.functions[name] = None
        return self.names.functions.get(name, name)


def shape_code(shape: tuple[Code, ...]) -> str:
    """A shape as a tuple."""
    inner = ", ".join(extent.text for extent in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def spread(code: Code, axis: int, rank: int) -> Code:
    """A lane vector as axis `axis` of `rank`: `lanes[:, None]`."""
    if rank == 1:
        return code
    marks = ", ".join(":" if a == axis else "None" for a in range(rank))
    return PYTHON.postfix(code, f"[{marks}]")
