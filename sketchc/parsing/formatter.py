"""The one canonical layout of a sketch file.

`format_file` takes the tree and its source and returns the text: four blanks per level, one section
per line (one item per line beyond `WIDTH` columns or where comments stand between items), every
comment kept beside or above what it belongs to, at most one empty line between lines. Formatting
twice changes nothing, and the text parses to an equal tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Source, Span
from sketchc.parsing import syntax, unparse
from sketchc.parsing.lexer import tokenize
from sketchc.parsing.parser import tables

WIDTH = 100
_INDENT = "    "


@records.frozen
class _Item:
    """One logical line of output and the source lines that it stands for."""

    level: int
    lines: tuple[str, ...]
    first: int
    last: int
    column: int
    opens: bool = False  # a block follows
    closes: bool = False  # the closing brace
    begins: bool = False  # the header of a sketch


def format_file(tree: syntax.File, source: Source) -> str:
    """The canonical text of a parsed file, ending in a newline."""
    planner = _Planner(tree, source)
    return _Writer(tree.comments).write(planner.items())


class _Planner:
    """The items of a file, in source order."""

    def __init__(self, tree: syntax.File, source: Source) -> None:
        self.tree = tree
        tokens, _ = tokenize(source, tables())
        self.elses = iter([token for token in tokens if token.type == "else" and token.first])
        self.tilings = [token for token in tokens if token.type == "available_tiling"]
        self.comment_lines = sorted(comment.span.line for comment in tree.comments)

    def items(self) -> list[_Item]:
        """Of a sketch with `types:`, only its first instance is written: the others have the same
        text."""
        sketches = (s for s in self.tree.sketches if s.generic is None or s.generic.first)
        return [item for sketch in sketches for item in self.sketch(sketch)]

    def sketch(self, node: syntax.Sketch) -> Iterator[_Item]:
        span = node.span
        last = node.name_span.end_line
        unit, kind = (node, "sketch") if node.program is None else (node.program, "program")
        head = (f"{kind} {node.written_name} {{",)
        yield _Item(0, head, span.line, last, span.column, opens=True, begins=True)
        for section in unit.sections:
            yield from self.section(section)
        yield from self.block(unit.body, 1)
        yield _Item(0, ("}",), span.end_line, span.end_line, span.end_column - 1, closes=True)
        if node.tilings and node.tiling_span != NOWHERE:
            token = next(t for t in self.tilings if t.start >= span.end)
            title = ("available_tiling:",)
            yield _Item(0, title, token.line, token.line, token.column, opens=True)
            for point in node.tilings:
                yield _item(1, unparse.point(point), point.span)

    def section(self, node: syntax.Section) -> Iterator[_Item]:
        texts, separator = unparse.section(node)
        keyword = node.keyword
        line = f"{keyword}: {f'{separator} '.join(texts)};"
        span = node.span
        spans = [item.span for item in node.items]
        last = spans[-1].line if spans else span.line
        commented = any(span.line <= number < last for number in self.comment_lines)
        if len(line) + len(_INDENT) <= WIDTH and not commented:
            yield _item(1, line, span)
            return
        yield _Item(1, (f"{keyword}:",), span.line, span.line, span.column, opens=True)
        for number, (text, place) in enumerate(zip(texts, spans, strict=True), 1):
            yield _item(2, text + (separator if number < len(texts) else ";"), place)

    def block(self, body: Sequence[syntax.Statement], level: int) -> Iterator[_Item]:
        for statement in body:
            match statement:
                case syntax.For():
                    for hint in statement.hints:
                        yield _item(level, unparse.hint(hint), hint.span)
                    yield _item(
                        level, unparse.statement_text(statement), statement.span, opens=True
                    )
                    yield from self.block(statement.body, level + 1)
                case syntax.If():
                    yield from self.branch(statement, level)
                case _:
                    yield self.simple(statement, level)

    def branch(self, node: syntax.If, level: int) -> Iterator[_Item]:
        yield _item(level, unparse.statement_text(node), node.span, opens=True)
        yield from self.block(node.body, level + 1)
        if node.orelse:
            token = next(self.elses)
            yield _Item(level, ("else:",), token.line, token.line, token.column, opens=True)
            yield from self.block(node.orelse, level + 1)

    def simple(self, node: unparse.SimpleStatement, level: int) -> _Item:
        head, arguments = unparse.statement(node)
        if arguments is None:
            return _item(level, head, node.span)
        line = f"{head}({', '.join(arguments)})"
        if len(line) + level * len(_INDENT) <= WIDTH:
            return _item(level, line, node.span)
        lines = (f"{head}(", *(f"{_INDENT}{argument}," for argument in arguments), ")")
        return _Item(level, lines, node.span.line, node.span.end_line, node.span.column)


def _item(level: int, text: str, span: Span, *, opens: bool = False) -> _Item:
    return _Item(level, (text,), span.line, span.end_line, span.column, opens)


class _Writer:
    """Puts items and comments together."""

    def __init__(self, comments: Sequence[syntax.Comment]) -> None:
        self.comments = list(comments)
        self.next = 0  # the first comment not yet written
        self.output: list[str] = []
        self.previous: _Item | None = None
        self.end = 0  # source line on which the last thing written ends
        self.opened = True  # nothing stands between the last thing written and its block's start
        self.columns: list[int] = []  # source column of each open level

    def write(self, items: Sequence[_Item]) -> str:
        for number, item in enumerate(items):
            follower = items[number + 1] if number + 1 < len(items) else None
            self.above(item)
            self.gap(item.first, item)
            trailing = self.beside(item, follower)
            pad = _INDENT * item.level
            lines = [pad + line for line in item.lines]
            if trailing:
                lines[-1] += "  " + trailing[-1]
            self.output += lines
            del self.columns[item.level :]
            self.columns.append(item.column)
            self.previous = item
            self.end = max(item.last, self.end)
            self.opened = item.opens
        self.rest()
        return "\n".join(self.output) + "\n"

    def above(self, item: _Item) -> None:
        """Write the comments in front of an item, and those inside it but for its last line's."""
        while self.next < len(self.comments):
            comment = self.comments[self.next]
            if comment.span.line >= item.last and not comment.span.line < item.first:
                return
            self.own_line(comment, item)
            self.next += 1

    def own_line(self, comment: syntax.Comment, item: _Item | None) -> None:
        level = self.comment_level(comment, item)
        line = comment.span.line if item is None else min(comment.span.line, item.first)
        self.gap(line, item)
        self.output.append(_INDENT * level + comment.text)
        self.end = max(comment.span.line if item is None else line, self.end)
        self.opened = False

    def comment_level(self, comment: syntax.Comment, item: _Item | None) -> int:
        """The level of a comment: that of the next item, or deeper where a block ends."""
        lowest = 0 if item is None else item.level
        if item is not None and item.closes:
            lowest = 1
        if self.previous is None or item is None:
            return lowest
        highest = self.previous.level + self.previous.opens
        for level in range(min(highest, len(self.columns) - 1), lowest, -1):
            if self.columns[level] <= comment.span.column:
                return level
        return lowest

    def gap(self, line: int, item: _Item | None) -> None:
        """Add an empty line where the source has one, and before every sketch but the first."""
        if not self.output or self.output[-1] == "":
            return
        follows = self.previous is not None and not self.output[-1].lstrip().startswith("#")
        forced = item is not None and item.begins and follows
        wanted = line > self.end + 1 and not self.opened and not (item is not None and item.closes)
        if forced or wanted:
            self.output.append("")

    def beside(self, item: _Item, follower: _Item | None) -> list[str]:
        """The comments that end the item's last line, unless the next item shares that line."""
        found: list[str] = []
        if follower is not None and follower.first == item.last:
            return found
        while self.next < len(self.comments):
            comment = self.comments[self.next]
            if comment.span.line != item.last:
                break
            found.append(comment.text)
            self.next += 1
        return found

    def rest(self) -> None:
        """Write the comments behind the last item."""
        for comment in self.comments[self.next :]:
            self.own_line(comment, None)
