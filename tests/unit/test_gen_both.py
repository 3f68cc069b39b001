"""Which of two Designers' kernels `gen --designer both` keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from sketchc.agents.run.run import RunOptions, RunResult, first_state
from sketchc.agents.workflows import load_workflow
from sketchc.cli.gen_both import choose

OPTIONS = RunOptions("task.py", "", "cpp", "cpu", "default", "builtin", 0)


def result(outcome: str, gain: float | None, stopped: str = "") -> RunResult:
    measured: dict[str, Any] = {"not_measured": "asked for"}
    if gain is not None:
        measured = {"speedup": {"of_medians": gain}}
    state = attrs.evolve(
        first_state(load_workflow("default"), OPTIONS),
        outcome=outcome,
        reason="a reason",
        measurement=measured,
    )
    return RunResult(state, OPTIONS, Path("out"), None, stopped, ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("builtin", "llm", "kept", "words"),
    [
        (("passed", 1.5), ("passed", 0.5), "builtin", "1.50x of eager, the other 0.50x"),
        (("passed", 0.5), ("passed", 1.5), "llm", "1.50x of eager, the other 0.50x"),
        (("passed", 1.5), ("passed", None), "builtin", "nothing was timed"),
        (("passed", None), ("passed", 9.0), "builtin", "nothing was timed"),
        (("rejected", None), ("passed", 0.1), "llm", "the other did not pass (a reason)"),
        (("passed", 0.1), ("rejected", 9.0), "builtin", "the other did not pass"),
        (("passed", 0.1), ("", None, "the endpoint"), "builtin", "did not pass (the endpoint)"),
        (("rejected", None), ("exhausted", None), "builtin", "neither passed"),
    ],
)
def test_the_faster_verified_kernel_is_kept(
    builtin: tuple[Any, ...], llm: tuple[Any, ...], kept: str, words: str
) -> None:
    choice = choose({"builtin": result(*builtin), "llm": result(*llm)})
    assert choice.kept == kept
    assert words in choice.reason
