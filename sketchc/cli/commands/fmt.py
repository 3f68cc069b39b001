"""`sketchc fmt`: the one canonical layout of sketch files."""

from __future__ import annotations

import click

from sketchc.api import sketches
from sketchc.cli import options


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit 1 if a file differs."
)
@click.option("--diff", is_flag=True, help="Write nothing; print the differences.")
def fmt(files: tuple[str, ...], only_check: bool, diff: bool) -> int:
    """Format sketches in place; - formats standard input to standard output.

    Comments are kept and the meaning never changes. A directory stands for all *.sketch files below
    it. The exit status is 1 for a file that does not parse, and with --check or --diff for one
    whose layout would change.

    \b
    Examples:
      sketchc fmt examples
      sketchc fmt --check --diff examples/rms.sketch
      sketchc fmt - < draft.sketch
    """
    from sketchc.parsing.formatter import format_file
    from sketchc.parsing.parser import STANDARD_INPUT, parse, sketch_files

    paths = list(dict.fromkeys(path for file in files for path in sketch_files(file)))
    status = 0
    changed = 0
    for path in paths:
        try:
            source = sketches.read_source(path)
            tree, found = parse(source)
            if tree is None:
                raise sketches.SketchError(source, found)
        except sketches.SketchError as error:
            options.show_diagnostics(error.source, error.diagnostics)
            status = 1
            continue
        text = format_file(tree, source)
        if path == STANDARD_INPUT and not (only_check or diff):
            click.echo(text, nl=False)
            continue
        if text == source.text:
            continue
        changed += 1
        if diff:
            click.echo(options.difference(source, text, "formatted"), nl=False)
        elif only_check:
            click.echo(f"would reformat {path}", err=True)
        else:
            options.write(path, text)
            click.echo(f"reformatted {path}", err=True)
    return 1 if status or (changed and (only_check or diff)) else 0
