"""Sketches for Python and the command line: read, planned, and refused with their diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Source,
    UsageError,
    has_errors,
    refuse,
)
from sketchc.base.types import DType, Scalar

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


class OpenTypesError(UsageError):
    """A sketch with `types:` was asked for where nothing decides which of its instances is
    meant."""


def load_sketch(
    path: str, name: str | None = None, dtypes: TaskTypes | None = None
) -> tuple[Source, syntax.Sketch]:
    """Read and parse `path` and pick one sketch of it: `name`, or the only one that no program of
    the file calls; of a sketch with `types:`, the instance that `dtypes` fit best.

    Raises `SketchError` for a text that does not parse and `UsageError` for a file that cannot
    be read, holds no sketch, or holds several when `name` does not say which; `OpenTypesError` for
    a sketch with `types:` without `dtypes`.
    """
    source = read_source(path)
    return source, the_sketch(source, name, dtypes)


def the_sketch(
    source: Source, name: str | None = None, dtypes: TaskTypes | None = None
) -> syntax.Sketch:
    """One sketch of the text of `source`, picked as by `load_sketch`, with its exceptions."""
    found = the_sketches(source, name)
    if len(found) == 1:
        return found[0]
    if dtypes is not None:
        return max(found, key=lambda sketch: _fitting(sketch, dtypes))
    assert found[0].generic is not None
    names = ", ".join(sketch.name for sketch in found)
    raise OpenTypesError(
        f"`{found[0].generic.name}` in {source.name} has `types:`; say --sketch with one of {names}"
    )


def the_sketches(source: Source, name: str | None = None) -> tuple[syntax.Sketch, ...]:
    """The sketch that `load_sketch` picks, or all instances of one with `types:`. Raises as
    `load_sketch` does, but never `OpenTypesError`."""
    from sketchc.parsing.parser import parse

    tree, found = parse(source)
    if tree is None or has_errors(found):
        raise SketchError(source, found)
    if name is None:
        meant = tree.entries
        named = {sketch.generic and sketch.generic.name for sketch in meant}
        if len(meant) == 1 or (len(named) == 1 and None not in named):
            return meant
    else:
        for sketch in tree.sketches:
            if sketch.name == name:
                return (sketch,)
        if meant := tuple(each for each in tree.sketches if each.written_name == name):
            return meant
    known = ", ".join(dict.fromkeys(sketch.written_name for sketch in tree.sketches)) or "none"
    asked = f"has no sketch {name!r}" if name else "holds several sketches; say --sketch NAME"
    raise UsageError(f"{source.name} {asked}; it holds: {known}")


@records.frozen
class TaskTypes:
    """The element types of a task's tensors in their order, and of its results."""

    given: tuple[DType, ...]
    returned: tuple[DType, ...]


def _fitting(sketch: syntax.Sketch, dtypes: TaskTypes) -> int:
    """How many tensors of a sketch, paired with a task's in their order, have the same type."""
    from sketchc.parsing.calls import role_of
    from sketchc.parsing.syntax import declared

    roles = [(role_of(sketch, tensor), tensor) for tensor in declared(sketch, "tensors")]
    given = [tensor.dtype for role, tensor in roles if role != "out"]
    returned = [tensor.dtype for role, tensor in roles if role != "in"]
    pairs = [
        *zip(given, dtypes.given, strict=False),
        *zip(returned, dtypes.returned, strict=False),
    ]
    return sum(own is asked for own, asked in pairs)


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
    sizes: dict[str, int] | None = None,
) -> PlannedSketch:
    """The plan of a sketch of `source`, for the `sizes` of symbols where they are known. Raises
    `SketchError` for what the sketch or the target refuses, `UsageError` for a name in `constants`
    or `sizes` that the sketch does not declare."""
    from sketchc.launch.sizes import require_sizes
    from sketchc.lowering.passes.pipeline import build_plan

    with pointing_into(source):
        check_plannable(tree, target, chip, constants, allow_unproved)
        planned = build_plan(tree, target, chip, constants, allow_unproved, sizes)
    require_sizes(planned.plan.sketch.symbol_bounds, sizes or {})
    return planned


def check_plannable(
    tree: syntax.Sketch,
    target: str,
    chip: str | None,
    constants: dict[str, Scalar],
    allow_unproved: bool = False,
) -> None:
    """Raises `UsageError` for a name to set that is neither a constexpr nor a param, nor the size
    of a block into which the plan splits an axis, nor an option of the target's launches;
    `DiagnosticError` as `build_plan` does."""
    from sketchc.checker.api import bindable
    from sketchc.lowering.passes.pipeline import build_plan
    from sketchc.lowering.registry import load_target

    options = load_target(target).capabilities.launch_options
    launches = frozenset(option.name for option in options)
    known = bindable(tree) | launches
    blocks: frozenset[str] = frozenset()
    if not constants.keys() <= known:
        own = {name: value for name, value in constants.items() if name in known}
        sketch = build_plan(tree, target, chip, own, allow_unproved).plan.sketch
        blocks = frozenset(constant.name for constant in sketch.constants)
    check_bindable(tree, constants, blocks | launches)


def check_bindable(
    tree: syntax.Sketch, constants: dict[str, Scalar], more: frozenset[str] = frozenset()
) -> None:
    """Raises `UsageError` for a name to set that is neither a constexpr nor a param, and none of
    `more`."""
    from sketchc.checker.api import bindable

    known = bindable(tree) | more
    for name in constants:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            refuse(f"`{tree.name}` has no constexpr or param {name!r} to set; it has: {names}")
