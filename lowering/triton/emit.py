"""From a finished plan to one Python file: kernels, and a wrapper that launches them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.lowering.precedence import PYTHON
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.python_host.library import definitions, part_of
from sketchc.lowering.python_host.wrapper import Wrapper, python_kernel
from sketchc.lowering.triton import tuning
from sketchc.lowering.triton.alike import Call, write_once
from sketchc.lowering.triton.dialect import DIALECTS, RESERVED, Dialect
from sketchc.lowering.triton.kernel import INDEX_GIVEN, KernelText, emit_phase
from sketchc.lowering.triton.memory import needs_canonical_nan
from sketchc.lowering.triton.products import least_of


@attrs.define(kw_only=True)
class TritonWrapper(Wrapper):
    """The wrapper of Triton kernels."""

    dialect: Dialect
    kernels: tuple[KernelText, ...]
    calls: tuple[Call, ...]

    def launch(self, phase: int) -> None:
        """See `Wrapper`."""
        for kernel, call in zip(self.kernels, self.calls, strict=True):
            if kernel.scope.phase.index == phase:
                self._launch(kernel, call, kernel.scope.phase)

    def _launch(self, kernel: KernelText, call: Call, phase: PhasePlan) -> None:
        self.lines.append("")
        programs, index = self.own_name("programs"), self.own_name("index")

        def counted() -> None:
            self._buckets(kernel)
            if kernel.index_bound is not None:
                self.comment("No index of the kernel exceeds this, overshooting lanes included.")
                self.line(f"index_bound = {kernel.index_bound}")
                self.line(f"{index} = tl.int64 if index_bound >= 2**31 else tl.int32")
            self.count_programs(phase, programs)

        self.once(counted)
        for name in kernel.in_memory:
            held = f"torch.full((1,), {self.names[name]}, dtype=torch.float64, device=device)"
            self.line(f"{self.names[f'{name}_ptr']} = {held}")
        self._canonical(phase)
        self.line(f"if {programs} > 0:")
        grid = programs
        if self.plan.capabilities.persistent_grid:
            grid = f"min({programs}, {self.plan.cores(phase)})"
        given = [f"INDEX={index}" if each == INDEX_GIVEN else each for each in call.arguments]
        if self.dialect.launch_options:
            given += tuning.launch_options(self.plan, phase, self.names)
        launch = f"{call.name}[({grid},)]({', '.join(given)})"
        if self.dialect.compiled_again:
            pointers = len(kernel.scope.tensors) + len(kernel.scope.bit_pointers)
            tensors = f"[{', '.join(given[:pointers])}]"
            options = [each for each in given if re.match(r"\w+=", each)]
            numbers = f"[{', '.join(given[pointers : len(given) - len(options)])}]"
            where = "launches", self._place(kernel, phase, index), call.name, grid
            launch = self.call("launch_kernel", *where, tensors, numbers, *options)
        self.line(launch, "    ")

    def _place(self, kernel: KernelText, phase: PhasePlan, index: str) -> str:
        """The place of a launch among those of its plan: its number, and what else the kernel is
        compiled for that the plan does not settle."""
        declared = (declared.partition(":") for declared, _ in kernel.parameters)
        compiled = {name for name, kind, _ in declared if kind}
        names, scope, apart = self.names, kernel.scope, list[str]()
        for name, kind in scope.scalars.items():
            value = names[name]
            if kind is ir.NameKind.CONSTANT or not self.varying([value]):
                continue
            if not scope.dtypes[name].is_float:
                apart.append(value if value in compiled else self.call("integer_kind", value))
        for name, size in scope.buckets.items():
            apart += [names[name]] if self.varying([str(self.expression(size))]) else []
        if kernel.index_bound is not None and self.varying([kernel.index_bound]):
            apart.append(index)
        return f"({', '.join([str(phase.index), *apart])})" if apart else str(phase.index)

    def _buckets(self, kernel: KernelText) -> None:
        """Bind the widths of tiles that depend on sizes: for a plan's later calls once, and so wide
        enough for every launch that has tiles of this width."""
        for name, value in kernel.scope.buckets.items():
            power = PYTHON.call("triton.next_power_of_2", self.expression(value))
            scopes = (other.scope for other in self.kernels if name in other.scope.buckets)
            least = max(least_of(name, each.phase, self.plan, self.dialect) for each in scopes)
            self.line(f"{self.names[name]} = max({power}, {least})")
            self.refuse_wide(value)

    def _canonical(self, phase: PhasePlan) -> None:
        """Bring NaN in tensors to the form that wins an atomic maximum or minimum, where needed."""
        sketch = self.plan.sketch
        stored = walk.bases(sketch, walk.in_phases(sketch.phases), ir.Store)
        forms: dict[str, str] = {}
        for statement in walk.statements(phase.body):
            if isinstance(statement, ir.Atomic) and needs_canonical_nan(statement, sketch):
                tensor = sketch.tensor(statement.access.tensor)
                if (
                    tensor.initial is None
                    or tensor.name in stored
                    or tensor.initial != tensor.initial
                ):
                    sign = "-" if statement.operation == "min" else ""
                    forms[tensor.name] = f'{sign}float("nan")'
        for name, nan in forms.items():
            dense = self.dense(name)
            self.line(f"{dense}.masked_fill_({dense}.isnan(), {nan})")


#: The device functions that kernels may carry with them.
FUNCTIONS = tuple(Path(__file__).with_name(f"{name}_functions.py") for name in ("lane", "device"))


def emit(plan: Plan) -> Kernel:
    """The source for `plan`; deterministic.

    The wrapper takes `in` and `inout` tensors in call order, params by keyword, and `out=` (one
    tensor, or a tuple in call order); it returns all `out` and `inout` tensors in call order.
    Raises `InternalError` for a plan that its passes should have refused.
    """
    dialect = DIALECTS[plan.target]
    names = _names(plan)
    kernels = tuple(emit_phase(plan, phase, dialect, names) for phase in plan.phases)
    called = (function for kernel in kernels for function in kernel.scope.functions)
    anyway = {name for kernel in kernels for name in kernel.scope.read_anyway}
    written = write_once(kernels)
    wrapper = TritonWrapper(
        names,
        "triton.cdiv",
        plan=plan,
        read_anyway=anyway,
        dialect=dialect,
        kernels=kernels,
        calls=written.calls,
    )
    imports = ["import torch", "import triton", "import triton.language as tl"]
    functions = part_of(FUNCTIONS, called, names.functions)
    return python_kernel(wrapper, imports, functions, written.bodies)


def _names(plan: Plan) -> Names:
    """The names of the kernels' file. No name of the sketch becomes that of a device function,
    since which of those kernels call is known only once these are written. Params keep their names,
    by which the wrapper is called: a device function of that name gets another. Tensors keep theirs
    as well: kernels access them through pointers of other names."""
    functions = definitions(FUNCTIONS).keys()
    own = {param.name for param in plan.sketch.params} | {t.name for t in plan.sketch.tensors}
    names = Names(plan.sketch, RESERVED | (functions - own))
    names.taken.update(functions)
    params = {names[param.name] for param in plan.sketch.params}
    names.functions = {name: names.fresh(name) for name in functions if name in params}
    _ = names[plan.sketch.name]  # before the names that kernels make up
    return names
