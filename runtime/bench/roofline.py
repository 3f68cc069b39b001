"""Physical limits of times: the bytes that must move, the work that must be done, and the floor.

Two readings of the same sketch. The *roofline* is the time of a perfect kernel: each input read
once and each output written once at the memory's bandwidth, each operation at the peak rate. The
*floor* is for rejecting times, so it counts only what no kernel can leave out: a tensor that is
read through indices, in strides or under a condition may be read in part; and counts of operations
are upper bounds, of a triangular loop by its hull, of a tile that sticks out as a whole, so what
they exceed the real work by is left out of the floor.

A speedup that comes from rounding more coarsely does not count: a result states its class of
precision, the baseline is set to the same class, and where PyTorch does not have that class no
speedup is quoted. Classes are "ieee f64", "ieee f32", "tf32x3", "tf32", "f16", "bf16" and
"integer", after the narrowest type that floats pass through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_values
from sketchc.ir.walk import references
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan, is_product
from sketchc.lowering.precisions import PRECISION_OF_TYPE, SPLIT, precision_class
from sketchc.lowering.registry import load_target
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.cases.binding import Binding

#: A time below this share of the floor is not believed. The margin allows for measured bandwidths
#: and peaks that are too low, and for work that a compiler can simplify away.
SLACK = 0.5
#: The factor by which sizes are scaled up to find the cost of an element without edge tiles.
_LARGE = 1 << 20


@attrs.frozen
class Work:
    """Bytes and FLOPs: `moved` (bytes) and `operations` (FLOPs) for the roofline, `read`, `written`
    and `certain` for the floor (bytes, bytes, FLOPs)."""

    moved: int
    operations: int
    read: int
    written: int
    certain: int


@attrs.frozen
class Floor:
    """Times in seconds: `roofline` of a perfect kernel, and `least`, which no kernel can beat;
    `reason` says what determines `least`."""

    roofline: float
    least: float
    reason: str

    def refuses(self, seconds: float) -> bool:
        """Whether a time is too short to be believed: below `SLACK` of `least`."""
        return seconds < SLACK * self.least


def work_of(plan: Plan, binding: Binding, symbols: Mapping[str, int]) -> Work:
    """The bytes and FLOPs of a kernel at the sizes `symbols`. A kernel without a sketch has only a
    signature: its inputs may be read in part, and its operations are not known."""
    values = host_values(plan.sketch, symbols, binding.params)
    sizes = {
        tensor.name: math.prod(int(evaluate(e, values)) for e in tensor.extents)
        * tensor.dtype.bytes
        for tensor in plan.sketch.tensors
        if tensor.role is not ir.Role.WORKSPACE
    }
    given = {source.tensor.name for source in binding.tensors}
    inputs = {t.name for t in plan.sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)}
    read = sum(sizes[name] for name in inputs & given)
    written = sum(sizes[tensor.name] for tensor in binding.outputs)
    if not plan.phases or plan.flops is None:
        return Work(read + written, 0, 0, written, 0)
    whole = sum(sizes[name] for name in inputs & given & _read_whole(plan))
    certain = 0 if _conditional(plan) else _leading(plan.flops, values, symbols)
    operations = int(evaluate(plan.flops, values))
    return Work(read + written, operations, whole, written, min(certain, operations))


def floor_of(work: Work, machine: Machine, precision: str, cold: bool) -> Floor:
    """The floor of `work` on `machine`, in the precision class `precision`. `cold`: inputs come
    from memory, not from caches."""
    peak = machine.peaks.get(precision)
    ideal = work.moved / machine.bandwidth
    if peak is not None:
        ideal = max(ideal, work.operations / peak)
    footprint = work.read + work.written
    if footprint >= 2 * machine.cache_bytes:
        memory = footprint / machine.bandwidth
        reason = f"{footprint / 1e6:.3g} MB at {machine.bandwidth / 1e9:.3g} GB/s of memory"
    else:
        # Flushed inputs come from memory; outputs, and inputs of warm caches, may stay in the
        # caches, at the bandwidth of the level that holds them.
        cached, fastest = (work.written if cold else footprint), machine.cached_bandwidth(footprint)
        memory = 0.0 if fastest is None else cached / fastest
        reason = f"{cached / 1e6:.3g} MB within the caches"
        if cold and work.read / machine.bandwidth > memory:
            memory = work.read / machine.bandwidth
            reason = f"{work.read / 1e6:.3g} MB at {machine.bandwidth / 1e9:.3g} GB/s of memory"
    compute = work.certain / peak if peak is not None else 0.0
    if compute > memory:
        assert peak is not None
        reason = f"{work.certain / 1e9:.3g} GFLOP at {peak / 1e9:.3g} GFLOP/s ({precision})"
    return Floor(ideal, max(memory, compute), reason)


def _read_whole(plan: Plan) -> set[str]:
    """Inputs that are read by plain slices, unconditionally, in every phase that reads them."""
    bases = {view.name: view.base for view in plan.sketch.views}
    plain: set[str] = set()
    partial: set[str] = set()
    for statement, guarded in _loads(plan):
        name = bases.get(statement.access.tensor, statement.access.tensor)
        contiguous = all(
            isinstance(one, ir.ScalarSubscript)
            or (isinstance(one, ir.SliceSubscript) and one.step == ir.Literal(1))
            for one in statement.access.subscripts
        )
        whole = contiguous and not guarded and statement.where is None
        (plain if whole else partial).add(name)
    return plain - partial


def _loads(plan: Plan) -> Iterator[tuple[ir.Load, bool]]:
    """Every load of the plan, and whether it is executed under a condition."""
    for phase in plan.phases:
        hosted = any(
            isinstance(step, ir.HostIf) for step in walk.around(plan.sketch.steps, phase.index)
        )
        guarded = {
            id(inner)
            for statement in walk.statements(phase.body)
            if isinstance(statement, ir.If)
            for inner in walk.statements(walk.inside(statement))
        }
        for statement in walk.statements(phase.body):
            if isinstance(statement, ir.Load):
                yield statement, hosted or id(statement) in guarded


def _conditional(plan: Plan) -> bool:
    """Whether the plan's count of operations is only an upper bound: some are under conditions, or
    in loops whose bounds depend on more than symbols and constants."""
    for phase in plan.phases:
        around = walk.around(plan.sketch.steps, phase.index)
        if any(isinstance(step, ir.HostIf | ir.Fetch) for step in around):
            return True
        for statement in walk.statements(phase.body):
            if isinstance(statement, ir.If):
                return True
            bounds = walk.expressions(statement) if isinstance(statement, ir.For) else ()
            names = (name.kind for bound in bounds for name in references(bound))
            if any(kind not in (ir.NameKind.SYMBOL, ir.NameKind.CONSTANT) for kind in names):
                return True
    return False


def _leading(count: ir.Expr, values: Mapping[str, Value], symbols: Mapping[str, int]) -> int:
    """The leading term of `count` in every symbol, at the actual sizes `symbols`, which leaves out
    what edge tiles add: a lower bound, since `count` has tiles that stick out as a whole."""
    scaled = dict(values)
    divisor = 1
    for name, size in symbols.items():
        scaled[name] = size * _LARGE
        once = evaluate(count, scaled)
        scaled[name] = size * _LARGE * 2
        twice = evaluate(count, scaled)
        degree = max(0, round(twice / once).bit_length() - 1) if once > 0 else 0
        scaled[name] = size * _LARGE
        divisor *= _LARGE**degree
    return int(evaluate(count, scaled)) // divisor


#: Precision classes, from the most exact to the coarsest.
CLASSES = ("integer", "ieee f64", "ieee f32", SPLIT, "tf32x3", "tf32", "f16", "bf16")
#: The class that PyTorch is set to instead, which has no product in parts.
_BASELINE = {SPLIT: "ieee f32", "tf32x3": "ieee f32"}
#: Classes that are no coarser than that: their bound is shown (docs/VERIFICATION.md).
_AS_EXACT = (SPLIT,)


@attrs.frozen
class Precision:
    """A precision class, and what in the kernel determines it."""

    name: str
    reason: str

    @property
    def of_baseline(self) -> str:
        """The class in which the baselines run."""
        return _BASELINE.get(self.name, self.name)

    @property
    def comparable(self) -> bool:
        """Whether the baselines run in the same class, or in another that is as exact, so that a
        speedup may be quoted."""
        return self.name == self.of_baseline or self.name in _AS_EXACT


def precision_of(plan: Plan, kernel: Kernel) -> Precision:
    """The precision class of a kernel, from its sketch; of a kernel without one, from its signature
    and its source."""
    tensors = [t.dtype for t in plan.sketch.tensors if t.role is not ir.Role.WORKSPACE]
    found = {
        PRECISION_OF_TYPE[dtype]: f"{dtype.value} tensors" for dtype in tensors if dtype.is_float
    }
    for statement in walk.in_phases(plan.phases):
        if is_product(statement):
            found.update(_class_of_product(plan, statement))
    written = load_target(kernel.target).precisions_in
    if kernel.foreign and written is not None and "ieee f32" in found:
        found.update(written(kernel.source))
    name = max(found, key=CLASSES.index, default="integer")
    return Precision(name, found.get(name, "no floating-point tensors"))


def _class_of_product(plan: Plan, product: ir.Compute) -> dict[str, str]:
    """The class of one matrix product of a sketch, with the reason; {} for integers."""
    found = precision_class(plan, product)
    if found == "integer":
        return {}
    own = {name: dtype for dtype, name in PRECISION_OF_TYPE.items()}
    how = f" of {own[found].value}" if found in own else f' with precision="{found}"'
    return {found: f"{product.operation}{how}"}
