"""Every construct of the language has an example, but for those named here with the reason.

What constructs there are comes from the compiler's own tables: the records of the parsed tree (a
field that is never filled is a form that no example shows), the accesses of the IR, the element
types, the op table with its keywords, and the words of hints.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.context.hints import LOOP_HINTS, TILE_HINTS
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ops.table import OPS
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted((*FOLDER.glob("*.sketch"), *FOLDER.glob("programs/*.sketch")))
#: Records of the IR with the forms that the parsed tree does not tell apart: keywords of memory
#: operations, stages of a loop, strides, lanes that come from memory.
LOWERED = (ir.Access, ir.SliceSubscript, ir.IndexSubscript, ir.Load, ir.Store, ir.Atomic, ir.For)

#: Reason -> constructs that need no example for it.
EXCEPTIONS = {
    "accepted for what others write, with a warning; examples have none": (
        "Compute.late_positional",
        "Section.from_tuple",
        "Sketch.misspelt_tiling",
    ),
    "read to be refused: no function of expressions takes keywords": ("Call.keywords",),
    "as in `cumsum`": ("cumprod exclusive=",),
}


def records_of(node: object) -> Iterator[Any]:
    """A record and all records in it."""
    if isinstance(node, tuple):
        for part in node:
            yield from records_of(part)
    elif attrs.has(type(node)):
        yield node
        for field in fields(type(node)):
            yield from records_of(getattr(node, field))


def fields(record: Any) -> list[str]:
    return [field.name for field in attrs.fields(record) if "span" not in field.name]


def filled(node: Any) -> Iterator[str]:
    """The fields of a record that say more than their absence."""
    for name in fields(type(node)):
        value = getattr(node, name)
        if value is not None and value is not False and value != ():
            yield name


def syntax_shown(tree: syntax.File) -> Iterator[str]:
    for node in records_of(tree):
        kind = type(node).__name__
        if type(node).__module__ != syntax.__name__:
            continue
        yield kind
        yield from (f"{kind}.{name}" for name in filled(node))
        match node:
            case syntax.Compute(operation=operation, keywords=keywords):
                yield f"op {operation}"
                yield from (f"{operation} {keyword.name}=" for keyword in keywords)
            case syntax.Transfer(operation=operation):
                yield operation
            case syntax.Section(keyword=keyword):
                yield f"section {keyword}"
            case syntax.TensorDeclaration(role=str(role)):
                yield f"role {role}"
            case syntax.Alloc(hints=words) | syntax.Hint(words=words):
                yield from (f"hint {word.value}" for word in words)


def lowered_shown(sketch: ir.Sketch) -> Iterator[str]:
    for declared in (*sketch.tensors, *sketch.tiles):
        yield f"type {declared.dtype.value}"
    for node in records_of(sketch.phases):
        if isinstance(node, LOWERED):
            yield from (f"lowered {type(node).__name__}.{name}" for name in filled(node))
        match node:
            case ir.SliceSubscript(step=ir.Literal(step)) if step != 1:
                yield "strided slice" if step > 0 else "reversed slice"
            case ir.IndexSubscript(axis=axis):
                yield "lane form" if axis is None else "mixed form"
            case ir.Access(subscripts=()):
                yield "access without axes"


@pytest.fixture(scope="module")
def shown() -> set[str]:
    found: set[str] = set()
    for path in EXAMPLES:
        tree, _ = parse(Source(path.name, path.read_text("utf-8")))
        assert tree is not None
        found.update(syntax_shown(tree))
        for one in tree.sketches:
            sketch, _ = elaborate(one, {})
            assert sketch is not None
            found.update(lowered_shown(infer_domains(sketch)[0]))
    return found


def constructs() -> set[str]:
    """All that the compiler knows."""
    found = {"strided slice", "reversed slice", "lane form", "mixed form", "access without axes"}
    for name, record in inspect.getmembers(syntax, attrs.has):
        if record.__module__ == syntax.__name__:
            found |= {name, *(f"{name}.{field}" for field in fields(record))}
    for record in LOWERED:
        found |= {f"lowered {record.__name__}.{field}" for field in fields(record)}
    found |= {f"type {dtype.value}" for dtype in DType}
    found |= {f"role {role}" for role in ("in", "out", "inout")}
    found |= {"load", "store", "atomic_add", "atomic_max", "atomic_min"}
    found |= {f"section {keyword}" for keyword in syntax.SECTIONS | syntax.PROGRAM_SECTIONS}
    found |= {f"hint {word}" for word in LOOP_HINTS | TILE_HINTS}
    for row in OPS.values():
        found.add(f"op {row.name}")
        found |= {f"{row.name} {one.name}=" for one in row.attributes if not one.positional}
    return found


def test_every_construct_has_an_example_or_a_reason(shown: set[str]) -> None:
    excepted = {name for names in EXCEPTIONS.values() for name in names}
    assert constructs() - shown == excepted
