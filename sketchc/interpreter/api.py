"""The reference interpreter: the meaning of a checked sketch, executed with NumPy.

It is the oracle of the project: generated code that differs from it is wrong. Floats are evaluated
in float64 from exactly rounded inputs and rounded at each write to a tile or tensor (R6);
reductions and matrix products accumulate in float64; void lanes hold poison; shadow memory finds
what distinct parallel iterations must not share (R7).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sketchc.base import records
from sketchc.interpreter.launch import Launch, prepare
from sketchc.interpreter.machine import Machine
from sketchc.interpreter.memory import Places
from sketchc.interpreter.tiles import Array
from sketchc.interpreter.violations import Options, RunCoverage, Violation, Violations
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import element_text

__all__ = ["Options", "Result", "Violation", "interpret"]

DEFAULT_OPTIONS = Options()


@records.frozen
class Result:
    """Outputs (out and inout tensors, in call order) by name, the symbols' values, the violations
    found (always empty unless `Options.collect`), the loops and branches that the run reached, and,
    with `Options.places`, where the stores with a promise about their places wrote."""

    outputs: dict[str, Array]
    symbols: dict[str, int]
    violations: tuple[Violation, ...] = ()
    reached: RunCoverage = records.field(factory=RunCoverage)
    places: tuple[Places, ...] = ()


def interpret(
    sketch: ir.Sketch,
    tensors: Mapping[str, Array | None],
    symbols: Mapping[str, int] | None = None,
    params: Mapping[str, int | float | bool] | None = None,
    options: Options = DEFAULT_OPTIONS,
) -> Result:
    """Execute `sketch` on `tensors` (its in and inout parameters, unchanged by the call; None or
    missing for an optional one that is absent).

    Symbols are bound from the arrays' shapes and from `symbols`; `params` overrides defaults.
    bfloat16 arrays are those of ml_dtypes (or raw 2-byte ones, as NumPy files hold them).

    Raises `UsageError` for arguments that do not fit, `DiagnosticError` with an SK08xx code for a
    launch condition or rule that does not hold (violations are returned instead with
    `options.collect`), and `InternalError` for a static domain found wrong.
    """
    launch = prepare(sketch, tensors, symbols or {}, params or {}, options)
    violations = Violations(options.collect, launch.symbols)
    machine = Machine(
        sketch, options, dict(launch.values), launch.memories, launch.windows, violations
    )
    with np.errstate(all="ignore"):
        machine.run()
    _check_coverage(launch, _promised(sketch), violations)
    outputs = {
        name: memory.data
        for name, memory in launch.memories.items()
        if memory.tensor.role in (ir.Role.OUT, ir.Role.INOUT)
    }
    found = tuple(violations.found.values())
    return Result(outputs, launch.symbols, found, machine.reached, tuple(machine.places))


def _promised(sketch: ir.Sketch) -> set[str]:
    """The tensors of which a store promises, by `covers=True`, that every element is written."""
    return {
        sketch.tensor(statement.access.tensor).name
        for statement in walk.in_phases(sketch.phases)
        if isinstance(statement, ir.Store) and statement.covers
    }


def _check_coverage(launch: Launch, promised: set[str], violations: Violations) -> None:
    """Report the outputs, and the tensors `promised` by `covers=True`, with unwritten elements."""
    for name, memory in launch.memories.items():
        if memory.tensor.role is not ir.Role.OUT and name not in promised:
            continue
        if memory.written is not None and not memory.written.all():
            element = tuple(int(index) for index in np.argwhere(~memory.written)[0])
            promise = ", against the promise covers=True" if name in promised else ""
            text = f"{element_text(name, element)} is never written{promise}"
            span = memory.tensor.span
            broken = Violation("covered", name, element, (), text, span, name in promised)
            violations.add(broken)
