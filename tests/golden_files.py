"""What the goldens of generated code share: the comparison, and a kernel without its library."""

from __future__ import annotations

import textwrap
from pathlib import Path

from sketchc.lowering.kernel import Kernel


def own_source(kernel: Kernel) -> str:
    """The source of a kernel with one comment in the place of each part of the target's library,
    which names the definitions; their texts are in the golden of the library."""
    mark = "#" if kernel.language == "python" else "//"
    source = kernel.source
    for part in kernel.library:
        before, found, after = source.partition(part.text)
        assert found, f"the source lacks its library: {part.names}"
        named = textwrap.fill(
            f"The library: {', '.join(part.names)}.",
            98,
            initial_indent=f"{mark} ",
            subsequent_indent=f"{mark} ",
            break_on_hyphens=False,
        )
        source = before + named + after
    return source


def check_golden(path: Path, text: str, update: bool) -> None:
    """Assert that the file holds the text; write it there first if it is to be updated."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.exists(), "no golden: run pytest --update-golden"
    assert text == path.read_text("utf-8")
