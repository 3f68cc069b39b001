"""Prompts from templates: `render(name, **values)` fills one `*.jinja` file of this package.

A prompt depends on nothing but its values: no path, no time, no fact of the machine, no order of a
hash table. A recorded run can then be replayed anywhere. What a template puts through the filter
`part("NAME")` is a constant part of the prompt: text of sketchc's own, which a recording refers to
by its name. A value that a template names and nobody gives is an error (`jinja2.UndefinedError`): a
prompt with a hole is a bug.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any

from sketchc.agents.llm.messages import Message, Part, Piece

if TYPE_CHECKING:
    from jinja2 import Environment


#: Stands around constant parts while a template is filled; no text from outside can hold it.
_MARK = secrets.token_hex(16)
_PART = re.compile(f"<{_MARK}:([^\n]*?)>(.*?)</{_MARK}>", re.DOTALL)


def render(name: str, /, block: str = "", **values: Any) -> str:
    """The text that template `name` ("designer.jinja"), or one block of it, gives.

    It begins and ends without an empty line.
    """
    return message("", name, block, **values).content


def message(role: str, name: str, /, block: str = "", **values: Any) -> Message:
    """What `render` gives, as a message of `role` with its constant parts."""
    template = _environment().get_template(name)
    if block:
        filled = "".join(template.blocks[block](template.new_context(values)))
    else:
        filled = template.render(**values)
    # Text, name of a part, its text, text, ...
    found = _PART.split(filled)
    pairs = [("", found[0])]
    for place in range(1, len(found), 3):
        pairs += [(found[place], found[place + 1]), ("", found[place + 2])]
    return Message(role, _trimmed([pair for pair in pairs if pair[1]]))


def _trimmed(pairs: list[tuple[str, str]]) -> list[Piece]:
    """The pieces that (name of a part or "", text) stand for, without empty lines at either end."""
    while pairs and not pairs[0][1].strip("\n"):
        del pairs[0]
    while pairs and not pairs[-1][1].strip("\n"):
        del pairs[-1]
    if not pairs:
        return ["\n"]
    pairs[0] = (pairs[0][0], pairs[0][1].lstrip("\n"))
    pairs[-1] = (pairs[-1][0], pairs[-1][1].rstrip("\n") + "\n")
    return [Part(name, text) if name else text for name, text in pairs]


def constant(text: object, name: str) -> str:
    """`text`, marked as the constant part `name` of a prompt."""
    return f"<{_MARK}:{name}>{text}</{_MARK}>"


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
    environment.filters["part"] = constant
    return environment
