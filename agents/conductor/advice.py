"""What the Conductor asks a language model: a suggestion for the agent that mends a failure, and,
where evidence does not decide, which agent that is. The reply is one strict JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.client import complete_whole
from sketchc.agents.llm.errors import ContextOverflowError, TruncatedError
from sketchc.agents.llm.messages import LanguageModel, Message, Request
from sketchc.agents.llm.replies import NOTHING_WRONG, ReplyError, json_object
from sketchc.agents.prompts.rendering import message
from sketchc.agents.state.state import RunState
from sketchc.lowering.registry import load_language

if TYPE_CHECKING:
    from sketchc.agents.conductor.conductor import Route
    from sketchc.agents.state.run_context import Session

#: A wrong route or a wrong suggestion costs an attempt of the models at level "complex", so "fast"
#: saves in the wrong place; and the question is small: evidence is given, no code is written.
LEVEL = "standard"
#: How often a reply that is not the JSON asked for goes back.
CORRECTIONS = 1
#: Estimated tokens of the target's suggestions in the prompt, and characters of the code.
DOCUMENT_TOKENS = 1500
CODE_CHARACTERS = 24_000
#: Failures that another way of doing it may cure.
_WANTS_STRATEGIES = ("resource", "timeout")
#: Fields of a reply are cut off there (characters).
_LONGEST_FIELD = 2000


@attrs.frozen
class Advice:
    """`agent` is "coder" or "designer" where the model was asked to decide, else ""; all is empty
    when no reply could be used. `nothing_wrong` is why neither sketch nor code can be at fault,
    where the model says so. `problems` say what was wrong with replies."""

    agent: str = ""
    diagnosis: str = ""
    suggestion: str = ""
    nothing_wrong: str = ""
    problems: tuple[str, ...] = ()


def ask(model: LanguageModel, state: RunState, session: Session, found: Route) -> Advice:
    """Ask about the failure of the last step. Raises `LlmError`, except where the prompt or the
    reply is too long: then, as after unusable replies, there is no advice."""
    decide, dispute = not found.certain, may_dispute(state)
    known = facts(state, session, found)
    messages: tuple[Message, ...] = (
        message("system", "conductor_system.jinja", decide=decide),
        message("user", "conductor.jinja", decide=decide, dispute=dispute, **known),
    )
    problems: list[str] = []
    for _ in range(1 + CORRECTIONS):
        try:
            text = complete_whole(model, Request("conductor", LEVEL, messages)).text
        except (ContextOverflowError, TruncatedError) as error:
            return Advice(problems=(*problems, str(error)))
        try:
            return attrs.evolve(parse(text, decide, dispute), problems=tuple(problems))
        except ReplyError as error:
            problems.append(str(error))
            correction = message("user", "conductor_correction.jinja", reason=str(error))
            messages += (Message("assistant", text), correction)
    return Advice(problems=tuple(problems))


def may_dispute(state: RunState) -> bool:
    """Whether a model may say that nothing is wrong: of what the Verifier found, once a verdict."""
    return state.history[-1].agent == "verifier" and not state.disputed


def parse(text: str, decide: bool, dispute: bool = False) -> Advice:
    """The advice in a reply: one JSON object with exactly the fields asked for; with `dispute` it
    may say instead that nothing is wrong. Raises `ReplyError`."""
    data = json_object(text)
    wanted = ["route", "diagnosis", "suggestion"] if decide else ["diagnosis", "suggestion"]
    if dispute and NOTHING_WRONG in data:
        wanted = [NOTHING_WRONG]
    if sorted(data) != sorted(wanted):
        msg = f"the object's keys must be exactly: {', '.join(wanted)}"
        raise ReplyError(msg)
    for key, value in data.items():
        if not isinstance(value, str) or not value.strip():
            msg = f"{key!r} must be a text that is not empty"
            raise ReplyError(msg)
    if NOTHING_WRONG in data:
        return Advice(nothing_wrong=data[NOTHING_WRONG].strip()[:_LONGEST_FIELD])
    agent = data.get("route", "")
    if decide and agent not in ("coder", "designer"):
        msg = f'"route" must be "coder" or "designer", not {json.dumps(agent)}'
        raise ReplyError(msg)
    shorter = {key: data[key].strip()[:_LONGEST_FIELD] for key in ("diagnosis", "suggestion")}
    return Advice(agent=agent, **shorter)


def facts(state: RunState, session: Session, found: Route) -> dict[str, Any]:
    """What the template shows; nothing in it depends on the machine."""
    from sketchc.agents.conductor.conductor import evidence_data, failure_of, told
    from sketchc.runtime.verify.verdict import FAILURES

    last = state.history[-1]
    failure = failure_of(last)
    earlier = [
        {"attempt": step.attempt, "agent": step.agent, "failure": step.failure, "why": told(step)}
        for step in state.history[:-1]
        if step.failure and step.agent != "conductor"
    ]
    kernel = state.kernel
    # Documents are about code, and nobody can change what the built-in Coder writes.
    builtin = kernel is not None and kernel.origin == "builtin"
    return {
        "name": session.name,
        "target": session.target,
        "agent": found.agent,
        "route_reason": found.reason,
        "failure": failure,
        "meaning": FAILURES.get(failure, failure),
        "reason": told(last),
        "evidence": evidence_data(last),
        "earlier": earlier,
        "task": session.task_source,
        "sketch": state.sketch,
        "builtin": builtin,
        "code": _shortened(kernel.source) if kernel is not None else "",
        "fence": load_language(kernel.language).fence if kernel else "",
        "documents": "" if builtin else documents(state, session, failure),
        "documents_name": f"advice on {session.target}",
    }


def _shortened(source: str) -> str:
    """The code, without its middle where it is very long."""
    if len(source) <= CODE_CHARACTERS:
        return source
    half = CODE_CHARACTERS // 2
    return f"{source[:half]}\n[... {len(source) - 2 * half} characters ...]\n{source[-half:]}"


def documents(state: RunState, session: Session, failure: str) -> str:
    """The target's expert suggestions that serve this sketch and this failure; "" for none."""
    from sketchc.agents.state.candidates import plan_of, signature_plan
    from sketchc.base.diagnostics import DiagnosticError, UsageError
    from sketchc.docspec.loader import load
    from sketchc.docspec.needs import needs_of
    from sketchc.docspec.schema import Category
    from sketchc.docspec.selector import select

    try:
        plan = plan_of(state.sketch, session) if state.sketch else signature_plan(session)
        spec = load(session.target)
    except (DiagnosticError, UsageError):
        return ""
    needs = needs_of(plan.sketch)
    categories = [Category.PITFALLS]
    if failure in _WANTS_STRATEGIES:
        categories.append(Category.STRATEGIES)
    topics = (*needs.topics, failure)
    return select(spec, needs.operations, topics, DOCUMENT_TOKENS, categories).text()
