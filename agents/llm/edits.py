"""Repairs as edits: what a model wants changed in a text, instead of the whole text again.

    ```edit
    <<<<<<< SEARCH
    lines as they are
    =======
    lines as they should be
    >>>>>>> REPLACE
    ```

A search is whole lines of the text and occurs exactly once in it; all edits are meant for the text
as it was shown, and none may touch lines of another. Markers may be longer than seven characters,
all three alike, where the lines themselves look like markers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import attrs

from sketchc.agents.llm.replies import Block, ReplyError, fenced_blocks

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
    blocks = fenced_blocks(text)
    cut_off = next((block for block in blocks if not block.closed), None)
    if cut_off is not None:
        msg = (
            f"the reply was cut off: the fenced block that opens in line {cut_off.line} is never "
            "closed; send fewer or shorter edits"
        )
        raise ReplyError(msg)
    found = [edit for block in blocks if _holds_edits(block) for edit in _edits_of(block)]
    if not found:
        form = "```edit, <<<<<<< SEARCH, =======, >>>>>>> REPLACE, ```"
        bare = any(_START.match(line) for line in text.replace("\r\n", "\n").split("\n"))
        why = "the edits stand outside of a fenced block" if bare else "it holds no edit"
        msg = f"the reply must hold edits in fenced blocks ({form}, each on its own line); {why}"
        raise ReplyError(msg)
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
            msg = f"edits {first} and {second} overlap in line {start + 1}: join them into one"
            raise ReplyError(msg)
        changed += lines[position:start]
        changed += edit.replace
        position, previous = start + len(edit.search), number
    changed += lines[position:]
    if ending is not None and changed:
        changed.append(ending)
    result = "\n".join(changed)
    if result == text:
        msg = "the edits change nothing: what they put in is what stands there already"
        raise ReplyError(msg)
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
            msg = (
                f"{where}: expected the line <<<<<<< SEARCH, not {stands}; a block of edits holds "
                "nothing else"
            )
            raise ReplyError(msg)
        width = len(opening[1])
        middle = _marker(lines, position + 1, _MIDDLE, width, f"{where}: no line =======")
        end = _marker(lines, middle + 1, _END, width, f"{where}: no line >>>>>>> REPLACE")
        search, replace = lines[position + 1 : middle], lines[middle + 1 : end]
        _require_plain(replace, width, where)
        if not any(line.strip() for line in search):
            msg = (
                f"{where} searches for nothing: search for a line beside the place, and repeat it "
                "in what replaces it"
            )
            raise ReplyError(msg)
        found.append(Edit(tuple(search), tuple(replace)))
        position = end + 1
    return found


def _marker(
    lines: list[str], start: int, pattern: re.Pattern[str], width: int, problem: str
) -> int:
    """The first line from `start` on that is the marker; none of another kind before it."""
    for index in range(start, len(lines)):
        found = pattern.match(lines[index])
        if found is not None and len(found[1]) == width:
            return index
        others = (_START.match(lines[index]), _END.match(lines[index]))
        if any(other is not None and len(other[1]) == width for other in others):
            break
    msg = f"{problem} before the next edit or the end of the block"
    raise ReplyError(msg)


def _require_plain(replace: list[str], width: int, where: str) -> None:
    """A second middle marker: nobody could say which one separates."""
    for line in replace:
        found = _MIDDLE.match(line)
        if found is not None and len(found[1]) == width:
            msg = (
                f"{where} has two lines =======; where the text itself holds such a line, make all "
                "three markers of the edit longer, for instance nine characters"
            )
            raise ReplyError(msg)


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
        msg = (
            f"the search of edit {number} occurs {len(found)} times in the text (at lines "
            f"{places}{', ...' if len(found) > 8 else ''}): add lines before or after it until it "
            "occurs once"
        )
        raise ReplyError(msg)
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
    """Where the search stands almost, and the first line that differs."""
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
    """Where most lines of the search agree; where none do, where one is most like them."""
    wanted = [line.strip() for line in search]
    stripped = [line.strip() for line in lines]
    known = set(wanted) - {""}
    scores: dict[int, int] = {}
    for index, line in enumerate(stripped):
        if line in known:
            for offset, other in enumerate(wanted):
                if other == line and index >= offset:
                    scores[index - offset] = scores.get(index - offset, 0) + 1
    if scores:
        return max(scores, key=lambda start: (scores[start], -start))
    first = next(offset for offset, line in enumerate(wanted) if line)
    close = difflib.get_close_matches(wanted[first], stripped, n=1, cutoff=0.0)
    return max(0, stripped.index(close[0]) - first)
