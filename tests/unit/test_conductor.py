"""The Conductor: the whole routing table, the history, the ablation, and what is left to a model.

The scripted server speaks the real protocol; its replies are inputs of these tests, not a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from llm_server import LlmServer, Script, overflow, reply
from small_tasks import described

from sketchc.agents.conductor import conductor
from sketchc.agents.conductor.conductor import (
    TABLE,
    Advice,
    Conductor,
    Evidence,
    Route,
    Team,
    parse,
    route,
    route_unfinished,
)
from sketchc.agents.conductor.estimate import estimate
from sketchc.agents.config.settings import Configuration
from sketchc.agents.llm.client import Client, RetryPolicy
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.openai_provider import OpenAIProvider
from sketchc.agents.llm.replies import ReplyError
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.agents.state.candidates import plan_of
from sketchc.agents.state.state import KernelText, RunContext, RunState, Step, Turn
from sketchc.docspec.loader import load
from sketchc.docspec.schema import FAILURES as DOCUMENTED
from sketchc.docspec.schema import Category
from sketchc.runtime.verify.verdict import FAILURES

EXAMPLES = Path(__file__).parents[2] / "examples"
SKETCH = (EXAMPLES / "softmax.sketch").read_text()


def failed(failure: str, reason: str = "why", agent: str = "verifier", **fields: Any) -> Step:
    outcome = fields.pop("outcome", "failed")
    return Step(1, agent, 1, outcome, reason, failure, details={"evidence": {"log": "x"}}, **fields)


def sent(agent: str) -> Step:
    return Step(1, "conductor", 1, f"to_{agent}", "because")


CODED = Step(1, "coder", 1, "coded", "done")
DESIGNED = Step(1, "designer", 1, "designed", "done")
LLM_TEAM = Team()


# ---------------------------------------------------------------- the table

#: failure -> the agent where the sketch is right on that case, wrong, and where nobody can tell.
ROUTES = {
    "syntax": ("coder", "coder", "coder"),
    "api_misuse": ("coder", "coder", "coder"),
    "compile": ("coder", "coder", "coder"),
    "launch": ("coder", "coder", "coder"),
    "policy": ("coder", "coder", "coder"),
    "illegal_access": ("coder", "designer", "coder"),
    "wrong_shape": ("coder", "designer", "coder"),
    "numerical": ("coder", "designer", "coder?"),
    "nondeterministic": ("coder", "designer", "coder"),
    "resource": ("coder", "coder", "coder"),
    "timeout": ("coder?", "coder?", "coder?"),
    "design": ("designer", "designer", "designer"),
    "infrastructure": ("verifier", "verifier", "verifier"),
}


def test_the_table_covers_every_class() -> None:
    assert set(TABLE) == set(FAILURES) == set(ROUTES)
    assert set(DOCUMENTED) <= set(TABLE)


@pytest.mark.parametrize("failure", ROUTES)
def test_routes(failure: str) -> None:
    for right, expected in zip((True, False, None), ROUTES[failure], strict=True):
        found = route(failure, Evidence("why", right), [CODED, failed(failure)], LLM_TEAM)
        assert found.agent + ("" if found.certain else "?") == expected, (right, found)
        assert found.reason


@pytest.mark.parametrize(
    ("seconds", "agent", "certain"), [(200.0, "designer", True), (0.5, "coder", True),
                                      (None, "coder", False)]
)  # fmt: skip
def test_a_timeout_is_the_plans_where_the_plan_takes_that_long(
    seconds: float | None, agent: str, certain: bool
) -> None:
    evidence = Evidence("why", None, seconds, limit_seconds=300.0)
    found = route("timeout", evidence, [CODED, failed("timeout")], LLM_TEAM)
    assert (found.agent, found.certain) == (agent, certain)
    if seconds is not None:
        assert f"{seconds:.2g} s" in found.reason
        assert "300 s" in found.reason


# ---------------------------------------------------------------- history


def test_resource_goes_to_the_coder_once() -> None:
    history = [DESIGNED, CODED, failed("resource")]
    assert route("resource", Evidence(), history, LLM_TEAM).agent == "coder"
    history += [sent("coder"), CODED, failed("resource")]
    assert route("resource", Evidence(), history, LLM_TEAM).agent == "designer"
    history += [sent("designer"), DESIGNED, CODED, failed("resource")]
    assert route("resource", Evidence(), history, LLM_TEAM).agent == "coder"


def repeated(reasons: Sequence[str]) -> Route:
    history = [DESIGNED]
    for reason in reasons:
        history += [CODED, failed("numerical", reason), sent("coder")]
    return route("numerical", Evidence(reasons[-1], True), history[:-1], LLM_TEAM)


def test_the_same_failure_three_times_goes_to_the_designer() -> None:
    reasons = ["Y: 3 of 12 elements are wrong", "Y: 5 of 12 elements are wrong"]
    assert repeated(reasons).agent == "coder"
    found = repeated([*reasons, "Y: 1.2e-05 of 12 elements are wrong"])
    assert found.agent == "designer"
    assert "same failure 3 times" in found.reason
    assert repeated([*reasons, "Z: 3 of 12 elements are wrong"]).agent == "coder"
    assert repeated([*reasons, *reasons]).agent == "designer"


def test_a_new_sketch_starts_the_count_again() -> None:
    history = [CODED, failed("launch")] * 3
    assert route("launch", Evidence("why"), history, LLM_TEAM).agent == "designer"
    history += [sent("designer"), DESIGNED, CODED, failed("launch")]
    assert route("launch", Evidence("why"), history, LLM_TEAM).agent == "coder"


def test_the_machinery_gets_two_more_tries() -> None:
    broken = failed("infrastructure")
    retry = Step(1, "conductor", 1, "retry_verifier", "once more")
    history = [failed("infrastructure"), retry, failed("numerical"), sent("coder"), CODED, broken]
    for _ in range(conductor.VERIFIER_RETRIES):
        assert route("infrastructure", Evidence(), history, LLM_TEAM).agent == "verifier"
        history += [retry, broken]
    found = route("infrastructure", Evidence(), history, LLM_TEAM)
    assert found.agent == "nobody"
    assert "3 times in a row" in found.reason


# ---------------------------------------------------------------- who is there


def test_what_the_built_in_coder_cannot_mend_goes_to_the_designer() -> None:
    for failure, expected in ROUTES.items():
        found = route(failure, Evidence(), [CODED, failed(failure)], Team(coder_repeats=True))
        assert found.certain
        assert found.agent == ("verifier" if expected[0] == "verifier" else "designer")


def test_the_ablation_sends_everything_to_the_coder() -> None:
    for repeats in (False, True):
        team = Team(everything_to_coder=True, coder_repeats=repeats)
        for failure in FAILURES:
            history = [CODED, failed(failure)] * 4
            found = route(failure, Evidence("why", False), history, team)
            expected = "verifier" if failure == "infrastructure" else "coder"
            assert (found.agent, found.certain) == (expected, True)


def test_without_a_designer_the_coder_gets_everything_it_can_change() -> None:
    for failure in sorted(set(FAILURES) - {"infrastructure"}):
        history = [CODED, failed(failure)] * 4
        found = route(failure, Evidence("why", False), history, Team(designer=False))
        assert (found.agent, found.certain) == ("coder", True)
        repeats = Team(designer=False, coder_repeats=True)
        assert route(failure, Evidence("why", False), history, repeats).agent == "nobody"


REFUSED = failed("resource", agent="coder", outcome="refused")
SILENT = failed("", agent="coder", outcome="gave_up")
STUCK = failed("design", agent="designer", outcome="gave_up")


@pytest.mark.parametrize(
    ("history", "team", "agent"),
    [
        ([STUCK], Team(), "designer"),
        ([STUCK], Team(everything_to_coder=True), "designer"),
        ([DESIGNED, REFUSED], Team(coder_repeats=True), "designer"),
        ([DESIGNED, REFUSED], Team(everything_to_coder=True), "designer"),
        ([REFUSED], Team(designer=False, coder_repeats=True), "nobody"),
        ([REFUSED], Team(designer=False), "nobody"),
        ([DESIGNED, SILENT, sent("coder"), SILENT], Team(everything_to_coder=True), "coder"),
        ([SILENT, sent("coder"), SILENT], Team(designer=False), "coder"),
        ([DESIGNED, SILENT], Team(), "coder"),
        ([DESIGNED, SILENT, sent("coder"), SILENT], Team(), "designer"),
        ([SILENT, sent("designer"), DESIGNED, SILENT], Team(), "coder"),
    ],
)
def test_agents_that_left_nothing(history: list[Step], team: Team, agent: str) -> None:
    assert route_unfinished(history[-1], history, team).agent == agent


# ---------------------------------------------------------------- the agent


@attrs.define
class Notes:
    lines: list[str] = attrs.field(factory=list)

    def note(self, agent: str, text: str) -> None:
        self.lines.append(f"{agent}: {text}")


def verdict(failure: str, right: bool | None) -> dict[str, Any]:
    shape = {"symbols": {"M": 3, "N": 5}, "own": False}
    case = {"failure": failure, "reason": "why", "shape": shape, "sketch_right": right}
    skipped = {**case, "failure": "skipped"}
    passed = {**case, "failure": ""}
    return {"passed": False, "failure": failure, "cases": [passed, skipped, case], "params": {}}


def state_after(step: Step, right: bool | None = None, **fields: Any) -> RunState:
    kernel = KernelText("int f() { return 0; }", "f", "c++", fields.pop("origin", "llm"))
    checked = verdict(step.failure, right) if step.agent == "verifier" else None
    history = (*fields.pop("history", (DESIGNED, CODED)), step)
    return RunState(
        "conductor", sketch=SKETCH, kernel=kernel, verdict=checked, history=history, **fields
    )


def context_of(client: Client | None, coder: str = "llm", **fields: Any) -> RunContext:
    task: Any = SimpleNamespace(path=EXAMPLES / "tasks" / "softmax.py")
    return RunContext(
        task,
        described(EXAMPLES / "tasks" / "softmax.py"),
        "class Model: ...\n",
        fields.pop("target", "cpp"),
        "cpu",
        {},
        coder,
        client,
        Configuration(),
        7,
        Path("nowhere"),
        Notes(),
        fields.pop("max_attempts", 5),
        4,
        **fields,
    )


@contextmanager
def model(script: Script) -> Iterator[tuple[Client, LlmServer]]:
    with LlmServer(script) as server:
        levels = {level: ModelSettings(name="m") for level in ("complex", "standard", "fast")}
        settings = LlmSettings("openai", base_url=server.base_url, models=levels, stream=False)
        client = Client(OpenAIProvider(settings, "k"), Ledger(None), retry=RetryPolicy(1))
        yield client, server


def decide(state: RunState, **fields: Any) -> Turn:
    """The Conductor's turn in a run that no model takes part in."""
    return Conductor().run(state, context_of(None, **fields))


def test_a_kernel_that_passed_ends_the_run() -> None:
    turn = decide(state_after(Step(3, "verifier", 1, "passed", "right in 12 cases")))
    assert (turn.outcome, turn.reason) == ("finish", "right in 12 cases")


def test_feedback_and_attempt() -> None:
    turn = decide(state_after(failed("compile", "x.cpp does not compile")))
    assert turn.outcome == "to_coder"
    assert turn.state.attempt == 2
    assert turn.state.feedback is not None
    assert turn.state.feedback.failure == "compile"
    assert turn.state.feedback.evidence == {"log": "x"}
    assert "x.cpp does not compile. Sent to the Coder because: " in turn.state.feedback.reason
    assert turn.details["route"]["agent"] == "coder"
    json.dumps(turn.details)


def test_the_verdict_says_whether_the_sketch_is_right() -> None:
    assert decide(state_after(failed("numerical"), right=True)).outcome == "to_coder"
    assert decide(state_after(failed("numerical"), right=False)).outcome == "to_designer"
    undecided = decide(state_after(failed("numerical"), right=None))
    assert undecided.outcome == "to_coder"
    assert not undecided.details["route"]["certain"]


def test_wrong_outputs_of_timed_runs_are_the_codes() -> None:
    state = attrs.evolve(state_after(failed("numerical")), verdict={"cases": [{"failure": ""}]})
    turn = decide(state)
    assert (turn.outcome, turn.details["route"]["certain"]) == ("to_coder", True)


def test_prompts_hold_no_places() -> None:
    step = failed("compile", "/tmp/run-1/softmax.cpp:3:5: error: no `x`")
    turn = decide(state_after(step))
    assert turn.state.feedback is not None
    assert turn.state.feedback.reason.startswith("softmax.cpp:3:5: error: no `x`. Sent to")
    with model([reply(json.dumps(ADVICE))]) as (client, server):
        history = (DESIGNED, step, CODED)
        Conductor().run(state_after(step, history=history), context_of(client))
        assert "/tmp" not in prompt_of(server)
        assert "attempt 1, verifier: compile. softmax.cpp" in prompt_of(server)


def test_the_last_attempt() -> None:
    turn = decide(state_after(failed("compile", "no luck"), attempt=3), max_attempts=3)
    assert turn.outcome == "exhausted"
    assert "no luck; no attempt is left (3 made)" in turn.reason


def test_the_machinery_costs_no_attempt() -> None:
    turn = decide(state_after(failed("infrastructure"), attempt=5))
    assert (turn.outcome, turn.state.attempt) == ("retry_verifier", 5)


def test_a_given_kernel_is_not_the_built_in_coders() -> None:
    alone = frozenset({"coder", "verifier", "conductor"})
    given = decide(state_after(failed("compile"), origin="given"), coder="builtin", agents=alone)
    assert given.outcome == "to_coder"
    own = decide(state_after(failed("compile"), origin="builtin"), coder="builtin", agents=alone)
    assert (own.outcome, own.failure) == ("fail", "compile")


def test_a_plan_that_takes_as_long_as_the_limit() -> None:
    sizes = {"symbols": {"M": 10**9, "N": 8192}, "own": False}
    for symbols, outcome in ((sizes, "to_designer"), (None, "to_coder")):
        state = state_after(failed("timeout"))
        assert state.verdict is not None
        if symbols:
            state.verdict["cases"][-1]["shape"] = symbols
        turn = decide(state)
        assert turn.outcome == outcome
        assert "by estimate the plan itself takes" in turn.reason


def test_a_designer_that_gave_up_is_asked_again() -> None:
    turn = decide(state_after(attrs.evolve(STUCK, attempt=2), attempt=2, history=()))
    assert turn.outcome == "to_designer"
    assert turn.state.attempt == 3
    assert turn.state.feedback is not None
    assert turn.state.feedback.failure == "design"
    last = decide(state_after(STUCK, attempt=5, history=()))
    assert last.outcome == "exhausted"


# ---------------------------------------------------------------- the model

ADVICE = {"diagnosis": "the mask is missing", "suggestion": "mask line 3"}


def prompt_of(server: LlmServer, number: int = 0) -> str:
    return str(server.requests[number].body["messages"][-1]["content"])


def test_evidence_decides_and_the_model_suggests() -> None:
    with model([reply(json.dumps(ADVICE))]) as (client, server):
        turn = Conductor().run(state_after(failed("numerical"), right=True), context_of(client))
        prompt = prompt_of(server)
    assert turn.outcome == "to_coder"
    assert turn.state.feedback is not None
    assert turn.state.feedback.suggestion == "mask line 3"
    assert turn.details["decided_by"] == "evidence"
    assert turn.details["advice"]["diagnosis"] == "the mask is missing"
    assert '"route"' not in prompt
    assert "int f() { return 0; }" in prompt
    assert str(EXAMPLES) not in prompt


def test_the_model_decides_what_evidence_leaves_open() -> None:
    answer = json.dumps({"route": "designer", **ADVICE})
    with model([reply(f"```json\n{answer}\n```")]) as (client, server):
        turn = Conductor().run(state_after(failed("numerical"), right=None), context_of(client))
        assert '"route": "coder" or "designer"' in prompt_of(server)
    assert turn.outcome == "to_designer"
    assert turn.details["decided_by"] == "model"
    assert turn.reason == "the mask is missing (evidence did not decide)"


def test_malformed_json_is_asked_once_more() -> None:
    answer = json.dumps(ADVICE)
    with model([reply("Here you are: it is the mask."), reply(answer)]) as (client, server):
        turn = Conductor().run(state_after(failed("compile")), context_of(client))
        assert "could not be used: the reply must hold one fenced block" in prompt_of(server, 1)
    assert turn.state.feedback is not None
    assert turn.state.feedback.suggestion == "mask line 3"
    assert len(turn.details["advice"]["problems"]) == 1


@pytest.mark.parametrize(
    "script",
    [
        [reply("{}"), reply('{"route": "nobody", "diagnosis": "d", "suggestion": "s"}')],
        [overflow()],
    ],
)
def test_without_usable_advice_evidence_stands_alone(script: Script) -> None:
    with model(script) as (client, server):
        turn = Conductor().run(state_after(failed("numerical"), right=None), context_of(client))
        assert not server.surprises
    assert turn.outcome == "to_coder"
    assert turn.details["decided_by"] == "evidence"
    assert turn.details["advice"]["problems"]
    assert turn.state.feedback is not None
    assert turn.state.feedback.suggestion == ""


def test_nobody_is_asked_where_nobody_can_use_it() -> None:
    everything = {"everything_to_coder": True, "coder": "builtin"}
    with model([]) as (client, server):
        for state, fields in (
            (state_after(failed("compile"), attempt=5), {}),
            (state_after(failed("infrastructure")), {}),
            (state_after(STUCK, history=()), {}),
            (state_after(failed("compile"), origin="builtin"), everything),
            (state_after(Step(3, "verifier", 1, "passed", "right")), {}),
        ):
            fields_of: dict[str, Any] = dict(fields)
            Conductor().run(state, context_of(client, **fields_of))
        assert server.requests == []


def prompt_after(failure: str, origin: str) -> str:
    with model([reply(json.dumps(ADVICE))]) as (client, server):
        state = state_after(failed(failure), right=True, origin=origin)
        Conductor().run(state, context_of(client, "builtin" if origin == "builtin" else "llm"))
        return prompt_of(server)


def test_the_prompt_holds_the_targets_suggestions_on_code_that_a_model_wrote() -> None:
    sections = {s.title: s.category for s in load("cpp").sections}
    for failure, wanted in (("numerical", False), ("resource", True)):
        prompt = prompt_after(failure, "llm")
        found = {sections[title] for title in sections if f"## {title}\n" in prompt}
        assert Category.PITFALLS in found
        assert (Category.STRATEGIES in found) == wanted
        assert Category.API not in found


def test_the_prompt_does_not_show_what_nobody_can_change() -> None:
    prompt = prompt_after("compile", "builtin")
    assert "# About the target" not in prompt
    assert "int f()" not in prompt
    assert "generated from the sketch by a program" in prompt
    assert "goes to the Designer" in prompt


@pytest.mark.parametrize(
    ("text", "decide"),
    [
        ("", False),
        ("[]", False),
        ('{"diagnosis": "d"}', False),
        ('{"diagnosis": "d", "suggestion": 3}', False),
        ('{"diagnosis": "d", "suggestion": " "}', False),
        ('{"route": "coder", "diagnosis": "d", "suggestion": "s"}', False),
        ('{"diagnosis": "d", "suggestion": "s"}', True),
        ('{"route": ["coder"], "diagnosis": "d", "suggestion": "s"}', True),
        ('{"diagnosis": "d", "suggestion": "s"} and so on', False),
    ],
)
def test_strict_json(text: str, decide: bool) -> None:
    with pytest.raises(ReplyError):
        parse(text, decide)


def test_good_json() -> None:
    assert parse(' {"diagnosis": "d", "suggestion": "s\\nt"}\n', False) == Advice("", "d", "s\nt")


def test_the_estimate_counts_what_the_plan_loads_each_time() -> None:
    plan = plan_of((EXAMPLES / "matmul.sketch").read_text(), context_of(None))
    found = estimate(plan, {"M": 256, "N": 256, "K": 256}, {})
    assert found is not None
    assert found.operations == 2 * 256**3
    # Each tile of the result loads its rows and columns anew.
    assert found.bytes > 4 * 3 * 256**2
    more = estimate(plan, {"M": 512, "N": 256, "K": 256}, {})
    assert more is not None
    assert more.seconds == pytest.approx(2 * found.seconds)
    assert estimate(plan, {"M": 256}, {}) is None


def test_the_estimate_counts_every_launch() -> None:
    plan = plan_of((EXAMPLES / "heat.sketch").read_text(), context_of(None))
    once, twice = (estimate(plan, {"M": 64, "N": 64}, {"steps": n, "rate": 0.2}) for n in (1, 2))
    assert (twice.bytes if twice else 0) == 2 * (once.bytes if once else -1)
