"""What a model's reply holds: fenced blocks and JSON, parsed strictly.

A reply that does not hold what was asked for is a `ReplyError`, whose message is written to be sent
back to the model. Fences are those of CommonMark: three or more backquotes or tildes, closed by at
least as many of the same kind, so that a longer fence can hold shorter ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import attrs

_OPEN = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$")
#: What some models write in front of a reply, where the server does not take it out.
_END_OF_THOUGHTS = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)

#: Several names of one language.
_ALIASES = {"py": "python", "python3": "python", "c++": "cpp", "cc": "cpp", "cxx": "cpp"}


#: The key of a reply that says that neither sketch nor code is at fault.
NOTHING_WRONG = "nothing_is_wrong"


class ReplyError(Exception):
    """A reply that cannot be used; the message tells the model what is wrong with it."""


@attrs.frozen
class Block:
    """A fenced block: its `language` (lower case, "" for none), the info string as written, its
    text (ending in a newline unless empty), the number of its opening line, and whether it is
    closed. One that is not was cut off."""

    language: str
    info: str
    text: str
    line: int
    closed: bool = True


def fenced_blocks(text: str) -> tuple[Block, ...]:
    """All fenced blocks of a reply, in order; a reasoning part in front is left out."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    content: list[str] = []
    start = 0
    lines = _lines(text)
    for number, line in enumerate(lines, 1):
        if opening is None:
            opening = _opening(line)
            content, start = [], number
        elif _closes(line, opening[2]):
            found.append(_block(opening, content, start, closed=True))
            opening = None
        else:
            content.append(_without_indent(line, len(opening[1])))
    if opening is not None:
        while content and not content[-1]:
            content.pop()
        found.append(_block(opening, content, start, closed=False))
    return tuple(found)


def single_block(text: str, languages: str | Iterable[str]) -> str:
    """The text of the one fenced block in an allowed language.

    Blocks in other languages do not count, except where one without a language is the only block
    there is. Raises `ReplyError` for none, several, an empty one, and one that was cut off.
    """
    allowed = [languages] if isinstance(languages, str) else list(languages)
    names = {_language(name) for name in allowed}
    blocks = fenced_blocks(text)
    _refuse_cut_off(blocks)
    fitting = [block for block in blocks if block.language in names]
    if len(blocks) == 1 and not blocks[0].language:
        fitting = list(blocks)
    form = " or ".join(f"```{name}" for name in allowed)
    if not fitting:
        others = ", ".join(block.info or "no language" for block in blocks)
        held = (
            f"it holds {len(blocks)} in other languages ({others})" if blocks else "it holds none"
        )
        msg = f"the reply must hold one fenced block opened by {form}; {held}"
        raise ReplyError(msg)
    if len(fitting) > 1:
        places = ", ".join(str(block.line) for block in fitting)
        msg = (
            f"the reply must hold exactly one fenced block opened by {form}, and it holds "
            f"{len(fitting)} (lines {places}): send the complete text in one block"
        )
        raise ReplyError(msg)
    if not fitting[0].text.strip():
        msg = f"the fenced block in line {fitting[0].line} of the reply is empty"
        raise ReplyError(msg)
    return fitting[0].text


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that a reply consists of, bare or in one fenced block (`json`).

    Strict JSON: no comments, no NaN, no key twice. Raises `ReplyError`.
    """
    bare = "\n".join(_lines(text)).strip()
    if not bare.startswith("{"):
        bare = single_block(text, "json").strip()
    try:
        value = json.loads(bare, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line = bare.split("\n")[error.lineno - 1].strip()[:120]
        msg = (
            f"the reply is not valid JSON: {error.msg} in line {error.lineno}, column "
            f"{error.colno}: `{line}`"
        )
        raise ReplyError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"the reply is not valid JSON: {error}"
        raise ReplyError(msg) from error
    if not isinstance(value, dict):
        msg = "the reply must be one JSON object, in braces"
        raise ReplyError(msg)
    return value


def _refuse_cut_off(blocks: Iterable[Block]) -> None:
    for block in blocks:
        if not block.closed:
            msg = (
                f"the reply was cut off: the fenced block that opens in line {block.line} is never "
                "closed; send it again, complete and shorter"
            )
            raise ReplyError(msg)


def _lines(text: str) -> list[str]:
    """The lines of a reply (of "\\n" and "\\r\\n" only) behind its reasoning part.

    The part's own lines stay as empty ones, so that line numbers hold.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    ends = list(_END_OF_THOUGHTS.finditer(text))
    if text.lstrip().startswith("<think>"):
        if "</think>" not in text:
            msg = "the reply was cut off within its reasoning part: keep that shorter"
            raise ReplyError(msg)
        end = text.index("</think>") + len("</think>")
        text = "\n" * text.count("\n", 0, end) + text[end:]
    elif ends:  # opened by the prompt's template
        end = ends[0].end()
        text = "\n" * text.count("\n", 0, end) + text[end:]
    return text.split("\n")


def _opening(line: str) -> re.Match[str] | None:
    found = _OPEN.match(line)
    # A backquote behind backquotes: inline code that begins a line.
    if found is None or (found[2][0] == "`" and "`" in found[3]):
        return None
    return found


def _closes(line: str, fence: str) -> bool:
    found = _OPEN.match(line)
    return (
        found is not None
        and found[2][0] == fence[0]
        and len(found[2]) >= len(fence)
        and not found[3].strip()
    )


def _without_indent(line: str, width: int) -> str:
    """`line` with as many leading blanks less as the opening fence has."""
    blanks = len(line) - len(line.lstrip(" "))
    return line[min(blanks, width) :]


def _block(opening: re.Match[str], content: list[str], start: int, closed: bool) -> Block:
    info = opening[3].strip()
    text = "".join(f"{line}\n" for line in content)
    return Block(_language(info), info, text, start, closed)


def _language(info: str) -> str:
    """The language of an info string: `python title="x"`, `{.python}` and `Python` are the same."""
    found = re.match(r"\{?\s*\.?([^\s{},=]+)", info)
    name = found[1].lower() if found else ""
    return _ALIASES.get(name, name)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"the key {key!r} stands twice in one object"
            raise ValueError(msg)
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    msg = f"{name} is no number of JSON"
    raise ValueError(msg)


def nothing_wrong(text: str) -> str:
    """Why nothing is wrong, where a reply says that and nothing else; "" for any other."""
    try:
        data = json_object(text)
    except ReplyError:
        return ""
    said = data.get(NOTHING_WRONG)
    return said.strip() if isinstance(said, str) and len(data) == 1 else ""
