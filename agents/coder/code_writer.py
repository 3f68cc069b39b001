"""A model that writes and mends kernels: from an assignment to code, and from evidence to a repair.

Knows nothing of runs: the Coder of `sketchc gen` and `sketchc lower --coder llm` both use it. A
reply that cannot be used goes back with the reason a bounded number of times; a prompt that is too
long is asked again with fewer documents. Repairs are edits of the code, not rewrites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.coder.messages import Assignment, repair_messages, write_messages
from sketchc.agents.llm.client import complete_whole
from sketchc.agents.llm.edits import apply_edits, parse_edits
from sketchc.agents.llm.errors import ContextOverflowError
from sketchc.agents.llm.messages import LanguageModel, Message, Request
from sketchc.agents.llm.replies import ReplyError, nothing_wrong, single_block
from sketchc.agents.prompts.rendering import message
from sketchc.agents.state.state import Feedback
from sketchc.lowering.kernel import Kernel
from sketchc.ops.table import OPS

if TYPE_CHECKING:
    from sketchc.docspec.schema import DocSpec

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
class CoderSettings:
    """`docs_tokens` bounds the documents in a prompt, in estimated tokens; `starting_point` shows
    the built-in Coder's code to the model that writes."""

    docs_tokens: int = 12_000
    starting_point: bool = True


def write_kernel(
    assignment: Assignment,
    model: LanguageModel,
    documents: DocSpec | None,
    settings: CoderSettings = CoderSettings(),
) -> Kernel:
    """A kernel written by `model`; `documents` are the target's, None for none.

    Raises `UnusableReplyError` when no reply holds code, and `LlmError`.
    """
    start = None
    if settings.starting_point and assignment.builtin is not None:
        start = assignment.builtin.source

    def messages(budget: int) -> tuple[Message, ...]:
        text = selected(documents, assignment, budget)
        return write_messages(assignment, text, start, budget)

    talk = _Conversation(model, "coder", messages, settings.docs_tokens)
    return _kernel(assignment, talk.code(assignment.contract.language.fence))


def repair_kernel(
    assignment: Assignment,
    source: str,
    feedback: Feedback,
    model: LanguageModel,
    documents: DocSpec | None,
    settings: CoderSettings = CoderSettings(),
    earlier: Sequence[str] = (),
    dispute: bool = False,
) -> Kernel:
    """`source` mended by edits; where no edits apply, by one whole rewrite.

    `earlier` holds a line on each failed attempt before. Raises `UnusableReplyError`, `LlmError`;
    and `NothingWrongError` where the model may (`dispute`), and does, say so.
    """

    def messages(budget: int, whole: bool = False) -> tuple[Message, ...]:
        text = selected(documents, assignment, budget, feedback.failure)
        return repair_messages(assignment, source, feedback, text, earlier, whole, dispute, budget)

    half = settings.docs_tokens // 2
    try:
        mended = _Conversation(model, "coder-repair", messages, half, dispute).edited(source)
    except UnusableReplyError:
        whole = functools.partial(messages, whole=True)
        again = _Conversation(model, "coder-repair", whole, half, dispute)
        mended = again.code(assignment.contract.language.fence)
    return _kernel(assignment, mended)


def selected(
    documents: DocSpec | None, assignment: Assignment, budget: int, failure: str = ""
) -> str:
    """The documents for an assignment (after a `failure`, for its repair) as Markdown."""
    if documents is None or budget <= 0:
        return ""
    from sketchc.docspec.needs import needs_of
    from sketchc.docspec.schema import FAILURES, TOPICS
    from sketchc.docspec.selector import select

    if assignment.plan is None:
        # A task may need anything: the budget alone decides.
        operations: tuple[str, ...] = tuple(OPS)
        topics: tuple[str, ...] = tuple(name for name in TOPICS if name not in FAILURES)
    else:
        needs = needs_of(assignment.sketch)
        operations, topics = needs.operations, needs.topics
    if failure:
        topics = (*topics, failure)
    return select(documents, operations, topics, budget).text()


def _kernel(assignment: Assignment, source: str) -> Kernel:
    return Kernel(
        target=assignment.target,
        hardware=assignment.hardware,
        name=assignment.sketch.name,
        entry=assignment.contract.entry,
        language=assignment.language,
        source=source,
        sketch=assignment.sketch,
        foreign=True,
    )


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

    def code(self, language: str) -> str:
        """The one fenced block of a reply."""
        return self._usable(lambda text: single_block(text, language))

    def edited(self, source: str) -> str:
        """`source` after the edits of a reply."""
        return self._usable(lambda text: apply_edits(source, parse_edits(text)))

    def _usable(self, read: Callable[[str], str]) -> str:
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
