"""Diagnostics and proofs as text for people.

`render_text` shows each diagnostic with its source lines, carets under the primary span, labels,
notes, help and fixes; `render_proofs` lists the verdicts of a sketch with the tier of each. The
renderings for machines are in sketchc.reporting.machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Fix, Severity, Source, Span, apply_edits
from sketchc.ir import nodes as ir
from sketchc.ir.show import assignments

#: Columns of a source line that are shown; a longer one is cut around its span.
WIDTH = 120
_COLOURS = {
    Severity.ERROR: "\x1b[1;31m",
    Severity.WARNING: "\x1b[1;33m",
    Severity.NOTE: "\x1b[1;36m",
}
_BLUE, _BOLD, _GREEN, _RED, _OFF = "\x1b[1;34m", "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[0m"


def render_text(
    diagnostics: Iterable[Diagnostic], sources: Iterable[Source], colour: bool = False
) -> str:
    """All diagnostics, an empty line behind each; "" for none. `sources` are found by name."""
    renderer = _Renderer({source.name: source for source in sources}, colour)
    return "".join(renderer.diagnostic(found) + "\n" for found in diagnostics)


@records.frozen
class _Mark:
    """One underlined region with its text."""

    span: Span
    text: str
    primary: bool


@records.frozen
class _Renderer:
    sources: Mapping[str, Source]
    colour: bool

    def paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_OFF}" if self.colour and text else text

    def diagnostic(self, found: Diagnostic) -> str:
        colour = _COLOURS[found.severity]
        head = self.paint(f"{found.severity.value}[{found.code}]", colour)
        lines = [f"{head}{self.paint(': ' + _clean(found.message), _BOLD)}"]
        marks = [_Mark(found.span, found.label, True)]
        marks += [_Mark(label.span, label.text, False) for label in found.labels]
        margin = self.margin(found)
        names = dict.fromkeys(mark.span.source for mark in marks)
        for name in names:
            here = [mark for mark in marks if mark.span.source == name]
            lines += self.snippet(name, here, margin, colour)
        lines += [self.extra(margin, "note", note) for note in found.notes]
        if found.help:
            lines.append(self.extra(margin, "help", found.help))
        for fix in found.fixes:
            lines += self.fix(fix, margin)
        return "\n".join(lines) + "\n"

    def margin(self, found: Diagnostic) -> int:
        """The width of the widest line number shown."""
        spans = [found.span, *(label.span for label in found.labels)]
        spans += [edit.span for fix in found.fixes for edit in fix.edits]
        return len(str(max(span.end_line for span in spans)))

    def extra(self, margin: int, kind: str, text: str) -> str:
        pad = " " * (margin + 1)
        indent = "\n" + pad + " " * (len(kind) + 4)
        return f"{pad}{self.paint('=', _BLUE)} {kind}: {indent.join(text.splitlines())}"

    # ------------------------------------------------------------ source lines

    def snippet(self, name: str, marks: list[_Mark], margin: int, colour: str) -> list[str]:
        first = next((mark for mark in marks if mark.primary), marks[0])
        arrow = "-->" if first.primary else ":::"
        where = f"{_clean(name)}:{first.span.line}:{first.span.column}"
        lines = [f"{' ' * margin}{self.paint(arrow, _BLUE)} {where}"]
        source = self.sources.get(name)
        if source is None or not source.text.strip():
            return lines
        bar = self.paint("|", _BLUE)
        lines.append(f"{' ' * margin} {bar}")
        shown: dict[int, list[tuple[_Mark, int, int]]] = {}
        for mark in marks:
            for number, start, end in _pieces(source, mark.span):
                last = number == mark.span.end_line or mark.span.line == mark.span.end_line
                piece = mark if last else records.evolve(mark, text="")
                shown.setdefault(number, []).append((piece, start, end))
        previous = 0
        for number in sorted(shown):
            if previous and number > previous + 1:
                lines.append(self.paint("...", _BLUE))
            previous = number
            lines += self.source_line(source, number, shown[number], margin, colour)
        return lines

    def source_line(
        self,
        source: Source,
        number: int,
        marks: list[tuple[_Mark, int, int]],
        margin: int,
        colour: str,
    ) -> list[str]:
        text = source.line(number)
        cells = _cells(text)
        focus = next(((s, e) for mark, s, e in marks if mark.primary), marks[0][1:])
        low, high = _window(cells, focus)
        shown = _shown(text, cells, low, high)
        bar = self.paint("|", _BLUE)
        lines = [f"{self.paint(f'{number:>{margin}}', _BLUE)} {bar} {shown}".rstrip()]
        offset = cells[low] - (3 if low else 0)
        for mark, start, end in sorted(marks, key=lambda item: (not item[0].primary, item[1])):
            begin = max(cells[min(start, high)] - offset, 0)
            stop = max(cells[min(end, high)] - offset, begin + 1)
            line = ("^" if mark.primary else "-") * (stop - begin)
            label = f"{line} {_clean(mark.text)}".rstrip()
            painted = self.paint(label, colour if mark.primary else _BLUE)
            lines.append(f"{' ' * margin} {bar} {' ' * begin}{painted}")
        return lines

    # ------------------------------------------------------------ fixes

    def fix(self, fix: Fix, margin: int) -> list[str]:
        """The lines that show a fix: its title, and the source lines before and after it."""
        pad = " " * margin
        kind = "fix" if fix.safe else "unsafe fix"
        lines = [f"{pad} {self.paint('=', _BLUE)} {kind}: {_clean(fix.title)}"]
        names = dict.fromkeys(edit.span.source for edit in fix.edits)
        for name in names:
            source = self.sources.get(name)
            if source is None:
                continue
            edits = [edit for edit in fix.edits if edit.span.source == name]
            before = source.text.split("\n")
            after = apply_edits(source.text, edits).split("\n")
            lines += self.difference(before, after, margin)
        return lines

    def difference(self, before: list[str], after: list[str], margin: int) -> list[str]:
        import difflib

        lines = []
        matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
        for kind, low, high, new_low, new_high in matcher.get_opcodes():
            if kind == "equal":
                continue
            for number in range(low, high):
                text = f"{number + 1:>{margin}} - {_plain(before[number])}"
                lines.append(self.paint(text, _RED))
            for number in range(new_low, new_high):
                text = f"{number + 1:>{margin}} + {_plain(after[number])}"
                lines.append(self.paint(text, _GREEN))
        return lines


def _pieces(source: Source, span: Span) -> list[tuple[int, int, int]]:
    """(line, start, end), in characters, of the lines of a span that are shown: first and last."""
    if span.line == span.end_line:
        return [(span.line, span.column - 1, span.end_column - 1)]
    first, last = source.line(span.line), source.line(span.end_line)
    pieces = [(span.line, span.column - 1, max(len(first.rstrip()), span.column))]
    if span.end_column > 1:
        indent = len(last) - len(last.lstrip())
        pieces.append((span.end_line, min(indent, span.end_column - 1), span.end_column - 1))
    return pieces


def _cells(text: str) -> list[int]:
    """The screen column at which each character begins, and where the text ends."""
    columns = [0]
    ascii_only = text.isascii()
    for character in text:
        width = 1
        if character == "\t":
            width = 8 - columns[-1] % 8
        elif not ascii_only:
            width = _width(character)
        columns.append(columns[-1] + width)
    return columns


def _width(character: str) -> int:
    import unicodedata

    if unicodedata.combining(character) or character == "\ufeff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _window(cells: Sequence[int], focus: tuple[int, int]) -> tuple[int, int]:
    """The range of characters shown of a line: all of it, or a part around the focus."""
    size = len(cells) - 1
    if cells[-1] <= WIDTH:
        return 0, size
    low = max(0, min(focus[0], size) - WIDTH // 3)
    high = low
    while high < size and cells[high + 1] - cells[low] <= WIDTH:
        high += 1
    return low, high


def _shown(text: str, cells: Sequence[int], low: int, high: int) -> str:
    """Characters `low` to `high` with tabs as blanks; `...` stands for what is cut off."""
    parts = []
    for index in range(low, high):
        character = text[index]
        if character == "\t":
            parts.append(" " * (cells[index + 1] - cells[index]))
        else:
            parts.append(_clean(character))
    return ("..." if low else "") + "".join(parts) + ("..." if high < len(text) else "")


def _plain(text: str) -> str:
    """A whole line for a difference, cut at the width."""
    text = _clean(text.rstrip("\r").expandtabs(8))
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _clean(text: str) -> str:
    """Control characters made visible, so that a file cannot drive the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\ufeff"
        else chr(0x2400 + ord(character))
        if ord(character) < 0x20
        else "\ufffd"
        for character in text
    ).replace("\ufeff", "")


# ---------------------------------------------------------------- proofs


@records.frozen
class SketchReport:
    """The verdicts of one sketch."""

    file: str
    name: str
    proofs: tuple[ir.Proof, ...]


def render_proofs(name: str, proofs: Sequence[ir.Proof], colour: bool = False) -> str:
    """The verdicts of one sketch, one per line, with details and counter-examples."""
    paint = _Renderer({}, colour).paint
    lines = [paint(name, _BOLD)]
    width = max((len(proof.claim) for proof in proofs), default=0)
    for proof in proofs:
        tier = paint(proof.tier.value, _tier_colour(proof.tier))
        detail = f" ({_clean(proof.detail)})" if proof.detail else ""
        subject = _clean(proof.subject)
        lines.append(f"  {proof.claim:<{width}}  {subject}: {tier}{detail}")
        if proof.counter_example is not None:
            told = counter_example(proof.counter_example)
            lines += [f"    {_clean(line)}" for line in told if line != proof.detail]
    if len(lines) == 1:
        lines.append("  nothing to prove")
    return "\n".join(lines) + "\n"


def distinct(proofs: Iterable[ir.Proof]) -> list[ir.Proof]:
    """One proof of each claim, subject and tier: a tile name may be allocated several times. Proofs
    checked at launch are kept apart by their conditions."""
    found: dict[tuple[str, str, ir.Tier, str], ir.Proof] = {}
    for proof in proofs:
        condition = proof.detail if proof.tier is ir.Tier.CHECKED_AT_LAUNCH else ""
        found.setdefault((proof.claim, proof.subject, proof.tier, condition), proof)
    return list(found.values())


def _tier_colour(tier: ir.Tier) -> str:
    if tier is ir.Tier.REFUTED:
        return _COLOURS[Severity.ERROR]
    return _COLOURS[Severity.WARNING] if tier is ir.Tier.UNPROVED else _GREEN


def counter_example(example: ir.CounterExample) -> list[str]:
    """A counter-example in words: sizes, iterations, the element."""
    lines = []
    if example.symbols:
        lines.append(f"counter-example: {assignments(example.symbols)}")
    for number, iteration in enumerate(example.iterations, 1):
        which = f" {number}" if len(example.iterations) > 1 else ""
        if iteration:
            lines.append(f"iteration{which}: {assignments(iteration)}")
    if example.element:
        lines.append(f"element [{', '.join(map(str, example.element))}]")
    return lines + example.text.splitlines()
