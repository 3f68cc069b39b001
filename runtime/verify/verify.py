"""Verify a kernel against a task: many shapes, inputs that discriminate, a strict rule.

This process draws the inputs from a secret seed, holds the reference outputs and decides; the task
and the kernel run in processes of their own and see inputs only. Outputs start poisoned, buffers
are checked for stray writes, and one run is repeated. When the numbers differ, the interpreter says
whether the sketch or the generated code is to blame. A kernel that somebody else wrote must also do
its work itself (`policy`). Whatever a kernel's text, the result is a verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import Source
from sketchc.ir.evaluate import Value, constants_of
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import with_neighbours
from sketchc.runtime.cases.lists import bind_task
from sketchc.runtime.cases.reach import Freedom, find_freedom, tied_note
from sketchc.runtime.cases.shapes import (
    INTERPRETED,
    NATIVE,
    OWN,
    DrawnSizes,
    Limits,
    OtherLists,
    Trials,
)
from sketchc.runtime.cases.sizes import refusal
from sketchc.runtime.cases.variants import Branches, Varying, not_taken, taken_sides, with_variants
from sketchc.runtime.sandbox import worker
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import Scalar
from sketchc.runtime.tasks.inputs import LIKE
from sketchc.runtime.tasks.signature import shown
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Toolchain
from sketchc.runtime.verify.case_runner import CaseRunner, has_own, too_few
from sketchc.runtime.verify.machine import memory_note, within_memory
from sketchc.runtime.verify.running import KINDS, Cases, Progress, Runner
from sketchc.runtime.verify.verdict import Verdict

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
    `signature` the file of a sketch that only says what a kernel is called with; `picked` names the
    one of several sketches in either. `garbled` says why the file is no text; "" where it is one.
    `relower` gives the plan and the kernel with other tile sizes, of a sketch that the built-in
    Coder lowers; it raises as `build_plan` does.
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
    def device(self) -> str:
        """torch's type of the devices that its tensors live on."""
        return load_target(self.plan.target).device


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
    patience: float = math.inf,
) -> Verdict:
    """Compile, run on every case and compare. `folder` takes the build; `settings` are `--set`.

    `budget` (seconds) bounds the cases that are looked for to reach what the planned ones do not,
    beside compiling; None, and `select`: nothing is looked for. `progress` hears of every case that
    is done; `select` may drop cases (shapes with kinds of input, smallest first, then the task's
    own sizes, then drawn ones); `small` scales the task's sizes down as for an interpreted target.
    `timeout` (seconds) bounds each run of the kernel, `compile_timeout` the build; after `patience`
    seconds of planned cases no further one begins where some passed and none failed. Raises
    `UsageError` when the task cannot be bound to the sketch, raises at its own sizes, or is not
    deterministic.
    """
    plan, kernel, status = candidate.plan, candidate.kernel, candidate.toolchain.status()
    binding = bind_task(plan.sketch, task, seed, settings)
    odd = _oddities(task, seed)
    freedom = find_freedom(binding, task)
    case_runner = _case_runner(candidate, binding, freedom, task, timeout)
    usual = INTERPRETED if small or status.interpreted or task.slow else NATIVE
    limits = Trials(plan, binding, freedom.free, usual).affordable()
    cases, varying, notes = _planned(case_runner, limits, seed, settings or {}, select)
    runner = Runner(case_runner, seed, progress, status.interpreted, patience)
    with closing(case_runner):
        refused = case_runner.build(folder, compile_timeout)
        if refused is not None or not status.never_built:
            runner.all(cases, refused, limits, budget if select is None else None, folder)
    passed = [result.shape for result in runner.results if result.passed]
    untaken, told = not_taken(varying, passed)
    if select is None:
        case_runner.gaps += [*untaken, *filter(None, [too_few(runner.results)])]
    _settle(task, seed, wrong=any(r.failure in ("design", "numerical") for r in runner.results))
    return Verdict(
        *(plan.sketch.name, plan.target, plan.hardware.name, str(task.path)),
        *(status.how_it_runs, seed, tuple(runner.results)),
        (*_read_off(candidate), *binding.notes, *odd, *notes, *told, *case_runner.notes, *_held()),
        dict(status.versions),
        constants_of(plan.sketch),
        dict(binding.params),
        {"path": candidate.path, "entry": kernel.entry, "foreign": kernel.foreign},
        _asked(candidate, task, settings or {}, timeout, budget),
        runner.reached,
        tuple(dict.fromkeys(case_runner.gaps)),
        tuple(case_runner.planted),
        taken_sides(varying, passed),
        unbuilt=status.never_built,
    )


def _planned(
    case_runner: CaseRunner,
    limits: Limits,
    seed: int,
    settings: Mapping[str, Scalar],
    select: Callable[[Cases], Cases] | None,
) -> tuple[Cases, Varying, list[str]]:
    """The cases in their order, the `Varying` with the other numbers among them, and notes on what
    there is no case for."""
    candidate, binding, freedom = case_runner.candidate, case_runner.binding, case_runner.freedom
    cases, others = _cases(candidate, binding, freedom, limits, seed)
    case_runner.gaps += others.gaps
    cases = _without_some(binding, cases)
    cases = cases if select is None else select(cases)
    shapes = list({case.text: case for case, _ in cases}.values())
    branches = Branches(binding.sketch)
    varying = Varying(binding, case_runner.task, freedom, branches, settings, shapes)
    if binding.params and shapes:
        varying.find()
    cases = with_variants(cases, varying, more=select is None)
    notes = [*filter(None, [tied_note(binding, freedom)]), *others.notes]
    if not any(case.own for case, _ in cases):
        how = candidate.toolchain.status().how_it_runs
        notes.append(f"the task's own sizes are scaled down; runs: {how}")
    if candidate.kernel.foreign and not binding.description.corrects:
        cases = with_neighbours(cases)
    return [*cases, *case_runner.more_cases(cases)], varying, notes


def _held() -> list[str]:
    """A note where the isolation of the workers is not complete."""
    held = worker.isolation()
    return [] if held.complete else [f"workers are held by {held.text}"]


def _asked(
    candidate: Candidate,
    task: Task,
    settings: Mapping[str, Scalar],
    timeout: float,
    budget: float | None,
) -> dict[str, Any]:
    """The settings of the request, with which a run can be repeated; the verdict has the rest."""
    signature = candidate.signature
    return {
        "task": getattr(task, "specification", str(task.path)),
        "task_timeout": getattr(task, "timeout", timeout),
        "timeout": timeout,
        "set": dict(settings),
        "sketch": candidate.picked,
        "signature": "" if signature is None else signature.name,
        "budget": budget,
    }


def _read_off(candidate: Candidate) -> list[str]:
    """A note with the signature, where it was read off the task and nobody wrote it."""
    if candidate.plan.phases or candidate.signature is not None:
        return []
    return [f"what the kernel is called with is read off the task: {shown(candidate.plan.sketch)}"]


def _oddities(task: Task, seed: int) -> tuple[str, ...]:
    """Notes on what is odd about a task. Raises `UsageError` for one that is not deterministic."""
    if not isinstance(task, TaskClient):
        return ()
    task.require_deterministic(seed % (1 << 31), wait=False)
    return task.notes


def _settle(task: Task, seed: int, *, wrong: bool) -> None:
    """Raises `UsageError` where a run of the task in another process differed, and where a kernel
    is `wrong` beside a task that gives no numbers."""
    if not isinstance(task, TaskClient):
        return
    task.settle()
    if wrong:
        task.require_numbers(seed % (1 << 31))


def _case_runner(
    candidate: Candidate, binding: Binding, freedom: Freedom, task: Task, timeout: float
) -> CaseRunner:
    """The runner for the cases of a candidate; that of a `ModelNew` has a model to build."""
    from sketchc.runtime.toolchains.torch_module.toolchain import TorchModules

    if isinstance(candidate.toolchain, TorchModules):
        from sketchc.runtime.verify.module_case_runner import ModuleCaseRunner

        return ModuleCaseRunner(candidate, binding, freedom, task, timeout)
    return CaseRunner(candidate, binding, freedom, task, timeout)


def _cases(
    candidate: Candidate, binding: Binding, freedom: Freedom, limits: Limits, seed: int
) -> tuple[Cases, OtherLists]:
    """Shapes with kinds of input, smallest shapes first, then the task's own, then those that are
    drawn; and what is known of the task's further lists of inputs.

    Sizes are drawn for kernels by others, and where hints restrict them. The sizes around the tiles
    of a sketch, primes included, are not drawn: they stay those of recorded runs.
    """
    plan, foreign, draws = candidate.plan, candidate.kernel.foreign, DrawnSizes(seed)
    interpreted = limits.longest == INTERPRETED.longest
    times = 1 if interpreted else 2
    found: Cases = []
    kinds = itertools.cycle(KINDS)
    around = draws if foreign and not plan.phases else None
    trials = Trials(plan, binding, freedom.free, limits)
    for case in trials.ragged(around):
        found += [(case, next(kinds)) for _ in range(times)]
    found += [(case, "normal") for case in trials.corner()]
    own_limits = limits if interpreted else within_memory(OWN, binding.description)
    short = "" if interpreted else memory_note(OWN, own_limits)
    at_own = attrs.evolve(trials, limits=own_limits)
    others = at_own.others()
    found += [(case, "task" if case.own else "normal") for case in others.cases]
    own = at_own.own()
    if not refusal(plan.sketch, own.symbols, binding.params):
        # Otherwise no smaller sizes satisfy the sketch's requires.
        like = LIKE if has_own(binding) else "normal"
        found += [(own, kind) for kind in (_OWN_KINDS if own.own else (like, "structured"))]
    names = freedom.free if foreign else freedom.free & binding.sizes.keys()
    for case in attrs.evolve(trials, free=names).drawn(draws):
        found += [(case, next(kinds)) for _ in range(times)]
    return found, attrs.evolve(others, notes=(*others.notes, *filter(None, [short])))


def _without_some(binding: Binding, cases: Cases) -> Cases:
    """The cases, which in turn, from the last on, have all optional tensors or none; of several,
    also all but one of them."""
    names = binding.omissible
    if not names:
        return cases
    turns = [(), names, *((name,) for name in names if len(names) > 1)]
    return [
        (attrs.evolve(case, absent=turns[(len(cases) - place) % len(turns)]), kind)
        for place, (case, kind) in enumerate(cases)
    ]
