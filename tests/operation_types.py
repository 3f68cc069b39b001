"""Every operation of the op table with every combination of element types, as lines of sketches.

A trial is one call with operands of given types into a destination of a given type. The checker
says which it accepts (`accepted`); those must compile and run on every target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from triton_cases import Array, dtype_of

from sketchc.base.diagnostics import Severity, Source
from sketchc.base.types import DType
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ops.table import OPS, Category, Op
from sketchc.parsing.parser import parse

TYPES = tuple(dtype.value for dtype in DType)
#: Operands that are no tiles: their kind, and how they are written.
SCALARS = {
    "integer": "2",
    "float": "1.5",
    "i64_param": "p_#_i64",
    "f32_param": "p_#_f32",
    "bool_param": "p_#_bool",
    "constant": "HALF",
    "let": "third",
    "index": "iota(8) + 1",  # it may be a divisor
}
#: Those of each place of an operand.
PARAMS = {
    f"p_{place}_{dtype}": value
    for place in "abc"
    for dtype, value in (("i64", 2), ("f32", 1.5), ("bool", True))
}
#: Trials in one sketch.
PACK = 40


@attrs.frozen
class Trial:
    """One call: its operation, the kinds of its operands and destinations, and its lines, in which
    `#` stands for the trial's number."""

    operation: str
    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    def numbered(self, number: int) -> tuple[list[str], list[str]]:
        """The lines, and the declarations of the outputs."""
        own = str(number)
        return (
            [line.replace("#", own) for line in self.lines],
            [each.replace("#", own) for each in self.outputs],
        )

    @property
    def title(self) -> str:
        return f"{self.operation}({', '.join(self.kinds)})"


def _operand(kind: str, name: str) -> str:
    return SCALARS.get(kind, f"{name}_{kind}").replace("#", name)


def _trial(
    op: Op,
    kinds: Sequence[str],
    operands: Sequence[str],
    results: Sequence[tuple[str, str]],
    extra: str = "",
    initial: str = "",
) -> Trial:
    """`results`: the extents and the type of each destination."""
    names = [f"y#_{n}" for n in range(len(results))]
    init = ", init=0" if initial else ""
    lines = [
        f"{name} = alloc([{extents}], {dtype}{init})"
        for name, (extents, dtype) in zip(names, results, strict=True)
    ]
    arguments = ", ".join([*operands, *([extra] if extra else []), *names[1:]])
    attribute = f", dst={names[0]}" if len(names) == 1 else ""
    if len(names) > 1:
        arguments = ", ".join([*operands, *([extra] if extra else []), *names])
    lines.append(f"{op.name}({arguments}{attribute})")
    outputs = []
    for name, (extents, dtype) in zip(names, results, strict=True):
        tensor = name.upper()
        places = ", ".join(":" for _ in extents.split(","))
        outputs.append(f"{tensor}[{extents}]: out {dtype};")
        lines.append(f"store({name} -> {tensor}[{places}])")
    return Trial(op.name, tuple(kinds), tuple(lines), tuple(outputs))


def _elementwise(op: Op) -> Iterator[Trial]:
    count = len(op.operands)
    every = [*TYPES, *SCALARS]
    if op.name == "fill":
        for kind, dst in itertools.product(SCALARS, TYPES):
            yield _trial(op, (kind, dst), [_operand(kind, "a")], [("8", dst)])
        return
    combinations = list(itertools.product(every, repeat=count))
    if count > 2:
        # Too many: each kind in each place, beside others.
        rng = np.random.default_rng(len(op.name))
        combinations = [combinations[int(n)] for n in rng.permutation(len(combinations))[:400]]
        first = "bool" if op.name == "where" else "f32"
        combinations += [(first, a, b) for a, b in itertools.product(every, every)]
    for kinds in combinations:
        for dst in TYPES:
            operands = [_operand(k, "abc"[n]) for n, k in enumerate(kinds)]
            extras = [""]
            if op.name == "cast":
                extras = ["", "sat=True", 'round="down"', 'round="up", sat=True', 'round="zero"']
            elif op.name == "clamp":
                extras = ["low=-1, high=2", "low=0.5"]
            elif op.name == "gelu":
                extras = ["", 'approximate="tanh"']
            for extra in extras:
                shown = (*kinds, extra, dst) if extra else (*kinds, dst)
                yield _trial(op, shown, operands, [("8", dst)], extra)


def _across(op: Op) -> Iterator[Trial]:
    for source, dst in itertools.product(TYPES, TYPES):
        m = f"m_{source}"
        match op.category:
            case Category.REDUCTION | Category.INDEX:
                yield _trial(op, (source, dst), [m], [("4", dst)], "axis=1")
            case Category.SCAN:
                yield _trial(op, (source, dst), [m], [("4, 8", dst)], "axis=1")
            case Category.COMPOSITE:
                yield _trial(op, (source, dst), [m], [("4, 8", dst)])
            case Category.LAYOUT:
                yield from _moved(op, source, dst)
            case Category.MATRIX:
                for right, extra in itertools.product(TYPES, ("", "trans_b=True")):
                    other = f"n_{right}" if not extra else f"m_{right}"
                    shape = ("4, 4", dst)
                    shown = (source, right, extra, dst) if extra else (source, right, dst)
                    initial = "0" if op.accumulates else ""
                    yield _trial(op, shown, [m, other], [shape], extra, initial)
            case Category.SORTING:
                columns = "4, 2" if op.accumulates else "4, 8"
                for indices in ("iota(8)", "m_i64", "m_i32"):
                    yield _trial(
                        op,
                        (source, indices, dst),
                        [m, indices],
                        [(columns, dst), (columns, "i64")],
                        "axis=1",
                        "0" if op.accumulates else "",
                    )
            case Category.RANDOM:
                for offset in ("iota(8)", "m_i64", f"m_{source}"):
                    seed = _operand("i64_param", "a")
                    yield _trial(op, (offset, dst), [seed, offset], [("4, 8", dst)])
            case _:
                raise AssertionError(op.name)


def _moved(op: Op, source: str, dst: str) -> Iterator[Trial]:
    m = f"m_{source}"
    match op.name:
        case "transpose":
            yield _trial(op, (source, dst), [m], [("8, 4", dst)])
        case "permute":
            yield _trial(op, (source, dst), [m], [("8, 4", dst)], "axes=[1, 0]")
        case "reshape":
            yield _trial(op, (source, dst), [m], [("2, 16", dst)])
        case "broadcast":
            yield _trial(op, (source, dst), [f"a_{source}"], [("4, 8", dst)])
        case "concat":
            for right in TYPES:
                other = f"m_{right}"
                yield _trial(op, (source, right, dst), [m, other], [("4, 16", dst)], "axis=1")


def _memory() -> Iterator[Trial]:
    """What converts at loads, stores and atomics."""
    for source, dst in itertools.product(TYPES, TYPES):
        load = (f"y# = alloc([8], {dst})", f"load(A_{source}[:] -> y#)", "store(y# -> Y#[:])")
        yield Trial("load", (source, dst), load, (f"Y#[8]: out {dst};",))
        yield Trial(
            "store", (source, dst), (f"store(a_{source} -> Y#[:])",), (f"Y#[8]: out {dst};",)
        )
        for atomic in ("atomic_add", "atomic_max", "atomic_min"):
            one = "True" if dst == "bool" else "1"
            line = f"{atomic}(a_{source} -> Y#[:])"
            yield Trial(atomic, (source, dst), (line,), (f"Y#[8]: out {dst} = {one};",))


def trials() -> dict[str, list[Trial]]:
    """Every trial, by operation."""
    found: dict[str, list[Trial]] = {}
    for name, op in OPS.items():
        make = _elementwise if op.category is Category.ELEMENTWISE else _across
        found[name] = list(make(op))
    for trial in _memory():
        found.setdefault(trial.operation, []).append(trial)
    return found


def covering(every: Sequence[Trial], wanted: int, seed: int) -> list[Trial]:
    """About `wanted` trials of an operation, so many that each kind in each place occurs, and as
    many different pairs of kinds as chance gives."""
    rng = np.random.default_rng(seed)
    order = [every[int(n)] for n in rng.permutation(len(every))]
    missing = {(place, kind) for trial in every for place, kind in enumerate(trial.kinds)}
    chosen: list[Trial] = []
    rest: list[Trial] = []
    for trial in order:
        new = {(place, kind) for place, kind in enumerate(trial.kinds)} & missing
        if new:
            missing -= new
            chosen.append(trial)
        else:
            rest.append(trial)
    return chosen + rest[: max(0, wanted - len(chosen))]


def sketch(name: str, pack: Sequence[Trial]) -> tuple[str, dict[int, int]]:
    """The text of a sketch with these trials, and which trial each of its lines belongs to."""
    lines, outputs, owners = [], [], {}
    for number, trial in enumerate(pack):
        own, declared = trial.numbered(number)
        outputs += [(number, each) for each in declared]
        lines += [(number, line) for line in own]
    used = {dtype: "\n".join(line for _, line in lines) for dtype in TYPES}
    text = [f"sketch {name} {{"]
    for param in PARAMS:
        text.append(f"    params: {param}: {param.rpartition('_')[2]};")
    text.append("    constexpr: HALF: f32 = 0.5;")
    text.append("    let: third = 1/(p_a_f32 + 1.5);")
    text.append("    tensors:")
    loads = []
    for dtype in TYPES:
        for tensor, shape in (("A", "8"), ("B", "8"), ("C", "8"), ("M", "4, 8"), ("N", "8, 4")):
            tile = f"{tensor.lower()}_{dtype}"
            needed = f"{tile}," in used[dtype] or f"{tile} " in used[dtype]
            if needed or f"{tensor}_{dtype}[" in used[dtype]:
                text.append(f"        {tensor}_{dtype}[{shape}]: in {dtype};")
            if needed:
                places = ", ".join(":" for _ in shape.split(","))
                loads += [
                    f"{tile} = alloc([{shape}])",
                    f"load({tensor}_{dtype}[{places}] -> {tile})",
                ]
    for number, each in outputs:
        owners[len(text) + 1] = number
        text.append(f"        {each}")
    text += [f"    {line}" for line in loads]
    for number, line in lines:
        owners[len(text) + 1] = number
        text.append(f"    {line}")
    text.append("}")
    return "\n".join(text) + "\n", owners


def accepted(every: Sequence[Trial]) -> list[Trial]:
    """Those that the checker accepts; it tells all lines with errors at once. (One that it told of
    only after another is mended would fail to lower.)"""
    found = []
    for start in range(0, len(every), 4 * PACK):
        pack = every[start : start + 4 * PACK]
        text, owners = sketch("asked", pack)
        wrong = refused(text)
        bad = {owners[line] for line in wrong if line in owners}
        assert bad or not wrong, f"{text}\n{wrong}"
        found += [trial for number, trial in enumerate(pack) if number not in bad]
    return found


def refused(text: str) -> list[int]:
    """The lines at which the checker finds errors of types."""
    tree, found = parse(Source("asked.sketch", text))
    assert tree is not None, found
    _, more = elaborate(tree.sketches[0], {})
    errors = [d for d in more if d.severity is Severity.ERROR]
    return [text.count("\n", 0, d.span.start) + 1 for d in errors]


def inputs(text: str) -> dict[str, Array]:
    """Small numbers that every type holds and no operation minds: no negative ones, no divisor of
    zero."""
    made = {}
    for position, dtype in enumerate(TYPES):
        rng = np.random.default_rng(position)
        for tensor, shape in (("A", 8), ("B", 8), ("C", 8), ("M", (4, 8)), ("N", (8, 4))):
            if f" {tensor}_{dtype}[" not in text:
                continue
            values = rng.integers(1 if tensor == "B" else 0, 4, shape).astype(np.float64)
            if DType(dtype).is_float:
                values += 0.25 * rng.integers(0, 4, shape)
            made[f"{tensor}_{dtype}"] = values.astype(dtype_of(DType(dtype)))
    return made
