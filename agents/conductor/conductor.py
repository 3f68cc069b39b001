"""The Conductor: who mends what failed (arXiv 2512.23424, Algorithm 1), evidence first.

One literal table says what a failure's class means for the route; what the table leaves to evidence
is decided by the sketch's own interpretation, by the plan's estimate, and by the history of the
run. A language model decides only what evidence leaves open; otherwise it writes the suggestion
that goes with the work. Each route is recorded with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, assert_never

import attrs

from sketchc.agents.conductor.estimate import estimate
from sketchc.agents.llm.client import complete_whole
from sketchc.agents.llm.messages import (
    ContextOverflowError,
    LanguageModel,
    Message,
    Request,
    TruncatedError,
)
from sketchc.agents.llm.replies import NOTHING_WRONG, ReplyError, json_object, reject
from sketchc.agents.prompts.rendering import message
from sketchc.agents.state.candidates import plan_of, signature_plan
from sketchc.agents.state.state import Feedback, RunContext, RunState, Step, Turn
from sketchc.base.diagnostics import DiagnosticError, UsageError
from sketchc.docspec.loader import load
from sketchc.docspec.needs import needs_of
from sketchc.docspec.schema import Category
from sketchc.docspec.selector import select
from sketchc.lowering.registry import load_language
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.evidence import clean_log
from sketchc.runtime.verify.verdict import FAILURES, from_json

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


def ask(model: LanguageModel, state: RunState, context: RunContext, found: Route) -> Advice:
    """Ask about the failure of the last step. Raises `LlmError`, except where the prompt or the
    reply is too long: then, as after unusable replies, there is no advice."""
    decide, dispute = not found.certain, may_dispute(state)
    known = facts(state, context, found)
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
    """Whether a model may say that nothing is wrong: after a Verifier's step, once a verdict."""
    return state.history[-1].agent == "verifier" and not state.disputed


def parse(text: str, decide: bool, dispute: bool = False) -> Advice:
    """The advice in a reply: one JSON object with exactly the fields asked for; with `dispute` it
    may say instead that nothing is wrong. Raises `ReplyError`."""
    data = json_object(text)
    wanted = ["route", "diagnosis", "suggestion"] if decide else ["diagnosis", "suggestion"]
    if dispute and NOTHING_WRONG in data:
        wanted = [NOTHING_WRONG]
    if sorted(data) != sorted(wanted):
        reject(f"the object's keys must be exactly: {', '.join(wanted)}")
    for key, value in data.items():
        if not isinstance(value, str) or not value.strip():
            reject(f"{key!r} must be a text that is not empty")
    if NOTHING_WRONG in data:
        return Advice(nothing_wrong=data[NOTHING_WRONG].strip()[:_LONGEST_FIELD])
    agent = data.get("route", "")
    if decide and agent not in ("coder", "designer"):
        reject(f'"route" must be "coder" or "designer", not {json.dumps(agent)}')
    shorter = {key: data[key].strip()[:_LONGEST_FIELD] for key in ("diagnosis", "suggestion")}
    return Advice(agent=agent, **shorter)


def facts(state: RunState, context: RunContext, found: Route) -> dict[str, Any]:
    """The values of the prompt's template; nothing in them depends on the machine."""
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
        "name": context.name,
        "target": context.target,
        "agent": found.agent,
        "route_reason": found.reason,
        "failure": failure,
        "meaning": FAILURES.get(failure, failure),
        "reason": told(last),
        "evidence": evidence_data(last),
        "earlier": earlier,
        "task": context.task_source,
        "sketch": state.sketch,
        "builtin": builtin,
        "code": _shortened(kernel.source) if kernel is not None else "",
        "fence": load_language(kernel.language).fence if kernel else "",
        "documents": "" if builtin else documents(state, context, failure),
        "documents_name": f"advice on {context.target}",
    }


def _shortened(source: str) -> str:
    """The code, without its middle where it is very long."""
    if len(source) <= CODE_CHARACTERS:
        return source
    half = CODE_CHARACTERS // 2
    return f"{source[:half]}\n[... {len(source) - 2 * half} characters ...]\n{source[-half:]}"


def documents(state: RunState, context: RunContext, failure: str) -> str:
    """The target's expert suggestions that serve this sketch and this failure; "" for none."""
    try:
        plan = plan_of(state.sketch, context) if state.sketch else signature_plan(context)
        spec = load(context.target)
    except (DiagnosticError, UsageError):
        return ""
    needs = needs_of(plan.sketch)
    categories = [Category.PITFALLS]
    if failure in _WANTS_STRATEGIES:
        categories.append(Category.STRATEGIES)
    topics = (*needs.topics, failure)
    return select(spec, needs.operations, topics, DOCUMENT_TOKENS, categories).text()


#: The same failure so often at the Coder, and the Designer gets it.
SAME_FAILURES = 3
#: How often the Verifier is asked again after a failure of the machinery, in a row.
VERIFIER_RETRIES = 2
#: A plan that needs more than this share of the time limit by estimate is itself too slow: code
#: reaches the estimate's rates within an order of magnitude.
SLOW_SHARE = 0.1


class Rule(Enum):
    """What a class of failure means for the route."""

    CODER = "the code is at fault, whatever the sketch says"
    SKETCH_DECIDES = "the code's fault where the sketch is right on that case, else the sketch's"
    CODER_ONCE = "less of it may be had by other code; if not, by another sketch"
    PLAN_DECIDES = "the sketch's fault where the plan itself takes that long, else the code's"
    DESIGNER = "the sketch is at fault"
    RETRY = "neither is at fault"


#: Failure class (docs/VERIFICATION.md) -> rule. The whole table.
TABLE: Mapping[str, Rule] = {
    "syntax": Rule.CODER,
    "api_misuse": Rule.CODER,
    "compile": Rule.CODER,
    "launch": Rule.CODER,
    "policy": Rule.CODER,
    "illegal_access": Rule.SKETCH_DECIDES,
    "wrong_shape": Rule.SKETCH_DECIDES,
    "numerical": Rule.SKETCH_DECIDES,
    "nondeterministic": Rule.SKETCH_DECIDES,
    "resource": Rule.CODER_ONCE,
    "timeout": Rule.PLAN_DECIDES,
    "design": Rule.DESIGNER,
    "infrastructure": Rule.RETRY,
}

#: Failures that a checked sketch cannot cause, and why: with no word from the interpreter on the
#: failing case, these are the code's.
_PROVED = {
    "illegal_access": "the checker proved every access of the sketch",
    "wrong_shape": "the sketch's outputs have the task's shapes at these sizes",
    "nondeterministic": "the checker proved the sketch's iterations independent",
}


@attrs.frozen
class Evidence:
    """What is known of a failure beyond its class.

    `sketch_right`: whether the sketch's interpretation equals the reference on the failing case,
    None where nobody could tell. `reason` is the Verifier's sentence. `plan_seconds` is the plan's
    own time by estimate, None without one, and `limit_seconds` what a run may take.
    """

    reason: str = ""
    sketch_right: bool | None = None
    plan_seconds: float | None = None
    limit_seconds: float = 0.0


@attrs.frozen
class Team:
    """Who can be sent work. `coder_repeats`: the Coder would write the very same code again."""

    designer: bool = True
    coder_repeats: bool = False
    everything_to_coder: bool = False


@attrs.frozen
class Route:
    """Who gets the work: "coder", "designer", "verifier" (once more) or "nobody", and why.

    `certain` is False where evidence does not decide and `agent` is only the better guess.
    """

    agent: str
    reason: str
    certain: bool = True


def route(failure: str, evidence: Evidence, history: Sequence[Step], team: Team) -> Route:
    """The route of a candidate that failed verification; `history` ends with that step."""
    rule = TABLE[failure]
    if rule is Rule.RETRY:
        return _retry(history)
    if team.everything_to_coder:
        return Route("coder", "every failure goes to the Coder in this ablation")
    found = _by_table(rule, failure, evidence, history)
    if not team.designer:
        return _without_designer(found, team)
    if found.agent != "coder":
        return found
    if team.coder_repeats:
        return Route("designer", f"{found.reason}; but the built-in Coder would write the same")
    wanted = _fingerprint(failure, evidence.reason)
    same = sum(_fingerprint(s.failure, s.reason) == wanted for s in _candidates(history))
    if same >= SAME_FAILURES:
        reason = f"{found.reason}; but it is the same failure {same} times: the Coder is stuck"
        return Route("designer", reason)
    return found


def _by_table(rule: Rule, failure: str, evidence: Evidence, history: Sequence[Step]) -> Route:
    match rule:
        case Rule.CODER:
            return Route("coder", f"{failure}: {rule.value}")
        case Rule.DESIGNER:
            return Route("designer", "the sketch itself, interpreted, differs from the task")
        case Rule.SKETCH_DECIDES:
            return _by_sketch(failure, evidence)
        case Rule.CODER_ONCE:
            if sum(step.failure == failure for step in _candidates(history)) > 1:
                return Route("designer", "other code did not need less: the sketch asks for it")
            return Route("coder", f"{failure}: {rule.value}")
        case Rule.PLAN_DECIDES:
            return _by_plan(evidence)
        case Rule.RETRY:
            return _retry(history)
        case _:
            assert_never(rule)


def _by_sketch(failure: str, evidence: Evidence) -> Route:
    if evidence.sketch_right is True:
        return Route("coder", f"{failure}: on this case the sketch, interpreted, equals the task")
    if evidence.sketch_right is False:
        return Route("designer", f"{failure}: on this case the sketch, interpreted, is wrong too")
    if failure in _PROVED:
        return Route("coder", f"{failure}: {_PROVED[failure]}")
    reason = f"{failure}: these sizes are too large to interpret the sketch; the code is likelier"
    return Route("coder", reason, certain=False)


def _by_plan(evidence: Evidence) -> Route:
    seconds, limit = evidence.plan_seconds, evidence.limit_seconds
    if seconds is None or limit <= 0:
        reason = "timeout: there is no estimate of the plan's own time; the code is likelier"
        return Route("coder", reason, certain=False)
    needs = f"timeout: by estimate the plan itself takes {seconds:.2g} s, and the limit is"
    if seconds > SLOW_SHARE * limit:
        return Route("designer", f"{needs} {limit:g} s: another plan is needed")
    return Route("coder", f"{needs} {limit:g} s: the code is slower than its plan")


def _without_designer(found: Route, team: Team) -> Route:
    if team.coder_repeats:
        reason = f"{found.reason}; the built-in Coder would write the same, and nobody else is here"
        return Route("nobody", reason)
    if found.agent == "designer":
        return Route("coder", f"{found.reason}; there is no Designer in this workflow")
    return attrs.evolve(found, certain=True)


def _retry(history: Sequence[Step]) -> Route:
    """To the Verifier once more, unless the machinery has failed too often in a row."""
    count = 0
    for step in reversed(history):
        if step.agent == "verifier" and step.failure != "infrastructure":
            break
        if step.agent not in ("verifier", "conductor"):
            break
        count += step.agent == "verifier"
    if count > VERIFIER_RETRIES:
        return Route("nobody", f"the machinery failed {count} times in a row")
    return Route("verifier", "the machinery failed, which says nothing about the kernel")


def _candidates(history: Sequence[Step]) -> list[Step]:
    """The Verifier's steps since the Designer's last one, each of another candidate."""
    found: list[Step] = []
    for step in history:
        if step.agent == "designer":
            found = []
        elif step.agent == "verifier" and not step.details.get("again"):
            found.append(step)
    return found


def _fingerprint(failure: str, reason: str) -> tuple[str, str]:
    """A failure without its numbers: counts, sizes and lines vary where the cause does not."""
    return failure, re.sub(r"\d[\d.e+-]*", "#", reason)


def route_unfinished(step: Step, history: Sequence[Step], team: Team) -> Route:
    """The route after an agent that left nothing to verify; `history` ends with that step."""
    if step.agent == "designer":
        return Route("designer", "the Designer found no sketch that holds; it may try once more")
    tried = 0
    for earlier in reversed(history):
        if earlier.agent == "coder":
            if earlier.outcome != step.outcome:
                break
            tried += 1
        elif earlier.agent != "conductor":
            break
    if step.outcome == "refused":
        # The Coder's first step is to lower the sketch: it refuses the same one every time.
        if not team.designer:
            return Route("nobody", "the sketch does not lower, and nobody is here to change it")
        return Route("designer", "the sketch does not lower: its target cannot do what it asks")
    if team.everything_to_coder:
        return Route("coder", "every failure goes to the Coder in this ablation")
    if not team.designer:
        return Route("coder", "the Coder gave no kernel; there is no Designer in this workflow")
    if tried > 1:
        return Route("designer", f"the Coder gave no kernel {tried} times in a row")
    return Route("coder", "the Coder gave no usable reply; it may try once more")


class Conductor:
    """Outcomes: "finish", "to_designer", "to_coder", "retry_verifier", "exhausted", "fail"."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Decide who is next, and leave the feedback for it."""
        last = state.history[-1]
        if last.agent == "verifier" and last.outcome == "passed":
            return Turn(state, "finish", last.reason)
        team = team_of(state, context)
        if last.agent == "verifier":
            found = route(last.failure, evidence_of(state, context), state.history, team)
        else:
            found = route_unfinished(last, state.history, team)
        record = {"route": attrs.asdict(found), "decided_by": "evidence"}
        if found.agent == "nobody":
            return Turn(state, "fail", found.reason, last.failure, record)
        if found.agent == "verifier":
            return Turn(state, "retry_verifier", found.reason, last.failure, record)
        if state.attempt >= context.max_attempts:
            reason = f"{last.reason}; no attempt is left ({context.max_attempts} made)"
            return Turn(state, "exhausted", reason, last.failure, record)
        found, suggestion = self._advised(found, state, context, record)
        if found.agent == "verifier":
            left = attrs.evolve(state, disputed="asked")
            return Turn(left, "retry_verifier", found.reason, last.failure, record)
        feedback = Feedback(
            failure_of(last),
            f"{told(last)}. Sent to the {found.agent.capitalize()} because: {found.reason}.",
            evidence_data(last),
            suggestion,
        )
        left = attrs.evolve(state, feedback=feedback, attempt=state.attempt + 1)
        return Turn(left, f"to_{found.agent}", found.reason, last.failure, record)

    def _advised(
        self, found: Route, state: RunState, context: RunContext, record: dict[str, Any]
    ) -> tuple[Route, str]:
        """The route and the suggestion after asking the model, where that is of use."""
        if context.model is None or not can_use_advice(found, state, context):
            return found, ""

        context.progress.note("conductor", "asks the model who mends this, and how")
        advice = ask(context.model, state, context, found)
        record["advice"] = attrs.asdict(advice)
        if advice.nothing_wrong:
            reason = f"a model says that nothing is wrong here: {advice.nothing_wrong}"
            found = Route("verifier", f"{reason} (the evidence is taken again)")
        elif not found.certain and advice.agent:
            found = Route(advice.agent, f"{advice.diagnosis} (evidence did not decide)")
        else:
            return found, advice.suggestion
        record |= {"decided_by": "model", "route": attrs.asdict(found)}
        return found, advice.suggestion


def can_use_advice(found: Route, state: RunState, context: RunContext) -> bool:
    """Whether to ask the model: it has to decide, or the next agent is a model that gets a failed
    candidate. An agent that left none has diagnostics that speak for themselves."""
    if not found.certain:
        return True
    if state.history[-1].agent != "verifier":
        return False
    return found.agent == "designer" or context.coder == "llm"


def team_of(state: RunState, context: RunContext) -> Team:
    """Who takes part. A kernel that was given, or that a model wrote, is not the built-in Coder's,
    so the Coder may do better."""
    by_model = context.coder == "llm" or not state.sketch
    given = state.kernel is not None and state.kernel.origin == "given"
    return Team(
        designer="designer" in context.agents,
        coder_repeats=not by_model and not given,
        everything_to_coder=context.everything_to_coder,
    )


def told(step: Step) -> str:
    """What went wrong in a step, as a prompt may hold it: without paths and places."""
    found = step.details.get("evidence")
    said = found.get("reason") if isinstance(found, Mapping) else None
    if not isinstance(said, str):
        said = " ".join(clean_log(step.reason, ""))
    return said.rstrip(".")


def failure_of(step: Step) -> str:
    """The class of a step's failure; an agent that left nothing without one is a design failure."""
    return step.failure or "design"


def evidence_data(step: Step) -> dict[str, Any]:
    """The JSON evidence of a step, for the agent that mends it."""
    found = step.details.get("evidence", step.details)
    return dict(found) if isinstance(found, Mapping) else {"evidence": found}


def evidence_of(state: RunState, context: RunContext) -> Evidence:
    """What the verdict says about the failure of the last step."""
    last = state.history[-1]
    verdict = from_json(state.verdict or {})
    case = next(iter(verdict.failures), None)
    right = None if case is None else case.sketch_right
    if verdict.passed:
        right = True  # The outputs of timed runs were wrong: all cases had passed before.
    limit = context.configuration.target(context.target).verify_timeout
    seconds = None
    if last.failure == "timeout" and state.sketch and case is not None:
        seconds = _plan_seconds(state, context, case.shape.symbols, verdict.params)
    return Evidence(last.reason, right, seconds, limit)


def _plan_seconds(
    state: RunState, context: RunContext, sizes: Mapping[str, int], params: Mapping[str, Any]
) -> float | None:
    """The plan's estimated time at the failing sizes; None without one, or where the target is
    interpreted."""
    if toolchain(context.target).status().interpreted:
        return None
    try:
        plan = plan_of(state.sketch, context)
    except (DiagnosticError, UsageError):
        return None
    found = estimate(plan, sizes, params)
    return None if found is None else found.seconds
