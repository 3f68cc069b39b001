"""Verify a kernel against a PyTorch task: many shapes, inputs that discriminate, a strict rule.

This process draws the inputs from a secret seed, holds the reference outputs and decides; the task
and the kernel run in processes of their own and see inputs only. Outputs start poisoned, buffers
are checked for stray writes, and one run is repeated. When the numbers differ, the interpreter
says whether the sketch or the generated code is to blame. A kernel that somebody else wrote must
also do its work itself (`policy`). Whatever its text, what comes out is a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import Source
from sketchc.ir.evaluate import Value, constants_of
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import with_neighbours
from sketchc.runtime.cases.lists import bind_task
from sketchc.runtime.cases.reach import Freedom, find_freedom, tied_note
from sketchc.runtime.cases.shapes import (
    INTERPRETED,
    NATIVE,
    OWN,
    Draws,
    Limits,
    OtherLists,
    Trials,
)
from sketchc.runtime.cases.sizes import refusal
from sketchc.runtime.cases.variants import Branches, Varying, not_taken, taken_sides, with_variants
from sketchc.runtime.sandbox import worker
from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import Scalar
from sketchc.runtime.tasks.inputs import LIKE
from sketchc.runtime.tasks.signature import shown
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Toolchain
from sketchc.runtime.verify.machine import memory_note, within_memory
from sketchc.runtime.verify.running import KINDS, Cases, Progress, Runner
from sketchc.runtime.verify.session import Session, has_own, too_few
from sketchc.runtime.verify.verdict import CaseResult, Verdict

#: Kinds for the task's own sizes ("task": its own get_inputs) and, in rotation, for the others.
_OWN_KINDS = ("task", "structured")

#: Seconds in which cases are looked for that reach what others did not.
BUDGET = 120.0


@attrs.frozen
class Candidate:
    """What is verified: the plan, its code, and the toolchain that runs it.

    A plan without phases (`signature.signature_plan`) stands for a kernel without a sketch: nothing
    can be interpreted then, and sizes come from the signature alone. `path` is the file that the
    user gave, for people; "" for none. `source` is the sketch's file as it was read, for the store,
    `signature` the same of a sketch that only says what a kernel is called with; `picked` names the
    one of several sketches in either. `garbled` says why the file is no text; "" where it is one.
    `relower` makes the same with other tile sizes, of a sketch that the built-in Coder lowers; it
    raises as `build_plan` does.
    """

    plan: Plan
    kernel: Kernel
    toolchain: Toolchain
    path: str = ""
    source: Source | None = attrs.field(default=None, eq=False, repr=False)
    signature: Source | None = attrs.field(default=None, eq=False, repr=False)
    picked: str = ""
    garbled: str = ""
    relower: Callable[[Mapping[str, Value]], tuple[Plan, Kernel]] | None = attrs.field(
        default=None, eq=False, repr=False
    )

    @property
    def described(self) -> dict[str, str | bool]:
        """Which kernel it is, as a verdict says it."""
        return {"path": self.path, "entry": self.kernel.entry, "foreign": self.kernel.foreign}


def verify(
    candidate: Candidate,
    task: Task,
    folder: Path,
    seed: int,
    settings: Mapping[str, Scalar] | None = None,
    progress: Progress | None = None,
    select: Callable[[Cases], Cases] | None = None,
    small: bool = False,
    timeout: float = 300.0,
    compile_timeout: float = COMPILE_TIMEOUT,
    budget: float | None = BUDGET,
) -> Verdict:
    """Compile, run on every case and compare. `folder` takes the build; `settings` are `--set`.

    `budget` (seconds) bounds the cases that are looked for to reach what the planned ones do not,
    beside compiling; None, and `select`: nothing is looked for. `progress` hears of every case that
    is done; `select` may drop cases (shapes with kinds of input, smallest first, then the task's
    own sizes, then drawn ones); `small` scales the task's sizes down as for an interpreted target.
    `timeout` (seconds) bounds each run of the kernel, `compile_timeout` the build. Raises
    `UsageError` when the task cannot be bound to the sketch, raises at its own sizes, or is not
    deterministic.
    """
    plan = candidate.plan
    binding = bind_task(plan.sketch, task, seed, settings)
    odd = _oddities(task, seed)
    freedom, status = find_freedom(binding, task), candidate.toolchain.status()
    tied = filter(None, [tied_note(binding, freedom)])
    notes = [*_read_off(candidate), *binding.notes, *odd, *tied]
    limits = _limits(candidate, binding, freedom, small=small)
    cases, others = _cases(candidate, binding, freedom, limits, seed)
    notes += others.notes
    cases = _without_some(binding, cases)
    cases = cases if select is None else select(cases)
    varying = _varying(binding, task, freedom, settings or {}, cases)
    cases = with_variants(cases, varying, more=select is None)
    if not any(case.own for case, _ in cases):
        notes.append(f"the task's own sizes are scaled down; runs: {status.how_it_runs}")
    session = session_of(candidate, binding, freedom, task, timeout)
    session.gaps += others.gaps
    cases = _more(session, cases)
    runner = Runner(session, seed, progress, status.interpreted)
    refused = _other_types(binding)
    whole = budget if select is None else None
    reached = _run(runner, cases, refused, limits, whole, folder, compile_timeout)
    results = runner.results
    notes += _lacking(session, varying, results, chosen=select is not None)
    _settle(task, seed, wrong=any(r.failure in ("design", "numerical") for r in results))
    notes += [*session.notes, *runner.notes, *_held()]
    asked = {**_asked(candidate, task, settings or {}, timeout), "budget": budget}
    return Verdict(
        plan.sketch.name,
        plan.target,
        plan.hardware.name,
        str(task.path),
        status.how_it_runs,
        seed,
        tuple(results),
        tuple(notes),
        dict(status.versions),
        constants_of(plan.sketch),
        dict(binding.params),
        candidate.described,
        asked,
        reached,
        tuple(dict.fromkeys(session.gaps)),
        tuple(session.planted),
        taken_sides(varying, [result.shape for result in results if result.passed]),
    )


def _lacking(
    session: Session, varying: Varying, results: Sequence[CaseResult], *, chosen: bool
) -> list[str]:
    """Notes on branches that nothing took; what makes a verdict incomplete becomes a gap of the
    session, unless somebody has `chosen` the cases."""
    untaken, told = not_taken(varying, [result.shape for result in results if result.passed])
    if not chosen:
        session.gaps += [*untaken, *filter(None, [too_few(results)])]
    return told


def _more(session: Session, cases: Cases) -> Cases:
    """The cases with those that follow from them."""
    if session.candidate.kernel.foreign and not session.binding.description.corrects:
        cases = with_neighbours(cases)
    return [*cases, *session.more_cases(cases)]


def _held() -> list[str]:
    """A note where workers are not held as they should be."""
    held = worker.isolation()
    return [] if held.complete else [f"workers are held by {held.text}"]


def _limits(candidate: Candidate, binding: Binding, freedom: Freedom, *, small: bool) -> Limits:
    """What one run may cost."""
    interpreted = small or candidate.toolchain.status().interpreted
    limits = INTERPRETED if interpreted else NATIVE
    return Trials(candidate.plan, binding, freedom.free, limits).affordable()


def _run(
    runner: Runner,
    cases: Cases,
    refused: tuple[str, str, str] | None,
    limits: Limits,
    budget: float | None,
    folder: Path,
    compile_timeout: float,
) -> tuple[str, ...]:
    """Build, unless the candidate is refused already, and run: what was reached."""
    session, reached = runner.session, ()
    try:
        refused = refused or session.build(folder, compile_timeout)
        runner.results += _refused(refused, cases, runner.seed)
        if runner.results:
            return reached
        runner.planned(cases, None if budget is None else limits)
        if budget is not None and not runner.failing:
            own = next((case for case, _ in reversed(cases) if case.own), None)
            runner.all_kinds(own, budget)
            return runner.reach(folder, budget)
        return reached
    finally:
        session.close()


def _asked(
    candidate: Candidate, task: Task, settings: Mapping[str, Scalar], timeout: float
) -> dict[str, Any]:
    """What a verdict says of the request beside its other fields: with these a run is repeated."""
    signature = candidate.signature
    return {
        "task": getattr(task, "specification", str(task.path)),
        "task_timeout": getattr(task, "timeout", timeout),
        "timeout": timeout,
        "set": dict(settings),
        "sketch": candidate.picked,
        "signature": "" if signature is None else signature.name,
    }


def _read_off(candidate: Candidate) -> list[str]:
    """A note on a signature that nobody wrote."""
    if candidate.plan.phases or candidate.signature is not None:
        return []
    return [f"what the kernel is called with is read off the task: {shown(candidate.plan.sketch)}"]


def _other_types(binding: Binding) -> tuple[str, str, str] | None:
    """What is wrong with a sketch whose tensors are of other types than the task's, if it is."""
    if not binding.other_types:
        return None
    return "wrong_shape", f"types differ: {'; '.join(binding.other_types)}", ""


def _refused(refused: tuple[str, str, str] | None, cases: Cases, seed: int) -> list[CaseResult]:
    """The result of a candidate that cannot be run; none for others."""
    if refused is None or not cases:
        return []
    failure, reason, log = refused
    # What has another type is what the sketch declares.
    right = False if failure == "wrong_shape" else None
    return [CaseResult(*cases[0], seed, failure, reason, log=log, sketch_right=right)]


def _oddities(task: Task, seed: int) -> tuple[str, ...]:
    """What is odd about a task. Raises `UsageError` for one that is not deterministic."""
    if not isinstance(task, WorkerTask):
        return ()
    task.require_deterministic(seed % (1 << 31), wait=False)
    return task.notes


def _settle(task: Task, seed: int, *, wrong: bool) -> None:
    """What is known of the task by now. Raises `UsageError` where a run in another process
    differed, and where a kernel is `wrong` beside a task that gives no numbers."""
    if not isinstance(task, WorkerTask):
        return
    task.settle()
    if wrong:
        task.require_numbers(seed % (1 << 31))


def session_of(
    candidate: Candidate, binding: Binding, freedom: Freedom, task: Task, timeout: float
) -> Session:
    """What runs the cases of a candidate: a class in place of a function has a model to build."""
    from sketchc.runtime.toolchains.torch_module.toolchain import TorchModules

    if isinstance(candidate.toolchain, TorchModules):
        from sketchc.runtime.verify.module_session import ModuleSession

        return ModuleSession(candidate, binding, freedom, task, timeout)
    return Session(candidate, binding, freedom, task, timeout)


def _cases(
    candidate: Candidate, binding: Binding, freedom: Freedom, limits: Limits, seed: int
) -> tuple[Cases, OtherLists]:
    """Shapes with kinds of input, smallest shapes first, then the task's own, then those that are
    drawn; and what is known of its further lists.

    Sizes are drawn for kernels by others, and where hints restrict them. The tiles of a sketch, and
    the primes beside them, stay what recorded runs saw.
    """
    plan, foreign, draws = candidate.plan, candidate.kernel.foreign, Draws(seed)
    interpreted = limits.longest == INTERPRETED.longest
    times = 1 if interpreted else 2
    found: Cases = []
    kinds = _rotation()
    around = draws if foreign and not plan.phases else None
    trials = Trials(plan, binding, freedom.free, limits)
    for case in trials.ragged(around):
        found += [(case, next(kinds)) for _ in range(times)]
    found += [(case, "normal") for case in trials.corner()]
    own_limits = limits if interpreted else within_memory(OWN)
    short = "" if interpreted else memory_note(OWN, own_limits)
    at_own = attrs.evolve(trials, limits=own_limits)
    others = at_own.others()
    found += [(case, "task" if case.own else "normal") for case in others.cases]
    own = at_own.own()
    if not refusal(plan.sketch, own.symbols, binding.params):
        # Else no smaller sizes satisfy the sketch's requires.
        like = LIKE if has_own(binding) else "normal"
        found += [(own, kind) for kind in (_OWN_KINDS if own.own else (like, "structured"))]
    names = freedom.free if foreign else freedom.free & binding.sizes.keys()
    for case in attrs.evolve(trials, free=names).drawn(draws):
        found += [(case, next(kinds)) for _ in range(times)]
    return found, attrs.evolve(others, notes=(*others.notes, *filter(None, [short])))


def _varying(
    binding: Binding,
    task: Task,
    freedom: Freedom,
    settings: Mapping[str, Scalar],
    cases: Cases,
) -> Varying:
    """Other numbers that the task takes, where there are any."""
    planned = list({case.text: case for case, _ in cases}.values())
    branches = Branches(binding.sketch)
    found = Varying(binding, task, freedom, branches, settings, planned)
    if binding.params and planned:
        found.find()
    return found


def _without_some(binding: Binding, cases: Cases) -> Cases:
    """Every second case, from the last on, goes without the optional tensors; of several, some
    cases go without one of them each."""
    names = binding.omissible
    if not names:
        return cases
    some = [*((name,) for name in names)] if len(names) > 1 else []
    turns = [(), names, *some]
    return [
        (attrs.evolve(case, absent=turns[(len(cases) - place) % len(turns)]), kind)
        for place, (case, kind) in enumerate(cases)
    ]


def _rotation() -> Iterator[str]:
    while True:
        yield from KINDS
