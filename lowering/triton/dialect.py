"""What differs between the Triton targets, as data: the emitter asks a `Dialect`, never a name."""

from __future__ import annotations

import attrs

from sketchc.base.types import DType
from sketchc.lowering.plan import Capabilities

#: Element types inside a kernel.
TL = {dtype: f"tl.{dtype.numpy_name}" for dtype in DType} | {DType.BOOL: "tl.int1"}


#: Precisions of a matrix product, coarsest first; a sketch's `precision` is a floor.
PRECISIONS = ("tf32", "tf32x3", "ieee")


@attrs.frozen
class Dialect:
    """One Triton target.

    `launch_options`: `num_warps` and `num_stages` mean something. `device_guard`: a context manager
    that selects the device of its tensor argument, or "" where one process has one device.
    `grouped_order`: programs of a matrix product run in blocks of rows, for the shared cache.
    `scalar_div_rn`: `tl.div_rn` takes scalars, not tiles only.
    `dot_dtypes`: operand types of `tl.dot`; others take a broadcast product and a sum.
    `specialises`: kernels are compiled apart for integer arguments that are 1 or multiples of 16.
    `integer_products`: `tl.reduce` multiplies integers.
    `gathers_words`: `tl.gather` moves floats of up to 32 bits only.
    `interval_masks`: loads and stores are honest about masks that are intervals along the axes of a
    block only, and about no mask of a scalar load; other accesses take addresses that are inside
    the tensor on every lane. `byte_bools`: `tl.load` gives bools as bytes. `float_extrema`:
    `tl.atomic_max` and `tl.atomic_min` of floats compare their bits, as Triton's own do.
    """

    capabilities: Capabilities
    launch_options: bool
    device_guard: str
    grouped_order: bool
    scalar_div_rn: bool
    dot_dtypes: frozenset[DType]
    specialises: bool = True
    integer_products: bool = True
    interval_masks: bool = False
    byte_bools: bool = False
    float_extrema: bool = True
    gathers_words: bool = False

    def precision(self, floor: str) -> str:
        """The cheapest available precision that is at least `floor`."""
        offered = self.capabilities.precisions
        finer = PRECISIONS[PRECISIONS.index(floor) :]
        return next(name for name in finer if name in offered)
