"""At which settings to run so that comparisons come out either way, also two at a time.

Settings of all magnitudes are looked at without running them; those are run at which most pairs of
outcomes are new, small ones first where they show as much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product
from math import prod

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import concrete
from sketchc.checker.crossings import DRAWN, ENDS_BEFORE, SEEN, Crossings, Outcome
from sketchc.checker.param_values import ParamValues, deciding_params, other_params
from sketchc.checker.scope import root_scope
from sketchc.checker.settings import Setting, Settings, volume
from sketchc.checker.sites import collect

#: Sizes whatever the sketch says, the largest constant whose multiples are sizes, and how many
#: numbers of the sketch (the largest ones) have sizes around them.
SIZES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 4097)
FAR = (20_011, 200_003)
LARGEST_CONSTANT = 1024
MOST_NUMBERS = 5
#: Sizes at small tile sizes, how many of those are for all symbols but one, the largest number
#: around which that one is; settings drawn there, and the largest product of the sizes of one.
SMALL_SIZES = (1, 2, 3, 5, 7)
FEW = 5
LARGEST_NUMBER = 64
SMALL_RANDOM = 16
LARGEST_VOLUME = 1000
#: Settings drawn at random, and settings at most.
RANDOM = 48
MOST = 200
#: A run is worth its time where it shows so many new pairs of outcomes of a hundred; at several
#: tile sizes, which takes longer.
WORTH = 1
SMALL_WORTH = 15
#: So many bits of a setting's volume make a run half as welcome.
LEVEL = 8


@attrs.frozen
class Candidate:
    """A setting, and what is seen there."""

    setting: Setting
    outcomes: frozenset[Outcome]


class CrossingPlan:
    """What runs saw of the comparisons on the way to some accesses, and what they may still."""

    def __init__(
        self,
        settings: Settings,
        crossings: Crossings,
        varied: Collection[ParamValues],
        small: bool = False,
    ) -> None:
        """`varied`: values of the params that decide what is accessed, beside their defaults.
        `small`: at small sizes only, since the tile sizes of the sketch are small."""
        self.settings = settings
        self.crossings = crossings
        self.seen: set[Outcome] = set()
        self.pairs: set[tuple[Outcome, Outcome]] = set()
        self.refused: list[Candidate] = []  # what took too long, or has no inputs
        self.worth = SMALL_WORTH if small else WORTH
        # Which symbols decide what is seen, and the tile sizes of the sketch.
        names = enumerate(settings.names)
        self.deciding = [place for place, name in names if name in crossings.names]
        constants = (c for c in settings.sketch.constants if c.dtype.is_integer)
        self.tiles = [int(constant.value) for constant in constants if constant.value > 1]
        sizes = self._small_sizes() if small else self._sizes()
        self.candidates = list(self._candidates(sizes, list(varied)))

    def ran(self, setting: Setting) -> None:
        """Note what a run at this setting saw: nothing, where an output has no elements."""
        host = self.settings.host_values(self.settings.sketch, setting)
        if host is not None and not self.settings.is_empty(setting):
            self.note(self.crossings.at(host, SEEN))

    def note(self, outcomes: frozenset[Outcome]) -> None:
        """Note what a run saw."""
        self.seen |= outcomes
        self.pairs.update(combinations(sorted(outcomes), 2))

    def take(self) -> Candidate | None:
        """The setting that shows most, each once; None where there are none worth a run."""
        best: tuple[float, Candidate] | None = None
        for candidate in self.candidates:
            value = self._value(candidate)
            if best is None or value > best[0]:
                best = value, candidate
        if best is None or best[0] * 100 < self.worth * len(self.pairs) / LEVEL:
            return None
        self.candidates.remove(best[1])
        return best[1]

    def _value(self, candidate: Candidate) -> float:
        new = sum(pair not in self.pairs for pair in combinations(sorted(candidate.outcomes), 2))
        needed = len(self.needs(candidate))
        size = volume(candidate.setting).bit_length()
        return (new + needed * (len(self.pairs) + 1)) / (LEVEL + size)

    def needs(self, candidate: Candidate) -> Collection[Outcome]:
        """What is seen there, no run saw, and a claim may not rest on runs without."""
        return (candidate.outcomes - self.seen) & self.crossings.needed.keys()

    def missed(self, ends: bool | None = None) -> dict[str, Setting]:
        """What a launch may see and no run saw, in words, each with such a launch. `ends`: only of
        how tiles end, or only of comparisons."""
        found: dict[str, Setting] = {}
        for candidate in sorted(
            (*self.candidates, *self.refused), key=lambda one: volume(one.setting)
        ):
            for outcome in sorted(candidate.outcomes - self.seen):
                if outcome in self.crossings.needed and ends in (None, outcome[1] == ENDS_BEFORE):
                    found.setdefault(self.crossings.needed[outcome], candidate.setting)
        return found

    # ------------------------------------------------------------ candidates

    def _candidates(
        self, drawn: Iterator[tuple[int, ...]], varied: list[ParamValues]
    ) -> Iterator[Candidate]:
        seen: set[tuple[object, ...]] = set()
        for place, sizes in enumerate(drawn):
            params = varied[place // 2 % len(varied)] if varied and place % 2 else {}
            setting = self.settings.setting(sizes, params, keep=True)
            if setting is None or setting.key in seen or self.settings.is_empty(setting):
                continue
            seen.add(setting.key)
            host = self.settings.host_values(self.settings.sketch, setting)
            if host is None or not concrete.admissible(self.settings.sketch, host):
                continue
            yield Candidate(setting, self.crossings.at(host, DRAWN))
            if len(seen) >= MOST:
                return

    def _sizes(self) -> Iterator[tuple[int, ...]]:
        """One size of any magnitude while the others are small, or give several iterations; then
        mixed ones."""
        tiles = [tile for tile in self.tiles if tile <= LARGEST_CONSTANT]
        numbers = [n for n in self.settings.numbers if n > 2][-MOST_NUMBERS:]
        pool = _around((*tiles, *numbers), SIZES)
        wide = max(tiles, default=2) + 1
        for rest, size, place in product((1, wide), (*pool, *FAR), self.deciding):
            yield self._those({place: size}, rest)
        for count in range(RANDOM):
            some = pool if count % 2 else pool[: len(pool) // 2 + 1]
            yield self._those({n: self.settings.random.choice(some) for n in self.deciding}, 1)

    def _small_sizes(self) -> Iterator[tuple[int, ...]]:
        """One size after the other from those around the tile sizes and numbers of the sketch,
        among small ones, which a run at small tile sizes can take."""
        choice, deciding = self.settings.random.choice, self.deciding
        numbers = [n for n in (*self.tiles, *self.settings.numbers) if n <= LARGEST_NUMBER]
        pool = _around(numbers, SMALL_SIZES)
        for count in range(SMALL_RANDOM * (len(deciding) > 0)):
            one = deciding[count % len(deciding)]
            some = {place: choice(pool[:FEW]) for place in deciding} | {
                one: choice(pool[FEW - 1 :])
            }
            for other in deciding:
                if other != one and prod(some.values()) > LARGEST_VOLUME:
                    some[other] = choice(pool[:2])
            yield self._those(some, 1)

    def _those(self, sizes: Mapping[int, int], rest: int) -> tuple[int, ...]:
        """Sizes of all symbols: of those that decide nothing, 1."""
        names = self.settings.names
        return tuple(
            sizes.get(place, rest if name in self.crossings.names else 1)
            for place, name in enumerate(names)
        )


def _around(numbers: Collection[int], sizes: Collection[int]) -> list[int]:
    """These sizes, and around where tiles end: one whole tile, and a lane after one or two."""
    near = {n * k + step for n in numbers for k, step in ((1, 0), (1, 1), (2, 1))}
    return sorted({*sizes, *near})


def tile_size_plan(sketch: ir.Sketch, given: ParamValues, seed: int) -> CrossingPlan:
    """The plan for a sketch at small tile sizes, of which results must not depend. `given`: params
    without default."""
    sites = collect(sketch, root_scope(sketch))
    varied = [
        params
        for params in other_params(sketch, deciding_params(sketch, sites))
        if all(abs(value) <= LARGEST_NUMBER for value in params.values())
    ]
    settings = Settings(sketch, given, seed)
    return CrossingPlan(settings, Crossings(sketch, sites, ends=True), varied, small=True)
