"""The sketch beside its code for `sketchc report`, where no map was recorded: the sketch is lowered
again, and the lines are linked where that gives the very code in hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.base.diagnostics import DiagnosticError, UsageError
from sketchc.cli import options
from sketchc.lowering.registry import TARGETS, load_language, load_target
from sketchc.runtime.report.listings import LINKED, code_of, quotations
from sketchc.runtime.report.results import pairs

if TYPE_CHECKING:
    from sketchc.base.diagnostics import Source
    from sketchc.lowering.kernel import Kernel
    from sketchc.runtime.report.content import Code, Page

_NOW = "The code is what the sketch is lowered to now. "
_OTHER = (
    "This is not the code that this version of sketchc lowers the sketch to: comments that quote a "
)
_OTHER += "line of the sketch are linked with it, and nothing else."


@attrs.frozen
class Texts:
    """A sketch (its text as written, "" for none) and the code that was verified or measured, for a
    target, with its constants."""

    name: str
    sketch: str
    source: str
    language: str
    target: str
    hardware: str
    constants: tuple[tuple[str, str], ...]


def code_of_sketch(path: str, page: Page) -> Code | None:
    """The sketch in a file beside what it is lowered to for the target and with the constants of
    the page's first result. Raises `UsageError` and `SketchError` for a sketch that does not fit.
    """
    first = page.verdicts[0].verdict if page.verdicts else page.measurements[0].measurement
    source = options.read_source(path)
    kernel = _lowered(source, first.target, first.hardware, pairs(dict(first.constants)))
    name = f"{kernel.name}{load_language(kernel.language).suffix}"
    return code_of(
        (Path(path).name, source.text),
        (name, kernel.source, kernel.language),
        dict(kernel.source_map),
        _NOW + LINKED,
    )


def code_of_texts(texts: Texts) -> Code | None:
    """The sketch beside the code in hand."""
    from sketchc.base.diagnostics import Source

    links: dict[int, tuple[int, ...]] = {}
    note = ""
    if texts.sketch:
        try:
            source = Source(f"{texts.name}.sketch", texts.sketch)
            kernel = _lowered(source, texts.target, texts.hardware, texts.constants)
        except (UsageError, options.SketchError):
            kernel = None
        if kernel is not None and kernel.source == texts.source:
            links, note = dict(kernel.source_map), LINKED
        else:
            links, note = quotations(texts.sketch, texts.source), _OTHER
    return code_of(
        (f"{texts.name}.sketch", texts.sketch) if texts.sketch else None,
        (f"{texts.name}{load_language(texts.language).suffix}", texts.source, texts.language),
        links,
        note,
    )


def texts_of_page(page: Page) -> Texts | None:
    """The texts that came with the first measurement that has any."""
    for one in page.measurements:
        found = one.measurement
        if found.source:
            known = found.target in TARGETS
            return Texts(
                one.title,
                found.sketch_text,
                found.source,
                load_target(found.target).language.name if known else "python",
                found.target,
                found.hardware,
                pairs(found.constants),
            )
    return None


def _lowered(
    source: Source, target: str, hardware: str, given: Sequence[tuple[str, str]]
) -> Kernel:
    """The kernel of a text that holds one sketch."""
    from sketchc.base.diagnostics import has_errors
    from sketchc.cli.lowering import check_bindable, resolve_target
    from sketchc.lowering.passes.pipeline import build_plan
    from sketchc.lowering.registry import load_target
    from sketchc.parsing.parser import parse

    constants = options.parse_assignments([f"{name}={value}" for name, value in given], "--set")
    tree, found = parse(source)
    if tree is None or has_errors(found):
        raise options.SketchError(source, DiagnosticError(found))
    if len(tree.sketches) != 1:
        msg = f"{source.name} holds {len(tree.sketches)} sketches; a page shows one"
        raise UsageError(msg)
    chosen, chip = resolve_target(target, hardware or None, None, None, None)
    check_bindable(tree.sketches[0], constants)
    try:
        return load_target(chosen).emit(build_plan(tree.sketches[0], chosen, chip, constants).plan)
    except DiagnosticError as error:
        raise options.SketchError(source, error) from error
