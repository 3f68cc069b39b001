"""Sketches for Python and the command line: read, planned, and refused with their diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Source,
    UsageError,
    has_errors,
    refuse,
)
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.lowering.passes.pipeline import PlannedSketch
    from sketchc.parsing import syntax


class SketchError(Exception):
    """Diagnostics together with the source they point into, on their way to the screen."""

    def __init__(self, source: Source, diagnostics: Iterable[Diagnostic]) -> None:
        self.source = source
        self.diagnostics = tuple(dict.fromkeys(diagnostics))
        super().__init__(str(DiagnosticError(self.diagnostics)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error by its parts, because it is sent between the processes of a pool."""
        return SketchError, (self.source, self.diagnostics)


def read_source(path: str) -> Source:
    """The text of a sketch file; "-" is standard input. Raises `UsageError` or `SketchError`."""
    from sketchc.parsing.parser import read

    with pointing_into(Source(path, "")):
        return read(path)


def load_sketch(path: str, name: str | None = None) -> tuple[Source, syntax.Sketch]:
    """Read and parse `path` and pick one sketch of it: `name`, or the only one that no program of
    the file calls.

    Raises `SketchError` for a text that does not parse and `UsageError` for a file that cannot
    be read, holds no sketch, or holds several when `name` does not say which.
    """
    source = read_source(path)
    return source, the_sketch(source, name)


def the_sketch(source: Source, name: str | None = None) -> syntax.Sketch:
    """One sketch of the text of `source`, picked as by `load_sketch`, with its exceptions."""
    from sketchc.parsing.parser import parse

    tree, found = parse(source)
    if tree is None or has_errors(found):
        raise SketchError(source, found)
    if name is None and len(tree.entries) == 1:
        return tree.entries[0]
    names = [sketch.name for sketch in tree.sketches]
    if name in names:
        return tree.sketches[names.index(name)]
    known = ", ".join(names) or "none"
    asked = f"has no sketch {name!r}" if name else "holds several sketches; say --sketch NAME"
    raise UsageError(f"{source.name} {asked}; it holds: {known}")


@contextmanager
def pointing_into(source: Source) -> Iterator[None]:
    """Raises `SketchError`, with `source`, for a `DiagnosticError` inside."""
    try:
        yield
    except DiagnosticError as error:
        raise SketchError(source, error.diagnostics) from error


def plan_sketch(
    source: Source,
    tree: syntax.Sketch,
    target: str,
    chip: str | None,
    constants: dict[str, Scalar],
    allow_unproved: bool = False,
) -> PlannedSketch:
    """The plan of a sketch of `source`. Raises `SketchError` for what the sketch or the target
    refuses, `UsageError` for a name in `constants` that the sketch does not declare."""
    from sketchc.lowering.passes.pipeline import build_plan

    check_bindable(tree, constants)
    with pointing_into(source):
        return build_plan(tree, target, chip, constants, allow_unproved)


def check_bindable(tree: syntax.Sketch, constants: dict[str, Scalar]) -> None:
    """Raises `UsageError` for a name to set that is neither a constexpr nor a param."""
    from sketchc.checker.api import bindable

    known = bindable(tree)
    for name in constants:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            refuse(f"`{tree.name}` has no constexpr or param {name!r} to set; it has: {names}")
