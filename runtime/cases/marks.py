"""What runs at some sizes reach of a candidate: loops, tiles and tails.

Of a sketch, the loops and tiled axes of its plan (`checker/testing/crossings`), and on targets
whose programs share a fixed number of cores, a second share of a core. Of a kernel by others, its
own tile sizes are not known, but they stand in its text: every whole number there may be one, and
each symbol may be what it runs along.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from math import prod

import attrs

from sketchc.checker.testing.crossings import AGAIN, Mark, TileCrossings, behind
from sketchc.ir.evaluate import Value, evaluate, host_sample
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_language
from sketchc.runtime.cases.chains import host_scope

#: Numbers of a kernel's text that may be tile sizes, and how many of them are looked at.
_SMALLEST, _LARGEST = 4, 1 << 16
_MOST_NUMBERS = 6
#: Tiles are made so many times smaller, and no smaller than a matrix product needs.
_SHRINK, _SMALLEST_TILE = 8, 16
#: An integer in C++, as a whole word.
_INTEGER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
#: What runs along a half or a quarter of an axis has a second tile there.
_FAR = "a fifth tile"
#: How a mark that a kernel's text gives is called.
_TEXT = "{name} behind the {number} of its text"


@attrs.define
class Marks:
    """What runs of one candidate reach."""

    plan: Plan
    #: Numbers of a kernel's text, and what stands in their place in the text that runs.
    numbers: Mapping[int, int] = attrs.field(factory=dict)
    crossings: TileCrossings | None = None

    def at(self, symbols: Mapping[str, int], params: Mapping[str, Value]) -> frozenset[Mark]:
        """What a run with these sizes and numbers reaches; nothing where it must be refused."""
        try:
            found = set(self._of_text(symbols))
            if self.crossings is not None:
                host = host_sample(self.plan.sketch, symbols, params)
                host |= {t.name: True for t in self.plan.sketch.tensors if t.optional}
                found |= self.crossings.reached(host)
                found |= self._shares(host)
        except (ArithmeticError, ValueError, KeyError):
            return frozenset()
        return frozenset(found)

    def axes(
        self, symbols: Mapping[str, int], params: Mapping[str, Value]
    ) -> dict[str, tuple[int, int]]:
        """The tiled axes of the sketch at these sizes: how long each is, and its tile."""
        self.at(symbols, params)
        return {} if self.crossings is None else dict(self.crossings.axes)

    def _of_text(self, symbols: Mapping[str, int]) -> set[Mark]:
        found = set()
        for number, here in self.numbers.items():
            for name, size in symbols.items():
                where = _TEXT.format(name=name, number=number)
                found |= {Mark(where, what) for what in behind(size, here)}
                if 2 * size >= 9 * here:
                    found.add(Mark(where, _FAR))
        return found

    def _shares(self, host: Mapping[str, Value]) -> set[Mark]:
        """The launches in which a core runs several programs."""
        if not self.plan.capabilities.persistent_grid:
            return set()
        found = set()
        for phase in self.plan.phases:
            scope, launches = host_scope(self.plan.sketch, phase.index, host)
            counts = [max(int(evaluate(axis.count, scope)), 0) for axis in phase.grid]
            if launches and counts and prod(counts) > self.plan.cores(phase):
                found.add(Mark(f"a core's share of the programs of {phase.name}", AGAIN))
        return found


def is_of_text(mark: Mark) -> bool:
    """Whether all that is known of a mark is a number in a kernel's text."""
    return mark.where.endswith("of its text")


def is_far(mark: Mark) -> bool:
    """Whether it is only tried: the task's own sizes may go that far along another axis."""
    return mark.what == _FAR


def smaller(text: str, least: int = _SMALLEST_TILE) -> tuple[str, dict[int, int]]:
    """A kernel in Python with smaller tiles, and what each number has become: powers of two that a
    name, a parameter's default or a keyword stands for. Whether it still means the same nobody
    knows before it has run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text, {}
    changes: dict[int, int] = {}
    places = []
    for node in _named_numbers(tree):
        number = node.value
        if type(number) is int and number & (number - 1) == 0 and least < number <= _LARGEST:
            changes[number] = max(least, number // _SHRINK)
            places.append((node.lineno, node.col_offset, node.end_col_offset, number))
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for row, start, end, number in sorted(places, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + str(changes[number]).encode() + line[end:]
    return b"".join(lines).decode(), changes


def _named_numbers(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals that are all of what a name stands for."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(value=ast.Constant() as value)
                | ast.AnnAssign(value=ast.Constant() as value)
                | ast.keyword(value=ast.Constant() as value)
            ):
                yield value
            case ast.arguments(defaults=defaults, kw_defaults=more):
                for default in (*defaults, *more):
                    if isinstance(default, ast.Constant):
                        yield default


def marks_of(plan: Plan, kernel: Kernel) -> Marks:
    """What there is to reach of a candidate."""
    numbers = numbers_in(kernel.source, kernel.language) if kernel.foreign else ()
    crossings = TileCrossings(plan.sketch) if plan.phases else None
    return Marks(plan, {number: number for number in numbers}, crossings)


def numbers_in(text: str, language: str) -> tuple[int, ...]:
    """The whole numbers of a kernel's text that may be tile sizes, the smallest first."""
    found = {n for n in _integers(text, language) if _SMALLEST <= n <= _LARGEST}
    return tuple(sorted(found, key=lambda n: (n & (n - 1) > 0, -n))[:_MOST_NUMBERS][::-1])


def _integers(text: str, language: str) -> set[int]:
    if load_language(language).syntax == "c":
        return {int(word) for word in _INTEGER.findall(_COMMENT.sub(" ", text)) if len(word) < 9}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
