"""The texts of sketches and kernels as listings: highlighted, numbered, and linked by lines."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence

from sketchc.runtime.report.content import Code, Line, Listing
from sketchc.runtime.report.text import sanitised

#: Instructions to the reader on finding lines that belong together.
LINKED = (
    "Point at a line, or move to it with the keyboard: the lines that it comes from, or becomes, "
    "are marked. Enter or a click keeps the mark."
)
#: Characters and lines that are shown of a file.
_LONGEST = 400_000
_MOST_LINES = 4000
#: Colours that links take in turn; the page has a class for each.
COLOURS = 6

_SKETCH_WORDS = (
    "sketch symbols params tensors constexpr let views require workspace for in range if elif else "
    "and or not pass init in out inout"
)
_CPP_WORDS = (
    "alignas auto bool break case char class const constexpr continue default delete do "
    "double else enum extern false float for if inline int int8_t int16_t int32_t int64_t "
    "uint8_t uint16_t uint32_t uint64_t long namespace nullptr operator private public return "
    "short signed size_t sizeof static static_cast struct switch template true typename union "
    "unsigned using void volatile while"
)


def _pattern(comment: str, string: str, words: Sequence[str], more: str = "") -> re.Pattern[str]:
    """A pattern that matches one token of a language. A token that is not closed ends with its line
    or the text: were the closing part not optional, hostile texts would take quadratic time."""
    parts = [
        f"(?P<comment>{comment})",
        f"(?P<string>{string})",
        *([more] if more else []),
        r"(?P<number>\b(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*\b)",
        rf"(?P<word>\b(?:{'|'.join(words)})\b)",
        r"(?P<call>\b[A-Za-z_]\w*(?=\())",
    ]
    return re.compile("|".join(parts), re.DOTALL)


_PATTERNS = {
    "sketch": _pattern(r"#[^\n]*", r'"[^"\n]*"?', _SKETCH_WORDS.split(), r"(?P<mark>@\w+)"),
    "python": _pattern(
        r"#[^\n]*",
        r'"""(?:(?!""").)*(?:""")?|"(?:\\[^\n]|[^"\\\n])*"?|\'(?:\\[^\n]|[^\'\\\n])*\'?',
        keyword.kwlist,
        r"(?P<mark>@[\w.]+)",
    ),
    "c++": _pattern(
        r"//[^\n]*|/\*(?:(?!\*/).)*(?:\*/)?",
        r'"(?:\\[^\n]|[^"\\\n])*"?',
        _CPP_WORDS.split(),
        r"(?P<mark>#[^\n]*)",
    ),
}


def pieces(text: str, language: str) -> Iterator[tuple[str, str]]:
    """(class, text) of each token of `text`, and ("", text) of the text between tokens."""
    pattern = _PATTERNS.get(language)
    done = 0
    for found in pattern.finditer(text) if pattern else ():
        if found.start() > done:
            yield "", text[done : found.start()]
        yield found.lastgroup or "", found[0]
        done = found.end()
    if done < len(text):
        yield "", text[done:]


def lines_of(text: str, language: str) -> list[tuple[tuple[str, str], ...]]:
    """The pieces of each line of `text`; a token over several lines is split at their ends."""
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, piece in pieces(text, language):
        for place, part in enumerate(piece.split("\n")):
            if place:
                lines.append([])
            if part:
                lines[-1].append((kind, part))
    return [tuple(line) for line in lines]


def listing(
    name: str,
    text: str,
    language: str,
    links: Mapping[int, tuple[int, ...]],
    colours: Mapping[int, int],
) -> Listing:
    """The listing of a file; `links` and `colours` are by line number."""
    shown = sanitised(text, _LONGEST).rstrip("\n")
    found = lines_of(shown, language)[:_MOST_LINES]
    lines = tuple(
        Line(number, parts, links.get(number, ()), colours.get(number, 0))
        for number, parts in enumerate(found, 1)
    )
    # Some lines above the first linked one, which begin its function.
    start = max(1, min((line for line in links if links[line]), default=1) - 8)
    return Listing(name, language, lines, start if start > 12 else 1)


def quotations(sketch: str, code: str) -> dict[int, tuple[int, ...]]:
    """Lines of the sketch by line of the code, where that line is a comment that quotes them: the
    only links for code by others. The lines of code below the comment are not linked."""
    lines: dict[str, list[int]] = {}
    for number, text in enumerate(sketch.split("\n"), 1):
        bare = " ".join(text.split("  #")[0].split())
        if "(" in bare and not bare.startswith("#"):
            lines.setdefault(bare, []).append(number)
    found: dict[int, tuple[int, ...]] = {}
    for number, text in enumerate(code.split("\n"), 1):
        comment = re.match(r"\s*(?://|#)\s+(.*)", text)
        quoted = lines.get(" ".join(comment[1].split())) if comment else None
        if quoted:
            found[number] = tuple(quoted)
    return found


def links_of(data: object) -> dict[int, tuple[int, ...]]:
    """Lines of the sketch by line of the code, from `data`, the JSON of a source map."""
    found: dict[int, tuple[int, ...]] = {}
    entries = data.get("lines") if isinstance(data, Mapping) else None
    for pair in entries if isinstance(entries, list) else ():
        match pair:
            case [int(line), [*origins]] if line > 0:
                found[line] = tuple(o for o in origins if isinstance(o, int) and o > 0)
            case _:
                continue
    return found


def code_of(
    sketch: tuple[str, str] | None,
    kernel: tuple[str, str, str] | None,
    links: Mapping[int, tuple[int, ...]],
    note: str,
) -> Code | None:
    """The sketch (name, text) beside the kernel (name, text, language), linked by `links`, which
    map lines of the kernel to lines of the sketch; None where both are None."""
    if sketch is None and kernel is None:
        return None
    back: dict[int, list[int]] = {}
    for line, origins in links.items():
        for origin in origins:
            back.setdefault(origin, []).append(line)
    colours = {origin: place % COLOURS + 1 for place, origin in enumerate(sorted(back))}
    of_code = {line: colours[origins[0]] for line, origins in links.items() if origins}
    to_code = {origin: tuple(sorted(lines)) for origin, lines in back.items()}
    return Code(
        sketch=None if sketch is None else listing(*sketch, "sketch", to_code, colours),
        kernel=None if kernel is None else listing(*kernel, links, of_code),
        linked=bool(links) and sketch is not None and kernel is not None,
        note=note,
    )
