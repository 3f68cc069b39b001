"""One `@triton.jit` function: signature, prologue, program decode, body.

Where its integers stay below 2^31 it computes in 32 bits (R10). What was loaded has no bound: a
kernel holds it in 64 bits, and promotes what is computed from it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from fractions import Fraction

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import references
from sketchc.launch.magnitudes import (
    Magnitudes,
    Polynomial,
    add,
    constant,
    multiply,
    never_negative,
    see_body,
    show,
)
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, carried, float_parts, has_product
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import Names
from sketchc.lowering.python_host.wrapping import WIDTH
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.scope import Scope, kernel_expression
from sketchc.lowering.triton.statements import BodyEmitter, iterate

#: 32-bit signed integers hold magnitudes below this.
LIMIT = 2**31


def phase_magnitudes(plan: Plan, phase: PhasePlan) -> list[Polynomial] | None:
    """Bounds, the largest of which holds for every integer that the kernel of `phase` computes;
    None where there is none."""
    sketch = plan.sketch
    seen = Magnitudes({c.name: c.value for c in sketch.constants})
    total = constant(1)
    for axis in phase.grid:
        count = seen.see(axis.count)
        span = multiply(seen.see(axis.step), count)
        seen.variables[axis.variable] = seen.note(add(seen.see(axis.start), span))
        total = multiply(total, add(count, constant(1)))
    seen.note(total)
    see_body(sketch, phase.body, seen)
    return None if seen.unbounded else seen.largest


#: Rows of blocks that run together in the grouped order of a matrix product.
GROUP = 8


@attrs.frozen
class KernelText:
    """One kernel's source and what its launch must do.

    `parameters` are those of the kernel as they are declared, each with what a launch passes.
    `in_memory` are the float scalars that travel through memory. No index exceeds the host
    expression `index_bound`; None: 32 bits always do. `origins` are lines of the sketch by line of
    this kernel, 1-based.
    """

    scope: Scope
    name: str
    lines: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    in_memory: tuple[str, ...]
    index_bound: str | None
    origins: Mapping[int, tuple[int, ...]]


def emit_phase(plan: Plan, phase: PhasePlan, dialect: Dialect, names: Names) -> KernelText:
    """The kernel of one launch."""
    magnitudes = phase_magnitudes(plan, phase)
    guarded = magnitudes is None or not all(_fits(plan, bound) for bound in magnitudes)
    constants = [LIMIT] if magnitudes is None else [bound.get((), 0) for bound in magnitudes]
    scope = Scope(
        plan,
        dialect,
        phase,
        names,
        guarded,
        wide_literals=guarded and max(constants, default=0) >= LIMIT,
        memory_scalars=_takes_f64_scalars(phase),
    )
    _learn(plan, scope)
    emitter = BodyEmitter(scope, Hazards(plan.sketch).find(phase.body))
    _decode(emitter, phase, dialect)
    emitter.emit(phase.body)
    return _assemble(scope, emitter, magnitudes)


def _fits(plan: Plan, magnitude: Polynomial) -> bool:
    """True where the magnitude stays within 32 bits even at the symbols' upper bounds."""
    bounds = {s.name: s.upper_bound for s in plan.sketch.symbols}
    total = Fraction(0)
    for monomial, coefficient in magnitude.items():
        term = coefficient
        for atom in monomial:
            bound = bounds.get(atom)
            if bound is None:
                return False
            term *= bound
        total += term
    return total < LIMIT


def _index_bound(magnitudes: list[Polynomial] | None, names: Names) -> str:
    if magnitudes is None:
        return str(LIMIT)
    texts = [show(bound, names.__getitem__) for bound in magnitudes]
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


def _takes_f64_scalars(phase: PhasePlan) -> bool:
    """True where an f32 argument would not hold what the kernel computes with."""
    return any(
        (isinstance(statement, ir.Compute) and _computes_in_f64(statement))
        or any(
            ref.dtype is DType.F64 for part in float_parts(statement) for ref in references(part)
        )
        for statement in walk.statements(phase.body)
    )


def _computes_in_f64(statement: ir.Compute) -> bool:
    """Whether a statement takes an f64 from a tile, or from the host."""
    tiles = any(isinstance(operand, ir.TileOperand) for operand in statement.operands)
    return (tiles and statement.dtype is DType.F64) or any(
        operand.dtype is DType.F64 for operand in carried(statement)
    )


def _learn(plan: Plan, scope: Scope) -> None:
    """Which host scalars are never negative."""
    scope.known |= {one.name: one.value >= 0 for one in plan.sketch.constants}
    for let in plan.sketch.lets:
        scope.known[let.name] = never_negative(let.value, scope.known)
    for step in walk.around(plan.sketch.steps, scope.phase.index):
        match step:
            case ir.HostFor(variable, start, _, stride):
                scope.known[variable] = scope.non_negative(start) and scope.non_negative(stride)
            case ir.Bind(name, value):
                scope.known[name] = scope.non_negative(value)
            case _:
                pass
    for axis in scope.phase.grid:
        scope.known[axis.variable] = scope.non_negative(axis.start) and scope.non_negative(
            axis.step
        )


# ---------------------------------------------------------------- program decode


def _decode(emitter: BodyEmitter, phase: PhasePlan, dialect: Dialect) -> None:
    """Grid variables from the one-dimensional program number, outermost slowest."""
    scope = emitter.scope
    grid = phase.grid
    persistent = scope.plan.capabilities.persistent_grid
    grouped = dialect.grouped_order and len(grid) >= 2 and has_product(phase.body)
    # The outermost count is needed for the total and for the groups only.
    counts = _counts(emitter, grid, persistent or (grouped and len(grid) == 2))
    if persistent:
        if not grid:
            return
        total = PYTHON.fold("*", counts)
        first, step = "tl.program_id(0)", "tl.num_programs(0)"
        emitter.comment("Each core takes every num_programs-th program.")
        emitter.line(f"for program in range({first}, {total}, {step}):")
        emitter.indent += "    "
        if scope.guarded:
            emitter.line("index = tl.cast(program, INDEX)")
        program = Code("index" if scope.guarded else "program")
    elif grid:
        number = "tl.program_id(0)"
        emitter.line(f"program = {f'tl.cast({number}, INDEX)' if scope.guarded else number}")
        program = Code("program")
    else:
        return
    for axis in grid:
        with emitter.tracing(axis.span):
            emitter.comment(axis.text)
    if grouped:
        _grouped(emitter, grid, counts)
        return
    for position, axis in enumerate(grid):
        _bind_axis(emitter, axis, _number(program, position, counts))


def _number(program: Code, position: int, counts: list[Code]) -> Code:
    """Of an axis's iterations, the one that a program is for."""
    index = program
    if inner := counts[position + 1 :]:
        index = PYTHON.binary("//", index, PYTHON.fold("*", inner))
    return PYTHON.binary("%", index, counts[position]) if position > 0 else index


def _counts(emitter: BodyEmitter, grid: tuple[GridAxis, ...], outermost: bool) -> list[Code]:
    """The axes' lengths; a computed one gets a name. The first is left out unless `outermost`."""
    scope = emitter.scope
    counts = []
    for position, axis in enumerate(grid):
        if position == 0 and not outermost:
            counts.append(Code(""))
            continue
        code = kernel_expression(axis.count, scope)
        if not isinstance(axis.count, ir.Ref | ir.Literal) and len(grid) > 1:
            name = scope.names.fresh(f"{scope.names[axis.variable]}_count")
            emitter.line(f"{name} = {code}")
            code = Code(name)
        counts.append(code)
    return counts


def _bind_axis(emitter: BodyEmitter, axis: GridAxis, index: Code) -> None:
    scope = emitter.scope
    with emitter.tracing(axis.span):
        emitter.line(f"{scope.names[axis.variable]} = {iterate(axis, index, scope)}")


def _grouped(emitter: BodyEmitter, grid: tuple[GridAxis, ...], counts: list[Code]) -> None:
    """The two innermost axes run in groups of `GROUP` rows, so that the programs at work share
    rows and columns in the cache."""
    rows, columns = counts[-2:]
    *outer, row, column = grid
    emitter.comment(f"Groups of {GROUP} rows of blocks: neighbouring programs share operands.")
    names = emitter.scope.names
    plane = "program"
    if outer:
        plane = names.fresh("plane")
        emitter.line(f"{plane} = program % ({rows} * {columns})")
    group_start, group_rows = names.fresh("group_start"), names.fresh("group_rows")
    emitter.line(f"{group_start} = {plane} // ({GROUP} * {columns}) * {GROUP}")
    emitter.line(f"{group_rows} = tl.minimum({rows} - {group_start}, {GROUP})")
    in_group = Code(f"{plane} % ({GROUP} * {columns})", PYTHON.binary_levels["%"])
    for position, axis in enumerate(outer):
        _bind_axis(emitter, axis, _number(Code("program"), position, counts))
    within = PYTHON.binary("%", in_group, Code(group_rows))
    _bind_axis(emitter, row, PYTHON.binary("+", Code(group_start), within))
    _bind_axis(emitter, column, PYTHON.binary("//", in_group, Code(group_rows)))


# ---------------------------------------------------------------- assembly


def _decorator(scope: Scope, scalars: list[str]) -> list[str]:
    """`@triton.jit`, without constants made of sizes where the compiler fails on such."""
    integers = [scope.names[name] for name in scalars if not scope.dtypes[name].is_float]
    general = [*(name for _, name in sorted(scope.strides.items())), *integers]
    if scope.dialect.specialises or not general:
        return ["@triton.jit"]
    listed = ", ".join(f'"{name}"' for name in general)
    if len(listed) < WIDTH - 34:
        return [f"@triton.jit(do_not_specialize=[{listed}])"]
    return [
        "@triton.jit(",
        "    do_not_specialize=[",
        *(f'        "{name}",' for name in general),
        "    ]",
        ")",
    ]


def _parameters(
    scope: Scope, scalars: list[str], in_memory: Container[str]
) -> Iterator[tuple[str, str]]:
    """The parameters as they are declared, each with what a launch passes."""
    sketch, names = scope.plan.sketch, scope.names

    def dense(tensor: str) -> str:
        return names[f"{tensor}_dense"]

    for tensor in sketch.tensors:
        if tensor.name in scope.tensors:
            yield names[f"{tensor.name}_ptr"], dense(tensor.name)
    for (name, kind), pointer in scope.bit_pointers.items():
        yield pointer, f"{dense(name)}.view(torch.{kind})"
    for (name, axis), stride in sorted(scope.strides.items()):
        one = f"{dense(name)}.shape[{axis}] == 1"
        yield stride, f"0 if {one} else {dense(name)}.stride({axis})"
    for name in scalars:
        scalar = names[f"{name}_ptr"] if name in in_memory else names[name]
        yield scalar, f"int({scalar})" if scope.dtypes[name] is DType.BOOL else scalar
    known = [
        names[constant.name] for constant in sketch.constants if constant.name in scope.scalars
    ]
    known += [names[bucket] for bucket in scope.buckets]
    known += [names.given(tensor.name) for tensor in sketch.tensors if tensor.name in scope.given]
    for name in known:
        yield f"{name}: tl.constexpr", f"{name}={name}"
    if scope.guarded:
        yield "INDEX: tl.constexpr", "INDEX=tl.int64 if index_bound >= 2**31 else tl.int32"


def _assemble(
    scope: Scope, emitter: BodyEmitter, magnitudes: list[Polynomial] | None
) -> KernelText:
    sketch, names, guarded = scope.plan.sketch, scope.names, scope.guarded
    order = [
        *(d.name for d in sketch.symbols),
        *(d.name for d in sketch.lets),
        *(d.name for d in sketch.params),
        *walk.bound_names(walk.steps(sketch.schedule)),
    ]
    scalars = [name for name in order if name in scope.scalars]
    floats = [name for name in scalars if scope.dtypes[name].is_float]
    in_memory = tuple(sorted(floats)) if scope.memory_scalars else ()
    name = names.fresh(f"{scope.phase.name}_kernel")
    parameters = tuple(_parameters(scope, scalars, in_memory))
    lines = [*_decorator(scope, scalars), f"def {name}("]
    lines += [f"    {parameter}," for parameter, _ in parameters]
    lines.append("):")
    integers = [names[n] for n in scalars if scope.dtypes[n].is_integer]
    if guarded and integers:
        lines += ["    # Indices are as wide as the wrapper found necessary."]
        lines += [f"    {integer} = tl.cast({integer}, INDEX)" for integer in integers]
    # A bool as an argument fails in Triton's interpreter; a cast keeps 1 from being a constant.
    truths = [names[n] for n in scalars if scope.dtypes[n] is DType.BOOL]
    lines += ["    # Bools arrive as integers."] if truths else []
    lines += [f"    {truth} = tl.cast({truth}, tl.int1)" for truth in truths]
    for scalar in floats if in_memory else ():
        lines.append(f"    {names[scalar]} = tl.load({names[f'{scalar}_ptr']})")
    words = set(re.findall(r"\w+", "\n".join(emitter.lines)))
    for extent, lane in scope.lanes.items():
        if lane not in words:
            continue  # asked for, and then written without
        arange = f"tl.arange(0, {extent})"
        lines.append(f"    {lane} = {arange}.to(INDEX)" if guarded else f"    {lane} = {arange}")
    origins = emitter.marks.lines(len(lines))
    lines += emitter.lines
    if not scope.phase.body:
        lines.append("    pass")
    bound = _index_bound(magnitudes, names) if guarded else None
    return KernelText(scope, name, tuple(lines), parameters, in_memory, bound, origins)
