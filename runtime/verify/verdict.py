"""The outcome of a verification as frozen data, as JSON, and read from JSON again.

Evidence that was disputed is taken again (`taken_again`): with the seed it was taken with, and with
a new one. A kernel passes then only if no run failed for other reasons than the machine's. A
failure that is the kernel's own is not undone by a run on the same inputs that passes: the kernel
is then nondeterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from sketchc.base.json_form import from_plain, to_plain
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.words import FAILED, INCOMPLETE, PASSED, SKIPPED, UNBUILT

#: The classes of failure, and who can mend them (a Conductor routes by this).
FAILURES: dict[str, str] = {
    "syntax": "the code is not well-formed in its language",
    "api_misuse": "the code uses names or arguments that the language or its libraries do not have",
    "compile": "the generated code does not compile",
    "resource": "the kernel wants more memory, registers or elements than there are",
    "launch": "the kernel could not be launched, or refused its arguments",
    "timeout": "the kernel did not end in time",
    "illegal_access": "the kernel touched memory outside its buffers, or wrote into its inputs",
    "wrong_shape": "an output has another shape or dtype than the task's",
    "numerical": "an output differs from the reference",
    "nondeterministic": "two runs on the same inputs differ",
    "design": "the sketch itself, interpreted, differs from the reference",
    "policy": "the kernel leaves its work to others instead of doing it itself",
    "infrastructure": "the machinery failed; this says nothing about the kernel",
}


@attrs.frozen
class CaseResult:
    """One run of the kernel: the sizes, the kind of input and its seed, and the result.

    `failure` is "" for a passed case, "skipped" for sizes that the task itself refuses, or a key of
    `FAILURES`; `reason` is a sentence and `log` an excerpt of what a tool printed. The blame, where
    it was asked for: `sketch_right` says that the sketch's interpretation equals the reference on
    this case, `code_as_sketch` that the code equals the interpretation; `undecided` says why the
    interpreter could not be asked, so that either may be wrong. `telling`: most elements of the
    reference are numbers; `drawn_as`: the kind of input drawn in place of `kind`, for more numbers.
    """

    shape: ShapeCase
    kind: str
    seed: int
    failure: str
    reason: str
    comparisons: tuple[Comparison, ...] = ()
    runs: int = 1
    reduction_length: int = 1
    seconds: float = 0.0
    log: str = ""
    sketch_right: bool | None = None
    code_as_sketch: bool | None = None
    undecided: str = ""
    telling: bool = True
    drawn_as: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel was right."""
        return not self.failure

    @property
    def failed(self) -> bool:
        """Whether the kernel was wrong, which it is not where the task refused the sizes."""
        return self.state == FAILED

    @property
    def state(self) -> str:
        """The result in a word: passed, failed or skipped."""
        return PASSED if self.passed else SKIPPED if self.failure == SKIPPED else FAILED

    @property
    def worst(self) -> float | None:
        """The largest error of all outputs, as a share of what is allowed; None where no output was
        compared."""
        return max((comparison.worst for comparison in self.comparisons), default=None)

    @property
    def max_error(self) -> float | None:
        """The largest error of all outputs."""
        return max((comparison.max_error for comparison in self.comparisons), default=None)


@attrs.frozen
class Verdict:
    """What is known of one kernel after verification.

    It passed when every case that ran passed, at least one did, and everything was reached that has
    to be. `failure` is the class of the smallest failing case. `kernel`: the file's "path", its
    "entry", and whether it is "foreign". `asked`: the other settings of the request, which decide
    the result, too (see `verify`). `reached`: the loops that ran again, and the tiles that met
    others, in words; `unreached`: why a verdict without a failure is `incomplete`, a sentence each.
    `planted`: the numbers that inputs held, with their neighbours; `branches`: the sides that were
    taken of branches that depend on params and optional tensors, in words. `unbuilt`: why nobody
    can build kernels of this target; only the text of this one was looked at then.
    """

    sketch: str
    target: str
    hardware: str
    task: str
    how_it_runs: str
    seed: int
    cases: tuple[CaseResult, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = attrs.field(factory=dict)
    constants: Mapping[str, int | float | bool] = attrs.field(factory=dict)
    params: Mapping[str, int | float | bool] = attrs.field(factory=dict)
    kernel: Mapping[str, str | bool] = attrs.field(factory=dict)
    asked: Mapping[str, Any] = attrs.field(factory=dict)
    reached: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    planted: tuple[int | float | bool, ...] = ()
    branches: tuple[str, ...] = ()
    unbuilt: str = ""

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(case for case in self.cases if case.failed)

    @property
    def passed(self) -> bool:
        """Whether the verdict is a pass."""
        return self.word == PASSED

    @property
    def word(self) -> str:
        """The verdict in a word; one that is `incomplete` is no pass, though nothing is known to be
        wrong."""
        if self.failures:
            return FAILED
        if self.unbuilt:
            return UNBUILT
        some = any(case.passed for case in self.cases)
        return PASSED if some and not self.unreached else INCOMPLETE

    @property
    def incomplete(self) -> bool:
        """Whether no case failed, and too little was reached for a pass."""
        return self.word in (INCOMPLETE, UNBUILT)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why the verdict is incomplete."""
        if self.word == UNBUILT:
            return (self.unbuilt,)
        if not self.incomplete or any(case.passed for case in self.cases):
            return self.unreached
        return ("the task refuses every case", *self.unreached)

    @property
    def failure(self) -> str:
        """The class of the first failure; "" when there is none."""
        return self.failures[0].failure if self.failures else ""


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Plain data for `--json`; NaN and infinities as text, since JSON has none."""
    data = attrs.asdict(verdict, recurse=True)
    data |= {"verdict": verdict.word, "passed": verdict.passed, "failure": verdict.failure}
    for case, plain in zip(verdict.cases, data["cases"], strict=True):
        plain["passed"] = case.passed
        for comparison, inner in zip(case.comparisons, plain["comparisons"], strict=True):
            inner["passed"] = comparison.passed
            if comparison.paper is not None:
                inner["paper"]["passed"] = comparison.paper.passed
    plain_data: dict[str, Any] = to_plain(data)
    return plain_data


def from_json(data: Mapping[str, Any], text: Callable[[str], str] = str) -> Verdict:
    """The verdict that `to_json` gave, of this version or another; each text goes through `text`. A
    field that is missing gets an empty value."""
    return from_plain(Verdict, data, text=text)


#: Failures that are the kernel's own doing; others may be the machine's.
_SEEN = frozenset({"numerical", "nondeterministic", "illegal_access", "wrong_shape"})
_MACHINE = "infrastructure"


def taken_again(before: Verdict, same: Verdict, new: Verdict) -> Verdict:
    """One verdict of two: `same` was taken with the seed of `before`, `new` with another. Failures
    of the machinery count as cases that were not run."""
    failed = {_key(case): case for case in before.cases if case.failure in _SEEN}
    cases = [*(_unsteady(case, failed) for case in same.cases), *new.cases]
    note = (
        f"it was disputed that anything is wrong: the evidence was taken again, with seed "
        f"{same.seed} as before and with seed {new.seed}"
    )
    still = any(case.failed and case.failure != _MACHINE for case in cases[: len(same.cases)])
    # A verdict with failures has looked for nothing beyond its cases.
    whole = [verdict.unreached for verdict in (same, new) if not verdict.failures]
    unreached = ["the machinery failed whenever the kernel was run"]
    if whole:
        unreached = [gap for gap in whole[0] if all(gap in others for others in whole)]
    return attrs.evolve(
        same,
        seed=same.seed if still else new.seed,
        cases=tuple(
            attrs.evolve(case, failure=SKIPPED, reason=f"the machinery failed: {case.reason}")
            if case.failure == _MACHINE
            else case
            for case in cases
        ),
        notes=(note, *dict.fromkeys((*same.notes, *new.notes))),
        unreached=tuple(unreached),
    )


def _unsteady(case: CaseResult, failed: Mapping[tuple[Any, ...], CaseResult]) -> CaseResult:
    """`case`, made a failure if it passes on the very inputs on which it failed before."""
    earlier = failed.get(_key(case))
    if earlier is None or case.failed:
        return case
    said = f"{earlier.failure}: {earlier.reason}"
    reason = f"it passes now, and failed before on the same inputs ({said})"
    return attrs.evolve(case, failure="nondeterministic", reason=reason)


def _key(case: CaseResult) -> tuple[Any, ...]:
    return (case.kind, case.seed, tuple(sorted(case.shape.symbols.items())), case.shape.variant)
