"""The Coder as an agent: which outcome, what is left for the next one."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from llm_server import LlmServer, reply
from small_tasks import described

from sketchc.agents.coder.coder import Coder
from sketchc.agents.config.settings import Configuration
from sketchc.agents.llm.client import Client, RetryPolicy
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import LEVELS
from sketchc.agents.llm.openai_provider import OpenAIProvider
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.agents.state.state import Feedback, KernelText, RunContext, RunState, Step
from sketchc.agents.workflows import WORKFLOWS
from sketchc.base.diagnostics import UsageError

EXAMPLES = Path(__file__).parents[2] / "examples"
SKETCH = (EXAMPLES / "softmax.sketch").read_text()
KERNEL = KernelText("int x = 1;\n", "softmax", "c++", "llm")
FEEDBACK = Feedback("numerical", "Y is wrong", {"index": [1, 2]}, "mind the mask")


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, agent: str, text: str) -> None:
        self.lines.append(f"{agent}: {text}")


def context_of(
    coder: str = "builtin", server: LlmServer | None = None, **fields: Any
) -> RunContext:
    client = None
    if server is not None:
        models = {level: ModelSettings("m") for level in LEVELS}
        settings = LlmSettings(base_url=server.base_url, models=models)
        client = Client(OpenAIProvider(settings, "k"), Ledger(None), retry=RetryPolicy(1))
    task: Any = SimpleNamespace(path=EXAMPLES / "tasks" / "softmax.py")
    target = fields.pop("target", "cpp")
    hardware = {"cpp": "cpu", "triton_cuda": "h200", "triton_ascend": "ascend910b4"}[target]
    return RunContext(
        task,
        described(EXAMPLES / "tasks" / "softmax.py"),
        "class Model: ...\n",
        target,
        hardware,
        {},
        coder,
        client,
        Configuration(),
        7,
        Path("nowhere"),
        Notes(),
        5,
        4,
        **fields,
    )


@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
def test_the_built_in_coder_lowers(target: str) -> None:
    turn = Coder().run(RunState("coder", sketch=SKETCH), context_of(target=target))
    assert turn.outcome == "coded"
    assert turn.state.kernel is not None
    assert turn.state.kernel.origin == "builtin"
    assert turn.state.kernel.entry == "softmax"
    assert "softmax" in turn.state.kernel.source


def test_a_sketch_that_needs_too_much_memory_is_refused_for_the_designer() -> None:
    huge = SKETCH.replace("8192", "1048576")
    state = RunState("coder", sketch=huge, kernel=KERNEL)
    turn = Coder().run(state, context_of(target="triton_ascend"))
    assert (turn.outcome, turn.failure) == ("refused", "resource")
    assert turn.state.kernel is None
    assert turn.state.feedback is not None
    assert turn.state.feedback.failure == "resource"
    found = turn.details["evidence"]["diagnostics"]
    assert [d["code"] for d in found if d["severity"] == "error"] == ["SK0701"]


def test_a_sketch_that_is_wrong_is_refused_as_a_design() -> None:
    wrong = SKETCH.replace("range(M)", "range(M + 1)")
    turn = Coder().run(RunState("coder", sketch=wrong), context_of())
    assert (turn.outcome, turn.failure) == ("refused", "design")
    assert str(EXAMPLES) not in str(turn.details)


def test_a_model_writes_where_it_is_asked_to() -> None:
    with LlmServer([reply("```cpp\nint y;\n```")]) as server:
        turn = Coder().run(RunState("coder", sketch=SKETCH), context_of("llm", server))
    assert turn.outcome == "coded"
    assert turn.state.kernel == KernelText("int y;\n", "softmax", "c++", "llm")


def test_feedback_on_a_kernel_is_a_repair_with_its_history() -> None:
    edits = "```edit\n<<<<<<< SEARCH\nint x = 1;\n=======\nint x = 2;\n>>>>>>> REPLACE\n```"
    steps = (
        Step(1, "designer", 1, "designed", ""),
        Step(2, "verifier", 1, "failed", "took 3.2 s", "compile"),
        Step(3, "verifier", 2, "failed", "differs", "numerical"),
    )
    state = RunState("coder", 3, SKETCH, KERNEL, FEEDBACK, history=steps)
    with LlmServer([reply(edits)]) as server:
        turn = Coder().run(state, context_of("llm", server))
        prompt = server.requests[0].body["messages"][-1]["content"]
    assert turn.outcome == "coded"
    assert turn.state.kernel is not None
    assert turn.state.kernel.source == "int x = 2;\n"
    assert turn.state.feedback is None
    for part in ("1| int x = 1;", "numerical: ", "Y is wrong", "mind the mask", "1: compile"):
        assert part in prompt
    assert "3.2 s" not in prompt
    assert not re.search("attempt 2", prompt)


def test_no_usable_reply_gives_up_and_keeps_what_was_wrong() -> None:
    state = RunState("coder", 2, SKETCH, KERNEL, FEEDBACK)
    with LlmServer([reply("no")] * 6) as server:
        turn = Coder().run(state, context_of("llm", server))
        assert len(server.requests) == 6
    assert (turn.outcome, turn.failure) == ("gave_up", "numerical")
    assert turn.state.kernel == KERNEL
    assert turn.details["evidence"] == {"index": [1, 2]}


def test_a_given_kernel_is_verified_first() -> None:
    given = attrs.evolve(KERNEL, origin="given", entry="mine")
    turn = Coder().run(RunState("coder", sketch=SKETCH, kernel=given), context_of("llm"))
    assert turn.outcome == "coded"
    assert turn.state.kernel == given


def test_a_given_kernel_keeps_its_name_when_it_is_mended() -> None:
    given = attrs.evolve(KERNEL, origin="given", entry="mine")
    state = RunState("coder", 2, SKETCH, given, FEEDBACK)
    edits = "```edit\n<<<<<<< SEARCH\nint x = 1;\n=======\nint x = 2;\n>>>>>>> REPLACE\n```"
    with LlmServer([reply(edits)]) as server:
        turn = Coder().run(state, context_of("llm", server))
        assert "int64_t mine(" in server.requests[0].body["messages"][-1]["content"]
    assert turn.state.kernel is not None
    assert turn.state.kernel.entry == "mine"


def test_without_a_sketch_a_model_is_needed() -> None:
    with pytest.raises(UsageError, match="only a model"):
        Coder().run(RunState("coder"), context_of())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_outcome_has_its_edge(name: str) -> None:
    if "coder" in WORKFLOWS[name].agents:
        for outcome in ("coded", "refused", "gave_up"):
            assert WORKFLOWS[name].follow("coder", outcome)
