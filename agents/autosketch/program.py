"""Phases as a program: phases that differ only in their tensors are calls of one sketch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from sketchc.agents.autosketch.phase import (
    Chosen,
    Phases,
    Product,
    Ranked,
    Running,
    Scattered,
)
from sketchc.agents.autosketch.sketch import (
    Written,
    declarations,
    formatted,
    in_steps,
    tile_sizes,
)
from sketchc.base.diagnostics import Source, has_errors
from sketchc.checker.api import check_sketch
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import free_name, names
from sketchc.parsing.parser import parse

_NAME = re.compile(r"[A-Za-z_]\w*")
_MADE = re.compile(r"^\s*(?:for\s+(\w+)\s+in\b|(\w+)\s*=(?!=))")
_STORED = re.compile(r"->\s*([A-Za-z_]\w*)\s*\[")
#: What a sketch is named after: the fold of its phase.
_KINDS = {
    Product: "product",
    Running: "scan",
    Chosen: "choice",
    Ranked: "order",
    Scattered: "scatter",
}


@attrs.frozen
class _Part:
    """A tensor of a phase, or the part of it at one `index` of its first axis, where the phase
    accesses no other index."""

    name: str
    index: str | None

    def extents(self, phases: Phases) -> tuple[ir.Expr, ...]:
        """The extents of the tensor, or of the part."""
        return phases.shapes[self.name][self.index is not None :]

    def text(self) -> str:
        """The part as an argument of a call."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"


@attrs.frozen
class _Callee:
    """A sketch that is called: the first of the phases that it stands for, and the phase's tensors
    in order."""

    written: Written
    name: str
    tensors: tuple[_Part, ...]


@attrs.frozen
class _Call:
    """A call of `callee`: the phase that the call stands for, with its tensors in the callee's
    order."""

    callee: _Callee
    written: Written
    tensors: tuple[_Part, ...]


def write_program(phases: Phases, name: str, written: Sequence[Written], sketch: str) -> str | None:
    """The program of the phases, which are `written`, in canonical form; None where the single
    `sketch` is not longer, or where a called sketch does not check by itself, since a phase needs
    facts that another one states."""
    calls = _calls(phases, written, name)
    callees = list({id(call.callee): call.callee for call in calls}.values())
    if len(callees) == len(written):
        return None
    lines = [f"program {name} {{"]
    lines += [f"    {line}" for line in declarations(phases, "buffers")]
    lines.append("")
    lines += in_steps((call.written.phase, (_call(phases, call),)) for call in calls)
    lines += ["}", ""]
    for callee in callees:
        lines += _sketch(phases, callee)
    text = formatted(name, lines)
    shorter = text.count("\n") < sketch.count("\n")
    return text if shorter and _holds(text) else None


def _holds(text: str) -> bool:
    """Whether a program's text parses, and each sketch that it calls checks by itself. The program
    is checked with its task, as any design is."""
    tree, found = parse(Source("program.sketch", text))
    if tree is None or has_errors(found):
        return False
    called = (sketch for sketch in tree.sketches if sketch.program is None)
    return all(check_sketch(sketch)[0] is not None for sketch in called)


def _calls(phases: Phases, written: Sequence[Written], name: str) -> list[_Call]:
    """A call for each phase, in order; phases that differ only in names have one callee."""
    known: dict[object, _Callee] = {}
    taken = {name, *phases.shapes}
    calls = []
    for each in written:
        own, parts = _in_parts(phases, each)
        key, tensors = _without_names(phases, own, parts)
        if key not in known:
            kind = _KINDS.get(type(each.phase.fold), "rows" if each.phase.passes else "elements")
            title = free_name(f"{name}_{kind}", taken)
            taken.add(title)
            known[key] = _Callee(own, title, tensors)
        calls.append(_Call(known[key], own, tensors))
    return calls


def _in_parts(phases: Phases, written: Written) -> tuple[Written, dict[str, _Part]]:
    """The phase on parts of tensors, where it accesses a single index of a tensor's first axis, and
    the parts by the names of the tensors."""
    text = "\n".join(written.lines)
    parts = {}
    for name in phases.shapes:
        found = re.findall(rf"\b{name}\[(?:(\d+),\s*)?", text)
        index = found[0] if found and len(set(found)) == 1 and found[0] else None
        if found:
            parts[name] = _Part(name, index)
        if index is not None:
            text = re.sub(rf"\b{name}\[{index},\s*", f"{name}[", text)
    return attrs.evolve(written, lines=tuple(text.split("\n"))), parts


def _without_names(
    phases: Phases, written: Written, parts: dict[str, _Part]
) -> tuple[object, tuple[_Part, ...]]:
    """A key that is equal for phases that differ only in the names of tensors, of tiles and loops,
    and of the step; and the phase's tensors in the order of their first use."""
    code = [line for line in written.lines if not line.lstrip().startswith("#")]
    made = {name for line in code for found in _MADE.findall(line) for name in found if name}
    step = written.phase.step
    numbers: dict[str, str] = {} if step is None else {step.name: "<turn>"}
    tensors: dict[str, None] = {}

    def number(found: re.Match[str]) -> str:
        name = found[0]
        if name in parts:
            tensors.setdefault(name)
        elif name not in made and name not in numbers:
            return name
        return numbers.setdefault(name, f"<{len(numbers)}>")

    text = "\n".join(_NAME.sub(number, line) for line in code)
    used = tuple(parts[name] for name in tensors)
    shapes = tuple(
        (tuple(map(show, part.extents(phases))), _dtype(phases, part.name), _role(written, part))
        for part in used
    )
    return (text, shapes), used


def _dtype(phases: Phases, name: str) -> str:
    base = phases.views.get(name, name)
    declared = {tensor.name: tensor.dtype for tensor in phases.declared.tensors}
    return (phases.workspaces.get(base) or declared[base]).value


def _role(written: Written, part: _Part) -> str:
    """The role of a tensor in a phase: "in", "out" or "inout"."""
    stored = any(part.name in _STORED.findall(line) for line in _statements(written))
    word = rf"\b{part.name}\b"
    reads = (re.search(word, _STORED.sub("", line)) for line in _statements(written))
    return ("inout" if any(reads) else "out") if stored else "in"


def _statements(written: Written) -> Iterator[str]:
    """The statements of a phase without comments, each in one line."""
    whole = ""
    for line in written.lines:
        if not line.lstrip().startswith("#"):
            whole += line
            if whole.count("(") == whole.count(")"):
                yield whole
                whole = ""


def _sizes(phases: Phases, callee: _Callee) -> tuple[list[str], list[ir.Let]]:
    """The symbols that a called sketch uses, and the `let`s that it uses, which it declares too."""
    body = {name for line in callee.written.lines for name in _NAME.findall(line)}
    extents = [extent for part in callee.tensors for extent in part.extents(phases)]
    used = body | {name for extent in extents for name in names(extent)}
    lets: list[ir.Let] = []
    for let in reversed(phases.declared.lets):
        if let.name in used:
            lets.insert(0, let)
            used |= set(names(let.value))
    return [symbol.name for symbol in phases.declared.symbols if symbol.name in used], lets


def _from_shapes(phases: Phases, callee: _Callee) -> set[str]:
    """The extents of a called sketch's inputs, as text; sizes that are none of these are params."""
    inputs = [part for part in callee.tensors if _role(callee.written, part) == "in"]
    return {show(extent) for part in inputs for extent in part.extents(phases)}


def _sketch(phases: Phases, callee: _Callee) -> Iterator[str]:
    """The lines of a sketch that is called."""
    sizes, lets = _sizes(phases, callee)
    known = _from_shapes(phases, callee)
    symbols, params = ([s for s in sizes if (s in known) == told] for told in (True, False))
    written = callee.written
    yield f"sketch {callee.name} {{"
    if symbols:
        yield f"    symbols: {', '.join(symbols)};"
    step = written.phase.step
    numbers = [*params, *([] if step is None else [step.name])]
    if numbers:
        yield f"    params: {' '.join(f'{number}: i64;' for number in numbers)}"
    if lets:
        yield f"    let: {' '.join(f'{let.name} = {show(let.value)};' for let in lets)}"
    formals = [
        f"{part.name}[{', '.join(map(show, part.extents(phases)))}]: "
        f"{_role(written, part)} {_dtype(phases, part.name)};"
        for part in callee.tensors
    ]
    yield f"    tensors: {' '.join(formals)}"
    if tuned := tile_sizes([written]):
        yield f"    {tuned}"
    numbers_known = {*sizes, *(let.name for let in lets)}
    requires = phases.declared.requires
    conditions = [r.text for r in requires if set(names(r.condition)) <= numbers_known]
    conditions += [f"{number} >= 0" for number in params]
    if conditions:
        yield f"    require: {' '.join(f'{text};' for text in conditions)}"
    yield ""
    for line in written.lines:
        yield f"    {line}"
    yield "}"
    yield ""


def _call(phases: Phases, call: _Call) -> str:
    """The text of a call of a sketch."""
    callee = call.callee
    pairs = list(zip(callee.tensors, call.tensors, strict=True))
    roles = {part.name: _role(callee.written, part) for part in callee.tensors}
    inputs = [own.text() for formal, own in pairs if roles[formal.name] == "in"]
    outputs = [own.text() for formal, own in pairs if roles[formal.name] != "in"]
    told = [f"{formal.name}={own.text()}" for formal, own in pairs]
    if inputs:
        told = [*inputs[:-1], f"{inputs[-1]} -> {outputs[0]}", *outputs[1:]]
    symbols, _ = _sizes(phases, callee)
    known = _from_shapes(phases, callee)
    told += [f"{symbol}={symbol}" for symbol in symbols if symbol not in known]
    step, turn = callee.written.phase.step, call.written.phase.step
    told += [f"{step.name}={turn.name}"] if step is not None and turn is not None else []
    return f"{callee.name}({', '.join(told)})"
