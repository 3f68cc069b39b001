"""Workflows: small explicit graphs of agents, one file each; the engine walks them.

A node is an agent ("designer", "coder", "verifier", "conductor") or an end ("end:passed"). An edge
carries the outcome that takes it. A new workflow is one file and one line in `WORKFLOWS`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sketchc.base.diagnostics import UsageError

if TYPE_CHECKING:
    import networkx

#: name -> module with `DESCRIPTION`, `START` and `EDGES`.
WORKFLOWS: dict[str, str] = {
    "default": "sketchc.agents.workflows.default",
    "coder-only": "sketchc.agents.workflows.coder_only",
    "kernelgen-only": "sketchc.agents.workflows.kernelgen_only",
    "verifier-only": "sketchc.agents.workflows.verifier_only",
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
    module = importlib.import_module(WORKFLOWS[name])
    graph = networkx.MultiDiGraph(name=name, start=module.START, description=module.DESCRIPTION)
    for source, outcome, target in module.EDGES:
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
