"""The self-check of `check` (R6b): execute a sketch in ways that must not matter.

A sketch may satisfy every proof and still be wrong, because a tile size took part in the meaning: a
softmax over each block instead of each row, say. So each sketch is interpreted at several
assignments of its tunable constants (its own, ones, values that divide nothing, values larger than
every size), on small ragged sizes and signed inputs of mixed scale, with the parallel loops
shuffled, void lanes and outputs poisoned, and shadow memory on. All results must agree. Floats
stay in float64 throughout, so that what is compared differs by reassociation only.

Runs that agree show something only of what they reached. So sizes, params and optional tensors are
chosen such that every loop that works in order, or over tiles, runs at least twice, and both sides
of every branch are taken (`testing/goals.py`). Results that are all NaN or Inf, and runs in which
an operation had no value or the inputs broke a promise, count for nothing, and are tried again on
other inputs. What is not reached leaves the claim unproved.

Plain `check` does this for tile sizes alone, at few sizes; `check --execute` at more of them, and
varies constants of one fixed value too. Where extents are numbers, so that no small sizes can be
chosen, the tile sizes tried grow until the execution is short enough.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, cycle
from typing import TYPE_CHECKING

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Severity,
    Source,
    UsageError,
    error,
    has_errors,
    once,
    warning,
)
from sketchc.checker.claims.proofs import with_symbols
from sketchc.checker.elaboration.elaborate import tuning_points
from sketchc.checker.facts import severity
from sketchc.checker.testing.crossing_plans import CrossingPlan, tile_size_plan
from sketchc.checker.testing.goals import Planner, sizes_text, told, told_missed
from sketchc.checker.testing.settings import Setting, Settings, rehearse, sample_params
from sketchc.interpreter.api import Options, Result, interpret
from sketchc.interpreter.inputs import (
    DRAWINGS,
    MOST_RUNS,
    indices_exist,
    keeping_inputs,
    random_inputs,
)
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.interpreter.tiles import Array
from sketchc.interpreter.violations import Violation
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import constants_of
from sketchc.ir.show import assignments, element_text
from sketchc.ir.walk import names
from sketchc.launch.conditions import Condition, launch_steps
from sketchc.parsing import syntax

if TYPE_CHECKING:
    from sketchc.checker.check import CheckedSketch

Scalar = int | float | bool
Shapes = Mapping[str, tuple[int, ...]]

#: Tile sizes that divide nothing, and ones larger than every small size.
ONES = (1,)
RAGGED_TILES = (3, 5, 4, 2, 7, 6, 9, 8)
#: Tried where the checker refuses ragged tile sizes, as it does where conditions tie tile sizes to
#: each other: each a divisor of the next, or the other way round, or all equal.
TIED_TILES = ((2, 4, 8, 16, 32, 64), (16, 8, 4, 2), (3,))
LARGE_TILES = (11, 9, 13, 16, 10, 14, 12, 15)
#: Factors of these tile sizes, for where the checker refuses them or a run would take long.
SCALES = (1, 4, 16, 64, 256)
#: How many times the work of the smallest run a larger run may take; and the least ratio by which
#: a larger tile must lessen the work.
ROOM, NEARLY = 16, 1.1
#: The error of a sum of some terms in float64, relative to the largest.
ROUNDING = 64 * 2.0**-52
#: Violations that depend on the random data, not on the sketch.
DATA_DEPENDENT = ("arithmetic", "conversion", "index-width")
#: A run whose results are finite in this part at least needs no tamer inputs.
ENOUGH_FINITE = 0.5
#: Runs in all that a search for inputs which keep a promise may take.
MOST_TRIALS = 1000
MEMORY_LIMIT = 256 * 2**20
#: Runs at which comparisons come out in new ways, and settings tried for them.
CROSSING_RUNS = 3
CROSSING_TRIED = 8


@records.frozen
class Variant:
    """The sketch at one assignment of its constants.

    `strict`: the assignment changes only tile sizes that tuning may change, so results must not
    differ. Otherwise it changes constants of one fixed value that also shape tiles: these may be
    part of the meaning (the size of a group), so a difference is a warning.
    """

    sketch: ir.Sketch
    names: tuple[str, ...]
    strict: bool = True

    @property
    def title(self) -> str:
        """The assigned constants as text: `TM = 3, TN = 5`."""
        return assignments(self._chosen()) or "the sketch as it stands"

    def _chosen(self) -> dict[str, Scalar]:
        return {c.name: c.value for c in self.sketch.constants if c.name in self.names}

    def volume(self) -> float:
        """The product of the constants that are assigned."""
        return math.prod(self._chosen().values())

    def alike(self, names: Collection[str]) -> int:
        """How many of the constants `names` are 1 or equal to an earlier one."""
        values = [c.value for c in self.sketch.constants if c.name in names]
        return len(values) - len({value for value in values if value != 1})


@records.frozen
class Effort:
    """How much is executed: the number of `settings`, beside those aimed at goals not reached, and
    the work of one run and of all (in lanes, some 20 ns each). `fixed`: constants of one value are
    varied, too."""

    settings: int
    run_limit: int
    limit: int
    fixed: bool


class Execution:
    """Executes one sketch and its variants, and holds what the runs found."""

    def __init__(
        self,
        base: ir.Sketch,
        tree: syntax.Sketch,
        constants: dict[str, Scalar],
        seed: int,
        effort: Effort,
        known: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.tree = tree
        self.constants = constants
        self.seed = seed
        self.effort = effort
        self.left = effort.limit
        self.trials = MOST_TRIALS
        self.known = known
        self.generator = np.random.default_rng(seed)
        self.executed: list[Setting] = []  # settings at which all runs agreed
        self.compared: dict[str, None] = {}  # titles of the variants that took part
        self.blank = 0  # settings at which nothing was shown
        self.rounding = 0.0  # the error of sums of the inputs of the last runs
        self.dear = False  # whether something was left out because it takes too much work
        self.ragged: list[Setting] = []  # where `telling` took part
        self.plan: CrossingPlan | None = None
        self.settings = Settings(base, sample_params(base), seed)
        free = [c for c in base.constants if c.dtype.is_integer and c.name not in constants]
        self.tunable = tuple(constant.name for constant in free if constant.tunable)
        shaping = {n for tile in base.tiles for extent in tile.extents for n in names(extent)}
        self.fixed: tuple[str, ...] = ()
        if effort.fixed:
            self.fixed = tuple(c.name for c in free if not c.tunable and c.name in shaping)
        self.planner = self._planner(base, (base,))
        self.variants = list(self._variants(base))
        self.planner = self._planner(base, [variant.sketch for variant in self.variants])
        self.planner.telling = _telling(self.variants, self.tunable)

    def _planner(self, base: ir.Sketch, sketches: Sequence[ir.Sketch]) -> Planner:
        names = frozenset(self.tunable)
        renamed = with_symbols(base, names)
        return Planner(sketches, renamed, names, self.settings, self.effort.run_limit)

    @property
    def short_of_work(self) -> bool:
        """Whether more work might show more."""
        return self.dear or self.planner.dear

    @property
    def varied(self) -> bool:
        """Whether tile sizes that tuning may change are varied."""
        return len(self.variants) > 1 and self.variants[1].strict

    @property
    def telling(self) -> Variant:
        """The variant with the smallest tile sizes among the telling ones (see `_telling`), so that
        small tensors already cross tiles. There is one where tile sizes are varied."""
        telling = zip(self.variants, self.planner.telling, strict=True)
        return min((one for one, tells in telling if tells), key=Variant.volume)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The errors and warnings of the first setting that shows any."""
        if self.varied:
            self.planner.aim_at_all()
        plain = self.planner.plain()
        # Aiming at what plain settings miss needs a share of the work; plain ones get the rest.
        first, rest = self._some(plain, self.effort.limit // 2), self._some(plain, 0)
        for setting in chain(first, self.planner.aimed(), rest):
            if found := self._execute(setting):
                return found
        return self._cross() if self.varied and self.executed else ()

    def _some(self, plain: Iterator[Setting], left: int) -> Iterator[Setting]:
        """Plain settings until enough were executed, or no more work than `left` remains."""
        while len(self.executed) < self.effort.settings and self.left > left:
            setting = next(plain, None)
            if setting is None:
                return
            yield setting

    def _cross(self) -> tuple[Diagnostic, ...]:
        """The errors and warnings of further settings, at which comparisons come out otherwise than
        in all runs so far, or tiles end elsewhere, with the tile sizes of `telling`."""
        plan = self.plan = tile_size_plan(self.telling.sketch, self.settings.given, self.seed)
        for setting in self.ragged:
            plan.ran(setting)
        end = len(self.ragged) + CROSSING_RUNS
        for _ in range(CROSSING_TRIED):
            candidate = plan.take()
            if candidate is None or len(self.ragged) >= end:
                break
            count = len(self.ragged)
            if found := self._execute(candidate.setting):
                return found
            if len(self.ragged) > count:
                plan.note(candidate.outcomes)
            else:
                plan.refused.append(candidate)
        return ()

    def uncrossed(self, ends: bool) -> tuple[str, ...]:
        """The outcomes of comparisons (`ends`: the ends of tiles) that some launch has, and no run
        had."""
        return () if self.plan is None else tuple(self.plan.missed(ends))

    # ------------------------------------------------------------ variants

    def _variants(self, base: ir.Sketch) -> Iterator[Variant]:
        """The sketch as it stands, then at ones, ragged and large values of its tile sizes; where
        the checker refuses such values (a condition on constants, say), at its tuning points."""
        yield Variant(base, (*self.tunable, *self.fixed))
        if not self.tunable and not self.fixed:
            return
        probe = next(self.planner.plain(), None)
        for varied, strict in ((self.tunable, True), (self.fixed, False)):
            found = []
            for values in (ONES, RAGGED_TILES, LARGE_TILES) if varied else ():
                other = self._scaled(varied, values, probe)
                if other is None and values is RAGGED_TILES and len(varied) > 1:
                    tied = (self._at(varied, some) for some in TIED_TILES)
                    other = next((one for one in tied if one is not None), None)
                if other is not None and other not in found:
                    found.append(other)
            if strict and len(found) < 2:
                for point in tuning_points(self.tree, self.constants)[: 3 - len(found)]:
                    other = self._checked(point)
                    if other is not None and other not in found:
                        found.append(other)
            yield from (Variant(other, varied, strict) for other in found)

    def _scaled(
        self, names: tuple[str, ...], values: tuple[int, ...], probe: Setting | None
    ) -> ir.Sketch | None:
        """The sketch at these tile sizes, or at multiples of them that the checker accepts and that
        run in short time; where possible, only those that make a run long are multiplied."""
        own = [value for _, value in zip(names, cycle(values), strict=False)]
        if probe is not None:
            other = self._quick(names, self._grown(names, own, values, probe), probe)
            if other is not None:
                return other
        for scale in SCALES:
            other = self._quick(names, [_scaled(value, scale, values) for value in own], probe)
            if other is not None:
                return other
        return None

    def _grown(
        self, names: tuple[str, ...], own: list[int], values: tuple[int, ...], probe: Setting
    ) -> list[int]:
        """The tile sizes `own`, multiplied step by step, that one first which saves the most work,
        until there is room for runs at larger sizes, or nothing saves much."""

        def sizes(steps: Sequence[int]) -> list[int]:
            return [_scaled(n, SCALES[k], values) for n, k in zip(own, steps, strict=True)]

        def work(steps: Sequence[int]) -> float:
            chosen = dict(zip(names, sizes(steps), strict=True))
            found = self._work(chosen, probe, ROOM * self.effort.run_limit)
            return math.inf if found is None else found

        steps = (0,) * len(names)
        taken = work(steps)
        while taken * ROOM > self.effort.run_limit and max(steps) + 1 < len(SCALES):
            longer = [
                tuple(k + (place == one) for place, k in enumerate(steps))
                for one in range(len(names))
            ]
            works = {some: work(some) for some in longer}
            best = min(works, key=lambda some: works[some])
            if works[best] == math.inf:
                best = tuple(k + 1 for k in steps)
                works[best] = work(best)
            elif works[best] * NEARLY > taken:
                break
            steps, taken = best, works[best]
        return sizes(steps)

    def _quick(
        self, names: tuple[str, ...], values: Sequence[int], probe: Setting | None
    ) -> ir.Sketch | None:
        """The sketch at these tile sizes, if a run takes short time and the checker accepts it."""
        chosen, limit = dict(zip(names, values, strict=True)), self.effort.run_limit
        if probe is not None and self._work(chosen, probe, limit) is None:
            self.dear = True
            return None
        return self._at(names, values)

    def _work(self, chosen: Mapping[str, int], setting: Setting, limit: int) -> int | None:
        """The work of a run at these tile sizes, 0 where a launch refuses them; None for more than
        `limit`."""
        base = self.settings.sketch
        constants = tuple(
            records.evolve(c, value=chosen[c.name]) if c.name in chosen else c
            for c in base.constants
        )
        sketch = records.evolve(base, constants=constants)
        values = self.settings.host_values(sketch, setting)
        if values is None:
            return 0
        counted = rehearse(sketch, values, limit)
        return None if counted is None else counted.total

    def _at(self, names: tuple[str, ...], values: Sequence[int]) -> ir.Sketch | None:
        """The sketch with these constants at the values in turn, if the checker accepts it."""
        return self._checked(dict(zip(names, cycle(values), strict=False)))

    def _checked(self, chosen: Mapping[str, Scalar]) -> ir.Sketch | None:
        """The sketch with these values of constants, if the checker accepts it."""
        from sketchc.checker.check import check_sketch

        constants = {**self.constants, **chosen}
        other, found = check_sketch(self.tree, constants, allow_unproved=True, known=self.known)
        if other is None or has_errors(found) or not _launches(other.sketch):
            return None
        return other.sketch

    # ------------------------------------------------------------ execution

    def _execute(self, setting: Setting) -> tuple[Diagnostic, ...]:
        """Run all variants that are short enough here, compare them, and note what they reached."""
        base = self.variants[0].sketch
        try:
            values = bind_values(base, setting.symbols, setting.params)
            shapes = tensor_shapes(base, values, MEMORY_LIMIT)
        except (DiagnosticError, UsageError):
            return ()
        if not indices_exist(base, shapes, setting.params):
            return ()
        works = self.planner.rehearsed(setting)
        fitting = [v for v, work in zip(self.variants, works, strict=True) if work is not None]
        cost = sum(work.total for work in works if work is not None)
        if len(fitting) < min(2, len(self.variants)) or works[0] is None or cost > self.left:
            self.dear |= cost > self.left
            return ()
        self.left -= cost
        try:
            runs = self._runs(fitting, setting, shapes, works[0].total)
        except DiagnosticError as error:
            return error.diagnostics
        found = once((v.title, item) for v, run in runs for item in _broken(v, run))
        whole = [(variant, run) for variant, run in runs if not run.violations]
        if not found and len(whole) < min(2, len(self.variants)):
            self.blank += 1
            return ()
        found = found or tuple(_differences(whole, self.rounding))
        if not found:
            self._note(setting, whole)
        return found

    def _note(self, setting: Setting, runs: list[tuple[Variant, Result]]) -> None:
        """Record what runs that agree have reached."""
        finite = _finite(runs[0][1])
        if finite == 0.0:
            self.blank += 1
            return
        self.executed.append(setting)
        self.compared |= dict.fromkeys(variant.title for variant, _ in runs)
        if finite is not None:  # some result is not empty
            reached = {id(variant): run.reached for variant, run in runs if variant.strict}
            self.planner.note([reached.get(id(variant)) for variant in self.variants])
            if self.varied and id(self.telling) in reached:
                self.ragged.append(setting)

    def _runs(
        self, variants: list[Variant], setting: Setting, shapes: Shapes, work: int
    ) -> list[tuple[Variant, Result]]:
        """Every variant executed on the same inputs, each in its own order and with its own poison;
        none where no inputs are found that keep what the sketch takes for granted of them.

        A variant whose launch conditions do not hold at these sizes is left out. `work` is that of
        one run of the first.
        """
        best: tuple[float, dict[str, Array], Result] | None = None
        broken: dict[str, Array] | None = None
        for drawing in DRAWINGS:
            generator, params = self.generator, setting.params
            arrays = random_inputs(variants[0].sketch, shapes, generator, params, drawing)
            arrays = {name: array for name, array in arrays.items() if name not in setting.absent}
            result = _run(variants[0], 0, arrays, setting, self.seed)
            if result is None:
                return []
            if result.violations:
                if all(map(_of_the_data, result.violations)):
                    if any(violation.promised for violation in result.violations):
                        broken = arrays
                    continue
                return [(variants[0], result)]
            finite = _finite(result)
            score = 1.0 if finite is None else finite
            if best is None or score > best[0]:
                best = (score, arrays, result)
            if score >= ENOUGH_FINITE:
                break
        if best is not None:
            _, arrays, result = best
        else:
            kept = None if broken is None else self._kept(variants[0], broken, setting, work)
            if kept is None:
                return []
            arrays, result = kept
        runs = [(variants[0], result)]
        self.rounding = ROUNDING * _magnitude(arrays.values())
        for number, variant in enumerate(variants[1:], 1):
            other = _run(variant, number, arrays, setting, self.seed)
            if other is not None:
                runs.append((variant, other))
        return runs

    def _kept(
        self, variant: Variant, arrays: dict[str, Array], setting: Setting, work: int
    ) -> tuple[dict[str, Array], Result] | None:
        """Inputs found by trial that keep what stores promise, with the run on them."""

        def trial(inputs: Mapping[str, Array]) -> Result | None:
            self.trials -= 1
            self.left -= work
            with suppress(DiagnosticError):
                return _run(variant, 0, inputs, setting, self.seed, places=True)
            return None

        host = self.settings.host_values(variant.sketch, setting) or {}
        numbers = [value for value in host.values() if isinstance(value, int)]
        most = min(MOST_RUNS, self.trials, self.left // max(1, work))
        kept = keeping_inputs(variant.sketch, arrays, trial, numbers, self.generator, most)
        if kept is None:
            return None
        result = _run(variant, 0, kept, setting, self.seed)
        if result is None or any(map(_of_the_data, result.violations)):
            return None
        return kept, result


def _scaled(value: int, scale: int, values: Sequence[int]) -> int:
    """A multiple of a tile size; 1 is added to it where the tile size is to divide nothing."""
    return value * scale + int(scale > 1 and values != ONES)


def _launches(sketch: ir.Sketch) -> bool:
    """Whether no condition refuses these values of the constants, whatever the sizes: of conditions
    on constants alone, `launch_steps` has those that do not hold."""
    own = constants_of(sketch).keys()
    steps = launch_steps(sketch)
    return not any(isinstance(step, Condition) and names(step.holds) <= own for step in steps)


def _telling(variants: Sequence[Variant], tunable: Collection[str]) -> list[bool]:
    """Which variants have tile sizes that differ from one another and from 1; where none has, as
    with tile sizes that a condition ties, the variants that come nearest."""
    alike = [variant.alike(tunable) for variant in variants]
    return [
        variant.strict and count == min(alike)
        for variant, count in zip(variants, alike, strict=True)
    ]


def _run(
    variant: Variant,
    number: int,
    arrays: Mapping[str, Array],
    setting: Setting,
    seed: int,
    places: bool = False,
) -> Result | None:
    """One run of a variant, its order and poison by `number`; None where a launch refuses it."""
    options = Options(
        collect=True,
        check_domains=True,
        shuffle=None if places else seed + number,
        places=places,
        poison=math.nan if number % 2 == 0 else 1e30,
        padding=0 if number < 2 else 3,
        rounding=False,
        memory_limit=MEMORY_LIMIT,
    )
    try:
        return interpret(variant.sketch, arrays, setting.symbols, setting.params, options)
    except UsageError:
        return None
    except DiagnosticError as error:
        if any(diagnostic.code != "SK0801" for diagnostic in error.diagnostics):
            raise
        return None


def _of_the_data(violation: Violation) -> bool:
    """Whether a violation is a property of the inputs alone."""
    return violation.promised or violation.kind in DATA_DEPENDENT


def _finite(result: Result) -> float | None:
    """The fraction of elements that are neither NaN nor infinite, in the output with the smallest
    one; None where all outputs are empty."""
    parts = [float(np.isfinite(a).mean()) for a in result.outputs.values() if a.size]
    return min(parts, default=None)


def _broken(variant: Variant, result: Result) -> Iterator[Diagnostic]:
    for violation in result.violations if variant.strict else ():
        if violation.kind not in DATA_DEPENDENT:
            yield violation.diagnostic(result.symbols)


def _differences(runs: list[tuple[Variant, Result]], rounding: float) -> Iterator[Diagnostic]:
    """The first output element at which two variants disagree by more than `rounding`, as an
    error."""
    for variant, result in runs[1:]:
        reference, expected = runs[0]
        for name, array in result.outputs.items():
            if expected.outputs[name].shape != array.shape:
                continue  # a constant that is part of the meaning, as the K of a top-k is
            element = first_difference(expected.outputs[name], array, rounding)
            if element is None:
                continue
            place = element_text(name, element)
            notes = (
                f"{place} is {_show(expected.outputs[name][element])} with {reference.title}",
                f"{place} is {_show(array[element])} with {variant.title}",
                f"executed with {assignments(result.symbols)}",
            )
            yield _dependence(variant, notes)
            return


def _dependence(variant: Variant, notes: tuple[str, ...]) -> Diagnostic:
    names = ", ".join(variant.names)
    span = next(c.span for c in variant.sketch.constants if c.name in variant.names)
    if variant.strict:
        return error(
            span,
            "SK0809",
            f"the results of {variant.sketch.name} depend on its tile sizes ({names})",
            label="tuning may change it, so results must not depend on it",
            notes=notes,
            help="carry what spans tiles (a maximum, a sum) from one tile to the next, or give "
            "the tile the whole axis",
        )
    return warning(
        span,
        "SK0809",
        f"the results of {variant.sketch.name} depend on the value of {names}",
        label="shapes tiles and results",
        notes=notes,
        help="right if its value is part of the meaning, as the size of a group is; a tile size "
        "must not change results",
    )


def _show(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _magnitude(arrays: Iterable[Array]) -> float:
    """The largest of 1 and the magnitudes of finite elements."""
    finite = (np.abs(a[np.isfinite(a)].astype(np.float64)) for a in arrays)
    return max((float(part.max(initial=1.0)) for part in finite), default=1.0)


def first_difference(
    expected: Array, actual: Array, rounding: float = 0.0
) -> tuple[int, ...] | None:
    """The first element at which two results differ by more than reassociation in float64:
    relative to the largest one, or as much as sums of the inputs are off (`rounding`), where these
    cancel and nothing but their errors is left."""
    if expected.dtype.kind != "f":
        different = expected != actual
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 0.0
        close = np.isclose(
            actual, expected, rtol=1e-6, atol=max(1e-9 * scale, rounding), equal_nan=True
        )
        different = np.logical_not(close)
    found = np.argwhere(different)
    return tuple(int(index) for index in found[0]) if len(found) else None


#: The claim of R6b.
CLAIM = "tile-size"
#: The code of the diagnostic for a claim of R6b that runs leave open.
TILE_SIZES_OPEN = "SK0810"

THOROUGH = Effort(settings=10, run_limit=100_000_000, limit=1_000_000_000, fixed=True)
QUICK = Effort(settings=4, run_limit=5_000_000, limit=40_000_000, fixed=False)
#: Where the work that quick runs may take leaves something unreached: a window makes the smallest
#: sizes dear, and more so beside an axis of many elements whose extent is a number.
PATIENT = Effort(settings=4, run_limit=40_000_000, limit=320_000_000, fixed=False)
DETERMINED = Effort(settings=2, run_limit=400_000_000, limit=3_000_000_000, fixed=False)


def self_check(
    source: Source, constants: Mapping[str, Scalar] | None = None, seed: int = 0
) -> tuple[Diagnostic, ...]:
    """Execute every sketch of `source` that passes the checker; what is found wrong, as errors.

    `constants` binds constexprs as `check` does; those are not varied. A text that does not parse,
    or a sketch that the checker refuses, gives nothing here: `check` reports it.
    """
    from sketchc.parsing.parser import parse

    tree, _ = parse(source)
    if tree is None:
        return ()
    found: list[Diagnostic] = []
    for sketch in tree.sketches:
        more = tile_size_verdict(sketch, constants, seed, thorough=True)[1]
        found.extend(
            each for each in more if not (sketch.composed and each.code == TILE_SIZES_OPEN)
        )
    return tuple(dict.fromkeys(found))


def tile_size_verdict(
    tree: syntax.Sketch,
    constants: Mapping[str, Scalar] | None = None,
    seed: int = 0,
    thorough: bool = False,
    checked: CheckedSketch | None = None,
    allow_unproved: bool = False,
) -> tuple[ir.Proof | None, tuple[Diagnostic, ...]]:
    """Whether results depend on tile sizes, as a verdict; None for a sketch without tile sizes that
    tuning may change, or one that the checker refuses. `thorough`: with all that `self_check`
    reports of it. `checked`: what the checker made of it at these constants, where it accepted it
    already."""
    from sketchc.checker.check import check_sketch, tested_claims

    bound = dict(constants or {})
    if checked is None:
        checked, errors = check_sketch(tree, bound, allow_unproved)
        if checked is None or has_errors(errors):
            return None, ()
    base, known = checked.sketch, tested_claims(checked.proofs)
    more = (THOROUGH, records.evolve(DETERMINED, fixed=True))
    for effort in more if thorough else (QUICK, PATIENT, DETERMINED):
        execution = Execution(base, tree, bound, seed, effort, known)
        if not execution.tunable and not thorough:
            return None, ()
        found = execution.diagnostics()
        open_still = execution.tunable and not found and _open(execution)
        if not open_still or not execution.short_of_work:
            break
    if not execution.tunable:
        if not found and not execution.executed:
            found = (_not_executed(base),)
        return None, found
    return _judged(base, execution, found, allow_unproved)


def _judged(
    base: ir.Sketch, execution: Execution, found: tuple[Diagnostic, ...], allow_unproved: bool
) -> tuple[ir.Proof, tuple[Diagnostic, ...]]:
    """The verdict on the tile sizes of a sketch, with what is to be reported."""
    names = ", ".join(execution.tunable)
    constants = {constant.name: constant for constant in base.constants}
    if has_errors(found):
        worst = next(item for item in found if item.severity is Severity.ERROR)
        tier, detail = ir.Tier.REFUTED, worst.message
    elif not execution.varied and all(
        {*constants[name].choices} == {constants[name].value} for name in execution.tunable
    ):
        tier, detail = ir.Tier.PROVED, "there is no other value"
    elif reason := _open(execution):
        tier = ir.Tier.UNPROVED
        detail = f"{reason}; {_shown(execution)}" if execution.executed else reason
        found = (*found, _unproved(base, execution, names, reason, allow_unproved))
    else:
        tier, detail = ir.Tier.TESTED, _shown(execution) + _left_out(execution)
    return ir.Proof(CLAIM, names, tier, detail, span=base.span), found


_BLANK = "the results were NaN or Inf, an operation had no value, or a promise of inputs was broken"


def _open(execution: Execution) -> str:
    """Why runs show nothing, or not enough; empty where they show all they should."""
    if not execution.varied:
        return "the checker refuses the sketch at all other tile sizes tried"
    blank = f"at {execution.blank} settings {_BLANK}, on all inputs drawn"
    if not execution.executed:
        if execution.blank:
            return blank
        return "was not executed: no sizes were found that its conditions allow and a run can take"
    ends = ", ".join(execution.uncrossed(ends=True))
    missed = (told_missed(execution.planner.missed), f"no run reached {ends}" if ends else "")
    if not any(missed):
        return ""
    return "; ".join(filter(None, (*missed, blank if execution.blank else "")))


def _shown(execution: Execution) -> str:
    """The text that says what the runs show."""
    count = len(execution.executed)
    times = "once" if count == 1 else f"{count} times"
    sizes = sizes_text(execution.executed)
    others = _others(execution)
    detail = f"results agree {times}"
    detail += f" at {sizes}" if sizes else ""
    detail += f" and {others}" if others else ""
    detail += f", with {' | '.join(execution.compared)}"
    loops = execution.planner.loops_told()
    return f"{detail}; {loops}" if loops else detail


def _left_out(execution: Execution) -> str:
    """The text that says what the runs did not reach, or not in full."""
    planner = execution.planner
    never = planner.goals
    alone = [goal for goal in planner.wanted if goal not in never]
    text = f"; not reached: {told(never)}" if never else ""
    if sides := ", ".join(f"`{side}`" for side in execution.uncrossed(ends=False)):
        text += f"; not reached with {execution.telling.title}: {sides}"
    return text + (f"; only where a loop around it ran once: {told(alone)}" if alone else "")


def _others(execution: Execution) -> str:
    """The text that lists the params at other values, and the optional tensors that were absent."""
    params = execution.settings.params.values()
    default: dict[str, Scalar] = {p.name: p.default for p in params if p.default is not None}
    varied = {name for setting in execution.executed for name in setting.params}
    values: dict[str, dict[Scalar, None]] = {name: {} for name in sorted(varied)}
    for setting in execution.executed:
        for name, seen in values.items():
            seen[{**default, **setting.params}[name]] = None
    told_params = [f"{name} = {', '.join(map(str, some))}" for name, some in values.items()]
    absent = sorted({name for setting in execution.executed for name in setting.absent})
    told_params += [f"without {name}" for name in absent]
    return "; ".join(told_params)


def _unproved(
    base: ir.Sketch, execution: Execution, names: str, reason: str, allow_unproved: bool
) -> Diagnostic:
    missed = execution.planner.missed
    span, label = base.span, "not shown by any run"
    if not execution.executed and base.requires:
        span = base.requires[0].span
    elif missed:
        span = missed[0].span
        label = "no run takes this side" if missed[0].side is not None else "too few iterations"
    return Diagnostic(
        TILE_SIZES_OPEN,
        severity(allow_unproved),
        f"that the results of {base.name} do not depend on its tile sizes ({names}) is not shown",
        span,
        label=label,
        notes=(reason, *((_shown(execution),) if execution.executed else ())),
        help="relax the conditions on sizes and params, try `--execute`, or accept it with "
        "`--allow-unproved`",
    )


def _not_executed(base: ir.Sketch) -> Diagnostic:
    return warning(
        base.requires[0].span if base.requires else base.span,
        TILE_SIZES_OPEN,
        f"{base.name} was not executed: no small sizes satisfy its conditions",
        label="not executed",
        help="relax the requires, or run it with `sketchc run` at sizes that satisfy them",
    )
