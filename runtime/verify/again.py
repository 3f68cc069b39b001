"""Evidence that was disputed is taken again: with the seed it was taken with, and with a new one.

A kernel passes then only if no run failed but for the machine's sake. What the kernel itself was
seen to do before is not undone by a run that goes well: on the same inputs it then does now this,
now that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.runtime.verify.verdict import CaseResult, Verdict

#: What is seen of the kernel's own doing; other failures may be the machine's.
_SEEN = frozenset({"numerical", "nondeterministic", "illegal_access", "wrong_shape"})
_MACHINE = "infrastructure"


def taken_again(before: Verdict, same: Verdict, new: Verdict) -> Verdict:
    """One verdict of two: `same` was taken with the seed of the one before, `new` with another.
    Failures of the machinery count as cases that were not run."""
    failed = {_key(case): case for case in before.cases if case.failure in _SEEN}
    cases = [*(_unsteady(case, failed) for case in same.cases), *new.cases]
    note = (
        f"it was disputed that anything is wrong: the evidence was taken again, with seed "
        f"{same.seed} as before and with seed {new.seed}"
    )
    still = any(case.failed and case.failure != _MACHINE for case in cases[: len(same.cases)])
    return attrs.evolve(
        same,
        seed=same.seed if still else new.seed,
        cases=tuple(_not_run(case) for case in cases),
        notes=(note, *dict.fromkeys((*same.notes, *new.notes))),
        unreached=_unreached(same, new),
    )


def _unreached(same: Verdict, new: Verdict) -> tuple[str, ...]:
    """What neither run reached. One that failed has looked for nothing beyond its cases."""
    whole = [verdict for verdict in (same, new) if not verdict.failures]
    if not whole:
        return ("the machinery failed whenever the kernel was run",)
    first, *others = whole
    return tuple(g for g in first.unreached if all(g in other.unreached for other in others))


def _unsteady(case: CaseResult, failed: Mapping[tuple[Any, ...], CaseResult]) -> CaseResult:
    """A case that passes on the very inputs on which it failed."""
    earlier = failed.get(_key(case))
    if earlier is None or case.failed:
        return case
    said = f"{earlier.failure}: {earlier.reason}"
    reason = f"it passes now, and failed before on the same inputs ({said})"
    return attrs.evolve(case, failure="nondeterministic", reason=reason)


def _not_run(case: CaseResult) -> CaseResult:
    if case.failure != _MACHINE:
        return case
    return attrs.evolve(case, failure="skipped", reason=f"the machinery failed: {case.reason}")


def _key(case: CaseResult) -> tuple[Any, ...]:
    return (case.kind, case.seed, tuple(sorted(case.shape.symbols.items())), case.shape.variant)
