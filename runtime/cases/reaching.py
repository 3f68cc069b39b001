"""Sizes at which everything is reached that a kernel would do at the task's own sizes.

A loop that runs more than once at the task's own sizes must have run more than once in some case,
and each tiled axis must have gone on behind its first tile, by a part of a tile. Where the cases so
far do not show that (an interpreted target takes no large sizes; an axis may be a `let` or a
view's, so that no symbol's sizes are around its tiles), further sizes are looked for: small ones,
one symbol after the other, and then the task's own sizes made as small as they can be.

Loops, tiles and tails are to be reached: of a sketch, the loops and tiled axes of its plan
(`checker/testing/crossings`), and on targets whose programs share a fixed number of cores, a second
share of a core. The tile sizes of a kernel by others are not known, but they stand in its text:
every integer there may be a tile size, and each symbol may be the extent that it divides.
"""

from __future__ import annotations

import ast
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from sketchc.checker.api import AGAIN, Mark, Settings, TileCrossings, behind
from sketchc.ir.evaluate import Value, host_sample
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.language import parsed
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_language
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.cases.shapes import Limits, ShapeCase, cost_at, effort, launched
from sketchc.runtime.cases.sizes import nearest

#: Numbers of a kernel's text that may be tile sizes, and how many of them are looked at.
_SMALLEST, _LARGEST = 4, 1 << 16
_MOST_OF_TEXT = 6
#: Tiles are made so many times smaller, and no smaller than a matrix product needs.
_SHRINK, _SMALLEST_TILE = 8, 16
#: An integer in C++, as a whole word.
_INTEGER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
#: What runs along a half or a quarter of an axis has a second tile by then. This mark is tried, but
#: never required: the task's own sizes may go that far along another axis.
_FAR = "a fifth tile"
#: The name of a mark that stems from a number in a kernel's text.
_TEXT = "{name} behind the {number} of its text"


@attrs.define
class Marks:
    """The marks that runs of one candidate reach."""

    plan: Plan
    #: Numbers of a kernel's text, and the numbers in their place in the text that runs.
    numbers: Mapping[int, int] = attrs.field(factory=dict)
    crossings: TileCrossings | None = None
    #: Marks and axes by sizes and params: of a large sketch, finding them takes half a second.
    _known: dict[Any, tuple[frozenset[Mark], dict[str, tuple[int, int]]]] = attrs.field(
        factory=dict, init=False
    )

    def at(self, symbols: Mapping[str, int], params: Mapping[str, Value]) -> frozenset[Mark]:
        """The marks that a run with these sizes and params reaches; none where it is refused."""
        return self._looked(symbols, params)[0]

    def axes(
        self, symbols: Mapping[str, int], params: Mapping[str, Value]
    ) -> dict[str, tuple[int, int]]:
        """The tiled axes of the sketch at these sizes: how long each is, and its tile."""
        return self._looked(symbols, params)[1]

    def _looked(
        self, symbols: Mapping[str, int], params: Mapping[str, Value]
    ) -> tuple[frozenset[Mark], dict[str, tuple[int, int]]]:
        key = (tuple(sorted(symbols.items())), tuple(sorted(params.items())))
        if key not in self._known:
            marks = self._at(symbols, params)
            axes = {} if self.crossings is None else dict(self.crossings.axes)
            self._known[key] = marks, axes
        return self._known[key]

    def _at(self, symbols: Mapping[str, int], params: Mapping[str, Value]) -> frozenset[Mark]:
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
        """The marks of launches in which a core runs several programs."""
        if not self.plan.capabilities.persistent_grid:
            return set()
        found = set()
        for phase in self.plan.phases:
            launches, programs = launched(self.plan.sketch, phase, host)
            if launches and phase.grid and programs > self.plan.cores(phase):
                found.add(Mark(f"a core's share of the programs of {phase.name}", AGAIN))
        return found


def is_of_text(mark: Mark) -> bool:
    """Whether a mark stems from a number in a kernel's text, not from its plan."""
    return mark.where.endswith("of its text")


def smaller(text: str, least: int = _SMALLEST_TILE) -> tuple[str, dict[int, int]]:
    """A kernel in Python with smaller tiles, and the new value of each changed number: powers of
    two above `least` that are all of the value of a name, a parameter's default or a keyword. Only
    a run can show whether the kernel is still right."""
    if (tree := parsed(text)) is None:
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
    """The literals that are the whole value of a name, a keyword or a parameter's default."""
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
    """The `Marks` of a candidate, from its plan and, if others wrote it, its kernel's text."""
    numbers = numbers_in(kernel.source, kernel.language) if kernel.foreign else ()
    crossings = TileCrossings(plan.sketch) if plan.phases else None
    return Marks(plan, {number: number for number in numbers}, crossings)


def numbers_in(text: str, language: str) -> tuple[int, ...]:
    """The integers of a kernel's text that may be tile sizes; powers of two come last."""
    found = {n for n in _integers(text, language) if _SMALLEST <= n <= _LARGEST}
    return tuple(sorted(found, key=lambda n: (n & (n - 1) > 0, -n))[:_MOST_OF_TEXT][::-1])


def _integers(text: str, language: str) -> set[int]:
    if load_language(language).syntax == "c":
        return {int(word) for word in _INTEGER.findall(_COMMENT.sub(" ", text)) if len(word) < 9}
    tree = parsed(text)
    return {
        node.value
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.Constant) and type(node.value) is int
    }


#: Sizes that are tried for every sketch, and how many of its numbers have sizes around them.
_SIZES = (2, 3, 5, 9, 17, 33, 65, 129)
_MOST_NUMBERS = 6
#: About so many rows are beside a symbol that is large, so that a maximum lies in any tile.
_ROWS = 9
#: How many sizes are looked at, and how many the task may refuse before the search ends.
_MOST_CANDIDATES = 240
_MOST_REFUSALS = 12
#: Steps towards a length that is wanted, and the largest size on the way.
_STEPS, _FARTHEST = 5, 1 << 20
#: How many steps other symbols move to suit the one in focus, and how often in a row that may fail
#: before this symbol is left alone.
_MOVES, _STUCK = 150, 8
#: The fixed cost of every case besides its own effort, in lanes.
_EVERY = 1 << 23

Sizes = dict[str, int]


@attrs.frozen
class Candidate:
    """Sizes, the marks that a run there reaches, and what it costs (`effort`)."""

    symbols: Sizes
    marks: frozenset[Mark]
    cost: int


@attrs.define
class Reaching:
    """The marks of one candidate that runs have reached, and sizes at which to reach the rest."""

    plan: Plan
    binding: Binding
    freedom: Freedom
    marks: Marks
    limits: Limits
    #: The marks that the task's own sizes reach, and for each known mark sizes that reach it.
    required: set[Mark] = attrs.field(factory=set)
    possible: dict[Mark, Sizes] = attrs.field(factory=dict)
    reached: set[Mark] = attrs.field(factory=set)
    refused: list[Sizes] = attrs.field(factory=list)
    #: Candidates that there was no time for.
    untried: list[Candidate] = attrs.field(factory=list)
    #: Sizes of cases that are right, and the sizes (`base`) beside which one symbol is large, where
    #: the task refuses small ones.
    accepted: list[Sizes] = attrs.field(factory=list)
    base: Sizes | None = None
    stuck: dict[str, int] = attrs.field(factory=dict)
    #: What was found near wanted sizes: many axes of a network ask for the same.
    near: dict[tuple[str, tuple[int, ...]], Sizes | None] = attrs.field(factory=dict)
    candidates: list[Candidate] | None = None

    def require(self, symbols: Mapping[str, int], params: Mapping[str, Value]) -> None:
        """Require the marks that one of the task's own lists of inputs reaches."""
        for mark in self.marks.at(symbols, params):
            self.required.add(mark)
            self.possible.setdefault(mark, dict(symbols))

    def ran(self, case: ShapeCase, kind: str) -> None:
        """Note the marks that a correct case has reached: none where a size is 1 that is larger in
        the task, or where rows have one value, since much cancels there (the loss of one class)."""
        small = any(
            case.symbols[name] == 1 < size
            for name, size in self.binding.symbols.items()
            if name in self.freedom.free
        )
        if not small:
            self.accepted.append(dict(case.symbols))
        if not small and kind != "structured":
            params = {**self.binding.params, **case.numbers}
            self.reached |= self.marks.at(case.symbols, params)

    @property
    def missing(self) -> set[Mark]:
        """The marks that have to be reached, and were not: those of the task's own sizes, and those
        of candidates that there was no time for. Sizes that the task refuses require nothing, nor
        do numbers of a kernel's text beyond the task's own sizes."""
        required = {mark for mark in self.required if mark.what != _FAR}
        others = {mark for one in self.untried for mark in one.marks if not is_of_text(mark)}
        return (required | others) - self.reached

    @property
    def told(self) -> list[str]:
        """The marks that were reached, in words."""
        found = {m for m in self.reached if m in self.required or not is_of_text(m)}
        return sorted(mark.text for mark in found)

    def take(self) -> Candidate | None:
        """The next candidate, which reaches most missing marks for its cost; None for none."""
        if self.candidates is None:
            self.candidates = list(self._candidates())
            for one in self.candidates:
                for mark in one.marks:
                    self.possible.setdefault(mark, one.symbols)
            self.candidates += self._scaled_own()
        if len(self.refused) >= _MOST_REFUSALS:
            return None
        missing = {*self.required, *self.possible} - self.reached
        scored = [
            (len(one.marks & missing) / (_EVERY + one.cost), -number, one)
            for number, one in enumerate(self.candidates)
            if one.marks & missing and one.symbols not in self.refused
        ]
        if not scored:
            return None
        best = max(scored, key=lambda found: found[:2])[2]
        self.candidates.remove(best)
        return best

    def refuse(self, symbols: Mapping[str, int]) -> None:
        """Note sizes that the task refuses: from now on, candidates are looked for beside sizes
        that it took."""
        self.refused.append(dict(symbols))
        if self.base is None and self.accepted:
            params = self.binding.params
            self.base = min(self.accepted, key=lambda one: effort(self.plan, one, params))
            self.candidates = None

    # ------------------------------------------------------------ candidates

    def _candidates(self) -> Iterator[Candidate]:
        """Distinct candidates within the limits that reach some mark."""
        seen: set[tuple[int, ...]] = set()
        for wanted, focus in itertools.islice(self._wished(), _MOST_CANDIDATES):
            symbols = self._runnable(wanted, focus)
            if symbols is None or tuple(symbols.values()) in seen:
                continue
            seen.add(tuple(symbols.values()))
            if (found := self._candidate(symbols)) is not None:
                yield found

    def _candidate(self, symbols: Sizes) -> Candidate | None:
        """The candidate at these sizes; None if it reaches no mark or is too large."""
        params = self.binding.params
        try:
            needed = cost_at(self.plan, symbols, params)
        except (ArithmeticError, ValueError, KeyError):
            return None
        if not self.limits.allow(needed):
            return None
        if any(symbols[name] == 1 < self.binding.symbols[name] for name in self.freedom.free):
            return None
        marks = self.marks.at(symbols, params)
        return Candidate(symbols, marks, effort(self.plan, symbols, params)) if marks else None

    def _wished(self) -> Iterator[tuple[Sizes, str]]:
        """Sizes to look at, with the symbol in focus: all symbols of one size (none in focus), then
        one symbol of any size beside small ones."""
        own, free = self.binding.symbols, self.freedom.free
        names = [name for name in own if name in free]
        pool = self._pool()
        for size in pool:
            yield {n: size if n in free else own[n] for n in own}, ""
        rest = max(2, round(_ROWS ** (1 / max(len(names) - 1, 1))))
        beside = self.base or {n: min(rest, max(own[n], 2)) if n in free else own[n] for n in own}
        for size in pool:
            for name in names:
                yield {**beside, name: size}, name
        yield from self._aimed(beside, names)

    def _aimed(self, beside: Sizes, names: list[str]) -> Iterator[tuple[Sizes, str]]:
        """Sizes of one symbol at which a tiled axis ends half a tile behind its first or second
        tile, however the length of the axis follows from the symbol."""
        params = self.binding.params
        start = self.marks.axes(self._runnable(beside, "") or beside, params)
        for where in sorted(start):
            for tiles, name in itertools.product((1, 2), names):
                symbols, size = beside, beside[name]
                for _ in range(_STEPS):
                    found = self._runnable({**symbols, name: size}, name)
                    length, width = self.marks.axes(found or {}, params).get(where, (0, 1))
                    wanted = tiles * width + width // 2 + 1
                    if found is None or size > _FARTHEST or length == 0:
                        break
                    if abs(length - wanted) <= width // 4:
                        yield found, name
                        break
                    if size > beside[name] and length <= start[where][0]:
                        break  # the axis does not follow this symbol
                    size = max(-(-found[name] * wanted // length), 1)

    def _pool(self) -> list[int]:
        """Sizes half a tile behind one tile and behind two, for all numbers that may be tile sizes:
        such a tail is large enough to show."""
        sketch = self.plan.sketch
        tiles = {int(c.value) for c in sketch.constants if c.dtype.is_integer and c.value > 1}
        numbers = Settings(sketch, dict(self.binding.params)).numbers if self.plan.phases else []
        tiles |= {
            *self.marks.numbers.values(),
            *(n for n in numbers[-_MOST_NUMBERS:] if n < 1 << 16),
        }
        found = {k * tile + tile // 2 + 1 for tile in tiles for k in (1, 2)}
        found |= {4 * tile + tile // 2 + 1 for tile in self.marks.numbers.values()}
        if self.plan.capabilities.persistent_grid:
            found |= {self.plan.cores(phase) + 1 for phase in self.plan.phases}
        return sorted({*_SIZES, *found})

    def _runnable(self, wanted: Sizes, focus: str) -> Sizes | None:
        """The nearest sizes at which the sketch may be launched; None where there are none."""
        for name, domain in self.binding.sizes.items():
            if name in self.freedom.free:
                wanted = {**wanted, name: domain.near(wanted[name])}
        key = (focus, tuple(wanted.values()))
        if key not in self.near:
            if self.stuck.get(focus, 0) >= _STUCK:
                return None
            self.near[key] = self._moved_until_runnable(wanted, focus)
        return self.near[key]

    def _moved_until_runnable(self, wanted: Sizes, focus: str) -> Sizes | None:
        sketch, params, free = self.plan.sketch, self.binding.params, self.freedom.free
        for movable in (free - {focus}, free) if focus else (free,):
            found = nearest(sketch, wanted, params, movable, least=1, steps=_MOVES)
            if found is not None and self.binding.allows(found):
                self.stuck[focus] = 0
                return found
        self.stuck[focus] = self.stuck.get(focus, 0) + 1
        return None

    def _scaled_own(self) -> list[Candidate]:
        """Candidates for required marks that no other candidate reaches: the task's own sizes, made
        as small as they can be."""
        found: list[Candidate] = []
        known = {mark for one in self.candidates or () for mark in one.marks}
        for mark in sorted(self.required - known - self.reached, key=lambda mark: mark.text):
            if not any(mark in one.marks for one in found):
                symbols = self._smallest(self.possible[mark], mark)
                found += filter(None, [self._candidate(symbols)])
        return found

    def _smallest(self, symbols: Sizes, mark: Mark) -> Sizes:
        """Smaller sizes that still reach a mark: symbol by symbol, the largest first."""
        for name in sorted(symbols, key=lambda name: -symbols[name]):
            if name not in self.freedom.free:
                continue
            smaller = ({**symbols, name: size} for size in self._pool() if size < symbols[name])
            reaching = (tried for tried in smaller if self._reaches(tried, mark))
            found: Sizes | None = next(reaching, None)
            symbols = self._halved(symbols, name, mark) if found is None else found
        return symbols

    def _halved(self, symbols: Sizes, name: str, mark: Mark) -> Sizes:
        """About the smallest size of one symbol that reaches a mark, where all larger ones do: a
        loop over blocks runs again only behind many tiles."""
        low, high = 1, symbols[name]  # at a size of 1 much cancels
        while high - low > max(high // 16, 1):
            tried = {**symbols, name: (low + high) // 2}
            if self._reaches(tried, mark):
                symbols, high = tried, tried[name]
            else:
                low = tried[name]
        return symbols

    def _reaches(self, symbols: Sizes, mark: Mark) -> bool:
        if not self.binding.allows(symbols) or not self.binding.fits(symbols):
            return False
        return mark in self.marks.at(symbols, self.binding.params)

    # ------------------------------------------------------------ in words

    def gaps(self, why: str) -> list[str]:
        """The missing marks, a phrase each, with sizes that would reach them, and `why` not."""
        found = []
        for mark in sorted(self.missing, key=lambda mark: mark.text):
            sizes = ", ".join(f"{name}={size}" for name, size in self.possible[mark].items())
            at = f" (sizes such as {sizes} would{why})" if sizes else ""
            found.append(f"{mark.text}{at}")
        return found


@attrs.define
class Clock:
    """The time in seconds that may go into reaching, and how long runs take."""

    budget: float
    started: float = attrs.field(factory=time.monotonic)
    runs: list[tuple[float, int]] = attrs.field(factory=list)

    def ran(self, seconds: float, lanes: int) -> None:
        """Note a run of `lanes` lanes that took `seconds`."""
        self.runs.append((seconds, lanes))

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.budget - (time.monotonic() - self.started)

    def allows(self, lanes: int) -> bool:
        """Whether there is time for a run of `lanes` lanes: the shortest run so far gives the fixed
        time of a run, all runs together the time of a lane."""
        least = min((seconds for seconds, _ in self.runs), default=0.0)
        spent = sum(seconds - least for seconds, _ in self.runs)
        rate = spent / max(sum(lanes for _, lanes in self.runs), 1)
        return least + rate * lanes <= self.left
