"""Runs the cases of one candidate: those planned, others in place of what the task refuses, and
further ones until everything is reached.

A task refuses sizes in ways that no formula tells (a normalisation of one value, a window larger
than its image). Each refused case gives way to others; where the task takes none of these, it
accepts few sizes at all, and all kinds of inputs run at those. Then come sizes at which loops run
again and tiles meet others (`reaching`), first with the file that is verified, then, where that
would take too long, with the same sketch lowered to smaller tiles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.base.diagnostics import DiagnosticError, UsageError
from sketchc.ir.evaluate import Value
from sketchc.lowering.registry import load_language
from sketchc.runtime.cases.drawing import RISING, SWAPPED, is_neighbour
from sketchc.runtime.cases.reaching import Clock, Marks, Reaching, marks_of, smaller
from sketchc.runtime.cases.shapes import Limits, ShapeCase, cost_at, effort
from sketchc.runtime.cases.sizes import nearest
from sketchc.runtime.verify.case_runner import CaseRunner, Finding
from sketchc.runtime.verify.verdict import CaseResult

if TYPE_CHECKING:
    from sketchc.runtime.verify.verify import Candidate

Cases = list[tuple[ShapeCase, str]]
Progress = Callable[[CaseResult], None]

#: Kinds of inputs, in rotation.
KINDS = ("normal", "structured", "mixed_scale", "large", "non_negative")
#: After so many failures nothing new is learnt, and after one from no case that takes long: so many
#: lanes (`shapes.effort`) take seconds in the interpreter, which says who is to blame.
_ENOUGH_FAILURES = 3
_LONG = 1 << 25
#: Sizes tried in place of those of one case, and of all cases.
_MOST_TRIES, _MOST_REFUSALS = 8, 48
#: How far symbols move to suit each other where one is changed.
_MOVES = 300
#: Seconds that a run may take even where less time is left.
_SHORTEST = 10.0
#: What a further case that `reach` looks for may cost: the clock decides about time.
REACH_INTERPRETED = Limits(elements=1 << 21, programs=1 << 15)
REACH_NATIVE = Limits(elements=1 << 22, programs=1 << 20)


@attrs.define
class Runner:
    """Runs one candidate's cases. `interpreted`: its target is, so that large sizes take long."""

    case_runner: CaseRunner
    seed: int
    progress: Progress | None = None
    interpreted: bool = False
    patience: float = math.inf
    results: list[CaseResult] = attrs.field(factory=list)
    #: The loops that ran again, and the tiles that met others, in words.
    reached: tuple[str, ...] = ()
    refused: set[tuple[int, ...]] = attrs.field(factory=set)
    #: Kinds of inputs of cases that nothing could stand in for.
    dropped: list[str] = attrs.field(factory=list)

    @property
    def settled(self) -> bool:
        """True when further cases would show nothing new; a kernel that hangs would hang again, for
        as long as it may."""
        failures = [result for result in self.results if result.failed]
        return len(failures) >= _ENOUGH_FAILURES or any(f.failure == "timeout" for f in failures)

    @property
    def failing(self) -> bool:
        """True when something is known to be wrong."""
        return any(result.failed for result in self.results)

    def all(
        self,
        cases: Cases,
        refused: Finding | None,
        limits: Limits,
        budget: float | None,
        folder: Path,
    ) -> None:
        """Run the cases, then further ones for `budget` seconds; None: no further ones. Where the
        build was `refused`, the first case gets this failure, and nothing runs."""
        if refused is not None:
            # Types that differ are those that the sketch declares.
            right = False if refused.failure == "wrong_shape" else None
            shown = (refused.failure, refused.reason)
            self.results += [
                CaseResult(*case, self.seed, *shown, log=refused.log, sketch_right=right)
                for case in cases[:1]
            ]
            return
        self.planned(cases, None if budget is None else limits)
        if budget is not None and not self.failing:
            own = next((case for case, _ in reversed(cases) if case.own), None)
            self.all_kinds(own, budget)
            self.reached = self.reach(folder, budget)

    def planned(self, cases: Cases, limits: Limits | None) -> None:
        """Run the cases in their order until they settle the verdict. With `limits`, others stand
        in for those that the task refuses."""
        drawn, clock = self.seed, Clock(self.patience)
        for number, (case, kind) in enumerate(cases):
            if clock.left <= 0 and not self.failing and any(r.passed for r in self.results):
                break
            if self.failing and (case.drawn or is_neighbour(kind) or self._takes_long(case)):
                continue  # these cases only test a kernel that seems to be right
            drawn = drawn if is_neighbour(kind) else self.seed + number
            # The first case may have one element: of a foreign kernel, a larger one is repeated.
            again = number == 0 or kind.endswith(SWAPPED)
            result = self.run(case, kind, drawn, runs=2 if again else 1)
            if limits is not None and _refused(result) and not case.own:
                self._stand_in(case, kind, drawn, limits)
            if self.settled:
                break

    def _takes_long(self, case: ShapeCase) -> bool:
        params = {**self.case_runner.binding.params, **case.numbers}
        return effort(self.case_runner.candidate.plan, case.symbols, params) > _LONG

    def run(self, case: ShapeCase, kind: str, seed: int, runs: int = 1) -> CaseResult:
        """Run one case; its result is kept, and reported to `progress`."""
        result = self.case_runner.run(case, kind, seed, runs)
        self._tell(result)
        return result

    # ------------------------------------------------------------ what the task refuses

    def _stand_in(self, case: ShapeCase, kind: str, seed: int, limits: Limits) -> None:
        """Run other sizes in place of refused ones, until the task takes some."""
        plain = _plain(case)
        others = self._others(case, limits)
        if plain is not case:
            others = itertools.chain([dict(case.symbols)], others)
        else:
            self.refused.add(tuple(case.symbols.values()))
        for symbols in itertools.islice(others, _MOST_TRIES):
            if len(self.refused) >= _MOST_REFUSALS:
                break
            other = attrs.evolve(plain, name=f"{case.name}, others", symbols=symbols)
            result = self.case_runner.run(other, kind, seed, 1)
            if not _refused(result):
                self._tell(result)
                return
            self.refused.add(tuple(symbols.values()))
        self.dropped.append(kind)

    def _others(self, case: ShapeCase, limits: Limits) -> Iterator[dict[str, int]]:
        """Sizes that the task may take, from those of a case towards the task's own."""
        plan, binding = self.case_runner.candidate.plan, self.case_runner.binding
        free, own = self.case_runner.freedom.free, binding.symbols
        passed = (result.shape for result in self.results if result.passed)
        seen = self.refused | {tuple(shape.symbols.values()) for shape in passed}
        for wanted in _towards(case.symbols, own, free):
            symbols = nearest(plan.sketch, wanted, binding.params, free, least=1, steps=_MOVES)
            if symbols is None or not binding.allows(symbols):
                continue
            key = tuple(symbols.values())
            if key in seen:
                continue
            seen.add(key)
            try:
                needed = cost_at(plan, symbols, binding.params)
            except (ArithmeticError, ValueError):
                continue
            if limits.allow(needed):
                yield symbols

    def all_kinds(self, own: ShapeCase | None, budget: float) -> None:
        """Run the kinds of inputs that no case had, at sizes that the task takes, for `budget`
        seconds."""
        ran = {result.kind for result in self.results if not _refused(result)}
        right = [result for result in self.results if result.passed]
        if self.failing or not right:
            return
        if self.dropped:
            taken = len({tuple(result.shape.symbols.values()) for result in right})
            self.case_runner.notes.append(
                f"the task takes few sizes: {len(self.refused)} others were refused, and "
                f"{taken} ran"
            )
        last = next((one for one in right if one.shape == own), right[-1])
        clock = Clock(budget)
        for kind in KINDS:
            if kind in ran:
                continue
            if last.seconds > clock.left:
                more = "with a larger --budget"
                where = f" at {last.shape.text}" if last.shape.text else ""
                self.case_runner.gaps.append(f"{kind} inputs{where} ({more})")
                continue
            self.run(last.shape, kind, self.seed + len(self.results))

    # ------------------------------------------------------------ what was not reached

    def reach(self, folder: Path, budget: float) -> tuple[str, ...]:
        """Run further cases for `budget` seconds until everything is reached; returns what was, in
        words. What was not is a gap of the case runner."""
        case_runner = self.case_runner
        if not any(result.passed for result in self.results):
            return ()
        candidate, binding = case_runner.candidate, case_runner.binding
        slow = self.interpreted or case_runner.task.slow
        limits = REACH_INTERPRETED if slow else REACH_NATIVE
        marks = marks_of(candidate.plan, candidate.kernel)
        reaching = Reaching(candidate.plan, binding, case_runner.freedom, marks, limits)
        reaching.require(binding.symbols, binding.params)
        for values in binding.description.others:
            with suppress(UsageError):
                numbers = binding.numbers_of(values)
                reaching.require(binding.symbols_of(values), {**binding.params, **numbers})
        clock = Clock(budget)
        for result in self.results:
            if result.passed:
                reaching.ran(result.shape, result.kind)
                params = {**binding.params, **result.shape.numbers}
                lanes = effort(candidate.plan, result.shape.symbols, params)
                clock.ran(result.seconds, lanes)
        self._further(reaching, clock, case_runner)
        if self.interpreted and reaching.missing and not self.failing and clock.left > 0:
            self._with_smaller_tiles(reaching, clock, folder)
        why = ", with a larger --budget" if reaching.untried else ""
        if self.interpreted and not why:
            why = f", where {candidate.plan.target} runs at its own speed"
        case_runner.gaps += [] if self.failing else reaching.gaps(why)
        return tuple(reaching.told)

    def _further(
        self,
        reaching: Reaching,
        clock: Clock,
        case_runner: CaseRunner,
        tiles: Mapping[str, Value] | None = None,
    ) -> None:
        """Run candidates that reach missing marks, as far as there is time for them."""
        case_runner.timeout = min(case_runner.timeout, max(clock.left, _SHORTEST))
        while not self.settled and (found := reaching.take()) is not None:
            if self.failing and found.cost > _LONG:
                continue
            if not clock.allows(found.cost):
                reaching.untried.append(found)
                continue
            case = ShapeCase("further tiles", found.symbols, tiles=tiles or {})
            seed = self.seed + len(self.results)
            result = case_runner.run(case, "normal", seed, 1)
            if _refused(result):
                reaching.refuse(case.symbols)
                continue
            if result.passed:
                # A maximum that forgets the last tile is right where the largest element is not in
                # it.
                self._tell(result)
                result = case_runner.run(case, f"normal/{RISING}", seed, 1)
            if result.failure == "timeout" and self.interpreted:
                reaching.untried.append(found)
                return  # it would have taken longer than estimated: not reached, and not wrong
            self._tell(result)
            clock.ran(result.seconds, found.cost)
            if result.passed:
                reaching.ran(case, result.kind)

    def _tell(self, result: CaseResult) -> None:
        self.results.append(result)
        if self.progress is not None:
            self.progress(result)

    def _with_smaller_tiles(self, reaching: Reaching, clock: Clock, folder: Path) -> None:
        """Run further cases of a build with smaller tiles, where this one would take too long: the
        same sketch with the smallest ones of its own lists, or the same text with smaller numbers.
        Failures of the latter say nothing, since its numbers may not be free to change."""
        made = self._smaller()
        if made is None:
            return
        other, marks, tiles = made
        binding = attrs.evolve(self.case_runner.binding, sketch=other.plan.sketch)
        case_runner = CaseRunner(
            other, binding, self.case_runner.freedom, self.case_runner.task, clock.left + 1
        )
        small = attrs.evolve(reaching, plan=other.plan, binding=binding, marks=marks, stuck={})
        small.candidates = None
        before, known = len(self.results), set(reaching.reached)
        try:
            if case_runner.build(folder / "smaller_tiles", self.case_runner.timeout) is None:
                clock.started += case_runner.compiled
                self._further(small, clock, case_runner, tiles)
        finally:
            case_runner.close()
        if other.kernel.foreign and any(one.failed for one in self.results[before:]):
            del self.results[before:]
            reaching.reached.intersection_update(known)

    def _smaller(self) -> tuple[Candidate, Marks, Mapping[str, Value]] | None:
        """The candidate in smaller tiles, the marks of its runs, and its tiles; or None."""
        candidate = self.case_runner.candidate
        if candidate.relower is not None and (tiles := smallest_tiles(candidate)):
            try:
                plan, kernel = candidate.relower(tiles)
            except (DiagnosticError, UsageError):
                return None  # these tiles do not go together
            other = attrs.evolve(candidate, plan=plan, kernel=kernel, relower=None)
            return other, marks_of(plan, kernel), tiles
        kernel = candidate.kernel
        if (
            not kernel.foreign
            or not load_language(kernel.language).hosted
            or type(self.case_runner) is not CaseRunner
        ):
            return None
        text, numbers = smaller(kernel.source)
        if not numbers:
            return None
        other = attrs.evolve(candidate, kernel=attrs.evolve(kernel, source=text))
        marks = Marks(candidate.plan, numbers)
        return other, marks, {str(number): here for number, here in numbers.items()}


def smallest_tiles(candidate: Candidate) -> dict[str, Value]:
    """The smallest choice for each tunable integer constant; empty where all have it already."""
    found: dict[str, Value] = {}
    for constant in candidate.plan.sketch.constants:
        choices = [choice for choice in constant.choices if isinstance(choice, int) and choice > 0]
        if constant.tunable and constant.dtype.is_integer and choices:
            found[constant.name] = min(choices)
    values = {constant.name: constant.value for constant in candidate.plan.sketch.constants}
    return found if any(values[name] != value for name, value in found.items()) else {}


def _refused(result: CaseResult) -> bool:
    return result.failure == "skipped" and result.reason.startswith("the task refuses")


def _plain(case: ShapeCase) -> ShapeCase:
    """A case with the task's own numbers, and with all tensors."""
    if not (case.numbers or case.absent):
        return case
    return attrs.evolve(case, numbers={}, init={}, absent=())


def _towards(
    symbols: Mapping[str, int], own: Mapping[str, int], free: frozenset[str]
) -> Iterator[dict[str, int]]:
    """Sizes from `symbols` towards the task's own: one symbol at its own size, all larger, half
    way, all but one at their own sizes."""
    names = [name for name in symbols if name in free and symbols[name] != own[name]]
    for name in names:
        yield {**symbols, name: own[name]}
    for factor in (2, 4):
        yield {n: factor * s + 1 if n in free else s for n, s in symbols.items()}
    yield {n: (s + own[n] + 1) // 2 if n in free else s for n, s in symbols.items()}
    for name in names:
        yield {**own, name: symbols[name]}
    for name in names:
        yield {**own, name: own[name] + 1}
        if own[name] > 1:
            yield {**own, name: own[name] - 1}
