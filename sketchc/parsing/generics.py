"""Generic sketches: one text for several element types, and the sketches that it means.

`types: E in [f16, f32]` names a type that the arguments of a launch decide. Such a sketch means one
sketch for each choice, whose name has the types behind it (`scale_f16`, `scale_f32`), in which the
name is that type. So each is checked, proved and lowered as any other, and whatever takes arguments
(a task, a call in a program, `sketchc.kernel`) chooses by their types.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Span, error
from sketchc.base.types import DType
from sketchc.parsing import syntax

#: A sketch may have as many instances as this.
MAXIMUM_INSTANCES = 64


def expand(tree: syntax.File) -> syntax.Expanded:
    """The file with one sketch for each choice of types in the place of every generic sketch, and
    what is wrong with their types."""
    found: list[Diagnostic] = []
    sketches: list[syntax.Sketch] = []
    written = {sketch.name: sketch for sketch in tree.sketches}
    for sketch in tree.sketches:
        types = tuple(syntax.declared(sketch, "types"))
        if not types:
            sketches.append(sketch)
            continue
        wrong = list(_wrong(sketch, types))
        found += wrong
        for instance in () if wrong else _instances(sketch, types):
            if instance.name in written:
                found.append(_twice(instance, written[instance.name].name_span))
            written[instance.name] = instance
            sketches.append(instance)
    return records.evolve(tree, sketches=tuple(sketches)), found


def _wrong(
    sketch: syntax.Sketch, types: tuple[syntax.TypeDeclaration, ...]
) -> Iterator[Diagnostic]:
    bound = {tensor.type_name for tensor in syntax.declared(sketch, "tensors")}
    for declared in types:
        if declared.name not in bound:
            yield error(
                declared.span,
                "SK0147",
                f"no tensor of the sketch has the type `{declared.name}`",
                "nothing in a launch decides it",
                help=f"declare a tensor with it, as in `X[M, N]: in {declared.name}`",
            )
    count = math.prod(len(declared.choices) for declared in types)
    if count > MAXIMUM_INSTANCES:
        yield error(
            sketch.name_span,
            "SK0147",
            f"these types mean {count} sketches; the limit is {MAXIMUM_INSTANCES}",
            "each is checked and lowered",
            help="leave out types, or let two tensors share one",
        )


def _twice(instance: syntax.Sketch, other: Span) -> Diagnostic:
    return error(
        instance.name_span,
        "SK0126",
        f"`{instance.name}` is given twice",
        "one of its instances has this name",
        labels=(Label(other, "also given here"),),
        help="rename the other sketch",
    )


def _instances(
    sketch: syntax.Sketch, types: tuple[syntax.TypeDeclaration, ...]
) -> Iterator[syntax.Sketch]:
    names = [declared.name for declared in types]
    for number, chosen in enumerate(itertools.product(*(each.choices for each in types))):
        pairs = tuple(zip(names, chosen, strict=True))
        # Facts are kept by node, so each instance has nodes of its own.
        instance: syntax.Sketch = _with_types(sketch, dict(pairs))
        yield records.evolve(
            instance,
            name="_".join((sketch.name, *(dtype.value for dtype in chosen))),
            generic=syntax.Generic(sketch.name, pairs, number == 0),
        )


def _with_types(node: Any, types: Mapping[str, DType]) -> Any:
    """A node, or a tuple of nodes, with the types that `types` names."""
    if isinstance(node, tuple):
        return tuple(_with_types(each, types) for each in node)
    if not records.has(type(node)) or isinstance(node, Span):
        return node
    changes = {
        field.name: _with_types(getattr(node, field.name), types)
        for field in records.fields(type(node))
    }
    name = changes.get("type_name")
    if name is not None:
        changes["dtype"] = types[name]
    return type(node)(**changes)
