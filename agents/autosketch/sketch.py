"""The last stage of the built-in Designer: phases as the text of a sketch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from sketchc.agents.autosketch.calls import (
    listed,
    number_text,
)
from sketchc.agents.autosketch.phase import (
    Phase,
    Phases,
    Product,
    Ranked,
)
from sketchc.agents.autosketch.templates.doubles import Doubles
from sketchc.agents.autosketch.templates.kept import Kept
from sketchc.agents.autosketch.templates.writer import PhaseWriter
from sketchc.agents.autosketch.windows import leaps
from sketchc.base.diagnostics import InternalError, Source
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import names
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

#: The sizes of tiles: of rows; of a product's rows, columns and terms; and of an attention's
#: queries, keys, and columns of keys and of values; of a copy along what it reads and writes.
_SIZES = {
    "T": "[256, 512, 1024, 2048]",
    "TM": "[32, 64, 128]",
    "TN": "[32, 64, 128]",
    "TK": "[16, 32, 64]",
    "TQ": "[32, 64]",
    "TS": "[32, 64]",
    "TD": "[16, 32]",
    "TH": "[32, 64]",
    "TL": "[32, 64]",
    "TW": "[32, 64]",
}

#: Where the task's own product has few rows or columns, and is bound by memory: programs need fewer
#: rows of the other operand, of which each reads more at once.
_FEW = 16
_SIZES_OF_FEW = {
    "TM": "[16, 32, 64, 128]",
    "TN": "[16, 32, 64, 128]",
    "TK": "[16, 32, 64, 128, 256, 512]",
}

#: Where places are data: each point of the tuning space is proved, and that takes long there.
_FEWER_SIZES = {"TM": "[32, 64]", "TN": "[32, 64]", "TK": "[16, 32]"}

#: Where the terms of a product have digits, lanes along them take many registers for their indices.
_FEWER_TERMS = {"TK": "[16, 32]"}

#: Where neighbouring lanes take elements that are apart, all that a tile reads shall stay in a
#: cache until its other elements are read.
_FEWER_LANES = {"T": "[256]"}


@attrs.frozen
class Written:
    """A phase as lines of a sketch, without the sketch around them; `sizes` are its tile sizes that
    are tuned, and `blocks` those that are as long as rows, with their extents. `few`: it is a
    product of few rows or columns at the sizes of the task."""

    phase: Phase
    lines: tuple[str, ...]
    sizes: frozenset[str]
    blocks: Mapping[str, int]
    few: bool


def written_phases(
    phases: Phases, doubles: Doubles, kept: Kept, sizes: Mapping[str, int]
) -> list[Written]:
    """The phases as text, in order; `sizes` of symbols are the task's own."""
    found = []
    for phase in phases.phases:
        writer = PhaseWriter(phases, phase, doubles, kept)
        lines, few = tuple(writer.lines()), _is_thin(phase, sizes)
        blocks = writer.blocks(kept.extents)
        found.append(Written(phase, lines, frozenset(writer.sizes), blocks, few))
    return found


def _is_thin(phase: Phase, sizes: Mapping[str, int]) -> bool:
    """Whether a phase is a product of few rows, or of few columns, at these sizes."""
    fold = phase.fold
    if not isinstance(fold, Product) or any(fold.digits.values()):
        return False
    extents = (axis.extent for group in (fold.down, fold.across) for axis in group)
    return any(names(each) <= sizes.keys() and evaluate(each, sizes) <= _FEW for each in extents)


def tile_sizes(written: Sequence[Written]) -> str:
    """The declaration of the tile sizes that these phases tune, empty where there are none."""
    sizes = [size for size in _SIZES if any(size in each.sizes for each in written)]
    folds = [each.phase.fold for each in written]
    tuned = _SIZES
    if any(leaps(each.phase) for each in written):
        tuned = tuned | _FEWER_LANES
    if any(isinstance(fold, Ranked) for fold in folds):
        tuned = tuned | _FEWER_SIZES
    elif cut := [f.blocks for f in folds if isinstance(f, Product) and f.blocks is not None]:
        pixels, channels, terms = zip(*cut, strict=True)
        fixed = {"TM": max(pixels), "TN": max(channels), "TK": min(terms)}
        tuned = tuned | {size: f"[{value}]" for size, value in fixed.items()}
    elif any(isinstance(fold, Product) and fold.digits for fold in folds):
        tuned = tuned | _FEWER_TERMS
    elif any(each.few for each in written):
        tuned = tuned | _SIZES_OF_FEW
    own = [f"{size} in {tuned[size]}" for size in sizes]
    blocks = {name: extent for each in written for name, extent in each.blocks.items()}
    listed = ", ".join([*own, *(f"{name} in [{extent}]" for name, extent in blocks.items())])
    return f"constexpr: {listed};" if listed else ""


def write_sketch(phases: Phases, name: str, written: Sequence[Written]) -> str:
    """The sketch in canonical form, of phases that are text already."""
    lines = [f"sketch {name} {{"]
    lines += [f"    {line}" for line in declarations(phases, tuned=tile_sizes(written))]
    lines.append("")
    lines += in_steps((each.phase, (*each.lines, "")) for each in written)
    return formatted(name, [*lines, "}", ""])


def in_steps(parts: Iterable[tuple[Phase, Sequence[str]]]) -> Iterator[str]:
    """The lines of each phase, within the loops of the host that phases are steps of."""
    for step, several in groupby(parts, lambda part: part[0].step):
        indent = "    "
        if step is not None:
            yield f"    for {step.name} in range({show(step.extent)}):"
            indent *= 2
        for _, lines in several:
            yield from (f"{indent}{line}" for line in lines)


def formatted(name: str, lines: Sequence[str]) -> str:
    """The text of these lines in canonical form."""
    source = Source(f"{name}.sketch", "\n".join(lines))
    tree, found = parse(source)
    if tree is None or found:
        msg = f"the built-in Designer wrote what is no sketch: {found}\n{source.text}"
        raise InternalError(msg)
    return format_file(tree, source)


def declarations(phases: Phases, memory: str = "workspace", tuned: str = "") -> Iterator[str]:
    """The sections that declare what the phases share; `memory` is the name of the section of
    workspaces, `tuned` the declaration of tile sizes."""
    declared = phases.declared
    if declared.symbols:
        yield f"symbols: {', '.join(symbol.name for symbol in declared.symbols)};"
    if declared.params:
        shown = [
            f"{p.name}: {p.dtype.value} = {number_text(p.default or 0)};" for p in declared.params
        ]
        yield f"params: {' '.join(shown)}"
    if declared.lets:
        yield f"let: {' '.join(f'{let.name} = {show(let.value)};' for let in declared.lets)}"
    tensors = [
        f"{t.name}[{listed(t.extents)}]: {t.role.value} {t.dtype.value};" for t in declared.tensors
    ]
    yield f"tensors: {' '.join(tensors)}"
    if phases.workspaces:
        held = [
            f"{name}[{listed(phases.shapes[name])}]: {dtype.value};"
            for name, dtype in phases.workspaces.items()
        ]
        yield f"{memory}: {' '.join(held)}"
    if phases.views:
        shown = [f"{n}[{listed(phases.shapes[n])}] = {base};" for n, base in phases.views.items()]
        yield f"views: {' '.join(shown)}"
    if tuned:
        yield tuned
    if declared.requires:
        yield f"require: {' '.join(f'{condition.text};' for condition in declared.requires)}"
