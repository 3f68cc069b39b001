"""The workflows as graphs, and the engine that walks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import networkx
import pytest

from sketchc.agents import workflows
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import Message, Reply, Request, Usage
from sketchc.agents.run import run
from sketchc.agents.run.run import (
    RunFolder,
    RunOptions,
    digest,
    first_state,
    reopened,
    require_own_folder,
    settle_options,
)
from sketchc.agents.state.state import RunState, Step, Turn
from sketchc.base.diagnostics import InternalError, UsageError
from sketchc.cli.gen_report import STATUS


@pytest.mark.parametrize("name", workflows.WORKFLOWS)
def test_every_agent_is_reached_and_every_walk_can_end(name: str) -> None:
    found = workflows.load_workflow(name)
    graph = networkx.DiGraph((source, target) for source, _, target in found.edges)
    ends = {node for node in graph if node.startswith("end:")}
    assert ends
    assert {end.removeprefix("end:") for end in ends} <= STATUS.keys()
    for node in graph:
        assert node == found.start or networkx.has_path(graph, found.start, node)
        assert any(networkx.has_path(graph, node, end) for end in ends)
    assert not any(graph.out_degree(end) for end in ends)
    assert found.agents | ends == set(graph)
    for agent in found.agents:
        assert hasattr(run.load_agent(agent), "run")


@pytest.mark.parametrize("name", workflows.WORKFLOWS)
def test_an_outcome_leads_to_one_place(name: str) -> None:
    edges = workflows.WORKFLOWS[name].edges
    assert len({(source, outcome) for source, outcome, _ in edges}) == len(edges)


def test_an_unknown_workflow_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="verifier-only"):
        workflows.load_workflow("evolve")


class Listener:
    """Progress that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def note(self, agent: str, text: str) -> None:
        self.heard.append((agent, text))


@attrs.define
class Shared:
    """As much of a context as the engine and the agents below look at."""

    ledger: Ledger
    progress: Listener
    max_attempts: int = 3
    agents: frozenset[str] = frozenset({"designer", "coder"})


class CountingDesigner:
    """Asks once, then hands on a sketch that says how many steps there were before."""

    def run(self, state: RunState, context: Any) -> Turn:
        request = Request("designer", "complex", (Message("user", f"{len(state.history)}"),))
        context.ledger.append(request, "none", Reply("x", "m", usage=Usage(10, 5), cost=0.5))
        return Turn(attrs.evolve(state, sketch=f"{len(state.history)}"), "designed", "drawn")


class PlainCoder:
    def run(self, state: RunState, context: Any) -> Turn:
        del context
        return Turn(state, "coded", "emitted", details={"nan": float("nan"), "pair": (1, 2)})


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(workflows.AGENTS, "designer", f"{__name__}:CountingDesigner")
    monkeypatch.setitem(workflows.AGENTS, "coder", f"{__name__}:PlainCoder")
    monkeypatch.setattr(run, "load_agent", _load)


def _load(name: str) -> Any:
    return {"designer": CountingDesigner, "coder": PlainCoder}[name]()


def _run(folder: Path) -> run.Run:
    """A run in which no model takes part."""
    inner = RunFolder(folder)
    inner.inner.mkdir()
    nobody: Any = None
    return run.Run(_options(), inner, nobody, "", nobody, None, Ledger(None), Listener())


@pytest.mark.usefixtures("scripted")
def test_each_step_is_recorded_with_what_its_calls_used(tmp_path: Path) -> None:
    graph = workflows.load_workflow("kernelgen-only")
    started, kept = _run(tmp_path), []
    shared = Shared(started.ledger, Listener())

    def on_step(state: RunState, context: Any) -> None:
        assert context is shared
        kept.append((state, started.folder.read_checkpoint()))

    started = attrs.evolve(started, on_step=on_step)
    state = run.walk(graph, RunState(graph.start), shared, started, 0)  # type: ignore[arg-type]
    assert (state.outcome, state.node) == ("generated", "")
    designer, coder = state.history
    assert (designer.calls, designer.input_tokens, designer.output_tokens) == (1, 10, 5)
    assert (designer.cost, coder.calls) == (0.5, 0)
    assert [checkpoint for _, checkpoint in kept] == [(state, 1) for state, _ in kept]
    assert kept[-1][0] == state
    # What a resumed run would read is what goes on.
    assert coder.details == {"nan": "nan", "pair": [1, 2]}


@pytest.mark.usefixtures("scripted")
def test_an_outcome_without_an_edge_is_a_bug_of_ours(tmp_path: Path) -> None:
    graph = workflows.load_workflow("kernelgen-only")
    graph = attrs.evolve(graph, edges=graph.edges[1:])
    started = _run(tmp_path)
    shared = Shared(started.ledger, Listener())
    with pytest.raises(InternalError, match="designed"):
        run.walk(graph, RunState(graph.start), shared, started, 0)  # type: ignore[arg-type]


def _options(**changes: Any) -> RunOptions:
    plain = RunOptions("t.py", digest("text"), "cpp", "cpu", "default", "builtin", -1)
    return attrs.evolve(plain, **changes)


def test_a_run_is_gone_on_with_only_as_it_was_started(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "out")
    with pytest.raises(UsageError, match="no run to go on"):
        settle_options(_options(), folder, True, None)
    with folder.lock():
        started = settle_options(_options(), folder, False, None)
    assert started.seed >= 0
    with pytest.raises(UsageError, match="--resume"):
        settle_options(_options(), folder, False, None)
    assert settle_options(_options(), folder, True, None) == started
    assert settle_options(_options(max_attempts=9), folder, True, None).max_attempts == 9
    for changed in (
        {"target": "triton_cuda"},
        {"task_digest": digest("other")},
        {"seed": started.seed + 1},
        {"coder": "llm"},
        {"sketch": "sketch s {}"},
    ):
        with pytest.raises(UsageError, match=next(iter(changed)).removesuffix("_digest")):
            settle_options(_options(**changed), folder, True, None)


def test_one_process_at_a_time_works_on_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.lock(), pytest.raises(UsageError, match="another process"), folder.lock():
        pass
    with folder.lock():
        pass


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    graph = workflows.load_workflow("coder-only")
    state = first_state(graph, _options(sketch="sketch s {}", kernel="def s(): ...", entry="s"))
    with folder.lock():
        assert folder.read_checkpoint() is None
        folder.write_checkpoint(state, 7)
    assert folder.read_checkpoint() == (state, 7)
    assert state.kernel is not None
    assert (state.node, state.kernel.origin) == ("coder", "given")


def test_a_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    require_own_folder(RunFolder(tmp_path / "none"))
    require_own_folder(RunFolder(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").write_text("")
    require_own_folder(RunFolder(tmp_path))
    (tmp_path / "run" / "data.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"run/data\.csv"):
        require_own_folder(RunFolder(tmp_path))
    (tmp_path / "softmax.py").write_text("mine")
    with pytest.raises(UsageError, match=r"softmax\.py"):
        require_own_folder(RunFolder(tmp_path))


def test_an_exhausted_run_goes_on_with_a_higher_limit() -> None:
    steps = tuple(Step(n, agent, 2, "x", "") for n, agent in enumerate(("verifier", "conductor")))
    ended = RunState(node="", attempt=2, history=steps, outcome="exhausted", reason="none left")
    assert reopened(ended, 2) is ended
    again = reopened(ended, 3)
    assert (again.node, again.outcome, again.reason) == ("conductor", "", "")
    assert again.history == steps[:1]
    failed = attrs.evolve(ended, outcome="failed")
    assert reopened(failed, 9) is failed
