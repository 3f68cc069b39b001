"""Open claims are tried: shadow-memory interpretation at small sizes (section 6).

A sketch runs in the interpreter at sizes around its constants (0, 1, T-1, T, T+1, a prime), within
its conditions and symbol bounds, on random inputs; then at sizes around the numbers that its
subscripts, bounds and conditions name. A rule that breaks refutes the claim, with what broke as the
counter-example; a claim that holds at all of them is *tested*. The time is bounded: sizes whose
runs would take long are left out.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from sketchc.base import records
from sketchc.base.diagnostics import DiagnosticError, UsageError, error
from sketchc.checker.facts import (
    Branch,
    Finding,
    ParamValues,
    Site,
    Step,
    budget,
    collect,
    concrete,
    deciding_params,
    for_sizes,
    loaded_names,
    other_params,
    root_scope,
)
from sketchc.checker.testing.crossing_plans import CrossingPlan
from sketchc.checker.testing.crossings import Crossings
from sketchc.checker.testing.goals import (
    LARGER_SIZES,
    Goal,
    Planner,
    goals,
    reachable,
    sizes_text,
    told,
)
from sketchc.checker.testing.settings import (
    Setting,
    Settings,
    executed,
    literal_settings,
    sample_params,
    volume,
)
from sketchc.ir import nodes as ir
from sketchc.ir.show import assignments, element_text
from sketchc.ir.walk import element_indices, references

if TYPE_CHECKING:
    from sketchc.interpreter.api import Violation

#: Work of one run and of all runs for one sketch, in lanes (some 20 ns each).
RUN_LIMIT = 5_000_000
TOTAL_LIMIT = 30_000_000
MEMORY_LIMIT = 64 * 2**20

#: Work of the one run that proves a claim for given shapes: some seconds.
SHAPE_LIMIT = 200_000_000

#: Runs at most, how many of them are at the smallest sizes, and how many a claim takes at least.
MOST_RUNS = 40
SMALL_RUNS = 24
FEWEST_RUNS = 3

#: Runs at sizes around the numbers of the sketch, and the work of one of them.
NUMBER_RUNS = 12
NUMBER_LIMIT = 15_000_000

#: Runs at which comparisons come out in new ways, and how many of those missed are told.
CROSSING_RUNS = 14
MOST_TOLD = 3

#: Sizes with values of params at which a run is tried, whether a launch accepts them or not.
PARAM_ATTEMPTS = 40

#: Sizes beside those around the constants, and how many settings may have one that is 0.
SIZES = (0, 1, 2, 3, 5, 7)
MOST_EMPTY = 4
#: What the other sizes are where one is large.
REST = 3
LARGEST_CONSTANT = 300
LARGEST_TILE = 4096
ATTEMPTS = 300

#: Claim -> the code and message where a run breaks it; `{}` is the subject. The code for two
#: iterations that meet depends on what they do.
_REFUTED = {
    "in-bounds": ("SK0501", "a subscript of `{}` leaves the tensor"),
    "slice-fits": ("SK0503", "a slice does not fit the tile `{}`"),
    "covered": ("SK0510", "the output `{}` is not written everywhere"),
    "initialised": ("SK0530", "`{}` is loaded before it is written"),
    "independent": ("", "parallel iterations are not independent in `{}`"),
}
#: Claims whose violations leave out what the accesses would have done.
_ACCESSES = ("in-bounds", "slice-fits")
_GIVEN_UP = "runs at small sizes were given up, as one check may do no more work"


def try_out(
    sketch: ir.Sketch,
    findings: Sequence[Finding],
    known: Collection[tuple[str, str]] = (),
    shapes: Mapping[str, int] | None = None,
) -> list[Finding]:
    """The findings with every unproved one tried: refuted, tested, or left as it is where too few
    sizes could be run. `known` claims were tried at other tile sizes. With `shapes`, one run at
    these sizes decides the open claims, unless what is accessed depends on data or params."""
    findings = [_at_other_tiles(finding, known) for finding in findings]
    if not any(_open(finding) for finding in findings):
        return findings
    if shapes is not None:
        instance = _Runs(sketch)
        instance.execute([dict(shapes)], SHAPE_LIMIT)
        if instance.count:
            findings = [instance.at_shapes(f, shapes) if _open(f) else f for f in findings]
    if not any(_open(finding) for finding in findings):
        return findings
    runs = _Runs(sketch)
    left = budget.left()
    limit = budget.of_check(len(sketch.phases)) if left is None else left - budget.JUDGED
    ended = budget.attempt(_GIVEN_UP, limit, False, _try, runs, findings)
    said = "" if ended else _GIVEN_UP
    found = [runs.judged(finding, said) if _open(finding) else finding for finding in findings]
    return _but_for_broken(found, runs.bases)


def _but_for_broken(found: list[Finding], bases: Mapping[str, str]) -> list[Finding]:
    """The findings; one that was tested becomes unproved where another claim on its tensor, or any
    on an access, is refuted: the runs that broke a rule did less than the sketch says. The refuted
    claim is reported already, so no diagnostic is added."""

    def subject(finding: Finding) -> str:
        return bases.get(finding.proof.subject, finding.proof.subject)

    refuted = {subject(one): one for one in found if one.proof.tier is ir.Tier.REFUTED}
    access = next((o for o in refuted.values() if o.proof.claim in _ACCESSES), None)
    result = []
    for one in found:
        other = refuted.get(subject(one), access)
        if other is not None and one.proof.tier is ir.Tier.TESTED:
            detail = f"says nothing while {other.proof.claim} of {other.proof.subject} is refuted"
            one = Finding(records.evolve(one.proof, tier=ir.Tier.UNPROVED, detail=detail))
        result.append(one)
    return result


def _try(runs: _Runs, findings: Sequence[Finding]) -> bool:
    """Do all runs that the findings ask for; True at the end. What earlier runs found stays in
    `runs`, should later ones be given up."""
    runs.execute(settings(runs.sketch), RUN_LIMIT)
    if any(runs.stands(finding) for finding in findings):
        runs.aim()
    for subject in dict.fromkeys(f.proof.subject for f in findings if runs.stands(f)):
        runs.cross(subject)
    if any(runs.stands(finding) for finding in findings):
        runs.execute_more(literal_settings(runs.sketch, runs.sites, _sizes(runs.sketch)))
    return True


def decided_by_sizes(sketch: ir.Sketch, sites: Sequence[Site]) -> bool:
    """Whether the elements accessed follow from the sizes alone, not from data, params, or whether
    an optional tensor is there."""
    if deciding_params(sketch, sites):
        return False
    for site in sites:
        if isinstance(site.statement, ir.Fetch):
            return False
        if any(isinstance(step, ir.Fetch) or _asks_for_optional(step) for step in site.path):
            return False
        extents, bindings = site.tile.extents, site.scope.bindings
        values = (*element_indices(site.access, extents), *site.guards)
        if any(loaded_names(value, extents, bindings) for value in values):
            return False
    return True


def _asks_for_optional(step: Step) -> bool:
    """Whether a step is a branch that asks for an optional tensor."""
    return isinstance(step, Branch) and any(
        name.kind is ir.NameKind.PRESENT for name in references(step.condition)
    )


def _at_other_tiles(finding: Finding, known: Collection[tuple[str, str]]) -> Finding:
    proof = finding.proof
    if not _open(finding) or (proof.claim, proof.subject) not in known:
        return finding
    detail = "interpreted with other tile sizes without a violation"
    return Finding(records.evolve(proof, tier=ir.Tier.TESTED, detail=detail))


def _open(finding: Finding) -> bool:
    return finding.proof.tier is ir.Tier.UNPROVED and finding.testable


class _Runs:
    """Runs of a sketch in the interpreter: how many, and their violations by claim and tensor."""

    def __init__(self, sketch: ir.Sketch) -> None:
        import numpy as np

        self.sketch = sketch
        self.sites = collect(sketch, root_scope(sketch))
        self.count = 0
        self.sizes = 0  # runs at different sizes, the others at other values of params
        self.tried: list[dict[str, int]] = []
        self.optional = tuple(tensor.name for tensor in sketch.tensors if tensor.optional)
        #: Other values of the params that decide what is accessed.
        self.others = other_params(sketch, deciding_params(sketch, self.sites))
        self.generator = np.random.default_rng(0)
        #: What broke, and where: the params other than their defaults.
        self.broken: dict[tuple[str, str], tuple[Violation, Setting]] = {}
        self.bases = {view.name: view.base for view in sketch.views}
        self.settings = Settings(sketch, sample_params(sketch))
        self.launches: list[Setting] = []
        self.plans: dict[str, CrossingPlan] = {}
        #: Loops, parallel ones too, that no run has entered twice in a row, and sides of branches
        #: that none has taken.
        twice = [records.evolve(goal, trips=2) for goal in goals(sketch)]
        self.missed = [goal for goal in twice if goal.needed]

    def execute(self, sizes: Iterable[dict[str, int]], run_limit: int) -> None:
        """Run at one setting after the other, every second time without the optional tensors; then
        at other values of the params that decide what is accessed, largest sizes first."""
        most, spared = MOST_RUNS, 0
        left = max(TOTAL_LIMIT, run_limit)
        if self.others:  # half of the runs, and of the work, at the defaults
            most, spared = MOST_RUNS // 2, left // 2
        used: list[dict[str, int]] = []
        for symbols in sizes:
            cost = self._run(symbols, {}, min(left - spared, run_limit))
            if cost is None:
                continue
            left -= cost
            used.append(symbols)
            if self.count >= most:
                break  # where little work is left, small sizes still find room
        self.sizes = len(used)
        self.tried.extend(used)
        used.sort(key=lambda symbols: volume(symbols.values()), reverse=True)
        # Every value of the params in turn, each at other sizes than the one before.
        pairs = (
            (used[(shift + place) % len(used)], params)
            for shift in range(len(used))
            for place, params in enumerate(self.others)
        )
        seen: set[tuple[object, ...]] = set()
        for symbols, params in islice(pairs, PARAM_ATTEMPTS):
            if self.count >= MOST_RUNS or left < TOTAL_LIMIT // 20:
                return
            setting = self.settings.setting(tuple(symbols.values()), params, keep=True)
            if setting is not None and setting.key not in seen:
                seen.add(setting.key)
                left -= self._run(setting.symbols, setting.params, min(left, run_limit)) or 0

    def aim(self) -> None:
        """Run at settings that reach what no run has reached so far."""
        tiles = (c.value for c in self.sketch.constants if c.dtype.is_integer)
        larger = (int(tile) + 1 for tile in tiles if 1 < tile <= LARGEST_TILE)
        sizes = tuple(dict.fromkeys((2, 3, *larger, *LARGER_SIZES)))
        planner = Planner((self.sketch,), self.sketch, (), self.settings, RUN_LIMIT, sizes)
        planner.goals = planner.wanted = tuple(self.missed)
        left = TOTAL_LIMIT
        for setting in planner.aimed():
            cost = self._run(setting.symbols, setting.params, min(left, RUN_LIMIT), setting.absent)
            left -= cost or 0
            planner.goals = planner.wanted = tuple(
                goal for goal in planner.goals if goal in self.missed
            )
        self.missed = [goal for goal in self.missed if goal in planner.goals]

    def cross(self, subject: str) -> None:
        """Run at settings where comparisons that decide the accesses of a tensor come out otherwise
        than in all runs so far."""
        subject = self.bases.get(subject, subject)
        sites = [site for site in self.sites if site.tensor.name == subject]
        if subject in self.plans or not sites:
            return
        plan = CrossingPlan(self.settings, Crossings(self.sketch, sites), self.others)
        self.plans[subject] = plan
        for launch in self.launches:
            plan.ran(launch)
        left = TOTAL_LIMIT
        for _ in range(CROSSING_RUNS):
            found = plan.take()
            if found is None or left < TOTAL_LIMIT // 20:
                return
            setting = found.setting
            limit = NUMBER_LIMIT if plan.needs(found) else RUN_LIMIT
            cost = self._run(setting.symbols, setting.params, min(left, limit), setting.absent)
            if cost is None:
                plan.refused.append(found)
                continue
            left -= cost
            plan.note(found.outcomes)
            self.sizes += setting.symbols not in self.tried
            self.tried.append(setting.symbols)

    def execute_more(self, sizes: Iterable[dict[str, int]]) -> None:
        """Run at further sizes where a launch accepts them, as many as there is time for."""
        left, count = TOTAL_LIMIT, 0
        params = sample_params(self.sketch)
        for symbols in sizes:
            if (
                symbols in self.tried
                or concrete.accepted(self.sketch, {**params, **symbols}) is None
            ):
                continue
            cost = self._run(symbols, {}, min(left, NUMBER_LIMIT))
            if cost is None:
                continue
            left, count = left - cost, count + 1
            self.sizes += 1
            self.tried.append(symbols)
            if count >= NUMBER_RUNS or left < TOTAL_LIMIT // 20:
                return

    def stands(self, finding: Finding) -> bool:
        """Whether a claim is open, and no run has broken it."""
        return _open(finding) and self._broken(finding) is None

    def _broken(self, finding: Finding) -> tuple[Violation, Setting] | None:
        """The violation of a claim that a run found, and its setting; None for none."""
        subject = self.bases.get(finding.proof.subject, finding.proof.subject)
        return self.broken.get((finding.proof.claim, subject))

    def _run(
        self,
        symbols: dict[str, int],
        params: ParamValues,
        limit: int,
        absent: tuple[str, ...] | None = None,
    ) -> int | None:
        """The work of one run; None where it would be more than `limit`, or a launch refuses.
        `absent`: the absent optional tensors; by default, all of them in every second run."""
        if absent is None:
            absent = self.optional if self.count % 2 else ()
        setting = Setting(symbols, {**sample_params(self.sketch), **params}, absent)
        try:
            done = executed(self.sketch, setting, limit, MEMORY_LIMIT, self.generator)
        except (DiagnosticError, UsageError):
            return None
        if done is None:
            return None
        cost, result = done
        self.count += 1
        self.launches.append(setting)
        self.missed = [goal for goal in self.missed if not goal.met([result.reached])]
        for violation in result.violations:
            if violation.promised:
                continue
            subject = self.bases.get(violation.tensor, violation.tensor)
            self.broken.setdefault(
                (violation.kind, subject), (violation, Setting(symbols, params, absent))
            )
        return cost

    def at_shapes(self, finding: Finding, shapes: Mapping[str, int]) -> Finding:
        """The finding after one run at the sizes `shapes`: a proof for these shapes, which the host
        then checks."""
        proof = finding.proof
        broken = self._broken(finding)
        if broken is not None:
            return self._refuted(finding, *broken)
        if not decided_by_sizes(self.sketch, self.sites):
            return finding
        detail = f"interpreted at {assignments(shapes)} without a violation"
        requires = tuple(
            ir.Require(
                ir.Binary("==", ir.Ref(name, ir.NameKind.SYMBOL), ir.Literal(size)),
                f"{name} == {size}",
                generated=True,
                span=proof.span,
            )
            for name, size in shapes.items()
        )
        tier = ir.Tier.PROVED_FOR_SHAPES
        return Finding(records.evolve(proof, tier=tier, detail=detail), (), requires)

    def unreached(self, subject: str) -> tuple[Goal, ...]:
        """The goals on the way to accesses of a tensor that no run met, though some launch may."""
        paths = [site.path for site in self.sites if site.tensor.name == subject]
        on_path = [
            goal
            for goal in self.missed
            if any(path[: len(goal.path)] == goal.path for path in paths)
        ]
        return reachable(self.sketch, on_path)

    def uncrossed(self, subject: str) -> str:
        """The text on comparisons that came out one way in all runs, but not in all launches."""
        missed = self.plans[subject].missed() if subject in self.plans else {}
        return "; ".join(
            f"no run reached `{text}`, as with {assignments({**found.symbols, **found.params})}"
            for text, found in list(missed.items())[:MOST_TOLD]
        )

    def judged(self, finding: Finding, given_up: str) -> Finding:
        """The finding on a claim after all runs. `given_up`: why there were no more of them."""
        proof = finding.proof
        subject = self.bases.get(proof.subject, proof.subject)
        broken = self._broken(finding)
        if broken is not None:
            return self._refuted(finding, *broken)
        if self.count == 0 or (self.sizes < FEWEST_RUNS and self.sketch.symbols):
            return _left_open(finding, given_up)
        if missed := self.unreached(subject):
            return _left_open(finding, f"no run reached {told(missed)}", given_up)
        if given_up and subject not in self.plans:
            return _left_open(finding, given_up)
        if uncrossed := self.uncrossed(subject):
            return _left_open(finding, uncrossed, given_up)
        times = "once" if self.sizes == 1 else f"at {self.sizes} sizes"
        if self.sketch.symbols:
            times += f" ({sizes_text([Setting(symbols) for symbols in self.tried])})"
        if self.count > self.sizes:
            times += f" and {self.count - self.sizes} times with other params"
        detail = f"{proof.detail}; interpreted {times} without a violation"
        return Finding(records.evolve(proof, tier=ir.Tier.TESTED, detail=detail), (), ())

    def _refuted(self, finding: Finding, violation: Violation, setting: Setting) -> Finding:
        proof = finding.proof
        numbers = {**setting.symbols, **setting.params}
        host = concrete.host_sample(self.sketch, numbers)
        element = violation.element
        if violation.tensor in self.bases:
            with suppress(ArithmeticError):
                element = concrete.base_element(self.sketch, violation.tensor, element, host)
        names = " and ".join(f"`{name}`" for name in setting.absent)
        text = for_sizes(numbers) + (f"without {names}, " if names else "") + _told(violation)
        example = ir.CounterExample(
            setting.symbols, violation.iterations, element, text, setting.params
        )
        code, message = _REFUTED[proof.claim]
        code = code or ("SK0521" if " reads " in violation.text else "SK0520")
        diagnostic = error(
            proof.span,
            code,
            message.format(proof.subject),
            text,
            notes=("found by interpreting the sketch at small sizes with shadow memory",),
        )
        evolved = records.evolve(proof, tier=ir.Tier.REFUTED, detail=text, counter_example=example)
        return Finding(evolved, (diagnostic,))


def _left_open(finding: Finding, *reasons: str) -> Finding:
    """The finding on a claim that stays unproved, with the reasons why runs did not decide it."""
    said = "; ".join(filter(None, reasons))
    if not said:
        return finding
    proof = records.evolve(finding.proof, detail=f"{finding.proof.detail}; {said}")
    diagnostics = (records.evolve(d, notes=(*d.notes, said)) for d in finding.diagnostics)
    return records.evolve(finding, proof=proof, diagnostics=tuple(diagnostics))


def _told(violation: Violation) -> str:
    """The text of a violation, in the words of the other counter-examples."""
    if violation.kind == "independent" and "both write" in violation.text:
        told = [assignments(iteration) for iteration in violation.iterations]
        place = element_text(violation.tensor, violation.element)
        return f"iterations {' and '.join(told)} both write {place}"
    return violation.text


# ---------------------------------------------------------------- sizes


def settings(sketch: ir.Sketch) -> Iterator[dict[str, int]]:
    """Sizes that a launch may accept, small products first: all equal, one or two unlike the
    others, and mixed ones."""
    names = [symbol.name for symbol in sketch.symbols]
    if not names:
        yield {}
        return
    sizes = _sizes(sketch)
    chosen: dict[tuple[int, ...], None] = {}
    for size in sizes:
        chosen[(size,) * len(names)] = None
    for place, size, rest in product(range(len(names)), sizes, (1, 3, 7)):
        chosen[tuple(size if p == place else rest for p in range(len(names)))] = None
    for (one, other), pair in product(combinations(range(len(names)), 2), ((2, 2), (2, 3), (3, 2))):
        some = dict(zip((one, other), pair, strict=True))
        chosen[tuple(some.get(p, 1) for p in range(len(names)))] = None
    generator = random.Random(0)
    for _ in range(ATTEMPTS):
        chosen[tuple(generator.choice(sizes) for _ in names)] = None
    # One size that gives several iterations whatever a stride makes of it, while the others give
    # one: what a loop over the wrong extent leaves out.
    for place in range(len(names)):
        for size in (2 * sizes[-1] + 1, sizes[-1]):
            chosen[tuple(size if p == place else REST for p in range(len(names)))] = None
    named = {key: dict(zip(names, key, strict=True)) for key in chosen}
    params = sample_params(sketch)
    accepted = [
        key
        for key, some in named.items()
        if concrete.accepted(sketch, {**params, **some}) is not None
    ]
    own = Settings(sketch, params)
    blank = {key for key in accepted if own.is_empty(Setting(named[key]))}
    for key in _small_and_varied(accepted, blank, sizes[-1]):
        yield named[key]


def _small_and_varied(
    accepted: Sequence[tuple[int, ...]], blank: Collection[tuple[int, ...]], large: int
) -> Iterator[tuple[int, ...]]:
    """The sizes to run at, in this order: two of the smallest ones without a 0, one of a choice of
    larger ones (first those with one `large` size at least), and so on, with a few between them
    that have a 0, or are `blank`, without an element of some output."""
    ordered = sorted(accepted, key=volume)
    empty = [key for key in ordered if 0 in key or key in blank]
    full = [key for key in ordered if 0 not in key and key not in blank]
    small, others = full[:SMALL_RUNS], full[SMALL_RUNS:][: 4 * MOST_RUNS]
    empty = sorted(empty, key=lambda key: 0 not in key)[:MOST_EMPTY]
    alone = [key for key in full if max(key) >= large and sorted(key)[:-1] == [REST] * len(key[1:])]
    largest = {key.index(max(key)): key for key in alone if key not in small}
    stride = max(1, len(others) // (MOST_RUNS - len(small) - len(empty)))
    mixed = [key for start in range(stride) for key in others[start::stride]]
    varied = [*largest.values(), *(key for key in mixed if key not in largest.values())]
    for place in range(max(len(small), len(varied))):
        yield from (*small[2 * place : 2 * place + 1], *varied[place : place + 1])
        yield from small[2 * place + 1 : 2 * place + 2]
        if place % 3 == 2:
            yield from empty[place // 3 : place // 3 + 1]


def _sizes(sketch: ir.Sketch) -> tuple[int, ...]:
    """The sizes at which tile loops change: around each constant."""
    around = {
        int(constant.value) + offset
        for constant in sketch.constants
        if constant.dtype.is_integer and 1 < constant.value <= LARGEST_CONSTANT
        for offset in (-1, 0, 1)
    }
    return tuple(sorted({*SIZES, *around}))
