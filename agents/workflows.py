"""Workflows: small explicit graphs of agents; the run walks them.

A node is an agent ("designer", "coder", "verifier", "conductor") or an end ("end:passed"). An edge
carries the outcome that takes it. A new workflow is one entry in `WORKFLOWS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sketchc.base.diagnostics import UsageError

if TYPE_CHECKING:
    import networkx


@attrs.frozen
class Workflow:
    """A graph in the order of its edges: (agent, outcome, next agent or end)."""

    description: str
    start: str
    edges: tuple[tuple[str, str, str], ...]


#: What a Conductor does for everybody else.
_CONDUCTED = (
    ("coder", "coded", "verifier"),
    ("coder", "refused", "conductor"),
    ("coder", "gave_up", "conductor"),
    ("verifier", "passed", "conductor"),
    ("verifier", "failed", "conductor"),
    ("verifier", "incomplete", "end:incomplete"),
    ("conductor", "to_coder", "coder"),
    ("conductor", "retry_verifier", "verifier"),
    ("conductor", "finish", "end:passed"),
    ("conductor", "exhausted", "end:exhausted"),
    ("conductor", "fail", "end:failed"),
)

WORKFLOWS: dict[str, Workflow] = {
    # The paper's, section 3.1.
    "default": Workflow(
        "Designer -> Coder <-> Verifier, the Conductor decides who mends what",
        "designer",
        (
            ("designer", "designed", "coder"),
            ("designer", "gave_up", "conductor"),
            ("conductor", "to_designer", "designer"),
            *_CONDUCTED,
        ),
    ),
    # A given sketch, or none at all, and a Coder that is sent back until it is right.
    "coder-only": Workflow(
        "Coder <-> Verifier on a given sketch, or straight from the task", "coder", _CONDUCTED
    ),
    # Nothing is compiled, run or compared with generated code; the sketch itself still has to
    # check, and to mean what the task means, before it is coded.
    "kernelgen-only": Workflow(
        "Designer -> Coder, no verification",
        "designer",
        (
            ("designer", "designed", "coder"),
            ("designer", "gave_up", "end:failed"),
            ("coder", "coded", "end:generated"),
            ("coder", "refused", "end:failed"),
            ("coder", "gave_up", "end:failed"),
        ),
    ),
    # One verdict on an existing kernel; nobody mends anything.
    "verifier-only": Workflow(
        "Verifier on an existing kernel",
        "verifier",
        (
            ("verifier", "passed", "end:passed"),
            ("verifier", "failed", "end:rejected"),
            ("verifier", "incomplete", "end:incomplete"),
        ),
    ),
}

#: agent -> "module:class".
AGENTS: dict[str, str] = {
    "designer": "sketchc.agents.designer.designer:Designer",
    "coder": "sketchc.agents.coder.coder:Coder",
    "verifier": "sketchc.agents.verifier:Verifier",
    "conductor": "sketchc.agents.conductor.conductor:Conductor",
}

#: How a run can end, and what each end means.
ENDS: dict[str, str] = {
    "passed": "the kernel passed verification",
    "generated": "a kernel was written; nobody verified it",
    "rejected": "the kernel failed verification, and nobody was asked to mend it",
    "incomplete": "nothing is known to be wrong with the kernel, and not all of it was reached",
    "exhausted": "no attempt passed, and no attempt is left",
    "failed": "the run cannot go on: see the reason",
}


def load_workflow(name: str) -> networkx.MultiDiGraph:
    """The graph of a workflow: `graph["start"]`, `["name"]` and `["description"]` are its
    attributes, and each edge's key is the outcome. Raises `UsageError` for an unknown name."""
    import networkx

    if name not in WORKFLOWS:
        msg = f"unknown workflow {name!r}; known: {', '.join(WORKFLOWS)}"
        raise UsageError(msg)
    found = WORKFLOWS[name]
    graph = networkx.MultiDiGraph(name=name, start=found.start, description=found.description)
    for source, outcome, target in found.edges:
        graph.add_edge(source, target, key=outcome)
    return graph


def agents_of(graph: networkx.MultiDiGraph) -> frozenset[str]:
    """The agents that take part."""
    return frozenset(node for node in graph if not node.startswith("end:"))


def follow(graph: networkx.MultiDiGraph, node: str, outcome: str) -> str:
    """The node that `outcome` leads to. Raises `KeyError` where the graph has no such edge."""
    for _, target, key in graph.out_edges(node, keys=True):
        if key == outcome:
            return str(target)
    raise KeyError(outcome)
