"""`sketchc explain`: the page of a diagnostic code."""

from __future__ import annotations

import click

from sketchc.base.diagnostics import UsageError, refuse


@click.command()
@click.argument("code", required=False)
@click.option("--list", "listing", is_flag=True, help="List all codes with their titles.")
def explain(code: str | None, listing: bool) -> int:
    """Explain a diagnostic code: what it means, why, an example, and the fix.

    \b
    Examples:
      sketchc explain SK0111
      sketchc explain --list
    """
    from sketchc.base.explain import codes, near, page, title

    if listing:
        for known in codes():
            click.echo(f"{known}  {title(known)}")
        return 0
    if code is None:
        refuse("say which code, such as `sketchc explain SK0111`, or --list")
    text = page(code.upper())
    if text is not None:
        click.echo(text, nl=False)
        return 0
    matches = near(code)
    hint = f"; near: {', '.join(matches)}" if matches else "; `sketchc explain --list` shows all"
    raise UsageError(f"no page for {code!r}{hint}")
