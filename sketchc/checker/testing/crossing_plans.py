"""The choice of settings to run so that comparisons come out either way, alone and in pairs.

Settings of all magnitudes are looked at without running them; those are run at which most pairs of
outcomes are new, small ones first where they show as much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product
from math import prod

from sketchc.base import records
from sketchc.checker.facts import (
    ParamValues,
    collect,
    computations,
    concrete,
    deciding_params,
    other_params,
    root_scope,
)
from sketchc.checker.testing.crossings import DRAWN, ENDS_BEFORE, SEEN, Crossings, Outcome
from sketchc.checker.testing.settings import Setting, Settings, volume
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value

#: Sizes whatever the sketch says, the largest constant whose multiples are sizes, and how many
#: numbers of the sketch (the largest ones) have sizes around them.
SIZES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 4097)
FAR = (20_011, 200_003)
LARGEST_CONSTANT = 1024
MOST_NUMBERS = 5
#: Sizes at small tile sizes, how many of those are for all symbols but one, the largest number
#: around which that one is; settings drawn there, and with each of the values of params, and the
#: largest product of the sizes of one.
SMALL_SIZES = (1, 2, 3, 5, 7)
FEW = 5
LARGEST_NUMBER = 64
SMALL_RANDOM = 16
SMALL_DRAWS = 3
SMALL_MIXED = 24
LARGEST_VOLUME = 1000
#: After so many sizes at which no launch has them, values of params are not tried again; and so
#: many are tried at one.
REFUSALS = 3
#: Settings drawn at random, and settings at most.
RANDOM = 48
MOST = 200
#: A run is worth its time where it shows so many new pairs of outcomes of a hundred; at several
#: tile sizes, which takes longer.
WORTH = 1
SMALL_WORTH = 15
#: The first part of an outcome that is the value of a param.
_PARAM = 0
#: So many bits of a setting's volume make a run half as welcome.
LEVEL = 8


@records.frozen
class Candidate:
    """A setting, and the outcomes of comparisons that a run there would see."""

    setting: Setting
    outcomes: frozenset[Outcome]


class CrossingPlan:
    """The outcomes of comparisons that runs saw, and candidate settings at which to see others."""

    def __init__(
        self,
        settings: Settings,
        crossings: Crossings,
        varied: Collection[ParamValues],
        small: Collection[str] | None = None,
    ) -> None:
        """`varied`: values of the params that decide what is accessed, beside their defaults.
        `small`: with it, only small sizes are chosen, since the tile sizes of the sketch are small;
        the params that it names may leave their defaults where a varied one needs it."""
        self.settings = settings
        self.crossings = crossings
        self.seen: set[Outcome] = set()
        self.pairs: set[tuple[Outcome, Outcome]] = set()
        self.refused: list[Candidate] = []  # took too long, or have no inputs
        self.small = small is not None
        self.deciding_params = small or ()
        self.worth = SMALL_WORTH if self.small else WORTH
        # The places of symbols that decide outcomes, and the tile sizes of the sketch.
        names = enumerate(settings.names)
        self.deciding = [place for place, name in names if name in crossings.names]
        constants = (c for c in settings.sketch.constants if c.dtype.is_integer)
        self.tiles = [int(constant.value) for constant in constants if constant.value > 1]
        sizes = self._small_sizes() if self.small else self._sizes()
        self.candidates = list(self._candidates(sizes, list(varied)))

    def ran(self, setting: Setting) -> None:
        """Record what a run at this setting saw: nothing, where an output has no elements."""
        host = self.settings.host_values(self.settings.sketch, setting)
        if host is not None and not self.settings.is_empty(setting):
            self.note(self._seen_at(host, SEEN))

    def _seen_at(self, host: Mapping[str, Value], draws: int) -> frozenset[Outcome]:
        """The outcomes that a run with these values sees, at small sizes also changed params."""
        found = self.crossings.at(host, draws)
        if not self.small:
            return found
        usual = self.settings.params
        params = [(n, host[n]) for n in self.deciding_params if host[n] != usual[n].default]
        return found | {(_PARAM, f"{name} = {value}") for name, value in params}

    def note(self, outcomes: frozenset[Outcome]) -> None:
        """Record the outcomes that a run saw, and their pairs."""
        self.seen |= outcomes
        self.pairs.update(combinations(sorted(outcomes), 2))

    def take(self) -> Candidate | None:
        """The candidate that shows most, which is removed; None where none is worth a run."""
        best = max(self.candidates, key=self._value, default=None)
        if best is None or self._value(best) * 100 < self.worth * len(self.pairs) / LEVEL:
            return None
        self.candidates.remove(best)
        return best

    def _value(self, candidate: Candidate) -> float:
        unseen = set(combinations(sorted(candidate.outcomes), 2)) - self.pairs
        params = sum(one[0] == other[0] == _PARAM for one, other in unseen)
        telling = len(self.needs(candidate)) + params / 2
        size = volume(candidate.setting.symbols.values()).bit_length()
        return (len(unseen) + telling * (len(self.pairs) + 1)) / (LEVEL + size)

    def needs(self, candidate: Candidate) -> Collection[Outcome]:
        """The outcomes of a candidate that no run saw, and that a claim needs to rest on runs."""
        return (candidate.outcomes - self.seen) & self.crossings.needed.keys()

    def missed(self, ends: bool | None = None) -> dict[str, Setting]:
        """The outcomes, as text, that a claim needs and no run saw, each with a setting at which a
        launch sees it. `ends`: True for the ends of tiles alone, False for comparisons alone."""
        found: dict[str, Setting] = {}
        for candidate in sorted(
            (*self.candidates, *self.refused), key=lambda one: volume(one.setting.symbols.values())
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
        for setting, host in self._drawn(drawn, varied):
            if setting.key not in seen:
                seen.add(setting.key)
                yield Candidate(setting, self._seen_at(host, DRAWN))
            if len(seen) >= MOST:
                return

    def _drawn(
        self, drawn: Iterator[tuple[int, ...]], varied: list[ParamValues]
    ) -> Iterator[tuple[Setting, dict[str, Value]]]:
        """Settings that a launch accepts, one for each of the sizes drawn, every second one with
        the next values of params that are accepted there; in the end, where sizes are small, those
        of `_few`."""
        turns = [(params, REFUSALS) for params in varied]
        for place, sizes in enumerate(drawn):
            found = self._admitted(sizes, {})
            for params, refusals in turns[:REFUSALS] if place % 2 else ():
                del turns[0]
                if other := self._admitted(sizes, params):
                    turns.append((params, refusals))
                    found = other
                    break
                if refusals > 1:
                    turns.append((params, refusals - 1))
            if found:
                yield found
        yield from self._few(varied) if self.small else ()

    def _few(self, varied: list[ParamValues]) -> Iterator[tuple[Setting, dict[str, Value]]]:
        """Settings of few elements, with each of the values of params that some launch takes, and
        with several of them at a time."""
        taken = []
        for params in varied * 2:
            if found := self._few_at(params):
                taken += [params] if len(params) == 1 else []
                yield found
        for _ in range(SMALL_MIXED if len(taken) > 1 else 0):
            some = self.settings.random.sample(taken, len(taken) // 2)
            mixed = {name: value for params in some for name, value in params.items()}
            if found := self._few_at(mixed):
                yield found

    def _few_at(self, params: ParamValues) -> tuple[Setting, dict[str, Value]] | None:
        """A setting of few elements with these params; outputs may be empty where sizes are 1."""
        for _ in range(SMALL_DRAWS):
            drawn = {n: self.settings.random.choice(SMALL_SIZES[:3]) for n in self.deciding}
            if found := self._admitted(self._those(drawn, 1), params):
                return found
        return None

    def _admitted(
        self, sizes: tuple[int, ...], params: ParamValues
    ) -> tuple[Setting, dict[str, Value]] | None:
        """A setting and its host scalars; None where a launch refuses it, or an output is empty."""
        for others in ((), self.deciding_params):
            setting = self.settings.setting(sizes, params, keep=True, others=others)
            if setting is None or self.settings.is_empty(setting):
                continue
            host = self.settings.host_values(self.settings.sketch, setting)
            if host is not None and concrete.admissible(self.settings.sketch, host):
                return setting, host
        return None

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
        """Sizes of all symbols: `sizes` by place, else `rest`; 1 for those that decide nothing."""
        names = self.settings.names
        return tuple(
            sizes.get(place, rest if name in self.crossings.names else 1)
            for place, name in enumerate(names)
        )


def _around(numbers: Collection[int], sizes: Collection[int]) -> list[int]:
    """`sizes` and those around the ends of tiles: one whole tile, a lane after one or two."""
    near = {n * k + step for n in numbers for k, step in ((1, 0), (1, 1), (2, 1))}
    return sorted({*sizes, *near})


def tile_size_plan(sketch: ir.Sketch, given: ParamValues, seed: int) -> CrossingPlan:
    """The plan for a sketch at small tile sizes, on which results must not depend. `given`: params
    without default."""
    root = root_scope(sketch)
    sites, computed = collect(sketch, root), computations(sketch, root)
    deciding = deciding_params(sketch, (*sites, *computed))
    varied = [
        params
        for params in other_params(sketch, deciding)
        if all(abs(value) <= LARGEST_NUMBER for value in params.values())
    ]
    crossings = Crossings(sketch, sites, ends=True, computed=computed)
    return CrossingPlan(Settings(sketch, given, seed), crossings, varied, small=deciding)
