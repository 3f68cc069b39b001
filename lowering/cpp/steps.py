"""The C++ text around loop programs: what the host does in order, and the launch of each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.launch.conditions import Condition, fetch_conditions, fetched_conditions
from sketchc.lowering.cpp.names import identifier
from sketchc.lowering.cpp.printer import Printer
from sketchc.lowering.cpp.refusals import broken
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.build import BuiltPhase, grid_loop, step_sign
from sketchc.lowering.loops.reads import fetch, host_element
from sketchc.lowering.loops.scalars import scalar_dtype
from sketchc.lowering.loops.streams import streamed_tensors
from sketchc.lowering.plan import PhasePlan
from sketchc.lowering.precedence import CPP


@attrs.define
class Steps:
    """Prints the host's steps; `launches` has the phases that are launched by their numbers."""

    sketch: ir.Sketch
    launches: Mapping[int, BuiltPhase]
    out: Printer

    def steps(self, steps: tuple[ir.HostStep, ...]) -> None:
        """Prints steps in order."""
        for step in steps:
            match step:
                case ir.Launch(index):
                    if index in self.launches:
                        self._phase(self.launches[index])
                case _:
                    with self.out.tracing(step.span):
                        self._step(step)

    def _step(self, step: ir.HostFor | ir.HostIf | ir.Fetch | ir.Bind) -> None:
        match step:
            case ir.HostFor():
                self._loop(step)
            case ir.HostIf():
                self._branch(step)
            case ir.Fetch():
                self._comment(step.text)
                for condition in fetch_conditions(self.sketch).get(step.name, ()):
                    refuse_unless(condition, self.out)
                element = host_element(self.sketch, step.access)
                self._define(fetch(step.name, step.dtype, element))
                after = fetched_conditions(self.sketch).get(step.name)
                if after is not None:
                    refuse_unless(after, self.out)
            case ir.Bind(name, bound):
                self._comment(step.text)
                dtype = scalar_dtype(bound)
                self._define(nodes.Define(name, dtype, nodes.Scalar(bound, dtype)))
            case _:
                assert_never(step)

    def _define(self, scalar: nodes.Define) -> None:
        kind, name = self.out.kind(scalar.dtype), identifier(scalar.name)
        self.out.line(f"[[maybe_unused]] const {kind} {name} = {self.out.value(scalar.value)};")

    def _comment(self, text: str) -> None:
        if text:
            self.out.comment(text)

    def _loop(self, step: ir.HostFor) -> None:
        self._comment(step.text)
        direction = step_sign(step.step, self.sketch)
        bounds = (step.start, step.stop, step.step)
        loop = nodes.SerialLoop(step.variable, *bounds, (), direction=direction)
        self.out.open(self.out.serial_head(loop))
        self.steps(step.body)
        self.out.close()

    def _branch(self, step: ir.HostIf) -> None:
        self._comment(step.text)
        self.out.open(f"if ({self.out.scalar(step.condition)})")
        self.steps(step.body)
        if step.orelse:
            self.out.otherwise()
            self.steps(step.orelse)
        self.out.close()

    # ------------------------------------------------------------ launches

    def _phase(self, built: BuiltPhase) -> None:
        out, phase, program = self.out, built.plan, built.program
        several = len(self.launches) > 1
        if several:
            out.comment(f"Phase {phase.index + 1} of {len(self.launches)}.")
        arenas = [s for s in program.storages if s.memory == "arena"]
        scoped = several or bool(arenas) or not phase.grid
        if scoped:
            out.open("")
        if arenas:
            out.comment("Scratch memory of each thread.")
            reserve("arena", arenas, "omp_get_max_threads()" if phase.grid else "1", out)
        if phase.grid:
            self._parallel(phase, program, arenas)
        else:
            self._thread_storage(arenas, "0")
            self._stack(program)
            out.statements(program.body)
            if streamed_tensors(program.body):
                out.line(f"{out.helper('end_streams')};")
        if scoped:
            out.close()

    def _parallel(
        self, phase: PhasePlan, program: nodes.Program, arenas: list[nodes.Storage]
    ) -> None:
        out = self.out
        collapse = f" collapse({len(phase.grid)})" if len(phase.grid) > 1 else ""
        streams = bool(streamed_tensors(program.body))
        region = bool(arenas) or streams
        if region:
            out.pragma("parallel")
            out.open("")
            self._thread_storage(arenas, "omp_get_thread_num()")
        out.pragma(f"{'' if region else 'parallel '}for{collapse} schedule(static)")
        grid = [
            grid_loop(axis, self.sketch, f"{identifier(axis.variable)}_index")
            for axis in phase.grid
        ]
        for axis, (loop, _) in zip(phase.grid, grid, strict=True):
            with out.tracing(axis.span):
                out.open(out.serial_head(loop))
        for axis, (_, variable) in zip(phase.grid, grid, strict=True):
            if variable is not None:
                with out.tracing(axis.span):
                    out.statement(variable)
        self._stack(program)
        out.statements(program.body)
        for _ in phase.grid:
            out.close()
        if streams:
            out.line(f"{out.helper('end_streams')};")
        if region:
            out.close()

    def _thread_storage(self, arenas: list[nodes.Storage], thread: str) -> None:
        for storage in arenas:
            kind, name = self.out.kind(storage.dtype), identifier(storage.name)
            self.out.line(
                f"{kind} *const __restrict {name} = arena.at<{kind}>({name}_place, {thread});"
            )

    def _stack(self, program: nodes.Program) -> None:
        for storage in program.storages:
            if storage.memory == "stack":
                kind, name = self.out.kind(storage.dtype), identifier(storage.name)
                count = CPP.fold("*", [self.out.scalar(extent) for extent in storage.extents])
                self.out.line(f"alignas(64) {kind} {name}[{count}];")


def reserve(
    arena: str, items: Sequence[ir.Tensor] | Sequence[nodes.Storage], threads: str, out: Printer
) -> None:
    """An arena with memory for tensors or storages, for so many threads."""
    out.line(f"{out.library('arena')} {arena};")
    for item in items:
        size = f"sizeof({out.kind(item.dtype)}), {{{out.listed(item.extents)}}}"
        out.line(f"const int64_t {identifier(item.name)}_place = {arena}.add({size});")
    out.open(f"if (!{arena}.allocate({threads}))")
    out.line("return -1;")
    out.close()


def refuse_unless(condition: Condition, out: Printer) -> None:
    """Leaves the function with the condition's number unless it holds."""
    out.open(f"if ({broken(condition, out)})")
    out.line(f"return {condition.number};")
    out.close()
