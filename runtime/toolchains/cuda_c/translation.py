"""CUDA-C as C++ for the header in `emulator`: the three forms that are no C++.

    kernel<<<grid, threads>>>(x, y);     emulated::launcher(kernel, grid, threads)(x, y);
    extern __shared__ float buffer[];    auto *const buffer = emulated::buffer<float>();
    __shared__ float tile[32][33];       static float tile[32][33]; emulated::shares(tile);

Everything else stays where it is, on the same lines. Comments and texts are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ASIDE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_DYNAMIC = re.compile(r"\bextern\s+__shared__\s+([^;=]*?)\b(\w+)\s*\[\s*\]\s*;")
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")
_STATIC = re.compile(r"\b__shared__\s+((?:(?:__align__|alignas)\s*\([^;=()]*\)\s*)?[^;=()]*);")
_DECLARED = re.compile(r"(\w+)\s*(?:\[[^,]*\])?\s*(?:,|$)")
_NAME = re.compile(r"[\w:]")


def for_cpu(source: str) -> str:
    """The source with these forms replaced."""
    source = _replaced(source, _DYNAMIC, _buffer)
    source = _replaced(source, _STATIC, _tile)
    while True:
        hidden = _hidden(source)
        start = hidden.find("<<<")
        end = hidden.find(">>>", start)
        if start < 0 or end < 0:
            return source
        first = _callee(hidden, start)
        given = source[start + 3 : end]
        called = f"emulated::launcher({source[first:start].rstrip()}, {given})"
        source = source[:first] + called + source[end + 3 :]


def _hidden(source: str) -> str:
    """The source with blanks in place of comments and texts; line ends stay."""
    return _ASIDE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


def _replaced(source: str, pattern: re.Pattern[str], made: object) -> str:
    found: Iterator[re.Match[str]] = pattern.finditer(_hidden(source))
    parts, last = [], 0
    for match in found:
        parts += [source[last : match.start()], made(match)]  # type: ignore[operator]
        last = match.end()
    return "".join([*parts, source[last:]])


def _buffer(match: re.Match[str]) -> str:
    kind = _ALIGNED.sub("", match[1]).strip()
    return f"auto *const {match[2]} = emulated::buffer<{kind}>();" + "\n" * match[0].count("\n")


def _tile(match: re.Match[str]) -> str:
    names = [found[1] for found in _DECLARED.finditer(_flat(match[1]))]
    known = " ".join(f"emulated::shares({name});" for name in names)
    return f"static {match[1]}; {known}"


def _flat(text: str) -> str:
    """A declaration with all brackets but the first of each name emptied of commas."""
    depth, flat = 0, []
    for letter in text:
        depth += (letter in "[<") - (letter in "]>")
        flat.append(" " if letter == "," and depth else letter)
    return "".join(flat)


def _callee(hidden: str, end: int) -> int:
    """Where the name of a kernel begins that ends before `end`, template arguments included."""
    at = end
    while hidden[at - 1].isspace():
        at -= 1
    if hidden[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (hidden[at] == ">") - (hidden[at] == "<")
            if depth == 0:
                break
    while at > 0 and _NAME.match(hidden[at - 1]):
        at -= 1
    return at
