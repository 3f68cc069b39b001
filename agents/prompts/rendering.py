"""Prompts from templates: `render(name, **values)` fills one `*.jinja` file of this package.

A prompt depends on nothing but its values: no path, no time, no fact of the machine, no order of a
hash table. A recorded run can then be replayed by exact match anywhere. A value that a template
names and nobody gives is an error (`jinja2.UndefinedError`): a prompt with a hole is a bug.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, /, block: str = "", **values: Any) -> str:
    """The prompt that template `name` ("designer.jinja"), or one block of it, gives.

    It begins and ends without an empty line.
    """
    template = _environment().get_template(name)
    if not block:
        return template.render(**values).strip("\n") + "\n"
    parts = template.blocks[block](template.new_context(values))
    return "".join(parts).strip("\n") + "\n"


def fenced(text: object, language: str = "") -> str:
    """`text` in a Markdown fence that is longer than any run of backquotes in it, so that nothing
    in the text can close it."""
    text = str(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def as_json(value: object) -> str:
    """Indented JSON, keys as given; numbers with a fraction to 4 significant digits."""
    return json.dumps(_rounded(value), indent=2, ensure_ascii=False, default=str)


def _rounded(value: object) -> object:
    """Floats to 4 significant digits (NaN and infinities as text: JSON has none)."""
    match value:
        case bool():
            return value
        case float():
            return float(f"{value:.4g}") if abs(value) < float("inf") else str(value)
        case dict():
            return {str(key): _rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
        case _:
            return value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sketchc.agents.prompts", ""),
        autoescape=False,  # prompts are plain text, not HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    environment.filters["json"] = as_json
    return environment
