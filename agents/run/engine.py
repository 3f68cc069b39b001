"""Walk a workflow's graph: call the agent whose turn it is, record the step, take the edge.

After each step the state goes to a checkpoint, so that a run can be killed at any moment: what a
step was doing is done again, but replies that were paid for stand in the ledger and are used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.state.serialise import dump_state, load_state
from sketchc.agents.state.state import RunState, Step, Turn
from sketchc.agents.workflows import AGENTS, follow
from sketchc.base.diagnostics import InternalError

if TYPE_CHECKING:
    import networkx

    from sketchc.agents.llm.ledger import Ledger, Record
    from sketchc.agents.state.run_context import Agent, Session

Checkpoint = Callable[[RunState, int], None]


def load_agent(name: str) -> Agent:
    """A fresh agent of that name."""
    module, _, attribute = AGENTS[name].partition(":")
    agent: Agent = getattr(importlib.import_module(module), attribute)()
    return agent


def start_state(graph: networkx.MultiDiGraph) -> RunState:
    """The state before the first step."""
    return RunState(node=graph.graph["start"])


def walk(
    graph: networkx.MultiDiGraph,
    state: RunState,
    session: Session,
    ledger: Ledger,
    consumed: int,
    checkpoint: Checkpoint,
    position: Callable[[], int],
) -> RunState:
    """Run to an end of the graph; returns the last state.

    `consumed` counts the records of the ledger that belong to steps done before; `position` says
    how many do by now, and `checkpoint` hears of each new state with that count.
    Raises what agents raise: `LlmError` and
    `UsageError`; the last checkpoint then stands.
    """
    while state.node:
        loops = "conductor" in session.agents and state.node != "conductor"
        attempt = f"attempt {state.attempt} of {session.max_attempts}"
        session.progress.note(state.node, attempt if loops else "at work")
        started = time.monotonic()
        turn = load_agent(state.node).run(state, session)
        before, consumed = consumed, position()
        used = ledger.records[before:consumed]
        state = _take(graph, state, turn, _step(state, turn, used, started))
        # As a resumed run would read it: prompts are the same with and without a stop.
        state = load_state(dump_state(state))
        checkpoint(state, consumed)
    return state


def _step(state: RunState, turn: Turn, used: Sequence[Record], started: float) -> Step:
    """The record of one turn, with what its calls used."""
    replies = [record.reply for record in used if record.reply is not None]
    return Step(
        number=len(state.history) + 1,
        agent=state.node,
        attempt=state.attempt,
        outcome=turn.outcome,
        reason=turn.reason,
        failure=turn.failure,
        seconds=round(time.monotonic() - started, 3),
        calls=len(replies),
        input_tokens=sum(reply.usage.input_tokens for reply in replies),
        output_tokens=sum(reply.usage.output_tokens for reply in replies),
        cost=sum(reply.cost or 0.0 for reply in replies),
        details=turn.details,
    )


def _take(graph: networkx.MultiDiGraph, before: RunState, turn: Turn, step: Step) -> RunState:
    """The state after a turn: the edge taken, the step recorded."""
    try:
        target = follow(graph, before.node, turn.outcome)
    except KeyError:
        msg = f"workflow {graph.graph['name']} has no edge for {before.node}: {turn.outcome}"
        raise InternalError(msg) from None
    ended = target.startswith("end:")
    return attrs.evolve(
        turn.state,
        node="" if ended else target,
        history=(*before.history, step),
        outcome=target.removeprefix("end:") if ended else "",
        reason=turn.reason if ended else "",
    )
