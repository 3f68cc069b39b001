"""The targets that have a built-in Coder: one literal line each, import paths resolved lazily."""

from __future__ import annotations

import importlib
from typing import Protocol

from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Capabilities, HintAnswer, Plan

#: target -> module with `CAPABILITIES`, `DESCRIPTION`, `emit(plan) -> Kernel`, `answers(plan)`
#: (what the hints became that only the target can answer), and, where the target fuses by itself,
#: `placements(plan) -> loops.Placements`.
TARGETS: dict[str, str] = {
    "triton_cuda": "sketchc.lowering.triton.cuda",
    "triton_ascend": "sketchc.lowering.triton.ascend",
    "cpp": "sketchc.lowering.cpp.target",
}


class TargetModule(Protocol):
    """What a target's module offers."""

    CAPABILITIES: Capabilities
    DESCRIPTION: str

    def emit(self, plan: Plan) -> Kernel:
        """The source for a finished plan; deterministic."""

    def answers(self, plan: Plan) -> tuple[HintAnswer, ...]:
        """What became of the hints in `answer_hints.OWN`."""


def target_module(name: str) -> TargetModule:
    """The module of a target. Raises `KeyError` for an unknown one."""
    module: TargetModule = importlib.import_module(TARGETS[name])
    return module
