"""A model that writes and mends kernels, over HTTP: what is asked, and what is made of replies.

The replies are test inputs: built-in code, whole, broken, cut off or in the wrong form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from llm_server import Action, LlmServer, overflow, reply, truncated

from sketchc.agents.coder.code_writer import (
    KernelWriter,
    UnusableReplyError,
)
from sketchc.agents.coder.messages import Assignment, for_plan
from sketchc.agents.llm.client import Client, RetryPolicy
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import LEVELS, ContextOverflowError
from sketchc.agents.llm.openai_provider import OpenAIProvider
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.agents.state.state import Feedback
from sketchc.api.sketches import load_sketch
from sketchc.docspec.loader import load
from sketchc.docspec.schema import DocSpec
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS

ROOT = Path(__file__).parents[2]
FEEDBACK = Feedback("numerical", "Y is wrong at [0, 3]", {"index": [0, 3]}, "look at the mask")
FENCE = {"python": "python", "c++": "cpp", "cuda": "cuda"}


def assignment_for(target: str, name: str = "softmax") -> Assignment:
    _, tree = load_sketch(str(ROOT / "examples" / f"{name}.sketch"))
    return for_plan(build_plan(tree, target).plan)


def code(assignment: Assignment) -> str:
    assert assignment.builtin is not None
    return assignment.builtin.source


def fenced(assignment: Assignment, text: str) -> str:
    return f"Here it is.\n\n```{FENCE[assignment.language]}\n{text}```\n"


def edit(search: str, replace: str) -> str:
    return f"```edit\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n"


@contextmanager
def model(script: Sequence[Action]) -> Iterator[tuple[Client, LlmServer]]:
    models = {level: ModelSettings("m") for level in LEVELS}
    with LlmServer(script) as server:
        settings = LlmSettings(base_url=server.base_url, models=models, timeout=20.0)
        provider = OpenAIProvider(settings, "a-key-for-tests")
        yield Client(provider, Ledger(None), retry=RetryPolicy(1)), server


def asked(server: LlmServer, number: int) -> list[dict[str, str]]:
    return list(server.requests[number].body["messages"])


@pytest.fixture(scope="module")
def documents() -> DocSpec:
    return load("cpp")


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("target", TARGETS)
def test_the_code_is_the_fenced_block(target: str) -> None:
    assignment = assignment_for(target)
    with model([reply(fenced(assignment, code(assignment)))]) as (client, server):
        kernel = KernelWriter(assignment, client).write()
    assert kernel.source == code(assignment)
    assert kernel.foreign
    assert assignment.builtin is not None
    assert (kernel.entry, kernel.language) == (assignment.builtin.entry, assignment.language)
    system, user = asked(server, 0)
    assert system["role"] == "system"
    assert code(assignment) in user["content"]


def test_the_built_in_code_is_shown_only_when_asked_for() -> None:
    assignment = assignment_for("cpp")
    with model([reply(fenced(assignment, "int x;\n"))]) as (client, server):
        KernelWriter(assignment, client, starting_point=False).write()
    assert code(assignment) not in asked(server, 0)[1]["content"]
    assert "starting point" not in asked(server, 0)[1]["content"]


def test_a_reply_in_the_wrong_form_goes_back_with_the_reason() -> None:
    assignment = assignment_for("cpp")
    script = [reply("int x;"), reply(fenced(assignment, "int y;\n"))]
    with model(script) as (client, server):
        kernel = KernelWriter(assignment, client).write()
    assert kernel.source == "int y;\n"
    *_, said, correction = asked(server, 1)
    assert said == {"role": "assistant", "content": "int x;"}
    assert "one fenced block opened by ```cpp" in correction["content"]


def test_replies_that_stay_unusable_are_an_end() -> None:
    with model([reply("no"), reply("still no"), reply("never")]) as (client, server):
        with pytest.raises(UnusableReplyError, match="3 tries"):
            KernelWriter(assignment_for("cpp"), client).write()
        assert len(server.requests) == 3


def test_a_reply_that_is_cut_off_is_asked_for_again() -> None:
    assignment = assignment_for("cpp")
    text = fenced(assignment, code(assignment))
    with model([truncated(text[:200]), reply(text)]) as (client, server):
        assert KernelWriter(assignment, client).write().source == code(assignment)
    assert asked(server, 0) == asked(server, 1)


def test_a_prompt_that_is_too_long_is_asked_again_with_half_the_documents(
    documents: DocSpec,
) -> None:
    assignment = assignment_for("cpp")
    script = [overflow(), overflow(), reply(fenced(assignment, "int x;\n"))]
    with model(script) as (client, server):
        KernelWriter(assignment, client, documents, docs_tokens=6000).write()
    lengths = [len(asked(server, n)[1]["content"]) for n in range(3)]
    assert lengths[0] > lengths[1] > lengths[2]
    assert documents.sections[0].text in asked(server, 2)[1]["content"]


def test_a_prompt_that_is_always_too_long_is_an_error(documents: DocSpec) -> None:
    with model([overflow()] * 3) as (client, server):
        with pytest.raises(ContextOverflowError):
            KernelWriter(assignment_for("cpp"), client, documents).write()
        assert len(server.requests) == 3


# ---------------------------------------------------------------- mending


def test_a_repair_is_edits_of_the_numbered_code() -> None:
    assignment = assignment_for("cpp")
    source = "int a = 1;\nint b = 2;\n"
    with model([reply(edit("int b = 2;", "int b = 3;"))]) as (client, server):
        writer = KernelWriter(assignment, client)
        kernel = writer.repair(source, FEEDBACK, ["attempt 1: compile: no name"])
    assert kernel.source == "int a = 1;\nint b = 3;\n"
    text = asked(server, 0)[1]["content"]
    for part in ("2| int b = 2;", '"index"', "look at the mask", "attempt 1: compile: no name"):
        assert part in text


def test_edits_that_do_not_apply_go_back_and_then_the_whole_is_asked_for() -> None:
    assignment = assignment_for("cpp")
    wrong = reply(edit("int c = 2;", "int c = 3;"))
    script = [wrong, wrong, wrong, reply(fenced(assignment, "int b = 4;\n"))]
    with model(script) as (client, server):
        kernel = KernelWriter(assignment, client).repair("int b = 2;\n", FEEDBACK)
    assert kernel.source == "int b = 4;\n"
    assert "occurs nowhere in the text" in asked(server, 1)[-1]["content"]
    assert "<<<<<<< SEARCH" in asked(server, 2)[1]["content"]
    assert "<<<<<<< SEARCH" not in asked(server, 3)[1]["content"]
    assert "The complete mended file" in asked(server, 3)[1]["content"]


def test_edits_apply_after_a_correction() -> None:
    script = [reply(edit("int c;", "int d;")), reply(edit("int b = 2;", "int b = 3;"))]
    with model(script) as (client, server):
        kernel = KernelWriter(assignment_for("cpp"), client).repair("int b = 2;\n", FEEDBACK)
    assert kernel.source == "int b = 3;\n"
    assert len(server.requests) == 2
