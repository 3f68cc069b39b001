"""A model that writes and mends kernels: from an assignment to code, and from evidence to a repair.

Knows nothing of runs: the Coder of `sketchc gen` uses it, and so does the loop of `sketchc lower
--coder llm` (`code_until_right`), which writes, checks and repairs until the code does what the
sketch says: there is no task, the sketch's interpretation is the reference. A
reply that cannot be used goes back with the reason a bounded number of times; a prompt that is too
long is asked again with fewer documents. Repairs are edits of the code, a rewrite only where none
applies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.coder.messages import Assignment, repair_messages, write_messages
from sketchc.agents.llm.client import complete_whole
from sketchc.agents.llm.messages import ContextOverflowError, LanguageModel, Message, Request
from sketchc.agents.llm.replies import (
    ReplyError,
    apply_edits,
    nothing_wrong,
    parse_edits,
    single_block,
)
from sketchc.agents.prompts.rendering import message
from sketchc.agents.state.state import Feedback
from sketchc.docspec.needs import needs_of
from sketchc.docspec.schema import TOPICS, DocSpec
from sketchc.docspec.selector import select
from sketchc.lowering.kernel import Kernel
from sketchc.ops.table import OPS
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.design import verify_against_sketch
from sketchc.runtime.verify.evidence import evidence
from sketchc.runtime.verify.verdict import Verdict, taken_again
from sketchc.runtime.verify.verify import Candidate

if TYPE_CHECKING:
    from sketchc.lowering.plan import Plan

#: Which model writes code.
LEVEL = "complex"
#: A prompt that is too long is asked again with half the documents, so often.
_HALVINGS = 2
#: Replies that cannot be used go back with the reason, so often, before the next step.
_CORRECTIONS = 2


class UnusableReplyError(Exception):
    """The model gave no code, or no edits that apply, however often it was told why."""


class NothingWrongError(Exception):
    """The model says that neither sketch nor code is at fault; the message is why."""


@attrs.frozen
class KernelWriter:
    """A `model` that writes and mends the kernel of an assignment. `documents` are the target's,
    None for none; `docs_tokens` bounds them in a prompt, in estimated tokens; `starting_point`
    shows the built-in Coder's code to the model that writes."""

    assignment: Assignment
    model: LanguageModel
    documents: DocSpec | None = None
    docs_tokens: int = 12_000
    starting_point: bool = True

    def write(self) -> Kernel:
        """A new kernel. Raises `UnusableReplyError` when no reply holds code, and `LlmError`."""
        builtin = self.assignment.builtin if self.starting_point else None
        start = None if builtin is None else builtin.source

        def messages(budget: int) -> tuple[Message, ...]:
            text = selected(self.documents, self.assignment, budget)
            return write_messages(self.assignment, text, start, budget)

        talk = _Conversation(self.model, "coder", messages, self.docs_tokens)
        return self._kernel(talk.usable(self._block))

    def repair(
        self,
        source: str,
        feedback: Feedback,
        earlier: Sequence[str] = (),
        dispute: bool = False,
    ) -> Kernel:
        """`source` mended by edits; where no edits apply, by one whole rewrite.

        `earlier` holds a line on each failed attempt before. Raises `UnusableReplyError`,
        `LlmError`; and `NothingWrongError` where the model may (`dispute`), and does, say so.
        """
        given = self.assignment

        def messages(budget: int, whole: bool = False) -> tuple[Message, ...]:
            text = selected(self.documents, given, budget, feedback.failure)
            return repair_messages(given, source, feedback, text, earlier, whole, dispute, budget)

        half = self.docs_tokens // 2
        try:
            talk = _Conversation(self.model, "coder-repair", messages, half, dispute)
            return self._kernel(talk.usable(lambda text: apply_edits(source, parse_edits(text))))
        except UnusableReplyError:
            whole = functools.partial(messages, whole=True)
            again = _Conversation(self.model, "coder-repair", whole, half, dispute)
            return self._kernel(again.usable(self._block))

    def _block(self, text: str) -> str:
        """The one fenced block of a reply."""
        return single_block(text, self.assignment.contract.language.fence)

    def _kernel(self, source: str) -> Kernel:
        given = self.assignment
        return Kernel(
            target=given.target,
            hardware=given.hardware,
            name=given.sketch.name,
            entry=given.contract.entry,
            language=given.language,
            source=source,
            sketch=given.sketch,
            foreign=True,
        )


def selected(
    documents: DocSpec | None, assignment: Assignment, budget: int, failure: str = ""
) -> str:
    """The documents for an assignment (after a `failure`, for its repair) as Markdown."""
    if documents is None or budget <= 0:
        return ""
    if assignment.plan is None:
        # A task may need anything: the budget alone decides.
        operations: tuple[str, ...] = tuple(OPS)
        topics = TOPICS
    else:
        needs = needs_of(assignment.sketch)
        operations, topics = needs.operations, needs.topics
    if failure:
        topics = (*topics, failure)
    return select(documents, operations, topics, budget).text()


@attrs.define
class _Conversation:
    """A question and what follows until the reply can be used. `opening` makes the first messages
    for a budget of documents in tokens, which is halved when the prompt is too long. `dispute`: a
    reply may be that nothing is wrong."""

    model: LanguageModel
    purpose: str
    opening: Callable[[int], tuple[Message, ...]]
    budget: int
    dispute: bool = False
    rest: tuple[Message, ...] = ()

    def usable(self, read: Callable[[str], str]) -> str:
        """What `read` makes of the first reply that it can use."""
        for _ in range(1 + _CORRECTIONS):
            text = self._ask()
            if self.dispute and (why := nothing_wrong(text)):
                raise NothingWrongError(why)
            try:
                return read(text)
            except ReplyError as error:
                correction = message("user", "coder_correction.jinja", reason=str(error))
                self.rest += (Message("assistant", text), correction)
                problem = str(error)
        msg = f"no usable reply in {1 + _CORRECTIONS} tries; the last: {problem}"
        raise UnusableReplyError(msg)

    def _ask(self) -> str:
        for halving in range(1 + _HALVINGS):
            request = Request(self.purpose, LEVEL, self.opening(self.budget) + self.rest)
            try:
                return complete_whole(self.model, request).text
            except ContextOverflowError:
                if halving == _HALVINGS:
                    raise
                self.budget //= 2
        raise AssertionError


#: A function that gives the verdict on a kernel; the number is that of the attempt.
Check = Callable[["Kernel", int], "Verdict"]
#: A function that is told, in a line, what is going on.
Note = Callable[[str], None]


@attrs.frozen
class Attempt:
    """One candidate. `again`: the candidate before once more, whose evidence was taken again."""

    number: int
    kernel: Kernel
    verdict: Verdict
    again: bool = False


@attrs.frozen
class Coding:
    """How writing the kernel went, in so many attempts. `kernel` is the accepted one, None when
    there is none; `verdict` is the last, None when no code was ever checked; `problem` says why the
    last reply could not be used, "" where it could."""

    attempts: int
    kernel: Kernel | None
    verdict: Verdict | None
    problem: str = ""


def code_until_right(
    writer: KernelWriter, check: Check, max_attempts: int, note: Note = lambda text: None
) -> Coding:
    """Up to `max_attempts` candidates; each after the first is a repair of the one before, or, once
    for each, that one again, where the model says that nothing is wrong with it.

    It ends early when the model gives nothing usable, and when the machinery fails (a verdict of
    "infrastructure", or one without a case): there is nothing to repair then. Raises `LlmError`.
    """
    attempts: list[Attempt] = []
    number, problem = 0, ""
    for number in range(1, max_attempts + 1):
        note(f"attempt {number} of {max_attempts}")
        try:
            kernel = _next(writer, attempts)
            last = Attempt(number, kernel, check(kernel, number))
        except NothingWrongError as error:
            note(f"the model says that nothing is wrong: {error}; the evidence is taken again")
            last = _again(attempts[-1], number, check)
        except UnusableReplyError as error:
            problem = str(error)
            break
        attempts.append(last)
        if last.verdict.passed:
            return Coding(number, last.kernel, last.verdict)
        note(_told(last))
        if last.verdict.failure in ("", "infrastructure"):
            break
    return Coding(number, None, attempts[-1].verdict if attempts else None, problem)


def _next(writer: KernelWriter, attempts: list[Attempt]) -> Kernel:
    """The first candidate, or the last one mended."""
    if not attempts:
        return writer.write()
    last = attempts[-1]
    earlier = [_told(attempt) for attempt in attempts[:-1]]
    return writer.repair(last.kernel.source, feedback_of(last.verdict), earlier, not last.again)


def _again(last: Attempt, number: int, check: Check) -> Attempt:
    """The candidate of `last` checked again: with the inputs of its verdict, and with others."""
    same = check(last.kernel, last.number)
    verdict = taken_again(last.verdict, same, check(last.kernel, number))
    return Attempt(number, last.kernel, verdict, again=True)


def feedback_of(verdict: Verdict) -> Feedback:
    """A failed verdict as the Coder is told of it."""
    found = evidence(verdict)
    return Feedback(verdict.failure, str(found.get("reason", "")), found)


def _told(attempt: Attempt) -> str:
    """One line on a failed attempt."""
    feedback = feedback_of(attempt.verdict)
    return f"attempt {attempt.number}: {feedback.failure}: {feedback.reason}"


def sketch_check(plan: Plan, folder: Path, seed: int, timeout: float) -> Check:
    """A check of kernels against the sketch's own interpretation at small sizes; builds go into
    `folder`, one place for each attempt, and `timeout` (seconds) bounds each run."""
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
