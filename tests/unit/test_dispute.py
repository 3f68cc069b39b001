"""A model may say, once a verdict, that nothing is wrong: then the evidence is taken again, and
counts. Nothing that a kernel itself was seen to do is talked away.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from llm_server import reply
from small_tasks import small_task
from test_conductor import ADVICE, context_of, failed, model, prompt_of, state_after
from toolchains import require

from sketchc.agents.coder.code_writer import Coding, KernelWriter, code_until_right
from sketchc.agents.coder.coder import Coder
from sketchc.agents.coder.messages import for_plan
from sketchc.agents.conductor.conductor import Conductor, Evidence, Team, parse, route
from sketchc.agents.config.settings import Configuration
from sketchc.agents.llm.replies import NOTHING_WRONG, ReplyError
from sketchc.agents.state.state import (
    Feedback,
    KernelText,
    RunContext,
    RunState,
    dump_state,
    load_state,
)
from sketchc.agents.verifier import Verifier
from sketchc.api import sketches
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.verify.verdict import CaseResult, Verdict, taken_again, to_json

EXAMPLES = Path(__file__).parents[2] / "examples"
DISPUTE = {NOTHING_WRONG: "the process was killed, and the machine had no memory left"}


def test_the_conductors_model_may_say_so_once_a_verdict() -> None:
    state = state_after(failed("launch"))
    with model([reply(json.dumps(DISPUTE)), reply(json.dumps(ADVICE))]) as (client, server):
        turn = Conductor().run(state, context_of(client))
        assert f'"{NOTHING_WRONG}"' in prompt_of(server, 0)
        assert (turn.outcome, turn.state.disputed) == ("retry_verifier", "asked")
        assert (turn.state.attempt, turn.state.kernel) == (state.attempt, state.kernel)
        assert "a model says that nothing is wrong here: the process was killed" in turn.reason
        assert load_state(dump_state(turn.state)) == turn.state
        # It failed again: now somebody mends it.
        later = attrs.evolve(state, disputed="taken")
        turn = Conductor().run(later, context_of(client))
        assert NOTHING_WRONG not in prompt_of(server, 1)
        assert turn.outcome == "to_coder"


def test_only_where_it_may_be_said_it_is_read() -> None:
    said = json.dumps(DISPUTE)
    assert parse(said, decide=True, dispute=True).nothing_wrong == DISPUTE[NOTHING_WRONG]
    assert parse(json.dumps(ADVICE), decide=False, dispute=True).suggestion == "mask line 3"
    for text, dispute in ((said, False), (json.dumps({NOTHING_WRONG: ""}), True),
                          (json.dumps({**DISPUTE, **ADVICE}), True)):  # fmt: skip
        with pytest.raises(ReplyError):
            parse(text, decide=False, dispute=dispute)


def test_evidence_that_was_taken_again_is_no_other_candidate() -> None:
    again = attrs.evolve(failed("resource"), details={"again": True})
    history = [failed("resource"), again]
    assert route("resource", Evidence(), history, Team()).agent == "coder"


EDIT = "```edit\n<<<<<<< SEARCH\nint x = 1;\n=======\nint x = 2;\n>>>>>>> REPLACE\n```"


def test_the_coders_model_may_say_so_as_well() -> None:
    feedback = Feedback("launch", "it was killed", {"reason": "it was killed"})
    kernel = KernelText("int x = 1;\n", "softmax", "c++", "llm")
    state = attrs.evolve(state_after(failed("launch")), kernel=kernel, feedback=feedback)
    with model([reply(json.dumps(DISPUTE)), reply(EDIT)]) as (client, server):
        turn = Coder().run(state, context_of(client))
        assert (turn.outcome, turn.state.disputed) == ("coded", "asked")
        assert turn.state.kernel == kernel
        assert turn.state.verdict == state.verdict
        assert f'"{NOTHING_WRONG}"' in prompt_of(server, 0)
        # A second time it has to mend; the next candidate may be disputed again.
        turn = Coder().run(attrs.evolve(state, disputed="taken"), context_of(client))
        assert NOTHING_WRONG not in prompt_of(server, 1)
    assert turn.state.kernel is not None
    assert turn.state.kernel.source == "int x = 2;\n"
    assert turn.state.disputed == ""


def coding(verdicts: list[Verdict], replies: list[str]) -> tuple[Coding, list[int]]:
    """What `lower --coder llm` makes of these verdicts and replies, and the numbers checked."""
    plan = build_plan(sketches.load_sketch(str(EXAMPLES / "softmax.sketch"))[1], "cpp").plan
    numbers: list[int] = []

    def check(kernel: Kernel, number: int) -> Verdict:
        del kernel
        numbers.append(number)
        return verdicts.pop(0)

    with model([reply(text) for text in replies]) as (client, _):
        found = code_until_right(KernelWriter(for_plan(plan), client), check, 4)
    return found, numbers


def test_without_a_conductor_evidence_is_taken_again_too() -> None:
    first, right = verdict(case("launch")), verdict(case())
    code, said = "```cpp\nint x = 1;\n```", json.dumps(DISPUTE)
    found, numbers = coding([first, right, right], [code, said])
    assert found.kernel is not None
    assert numbers == [1, 1, 2], "the inputs of that verdict, and others"
    # It fails again, and is to be mended now.
    found, numbers = coding([first, first, right, right], [code, said, EDIT])
    assert found.kernel is not None
    assert found.kernel.source == "int x = 2;\n"
    assert numbers == [1, 1, 2, 3]


# ---------------------------------------------------------------- both verdicts as one


def case(failure: str = "", seed: int = 3, size: int = 5) -> CaseResult:
    return CaseResult(ShapeCase("ragged", {"M": size}), "normal", seed, failure, "why")


def verdict(*cases: CaseResult, seed: int = 3) -> Verdict:
    return Verdict("s", "cpp", "cpu", "t.py", "natively", seed, cases)


def merged(before: CaseResult, same: CaseResult, new: CaseResult) -> Verdict:
    return taken_again(
        verdict(case(size=1), before), verdict(case(size=1), same), verdict(new, seed=9)
    )


@pytest.mark.parametrize("failure", ["launch", "timeout", "infrastructure", "resource"])
def test_what_may_be_the_machines_doing_may_pass(failure: str) -> None:
    found = merged(case(failure), case(), case(seed=9))
    assert found.passed
    assert "the evidence was taken again" in found.notes[0]


@pytest.mark.parametrize("failure", ["numerical", "nondeterministic", "illegal_access"])
def test_what_the_kernel_did_on_these_inputs_is_not_talked_away(failure: str) -> None:
    found = merged(case(failure), case(), case(seed=9))
    assert not found.passed
    assert found.failure == "nondeterministic"
    assert "failed before on the same inputs" in found.failures[0].reason


@pytest.mark.parametrize("failure", ["launch", "numerical", "policy", "design"])
def test_every_failure_of_either_counts(failure: str) -> None:
    for same, new in ((case(failure), case(seed=9)), (case(), case(failure, seed=9))):
        found = merged(case("launch"), same, new)
        assert (found.passed, found.failure) == (False, failure)


def test_failures_of_the_machinery_count_as_not_run() -> None:
    found = merged(case("launch"), case("infrastructure"), case(seed=9))
    assert found.passed
    nothing = taken_again(
        verdict(case("launch")),
        verdict(case("infrastructure")),
        verdict(case("infrastructure", seed=9)),
    )
    assert not nothing.passed


# ---------------------------------------------------------------- real kernels

RELU = """#include <cstdint>
extern "C" int64_t relu(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M * N; ++i) {
        Y[i] = X[i] > LIMIT ? X[i] : 0.0f;
    }
    return 0;
}
"""


class Quiet:
    def note(self, agent: str, text: str) -> None:
        del agent, text


@pytest.mark.parametrize(("limit", "passes"), [("0.0f", True), ("0.01f", False)])
def test_only_a_right_kernel_gains_by_it(limit: str, passes: bool, tmp_path: Path) -> None:
    require("cpp")
    path = small_task("relu", tmp_path)
    task_text = path.read_text()
    with TorchTask(path) as task:
        context = RunContext(
            task, task.describe(0), task_text, "cpp", "cpu", {}, "llm", None, Configuration(), 7,
            tmp_path, Quiet(), 5, 4, bench=False,
        )  # fmt: skip
        blamed = to_json(verdict(case("launch"), seed=11))
        kernel = KernelText(RELU.replace("LIMIT", limit), "relu", "c++", "llm")
        state = RunState("verifier", kernel=kernel, verdict=blamed, disputed="asked")
        turn = Verifier().run(state, context)
    assert turn.outcome == ("passed" if passes else "failed"), turn.reason
    assert turn.state.disputed == "taken"
    assert turn.state.verdict is not None
    seeds = {one["seed"] for one in turn.state.verdict["cases"]}
    assert any(11 <= seed < 100 for seed in seeds)
    if passes:
        assert any(7 <= seed < 11 for seed in seeds), "seed 7 is that of this step"
