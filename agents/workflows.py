"""Workflows: small explicit graphs of agents; the run walks them.

A node is an agent ("designer", "coder", "verifier", "conductor", or "autosketch", which is the
built-in Designer) or an end ("end:passed"). An edge
carries the outcome that takes it. A new workflow is one entry in `_WORKFLOWS`.
"""

from __future__ import annotations

import attrs

from sketchc.base.diagnostics import refuse


@attrs.frozen
class Workflow:
    """A graph in the order of its edges: (agent, outcome, next agent or end)."""

    name: str
    description: str
    start: str
    edges: tuple[tuple[str, str, str], ...]

    @property
    def agents(self) -> frozenset[str]:
        """The agents that take part."""
        return frozenset(agent for agent, _, _ in self.edges)

    def follow(self, agent: str, outcome: str) -> str:
        """The agent or end that `outcome` leads to. Raises `KeyError` if there is no such edge."""
        return {edge[:2]: edge[2] for edge in self.edges}[agent, outcome]

    def needs_model(self, coder: str) -> bool:
        """Whether an agent asks a language model; `coder` says who writes the kernel."""
        return "designer" in self.agents or ("coder" in self.agents and coder == "llm")


#: The edges that workflows with a Conductor share.
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

_WORKFLOWS = (
    # The paper's, section 3.1.
    Workflow(
        "default",
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
    Workflow(
        "coder-only",
        "Coder <-> Verifier on a given sketch, or straight from the task",
        "coder",
        _CONDUCTED,
    ),
    # Nothing is compiled, run or compared with generated code; the sketch itself still has to
    # check, and to mean what the task means, before it is coded.
    Workflow(
        "kernelgen-only",
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
    # With no language model: what the built-in Designer and Coder do not do, nobody does.
    Workflow(
        "builtin",
        "built-in Designer -> Coder -> Verifier, no language model",
        "autosketch",
        (
            ("autosketch", "designed", "coder"),
            ("autosketch", "gave_up", "end:failed"),
            ("coder", "coded", "verifier"),
            ("coder", "refused", "end:failed"),
            ("coder", "gave_up", "end:failed"),
            ("verifier", "passed", "end:passed"),
            ("verifier", "failed", "end:rejected"),
            ("verifier", "incomplete", "end:incomplete"),
        ),
    ),
    # One verdict on an existing kernel; nobody mends anything.
    Workflow(
        "verifier-only",
        "Verifier on an existing kernel",
        "verifier",
        (
            ("verifier", "passed", "end:passed"),
            ("verifier", "failed", "end:rejected"),
            ("verifier", "incomplete", "end:incomplete"),
        ),
    ),
)

WORKFLOWS = {workflow.name: workflow for workflow in _WORKFLOWS}

#: agent -> "module:class".
AGENTS: dict[str, str] = {
    "designer": "sketchc.agents.designer.designer:Designer",
    "autosketch": "sketchc.agents.autosketch.designer:BuiltinDesigner",
    "coder": "sketchc.agents.coder.coder:Coder",
    "verifier": "sketchc.agents.verifier:Verifier",
    "conductor": "sketchc.agents.conductor.conductor:Conductor",
}


def load_workflow(name: str) -> Workflow:
    """The workflow of that name. Raises `UsageError` for an unknown one."""
    if name not in WORKFLOWS:
        refuse(f"unknown workflow {name!r}; known: {', '.join(WORKFLOWS)}")
    return WORKFLOWS[name]
