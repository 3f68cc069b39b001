"""Splitting a Markdown document into sections, with the lines that say what each serves.

A section begins at a `##` heading (in api documents also at `###`); what stands before the first
one is a section of its own. Directly below the heading may stand, one per line:

    signature: `#pragma omp simd reduction(op : name)`
    ops: reduce_sum, reduce_max
    keywords: loop, low-precision
"""

from __future__ import annotations

import difflib
import itertools
import re
from functools import lru_cache

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sketchc.base.types import DType
from sketchc.docspec.schema import FAILURES, TOPICS, Category, Fence, Finding, Section
from sketchc.lowering.registry import all_languages
from sketchc.ops.table import OPS

#: What an `ops:` line may hold.
OPERATIONS = frozenset(OPS) | {"load", "store", "atomic_add", "atomic_max", "atomic_min"}
#: What a `keywords:` line may hold.
KEYWORDS = FAILURES.union(TOPICS, (dtype.value for dtype in DType))

_KEY = re.compile(r"(signature|ops|keywords):\s*(.*)$")
_INLINE = re.compile(r"`([^`]+)`")


@lru_cache(maxsize=128)
def parse_document(
    file: str, text: str, category: Category, own: str = ""
) -> tuple[tuple[Section, ...], tuple[Finding, ...]]:
    """The sections of one document, and what is wrong with it. `own` is the word behind the fences
    of a language that the documents themselves describe. Cached, as a run loads the same documents
    for each of its prompts."""
    text = text.replace("\r\n", "\n")
    excerpts = dict.fromkeys((*(language.fence for language in all_languages()), own, "sketch"))
    document = _Document(file, category, text.split("\n"), frozenset(excerpts) - {""})
    document.read(MarkdownIt("commonmark").parse(text))
    return tuple(document.sections), tuple(document.findings)


@attrs.define
class _Document:
    file: str
    category: Category
    lines: list[str]
    excerpts: frozenset[str]  # languages whose blocks must be excerpts of examples
    fenced: set[int] = attrs.field(factory=set)  # numbers of lines in code blocks
    sections: list[Section] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)

    def read(self, tokens: list[Token]) -> None:
        fences = tuple(
            self.fence(*_lines(token), token) for token in tokens if token.type == "fence"
        )
        self.fenced = {
            number
            for fence in fences
            for number in range(fence.line, fence.line + len(fence.lines) + 2)
        }
        deepest = 3 if self.category is Category.API else 2
        starts = [
            (_lines(token)[0], len(token.markup), inline.content)
            for token, inline in itertools.pairwise(tokens)
            if token.type == "heading_open" and token.level == 0 and len(token.markup) <= deepest
        ]
        if not starts or starts[0][1] != 1 or any(self.lines[: starts[0][0] - 1]):
            self.say(1, "a document begins with its title: # Title")
        for _, _, title in starts:
            if not title:
                self.say(1, "a heading is empty")
        ends = [number for number, _, _ in starts[1:]] + [len(self.lines) + 1]
        for index, ((start, level, title), end) in enumerate(zip(starts, ends, strict=True)):
            if level == 1 and index > 0:
                self.say(start, "a document has one title; sections begin with ##")
            group = level == 2 and index + 1 < len(starts) and starts[index + 1][1] == 3
            held = tuple(fence for fence in fences if start <= fence.line < end)
            self.section(start, end, title, held, entry=level > 1 and not group)
        titles: dict[str, int] = {}
        for number, _, title in starts:
            if title in titles:
                self.say(number, f"the heading {title!r} stands on line {titles[title]} already")
            titles[title] = number

    def section(
        self, start: int, end: int, title: str, fences: tuple[Fence, ...], entry: bool
    ) -> None:
        """Add the section on the lines from `start` to before `end`; `entry`: not a mere title."""
        keys, kept = self.keys(start, end)
        operations = self.words(keys, "ops", OPERATIONS, "operation")
        keywords = self.words(keys, "keywords", KEYWORDS, "keyword")
        signatures = self.signatures(keys, start, fences)
        body = "\n".join(self.lines[number - 1] for number in kept).strip()
        if self.category is Category.API and entry:
            if not signatures:
                self.say(start, f"the entry {title!r} has no signature: line and no ```text block")
            if not operations and not keywords:
                self.say(start, f"the entry {title!r} has neither ops: nor keywords:")
        if entry and "\n" not in body:
            self.say(start, f"the section {title!r} says nothing")
        if entry or "\n" in body:  # Else a bare title, or the heading of a group.
            place = (self.category, self.file, start, title, body)
            self.sections.append(Section(*place, operations, keywords, signatures, fences))

    # ------------------------------------------------------------ the lines below a heading

    def keys(self, start: int, end: int) -> tuple[dict[str, tuple[int, str]], list[int]]:
        """key -> (line, value), and the numbers of the lines that a reader sees."""
        keys: dict[str, tuple[int, str]] = {}
        kept = [start]
        below = True
        for number in range(start + 1, end):
            line = self.lines[number - 1]
            found = _KEY.match(line) if below or number not in self.fenced else None
            below = below and (found is not None or not line.strip())
            if found is not None and below:
                if found[1] in keys:
                    self.say(number, f"a second {found[1]}: line")
                keys[found[1]] = (number, found[2])
            elif found is not None:
                self.say(number, f"{found[1]}: stands directly below a heading, not here")
            if found is None or not below or found[1] != "keywords":
                kept.append(number)
        return keys, kept

    def words(
        self, keys: dict[str, tuple[int, str]], key: str, known: frozenset[str], noun: str
    ) -> tuple[str, ...]:
        if key not in keys:
            return ()
        line, value = keys[key]
        words = [word.strip().strip("`") for word in value.split(",")]
        for word in words:
            if word not in known:
                near = difflib.get_close_matches(word, sorted(known), n=3)
                hint = f"; did you mean {', '.join(near)}?" if near else ""
                self.say(line, f"unknown {noun} {word!r}{hint}")
        if len(set(words)) < len(words):
            self.say(line, f"a word stands twice on the {key}: line")
        return tuple(words)

    def signatures(
        self, keys: dict[str, tuple[int, str]], start: int, fences: tuple[Fence, ...]
    ) -> tuple[str, ...]:
        if "signature" in keys:
            line, value = keys["signature"]
            found = tuple(_INLINE.findall(value))
            if not found:
                self.say(line, "a signature is inline code: signature: `f(x)`")
            return found
        block = next((fence for fence in fences if fence.language == "text"), None)
        return ("\n".join(block.lines),) if block is not None and block.lines else ()

    # ------------------------------------------------------------ fenced blocks

    def fence(self, start: int, end: int, token: Token) -> Fence:
        """The block on the lines from `start` to before `end`."""
        last = self.lines[end - 2].strip()
        closed = end - start > 1 and last.startswith(token.markup) and not last.strip(last[0])
        if not closed:
            self.say(start, "this code block is never closed")
        language, source = self.info(token.info.split(), start)
        return Fence(language, source, start, tuple(self.lines[start : end - 1 - closed]))

    def info(self, words: list[str], line: int) -> tuple[str, str]:
        """(language, source) of the words after the opening fence."""
        language = words[0] if words else ""
        source = ""
        if language not in self.excerpts | {"text"}:
            known = ", ".join(["text", *sorted(self.excerpts)])
            self.say(line, f"a code block names its language, one of: {known}; not {language!r}")
            return language, source
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key != "from" or not value:
                self.say(line, f"unknown {word!r} after the language; known: from=FILE")
            source = value
        if language in self.excerpts and not source:
            self.say(line, f"say which example this is part of: ```{language} from=NAME.ending")
        if source and language not in self.excerpts:
            self.say(line, f"a ```{language} block is no excerpt; drop from=")
        return language, source

    def say(self, line: int, message: str) -> None:
        self.findings.append(Finding(self.file, line, message))


def _lines(token: Token) -> tuple[int, int]:
    """The lines of a block, from 1: its first, and the one behind its last."""
    assert token.map is not None
    return token.map[0] + 1, token.map[1] + 1
