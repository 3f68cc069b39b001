"""Write, check, repair, until the code does what the sketch says: the loop of `sketchc lower
--coder llm`.

There is no task: the interpreter of the sketch is the reference, on shape cases derived from the
plan. Code that was not accepted never leaves the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.coder.code_writer import (
    CoderSettings,
    NothingWrongError,
    UnusableReplyError,
    repair_kernel,
    write_kernel,
)
from sketchc.agents.coder.messages import Assignment
from sketchc.agents.state.state import Feedback

if TYPE_CHECKING:
    from sketchc.agents.llm.messages import LanguageModel
    from sketchc.docspec.schema import DocSpec
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.plan import Plan
    from sketchc.runtime.verify.verdict import Verdict

#: Decides on a kernel; the number is that of the attempt.
Check = Callable[["Kernel", int], "Verdict"]
#: Hears in a line what is going on.
Note = Callable[[str], None]


@attrs.frozen
class Attempt:
    """One candidate. `kernel` and `verdict` are None when the model gave no usable reply, and
    `problem` then says so. `again`: it is the one before, whose evidence was taken again."""

    number: int
    kernel: Kernel | None
    verdict: Verdict | None
    problem: str = ""
    again: bool = False

    @property
    def checked(self) -> tuple[Kernel, Verdict]:
        """The candidate and its verdict, of one that has both."""
        assert self.kernel is not None
        assert self.verdict is not None
        return self.kernel, self.verdict


@attrs.frozen
class Coding:
    """How it went. `kernel` is the accepted one, None when there is none."""

    kernel: Kernel | None
    attempts: tuple[Attempt, ...]

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict; None when no code was ever checked."""
        return next((a.verdict for a in reversed(self.attempts) if a.verdict is not None), None)


def code_until_right(
    assignment: Assignment,
    model: LanguageModel,
    documents: DocSpec | None,
    settings: CoderSettings,
    check: Check,
    max_attempts: int,
    note: Note = lambda text: None,
) -> Coding:
    """Up to `max_attempts` candidates; each after the first is a repair of the one before, or, once
    for each, that one again, where the model says that nothing is wrong with it.

    It ends early when the model gives nothing usable, and when the machinery fails (a verdict of
    "infrastructure", or one without a case): there is nothing to repair then. Raises `LlmError`.
    """
    attempts: list[Attempt] = []
    for number in range(1, max_attempts + 1):
        note(f"attempt {number} of {max_attempts}")
        try:
            kernel = _next(assignment, model, documents, settings, attempts)
            attempts.append(Attempt(number, kernel, check(kernel, number)))
        except NothingWrongError as error:
            note(f"the model says that nothing is wrong: {error}; the evidence is taken again")
            attempts.append(_again(attempts[-1], number, check))
        except UnusableReplyError as error:
            attempts.append(Attempt(number, None, None, str(error)))
            break
        kernel, verdict = attempts[-1].checked
        if verdict.passed:
            return Coding(kernel, tuple(attempts))
        note(_told(attempts[-1]))
        if verdict.failure in ("", "infrastructure"):
            break
    return Coding(None, tuple(attempts))


def _next(
    assignment: Assignment,
    model: LanguageModel,
    documents: DocSpec | None,
    settings: CoderSettings,
    attempts: list[Attempt],
) -> Kernel:
    """The first candidate, or the last one mended."""
    if not attempts:
        return write_kernel(assignment, model, documents, settings)
    kernel, verdict = attempts[-1].checked
    earlier = [_told(attempt) for attempt in attempts[:-1]]
    return repair_kernel(
        assignment,
        kernel.source,
        feedback_of(verdict),
        model,
        documents,
        settings,
        earlier,
        dispute=not attempts[-1].again,
    )


def _again(last: Attempt, number: int, check: Check) -> Attempt:
    """The candidate before once more: with the inputs of that verdict, and with others."""
    from sketchc.runtime.verify.verdict import taken_again

    kernel, verdict = last.checked
    same = check(kernel, last.number)
    return Attempt(number, kernel, taken_again(verdict, same, check(kernel, number)), again=True)


def feedback_of(verdict: Verdict) -> Feedback:
    """A failed verdict as the Coder is told of it."""
    from sketchc.runtime.verify.evidence import evidence

    found = evidence(verdict)
    return Feedback(verdict.failure, str(found.get("reason", "")), found)


def _told(attempt: Attempt) -> str:
    """One line on a failed attempt."""
    if attempt.verdict is None:
        return f"attempt {attempt.number}: {attempt.problem}"
    feedback = feedback_of(attempt.verdict)
    return f"attempt {attempt.number}: {feedback.failure}: {feedback.reason}"


def sketch_check(plan: Plan, folder: Path, seed: int, timeout: float) -> Check:
    """Decides by the sketch's own interpretation at small sizes; builds go into `folder`, one place
    for each attempt, and `timeout` (seconds) bounds each run."""
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.design import verify_against_sketch
    from sketchc.runtime.verify.verify import Candidate

    tool = toolchain(plan.target)

    def check(kernel: Kernel, number: int) -> Verdict:
        # Other inputs for each attempt: a repair must not fit one draw.
        return verify_against_sketch(
            Candidate(plan, kernel, tool),
            folder / f"{number:03}",
            seed + 1000 * number,
            timeout=timeout,
        )

    return check
