"""The Designer: from a task and a target to a sketch that means what the task means.

It asks a language model, puts each reply through the gate (`design_check`), and sends what is wrong
straight back, up to the run's `max_repairs`. Only a sketch that passed leaves with "designed".

Levels: a design wants the most capable model ("complex"). A diagnostic names the place and usually
the cure, so a repair starts at "standard"; where the same codes come back, and where the sketch
computes the wrong thing, "complex" is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.designer.design_check import Finding, design_check
from sketchc.agents.designer.messages import (
    repair_message,
    sketch_name,
    system_message,
    user_message,
)
from sketchc.agents.llm.client import complete_whole
from sketchc.agents.llm.messages import ContextOverflowError, LanguageModel, Message, Reply, Request
from sketchc.agents.llm.replies import ReplyError, single_block
from sketchc.agents.state.state import RunContext, RunState, Turn
from sketchc.base.diagnostics import InternalError, Source

PURPOSE = "designer"
REPAIR = "designer-repair"

#: So many of the last exchanges stay in the conversation. The head, which is most of the tokens,
#: always stays, so that a provider's cache of prompts holds.
KEPT_EXCHANGES = 3


@attrs.frozen
class Attempt:
    """One reply of the model. `sketch` is "" where the reply held none, `finding` is what the gate
    refused, None for a sketch that passed."""

    number: int
    sketch: str
    finding: Finding | None

    def trace(self) -> dict[str, Any]:
        """The attempt as the record of the run shows it."""
        found = self.finding
        return {
            "number": self.number,
            "stage": found.stage if found else "accepted",
            "codes": list(found.codes) if found else [],
            "summary": found.summary if found else "",
        }


class Designer:
    """The agent "designer"; see the module's docstring."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Ask, check, mend; "designed" or "gave_up".

        Raises `LlmError` when the model cannot be reached, `UsageError` when the task is broken.
        """
        if context.model is None:
            raise InternalError("the Designer needs a language model")
        conversation = _Conversation(context.model, context, user_message(state, context))
        attempts: list[Attempt] = []
        for number in range(1, context.max_repairs + 2):
            context.progress.note("designer", _doing(number, state, context))
            attempt = _attempt(number, conversation, context)
            attempts.append(attempt)
            if attempt.finding is None:
                return _designed(state, attempts)
            context.progress.note("designer", f"sketch {number}: {attempt.finding.summary}")
            conversation.refuse(attempt, attempts[:-1])
        return _gave_up(state, attempts)


def _doing(number: int, state: RunState, context: RunContext) -> str:
    if number == 1:
        return "asks for a sketch" if state.feedback is None else "asks for another sketch"
    return f"asks for a repair ({number - 1} of {context.max_repairs})"


def _attempt(number: int, conversation: _Conversation, context: RunContext) -> Attempt:
    """One reply of the model, and what the gate says of its sketch."""
    reply = conversation.ask()
    try:
        text = single_block(reply.text, "sketch")
    except ReplyError as error:
        evidence: Mapping[str, Any] = {"problem": str(error)}
        return Attempt(number, "", Finding("reply", "syntax", (), str(error), evidence))
    sketch = _renamed(text, sketch_name(context.name))
    context.progress.note("designer", f"sketch {number}: checks it")
    return Attempt(number, sketch, design_check(sketch, context))


def _renamed(text: str, name: str) -> str:
    """The text with its one sketch named `name`: a slip not worth a call."""
    from sketchc.parsing.parser import parse

    tree, _ = parse(Source("sketch", text))
    if tree is None or len(tree.entries) != 1 or tree.entries[0].name == name:
        return text
    span = tree.entries[0].name_span
    return text[: span.start] + name + text[span.end :]


# ---------------------------------------------------------------- the conversation


@attrs.define
class _Conversation:
    """What is said to the model: the head, and the last few exchanges."""

    model: LanguageModel
    context: RunContext
    user: Message
    examples: bool = True
    exchanges: list[tuple[Message, Message]] = attrs.field(factory=list)
    reply: Reply | None = None
    level: str = "complex"
    purpose: str = PURPOSE

    def ask(self) -> Reply:
        """The model's whole reply. A prompt too long for it is asked again without examples."""
        try:
            self.reply = complete_whole(self.model, self._request())
        except ContextOverflowError:
            if not self.examples:
                raise
            self.examples = False
            self.reply = complete_whole(self.model, self._request())
        return self.reply

    def refuse(self, attempt: Attempt, earlier: list[Attempt]) -> None:
        """Add the reply and what is wrong with it, and choose the level that is asked next."""
        assert self.reply is not None
        assert attempt.finding is not None
        self.level = _level(attempt, earlier)
        self.purpose = REPAIR
        before = [(item.number, item.finding.summary) for item in earlier if item.finding]
        wrong = repair_message(attempt.finding, attempt.sketch, before, self.context)
        self.exchanges.append((Message("assistant", self.reply.text), wrong))
        del self.exchanges[:-KEPT_EXCHANGES]

    def _request(self) -> Request:
        system = system_message(self.context, self.examples)
        said = [message for exchange in self.exchanges for message in exchange]
        return Request(self.purpose, self.level, (system, self.user, *said))


def _level(attempt: Attempt, earlier: list[Attempt]) -> str:
    """The level of models that is asked to mend this attempt."""
    found = attempt.finding
    assert found is not None
    if found.stage == "meaning":
        return "complex"
    last = earlier[-1].finding if earlier else None
    stuck = last is not None and (last.stage, set(last.codes)) == (found.stage, set(found.codes))
    return "complex" if stuck else "standard"


# ---------------------------------------------------------------- outcomes


def _designed(state: RunState, attempts: list[Attempt]) -> Turn:
    left = attrs.evolve(state, sketch=attempts[-1].sketch, kernel=None, feedback=None, verdict=None)
    refused = [", ".join(a.finding.codes) or a.finding.stage for a in attempts if a.finding]
    before = f"; refused before: {'; '.join(refused)}" if refused else ""
    reason = f"the sketch checks, fits the target, and means what the task means{before}"
    return Turn(left, "designed", reason, details={"attempts": [a.trace() for a in attempts]})


def _gave_up(state: RunState, attempts: list[Attempt]) -> Turn:
    """The turn without an accepted sketch. The best attempt stays: the one that came furthest, the
    latest of several."""
    refused = [(item, item.finding) for item in attempts if item.finding is not None]
    best, found = max(
        refused, key=lambda pair: (bool(pair[0].sketch), pair[1].rank, pair[0].number)
    )
    left = attrs.evolve(
        state, sketch=best.sketch or state.sketch, kernel=None, feedback=None, verdict=None
    )
    reason = f"no sketch was accepted in {len(attempts)} tries; the best: {found.summary}"
    details = {
        "attempts": [attempt.trace() for attempt in attempts],
        "best": best.number,
        "evidence": dict(found.evidence),
    }
    return Turn(left, "gave_up", reason, found.failure, details)
