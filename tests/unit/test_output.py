"""What a run leaves behind, for every way it can end, from states as the engine keeps them."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.agents.llm.client import Spend
from sketchc.agents.run.output import STAGING, write_outputs
from sketchc.agents.run.record import VERSION, recorded
from sketchc.agents.run.run import RunOptions
from sketchc.agents.run.summary import Facts, counted, summary, table
from sketchc.agents.state.state import KernelText, RunState, Step, dump_state, load_state
from sketchc.base.diagnostics import Source, UsageError
from sketchc.base.json_form import to_plain
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.tasks.task import TorchTask

EXAMPLES = Path(__file__).parents[2] / "examples"
SKETCH = (EXAMPLES / "softmax.sketch").read_text()
OPTIONS = RunOptions("softmax.py", "digest", "triton_cuda", "h200", "default", "builtin", 7)
SPEND = Spend(calls=3, input_tokens=12345, output_tokens=678, cost=0.25)


@pytest.fixture(scope="module")
def task() -> Iterator[TorchTask]:
    with TorchTask(EXAMPLES / "tasks" / "softmax.py") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def kernel() -> KernelText:
    tree, _ = parse(Source("softmax.sketch", SKETCH))
    assert tree is not None
    plan = build_plan(tree.sketches[0], "triton_cuda", "h200", {}).plan
    made = load_target("triton_cuda").emit(plan)
    return KernelText(made.source, made.entry, made.language, "builtin")


def case(failure: str = "", **fields: Any) -> dict[str, Any]:
    first = {"index": [0, 3], "expected": 0.25, "actual": "nan"}
    compared = {
        "name": "Y",
        "worst": "inf" if failure else 0.125,
        "first": first if failure else None,
    }
    return {
        "shape": {"symbols": {"M": 3, "N": 31}, "own": False},
        "kind": "mixed_scale",
        "failure": failure,
        "reason": "Y: 3 of 93 elements are wrong" if failure else "",
        "comparisons": [compared],
        "log": "Traceback\nlast | line" if failure else "",
        **fields,
    }


def verdict(failure: str = "") -> dict[str, Any]:
    cases = [case(), case("skipped", comparisons=[]), *([case(failure)] if failure else [])]
    return {
        "verdict": "failed" if failure else "passed",
        "passed": not failure,
        "failure": failure,
        "cases": cases,
        "how_it_runs": "on the GPU",
        "versions": {"triton": "3.6"},
        "notes": ["N kept at the task's size"],
    }


ROUTE = {"agent": "designer", "reason": "the sketch | is wrong too", "certain": True}
STEPS = (
    Step(1, "designer", 1, "designed", "checked", seconds=4.5, calls=2, input_tokens=9000,
         output_tokens=500, cost=0.2),
    Step(2, "coder", 1, "coded", "lowered"),
    Step(3, "verifier", 1, "failed", "numerical at M=3", "numerical",
         details={"evidence": {"worst": "inf"}}),
    Step(4, "conductor", 1, "to_designer", "the sketch | is wrong too", "numerical", calls=1,
         input_tokens=3345, output_tokens=178, cost=0.05,
         details={"route": ROUTE, "decided_by": "evidence",
                  "advice": {"diagnosis": "d", "suggestion": "start at\n- infinity"}}),
)  # fmt: skip


def state_of(outcome: str, kernel: KernelText | None) -> RunState:
    """A state as the engine keeps it: it has been through JSON."""
    failure = "" if outcome in ("passed", "generated") else "numerical"
    state = RunState(
        "" if outcome else "designer",
        attempt=2,
        sketch=SKETCH,
        kernel=kernel,
        verdict=None if outcome == "generated" else verdict(failure),
        measurement={"not_measured": "it runs in an interpreter"} if outcome == "passed" else None,
        history=STEPS,
        outcome=outcome,
        reason="no attempt is left" if failure else "right in 12 cases",
    )
    return load_state(json.loads(json.dumps(dump_state(state))))


SAYS = {
    "passed": "**The kernel is right**: right in 12 cases.",
    "generated": "**A kernel was written, and it is NOT VERIFIED**",
    "exhausted": "**No kernel was found that is right**: no attempt is left.",
    "rejected": "**The kernel is wrong**",
    "failed": "**The run could not go on**",
    "": "The run stopped before an end: interrupted.",
}
ALWAYS = {
    "SUMMARY.md",
    "trace.json",
    "verdict.json",
    "softmax.sketch",
    "softmax.plan",
    "softmax.py",
    "softmax.map.json",
}


@pytest.mark.parametrize("outcome", SAYS)
def test_every_end(outcome: str, task: TorchTask, kernel: KernelText, tmp_path: Path) -> None:
    stopped = "" if outcome else "interrupted"
    paths = write_outputs(tmp_path, OPTIONS, state_of(outcome, kernel), task, SPEND, stopped)
    names = {path.name for path in paths}
    usable = outcome in ("passed", "generated")
    assert names == ALWAYS | ({"softmax_dropin.py", "softmax_task.py"} if usable else set())
    assert paths[0].name == "SUMMARY.md"
    assert not (tmp_path / "run" / STAGING).exists()
    page = paths[0].read_text()
    assert page.startswith(f"# softmax for triton_cuda: {outcome or 'stopped'}\n\n{SAYS[outcome]}")
    assert ("from softmax_dropin import ModelNew" in page) == usable
    assert ("Nothing of this was verified" in page) == (outcome == "generated")
    found = json.loads((tmp_path / "trace.json").read_text())
    assert set(found["files"]) == names
    for name in ("trace.json", "verdict.json"):
        data = json.loads((tmp_path / name).read_text(), parse_constant=pytest.fail)
        assert data["version"] == VERSION
        assert data["outcome"] == (outcome or "stopped")
    for name in names:
        if name.endswith(".py"):
            ast.parse((tmp_path / name).read_text())
    if usable:
        text = (tmp_path / "softmax_dropin.py").read_text()
        assert ("NOT VERIFIED" in text) == (outcome == "generated")


def test_the_trace(kernel: KernelText) -> None:
    data = to_plain(attrs.asdict(facts_of(state_of("exhausted", kernel)).record))
    assert [step["agent"] for step in data["steps"]] == [
        "designer",
        "coder",
        "verifier",
        "conductor",
    ]
    assert data["routes"] == [
        {"step": 4, "attempt": 1, "failure": "numerical", "outcome": "to_designer",
         "decided_by": "evidence", **ROUTE}
    ]  # fmt: skip
    assert data["totals"]["calls"] == 3
    assert data["totals"]["input_tokens"] == 12345
    assert data["verdict"] == {
        "verdict": "failed", "passed": False, "failure": "numerical", "cases": 3,
        "passed_cases": 1, "how_it_runs": "on the GPU",
    }  # fmt: skip
    assert data["versions"]["triton"] == "3.6"


def facts_of(
    state: RunState, spend: Spend = SPEND, stopped: str = "", no_dropin: str = ""
) -> Facts:
    record = recorded(OPTIONS, state, spend, stopped, ["a"])
    found = state.verdict, state.measurement
    return Facts(record, OPTIONS, *found, [("a", "b")], "t.py", no_dropin=no_dropin)


def test_the_summary_says_what_happened(kernel: KernelText) -> None:
    page = summary(facts_of(state_of("exhausted", kernel), no_dropin="nothing passed"))
    for words in (
        "| 3 | 1 | Verifier | failed (numerical) | numerical at M=3 |",
        "- Attempt 1, after numerical: to the Designer, by evidence. The sketch | is wrong too.",
        "Suggested: start at - infinity",
        "1 of 2 cases passed, 1 that the task itself refuses were skipped; run on the GPU",
        "| M=3, N=31 | mixed scale | numerical | inf |",
        "Note: N kept at the task's size.",
        "numerical at M=3, N=31 (mixed_scale): Y: 3 of 93 elements are wrong.",
        "`Y[0, 3]` is nan and should be 0.25.",
        "```text\nTraceback\nlast | line\n```",
        "**all, unfinished steps included** | 3 | 12,345 | 678 | 0.2500 |",
        "There is no drop-in module: nothing passed.",
        "sketchc gen t.py --target triton_cuda",
        "--llm replay:out/run/ledger.jsonl",
    ):
        assert words in page


def test_a_run_without_calls_or_steps() -> None:
    page = summary(facts_of(RunState("designer"), spend=Spend(), stopped="rate_limit: HTTP 429"))
    assert "No agent finished a step." in page
    assert "No language model was called." in page
    assert "stopped before an end: rate_limit: HTTP 429." in page


_TEXT = st.text(max_size=60) | st.sampled_from(["a|b", "a\\|b", "\\", "x\r\ny", "<b>", "```"])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT), max_size=4))
def test_no_text_breaks_a_table(rows: list[tuple[str, str]]) -> None:
    lines = table(("one", "two"), rows).split("\n")
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3


def test_a_sketch_that_does_not_check_is_kept(task: TorchTask, tmp_path: Path) -> None:
    state = attrs.evolve(state_of("exhausted", None), sketch="sketch {", verdict=None)
    names = {path.name for path in write_outputs(tmp_path, OPTIONS, state, task, SPEND)}
    assert names == {"SUMMARY.md", "trace.json", "verdict.json", "softmax.sketch"}
    assert (tmp_path / "softmax.sketch").read_text() == "sketch {\n"


def test_what_no_longer_holds_is_removed(
    task: TorchTask, kernel: KernelText, tmp_path: Path
) -> None:
    write_outputs(tmp_path, OPTIONS, state_of("passed", kernel), task, SPEND)
    (tmp_path / "mine.txt").write_text("mine")
    write_outputs(tmp_path, OPTIONS, state_of("exhausted", kernel), task, SPEND)
    assert {path.name for path in tmp_path.iterdir()} == ALWAYS | {"run", "mine.txt"}


def test_somebody_elses_file_is_kept(task: TorchTask, kernel: KernelText, tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text("mine")
    with pytest.raises(UsageError, match=r"softmax\.py is no file of this run, so it is kept"):
        write_outputs(tmp_path, OPTIONS, state_of("passed", kernel), task, SPEND)
    assert (tmp_path / "softmax.py").read_text() == "mine"
    assert (tmp_path / "run" / STAGING / "softmax.py").read_text().startswith(kernel.source)


def test_a_run_that_is_killed_between_its_files_goes_on(
    task: TorchTask, kernel: KernelText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    write_outputs(kept, OPTIONS, state_of("passed", kernel), task, SPEND)
    files = {path.name: path.read_bytes() for path in kept.iterdir() if path.is_file()}
    for number in range(len(files) + 1):
        folder = tmp_path / str(number)
        left = iter(range(number))

        def replace(path: Path, target: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            os.replace(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            with suppress(KeyboardInterrupt):
                write_outputs(folder, OPTIONS, state_of("passed", kernel), task, SPEND)
        assert sum(path.is_file() for path in folder.iterdir()) == min(number, len(files))
        write_outputs(folder, OPTIONS, state_of("passed", kernel), task, SPEND)
        names = {path.name for path in folder.iterdir() if path.is_file()}
        assert names == files.keys()


def test_a_folder_that_refuses_is_one_line(
    task: TorchTask, kernel: KernelText, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the outputs to"):
        write_outputs(tmp_path / "file", OPTIONS, state_of("passed", kernel), task, SPEND)


def test_a_given_kernel_can_be_given_again(
    task: TorchTask, kernel: KernelText, tmp_path: Path
) -> None:
    given_kernel = attrs.evolve(kernel, origin="given")
    options = attrs.evolve(
        OPTIONS, workflow="verifier-only", sketch=SKETCH, kernel=kernel.source, entry="softmax"
    )
    state = attrs.evolve(state_of("rejected", given_kernel), history=())
    page = write_outputs(tmp_path, options, state, task, Spend())[0].read_text()
    assert f"--sketch {tmp_path}/softmax.sketch --kernel {tmp_path}/softmax.py" in page
    assert "--llm" not in page


def files_of(page: str) -> dict[str, str]:
    """Name and meaning of each row under "Files"."""
    rows = page.partition("## Files\n")[2].partition("\n## ")[0].strip().split("\n")[2:]
    return {cells[1].strip(" `"): cells[2].strip() for cells in (row.split("|") for row in rows)}


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


MISS = "replay_miss: the recording a.jsonl does not hold this designer prompt."


@pytest.mark.parametrize(
    ("stopped", "resume"),
    [
        ("cap_reached: the cap on calls is reached", "`--resume` goes on from here, and pays"),
        (MISS, "`--resume` with the same recording would stop here again"),
    ],
)
def test_a_stopped_run_says_what_resume_does_and_where_its_recording_ends(
    stopped: str, resume: str
) -> None:
    page = summary(facts_of(RunState("designer", history=STEPS), stopped=stopped))
    repeat = section(page, "How to repeat it")
    assert "--llm replay:out/run/ledger.jsonl" in repeat
    assert "up to the stop" in repeat
    assert "stops where the next reply is missing" in repeat
    assert "compared anew" not in repeat
    for text in (page.partition("\n## ")[0], repeat):
        assert resume in text
        assert ("pays for no call twice" in text) == (stopped != MISS)
    assert ".." not in page
    # With no reply recorded there is nothing to replay.
    page = summary(facts_of(RunState("designer"), spend=Spend(calls=1), stopped=stopped))
    repeat = section(page, "How to repeat it")
    assert "--llm replay" not in repeat
    assert "no reply was recorded that could be replayed" in repeat


def test_files_are_what_they_are_said_to_be(task: TorchTask, tmp_path: Path) -> None:
    state = attrs.evolve(state_of("exhausted", None), verdict=None)
    paths = write_outputs(tmp_path, OPTIONS, state, task, SPEND)
    files = files_of(paths[0].read_text())
    assert files["trace.json"] == "every step and route, with counts of calls, as data"
    assert files["run/ledger.jsonl"].startswith("every call, with its prompt, reply")
    assert f"sketchc llm ledger {tmp_path}" in files["run/ledger.jsonl"]
    assert "there is no verdict" in files["verdict.json"]
    # It is not one that the next write may replace.
    assert "run/ledger.jsonl" not in json.loads((tmp_path / "trace.json").read_text())["files"]
    state = attrs.evolve(state, verdict={"passed": False, "failure": "infrastructure", "cases": []})
    page = write_outputs(tmp_path, OPTIONS, state, task, Spend())[0].read_text()
    assert "no case was run" in files_of(page)["verdict.json"]
    assert section(page, "What was tried") == "No case was run."
    assert "run/ledger.jsonl" not in files_of(page)
    state = attrs.evolve(state, verdict=verdict("numerical"))
    page = write_outputs(tmp_path, OPTIONS, state, task, Spend())[0].read_text()
    assert files_of(page)["verdict.json"] == "the verdict: every case, every number"


@pytest.mark.parametrize(
    ("workflow", "rows", "flags"),
    [
        ("default", {"Coder", "attempts"}, {"--coder", "--max-attempts", "--max-repairs"}),
        ("coder-only", {"Coder", "attempts"}, {"--coder", "--max-attempts"}),
        ("kernelgen-only", {"Coder"}, {"--coder", "--max-repairs"}),
        ("verifier-only", {"sketch", "kernel"}, set()),
    ],
)
def test_only_what_applies_to_the_workflow_is_told(
    workflow: str,
    rows: set[str],
    flags: set[str],
    task: TorchTask,
    kernel: KernelText,
    tmp_path: Path,
) -> None:
    options = attrs.evolve(OPTIONS, workflow=workflow)
    if workflow == "verifier-only":
        options = attrs.evolve(options, kernel=kernel.source, sketch=SKETCH)
    state = state_of("failed", attrs.evolve(kernel, origin="given"))
    page = write_outputs(tmp_path, options, state, task, SPEND)[0].read_text()
    told = {row.split("|")[1].strip() for row in section(page, "What was asked").split("\n")[2:]}
    assert told == {"task", "target", "workflow", "seed"} | rows
    assert "| seed | 7: `--seed 7` draws the same inputs again; it is kept in trace.json" in page
    command = set(section(page, "How to repeat it").split())
    assert command & {"--coder", "--max-attempts", "--max-repairs"} == flags
    assert ("compared anew" in page) == (workflow == "default")


def test_a_kernel_that_could_not_be_judged_is_not_called_wrong(kernel: KernelText) -> None:
    step = Step(1, "verifier", 1, "failed", "no case could be run", "infrastructure")
    state = attrs.evolve(state_of("rejected", kernel), history=(step,), reason=step.reason)
    page = summary(facts_of(state))
    assert "**The kernel could not be judged**: no case could be run." in page
    assert "is wrong**" not in page


DIAGNOSTICS = {
    "diagnostics": [
        {
            "code": "SK0701",
            "severity": "error",
            "line": 8,
            "text": "x = alloc([N])",
            "message": "the tiles alive together need 524,292 bytes",
            "notes": ["x: [N] f32 = 524,288 bytes"],
            "help": "make the tile sizes smaller",
        },
        {"code": "SK0304", "severity": "warning", "line": 9, "message": "y is not used."},
    ],
    "not_shown": 2,
}


@pytest.mark.parametrize(("agent", "outcome"), [("coder", "refused"), ("designer", "gave_up")])
def test_a_sketch_that_nobody_mends_is_shown_with_its_diagnostics(agent: str, outcome: str) -> None:
    reason = "the sketch does not lower, and nobody is here to change it"
    refused = Step(1, agent, 1, outcome, "SK0701", "design", details={"evidence": DIAGNOSTICS})
    route = {"agent": "nobody", "reason": reason, "certain": True}
    last = Step(2, "conductor", 1, "fail", reason, "design", details={"route": route})
    state = RunState("", history=(refused, last), outcome="failed", reason=reason)
    shown = section(summary(facts_of(state)), "What is wrong with the sketch")
    assert shown.split("\n") == [
        "- error `SK0701` in line 8, `x = alloc([N])`: the tiles alive together need 524,292 "
        "bytes. x: [N] f32 = 524,288 bytes. make the tile sizes smaller.",
        "- warning `SK0304` in line 9: y is not used.",
        "- and 2 more",
        "",
        "`sketchc explain SK0701` says what the first one means.",
    ]
    # Not where another sketch has taken its place since.
    mended = Step(3, "designer", 2, "designed", "checked")
    page = summary(facts_of(attrs.evolve(state, history=(refused, last, mended))))
    assert "What is wrong with the sketch" not in page


@pytest.mark.parametrize(
    ("cost", "unpriced", "says"),
    [
        (0.0, 3, "The cost is unknown: no price is known of any call."),
        (0.25, 1, "The cost is without that of 1 call, of which no price is known."),
        (0.25, 0, ""),
    ],
)
def test_a_cost_that_is_not_known_is_said_to_be_so(cost: float, unpriced: int, says: str) -> None:
    spend = attrs.evolve(SPEND, cost=cost, unpriced_calls=unpriced)
    facts = facts_of(RunState("", history=STEPS), spend=spend)
    assert section(summary(facts), "Calls and spend").partition("\n\n")[2] == says
    assert facts.record.used.unpriced_calls == unpriced


def test_counts_have_their_nouns() -> None:
    assert [counted(n, "call") for n in (0, 1, 1200)] == ["0 calls", "1 call", "1,200 calls"]
