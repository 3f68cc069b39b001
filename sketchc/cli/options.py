"""Options and helpers that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.base import verification
from sketchc.base.diagnostics import Diagnostic, Source, UsageError
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.parsing import syntax

LARGEST_SIZE = 2**63 - 1

#: Adds `--verify-ir`, which switches the verifiers between stages on.
verify_ir_option = click.option(
    "--verify-ir",
    is_flag=True,
    expose_value=False,
    callback=lambda _context, _option, given: verification.enable() if given else None,
    help="Verify what each stage of the compiler hands to the next; for bugs of sketchc.",
)


def parse_assignments(pairs: Iterable[str], option: str) -> dict[str, Scalar]:
    """`NAME=VALUE` pairs, several per item when separated by commas.

    Raises `UsageError` for what is not an assignment of a number, true or false.
    """
    values: dict[str, Scalar] = {}
    for item in pairs:
        for pair in item.split(","):
            name, equals, text = pair.partition("=")
            if not equals or not name.strip():
                msg = f"{option} takes NAME=VALUE, not {pair!r}"
                raise UsageError(msg)
            values[name.strip()] = _scalar(text.strip(), option)
    return values


def parse_sizes(pairs: Iterable[str]) -> dict[str, int]:
    """The sizes of `--symbols`. Raises `UsageError` for what is not an integer of 64 bits."""
    sizes: dict[str, int] = {}
    for name, value in parse_assignments(pairs, "--symbols").items():
        if isinstance(value, bool) or not isinstance(value, int):
            msg = f"--symbols: the size {name} must be a whole number, not {value}"
            raise UsageError(msg)
        if abs(value) > LARGEST_SIZE:
            msg = f"--symbols: the size {name} does not fit 64 bits"
            raise UsageError(msg)
        sizes[name] = value
    return sizes


def _scalar(text: str, option: str) -> Scalar:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    msg = f"{option}: {text!r} is not a number, true or false"
    raise UsageError(msg)


def load_sketch(path: str, name: str | None = None) -> tuple[Source, syntax.Sketch]:
    """Read and parse `path` and pick one sketch of it.

    Raises `DiagnosticError` for a text that does not parse and `UsageError` for a file that cannot
    be read, holds no sketch, or holds several when `name` does not say which.
    """
    from sketchc.base.diagnostics import DiagnosticError, has_errors
    from sketchc.parsing.parser import parse

    source = read_source(path)
    tree, found = parse(source)
    if tree is None or has_errors(found):
        raise SketchError(source, DiagnosticError(found))
    names = [sketch.name for sketch in tree.sketches]
    if name is None and len(names) == 1:
        return source, tree.sketches[0]
    if name in names:
        return source, tree.sketches[names.index(name)]
    known = ", ".join(names) or "none"
    asked = f"has no sketch {name!r}" if name else "holds several sketches; say --sketch NAME"
    msg = f"{path} {asked}; it holds: {known}"
    raise UsageError(msg)


class SketchError(Exception):
    """Diagnostics together with the source they point into, on their way to the screen."""

    def __init__(self, source: Source, error: Exception) -> None:
        from sketchc.base.diagnostics import DiagnosticError

        assert isinstance(error, DiagnosticError)
        self.source = source
        self.diagnostics: tuple[Diagnostic, ...] = error.diagnostics
        super().__init__(str(error))

    def __reduce__(self) -> tuple[Any, ...]:
        """By its parts: it travels between the processes of a pool."""
        return _sketch_error, (self.source, self.diagnostics)


def _sketch_error(source: Source, diagnostics: tuple[Diagnostic, ...]) -> SketchError:
    from sketchc.base.diagnostics import DiagnosticError

    return SketchError(source, DiagnosticError(diagnostics))


def read_source(path: str) -> Source:
    """The text of a sketch file; "-" is standard input. Raises `UsageError` or `SketchError`."""
    from sketchc.base.diagnostics import DiagnosticError
    from sketchc.parsing.parser import read

    try:
        return read(path)
    except DiagnosticError as error:
        raise SketchError(Source(path, ""), error) from error


def show_diagnostics(source: Source, diagnostics: Iterable[Diagnostic]) -> None:
    """Render diagnostics on standard error, in colour on a terminal."""
    import sys

    from sketchc.cli.consoles import coloured
    from sketchc.reporting.text import render_text

    text = render_text(list(diagnostics), [source], coloured(sys.stderr))
    if text.strip():
        click.echo(text, nl=False, err=True)


def diagnostics_json(error: SketchError | None) -> dict[str, Any]:
    """{"diagnostics": ...} as `sketchc check --format json` has them; nothing for None."""
    from sketchc.reporting.machine import diagnostic_json

    if error is None:
        return {}
    return {"diagnostics": [diagnostic_json(found) for found in error.diagnostics]}


def write_output(text: str, path: str | None) -> None:
    """Write to `path`, or to standard output. Raises `UsageError` when the file refuses."""
    if path is None or path == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str, error: OSError) -> UsageError:
    """Why `path` could not be written, and what to do where its folder is missing."""
    hint = "" if Path(path).parent.is_dir() else "; make its folder first"
    return UsageError(f"cannot write {path}: {error.strerror}{hint}")
