"""What a model's reply holds: fenced blocks and JSON, parsed strictly.

A reply that does not hold what was asked for is a `ReplyError`, whose message is written to be sent
back to the model. Fences are those of CommonMark: three or more backquotes or tildes, closed by at
least as many of the same kind, so that a longer fence can hold shorter ones.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import attrs
from markdown_it import MarkdownIt

#: Knows fenced blocks (and what is indented too far for one) alone, and leaves every character.
_MARKDOWN = MarkdownIt("zero").enable(["code", "fence"])
_MARKDOWN.core.ruler.disable(["normalize", "inline"])
#: What some models write in front of a reply, where the server does not take it out.
_END_OF_THOUGHTS = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)

#: Several names of one language.
_ALIASES = {
    **dict.fromkeys(("py", "python3"), "python"),
    **dict.fromkeys(("c++", "cc", "cxx"), "cpp"),
    **dict.fromkeys(("cu", "cuda-c", "cuda_c", "cuda-c++", "cuda-cpp"), "cuda"),
}


#: The key of a reply that says that neither sketch nor code is at fault.
NOTHING_WRONG = "nothing_is_wrong"


class ReplyError(Exception):
    """A reply that cannot be used; the message tells the model what is wrong with it."""


def reject(text: str, cause: BaseException | None = None) -> NoReturn:
    """Raises `ReplyError` with this text."""
    raise ReplyError(text) from cause


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
    found = []
    for token in _MARKDOWN.parse("\n".join([*_lines(text), ""])):
        if token.type == "fence" and token.map:
            start, end = token.map
            closed = end - start - 1 > token.content.count("\n")
            content = token.content if closed else token.content.rstrip("\n")
            ending = "" if closed or not content else "\n"
            info = token.info.strip()
            found.append(Block(_language(info), info, content + ending, start + 1, closed))
    return tuple(found)


def single_block(text: str, language: str) -> str:
    """The text of the one fenced block in a language.

    Blocks in other languages do not count, except where one without a language is the only block
    there is. Raises `ReplyError` for none, several, an empty one, and one that was cut off.
    """
    blocks = _whole_blocks(text, "send it again, complete and shorter")
    fitting = [block for block in blocks if block.language == _language(language)]
    if len(blocks) == 1 and not blocks[0].language:
        fitting = list(blocks)
    form = f"```{language}"
    if not fitting:
        others = ", ".join(block.info or "no language" for block in blocks)
        held = (
            f"it holds {len(blocks)} in other languages ({others})" if blocks else "it holds none"
        )
        reject(f"the reply must hold one fenced block opened by {form}; {held}")
    if len(fitting) > 1:
        places = ", ".join(str(block.line) for block in fitting)
        reject(
            f"the reply must hold exactly one fenced block opened by {form}, and it holds "
            f"{len(fitting)} (lines {places}): send the complete text in one block"
        )
    if not fitting[0].text.strip():
        reject(f"the fenced block in line {fitting[0].line} of the reply is empty")
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
        reject(
            f"the reply is not valid JSON: {error.msg} in line {error.lineno}, column "
            f"{error.colno}: `{line}`",
            error,
        )
    except (ValueError, RecursionError) as error:
        reject(f"the reply is not valid JSON: {error}", error)
    if not isinstance(value, dict):
        reject("the reply must be one JSON object, in braces")
    return value


def _whole_blocks(text: str, advice: str) -> tuple[Block, ...]:
    """All fenced blocks. Raises `ReplyError`, with the advice, where one was cut off."""
    blocks = fenced_blocks(text)
    for block in blocks:
        if not block.closed:
            reject(
                f"the reply was cut off: the fenced block that opens in line {block.line} is never "
                f"closed; {advice}"
            )
    return blocks


def _lines(text: str) -> list[str]:
    """The lines of a reply (of "\\n" and "\\r\\n" only) behind its reasoning part.

    The part's own lines stay as empty ones, so that line numbers hold.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    # Without an opening, it was opened by the prompt's template.
    opened = text.lstrip().startswith("<think>")
    found = re.search("</think>", text) if opened else _END_OF_THOUGHTS.search(text)
    if opened and found is None:
        reject("the reply was cut off within its reasoning part: keep that shorter")
    end = 0 if found is None else found.end()
    return ("\n" * text.count("\n", 0, end) + text[end:]).split("\n")


def _language(info: str) -> str:
    """The language of an info string: `python title="x"`, `{.python}` and `Python` are the same."""
    found = re.match(r"\{?\s*\.?([^\s{},=]+)", info)
    name = found[1].lower() if found else ""
    return _ALIASES.get(name, name)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def nothing_wrong(text: str) -> str:
    """Why nothing is wrong, where a reply says that and nothing else; "" for any other."""
    try:
        data = json_object(text)
    except ReplyError:
        return ""
    said = data.get(NOTHING_WRONG)
    return said.strip() if isinstance(said, str) and len(data) == 1 else ""


#: What a prompt says about the form of a reply.
EDIT_FORMAT = """\
Reply with edits, each in this form, in one or more fenced blocks:

```edit
<<<<<<< SEARCH
lines of the text exactly as they are now
=======
the lines that take their place
>>>>>>> REPLACE
```

- A search is one or more whole lines, with their indentation, copied without line numbers.
- It must occur exactly once in the text: add lines before or after until it does.
- All edits are applied to the text as shown above, not one after another; they must not overlap.
- To add lines, search for a line beside them and repeat it. To remove lines, replace by nothing.
- Where the text itself holds a line of =======, make the three markers of that edit longer.
- Change no more than it takes, and do not send the whole text again."""

_START = re.compile(r"^(<{7,}) SEARCH[ \t]*$")
_MIDDLE = re.compile(r"^(={7,})[ \t]*$")
_END = re.compile(r"^(>{7,}) REPLACE[ \t]*$")
#: Longest line that a message shows.
_SHOWN = 160
_NUMBERED = re.compile(r"^\s*\d+\s*\| ?")


@attrs.frozen
class Edit:
    """Replace the lines `search`, which stand in the text once, by the lines `replace`."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def parse_edits(text: str) -> tuple[Edit, ...]:
    """The edits of a reply, in order. Raises `ReplyError`."""
    blocks = _whole_blocks(text, "send fewer or shorter edits")
    found = [edit for block in blocks if _holds_edits(block) for edit in _edits_of(block)]
    if not found:
        form = "```edit, <<<<<<< SEARCH, =======, >>>>>>> REPLACE, ```"
        bare = any(_START.match(line) for line in text.replace("\r\n", "\n").split("\n"))
        why = "the edits stand outside of a fenced block" if bare else "it holds no edit"
        reject(f"the reply must hold edits in fenced blocks ({form}, each on its own line); {why}")
    return tuple(found)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """`text` with all edits made, each where its search stands in the original.

    A search that occurs nowhere is looked for again without regard to blanks at the ends of lines.
    Raises `ReplyError` for a search that does not stand there exactly once, for edits that overlap,
    and for edits that change nothing.
    """
    lines = text.split("\n")
    # What follows the last newline is no line.
    ending = lines.pop() if text.endswith("\n") or not text else None
    placed = sorted(
        ((_place(lines, edit, number), number, edit) for number, edit in enumerate(edits, 1)),
        key=lambda item: item[:2],
    )
    changed: list[str] = []
    position = 0
    previous = 0
    for start, number, edit in placed:
        if start < position:
            first, second = sorted((previous, number))
            reject(f"edits {first} and {second} overlap in line {start + 1}: join them into one")
        changed += lines[position:start]
        changed += edit.replace
        position, previous = start + len(edit.search), number
    changed += lines[position:]
    if ending is not None and changed:
        changed.append(ending)
    result = "\n".join(changed)
    if result == text:
        reject("the edits change nothing: what they put in is what stands there already")
    return result


def _holds_edits(block: Block) -> bool:
    """Whether a block is meant as edits: it says so, or it begins like one."""
    first = next((line for line in block.text.split("\n") if line.strip()), "")
    return block.language == "edit" or _START.match(first) is not None


def _edits_of(block: Block) -> list[Edit]:
    """The edits of one block; nothing but blank lines may stand between them."""
    found: list[Edit] = []
    lines = block.text.split("\n")[:-1]
    position = 0
    while position < len(lines):
        if not lines[position].strip():
            position += 1
            continue
        where = f"the edit in line {block.line + position + 1} of the reply"
        opening = _START.match(lines[position])
        if opening is None:
            stands = _quoted(lines[position])
            reject(
                f"{where}: expected the line <<<<<<< SEARCH, not {stands}; a block of edits holds "
                "nothing else"
            )
        width = len(opening[1])
        middle = _marker(lines, position + 1, _MIDDLE, width, f"{where}: no line =======")
        end = _marker(lines, middle + 1, _END, width, f"{where}: no line >>>>>>> REPLACE")
        search, replace = lines[position + 1 : middle], lines[middle + 1 : end]
        _require_plain(replace, width, where)
        if not any(line.strip() for line in search):
            reject(
                f"{where} searches for nothing: search for a line beside the place, and repeat it "
                "in what replaces it"
            )
        found.append(Edit(tuple(search), tuple(replace)))
        position = end + 1
    return found


def _marker(
    lines: list[str], start: int, pattern: re.Pattern[str], width: int, problem: str
) -> int:
    """The index of the first line from `start` on that is the marker. Raises `ReplyError` where a
    marker of another kind, or the end, comes before it."""
    for index in range(start, len(lines)):
        found = pattern.match(lines[index])
        if found is not None and len(found[1]) == width:
            return index
        others = (_START.match(lines[index]), _END.match(lines[index]))
        if any(other is not None and len(other[1]) == width for other in others):
            break
    raise ReplyError(f"{problem} before the next edit or the end of the block")


def _require_plain(replace: list[str], width: int, where: str) -> None:
    """Raises `ReplyError` for a second middle marker: nobody could say which one separates."""
    for line in replace:
        found = _MIDDLE.match(line)
        if found is not None and len(found[1]) == width:
            reject(
                f"{where} has two lines =======; where the text itself holds such a line, make all "
                "three markers of the edit longer, for instance nine characters"
            )


# ---------------------------------------------------------------- finding the place


def _place(lines: list[str], edit: Edit, number: int) -> int:
    """The index of the first line of the one place where the search stands."""
    found = _occurrences(lines, edit.search)
    if not found:
        tolerant = [line.rstrip() for line in lines]
        found = _occurrences(tolerant, tuple(line.rstrip() for line in edit.search))
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(str(index + 1) for index in found[:8])
        reject(
            f"the search of edit {number} occurs {len(found)} times in the text (at lines "
            f"{places}{', ...' if len(found) > 8 else ''}): add lines before or after it until it "
            "occurs once"
        )
    msg = f"the search of edit {number} occurs nowhere in the text; {_nearest(lines, edit.search)}"
    raise ReplyError(msg)


def _occurrences(lines: Sequence[str], search: tuple[str, ...]) -> list[int]:
    size = len(search)
    return [
        index
        for index in range(len(lines) - size + 1)
        if lines[index] == search[0] and tuple(lines[index : index + size]) == search
    ]


def _nearest(lines: list[str], search: tuple[str, ...]) -> str:
    """A message that says where the search stands almost, and the first line that differs."""
    if not lines:
        return "the text is empty"
    if all(_NUMBERED.match(line) for line in search if line.strip()):
        return "its lines begin with line numbers, which are not part of the text: leave them out"
    start = _best_start(lines, search)
    for offset, wanted in enumerate(search):
        index = start + offset
        if index >= len(lines):
            return f"the text ends after line {len(lines)}, before {_quoted(wanted)} of the search"
        if lines[index].rstrip() == wanted.rstrip():
            continue
        same = lines[index].strip() == wanted.strip()
        hint = " (only the indentation differs)" if same else ""
        stands, wants = _quoted(lines[index]), _quoted(wanted)
        return f"nearest is line {index + 1}, {stands}, for which it has {wants}{hint}"
    return f"nearest is line {start + 1}"


def _quoted(line: str) -> str:
    return f"`{line if len(line) <= _SHOWN else line[:_SHOWN] + '...'}`"


def _best_start(lines: list[str], search: tuple[str, ...]) -> int:
    """The start at which most lines of the search agree with the text; where none does, that at
    which the search's first line is most similar."""
    wanted = [line.strip() for line in search]
    stripped = [line.strip() for line in lines]
    known = set(wanted) - {""}
    scores = Counter(
        index - offset
        for index, line in enumerate(stripped)
        if line in known
        for offset, other in enumerate(wanted)
        if other == line and index >= offset
    )
    if scores:
        return max(scores, key=lambda start: (scores[start], -start))
    first = next(offset for offset, line in enumerate(wanted) if line)
    close = difflib.get_close_matches(wanted[first], stripped, n=1, cutoff=0.0)
    return max(0, stripped.index(close[0]) - first)
