"""Extents behind windows that stand one behind the other are right at every size, not only at those
that the task was traced at."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from sketchc.agents.autosketch.graph import read_traces  # noqa: E402
from sketchc.ir.evaluate import evaluate  # noqa: E402
from sketchc.ir.show import show  # noqa: E402
from sketchc.runtime.tasks.signature import read_signature  # noqa: E402
from sketchc.runtime.tasks.task import load_task  # noqa: E402

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential({layers})

    def forward(self, x):
        return self.layers(x) * 2.0


def get_inputs():
    return [torch.randn(2, 3, {size})]


def get_init_inputs():
    return []
"""
SEED = int(os.environ["SKETCHC_SEED"])


def stack(number: int) -> list[str]:
    """Windows whose strides divide by 16 to some hundreds together."""
    draw = random.Random(SEED + number)
    found, together = [], 1
    while together < 16:
        window = draw.randint(2, 5)
        stride = draw.choice((2, 2, 3, 4))
        together *= stride
        kind = draw.choice(("MaxPool1d", "AvgPool1d"))
        found.append(f"nn.{kind}({window}, {stride}, {draw.randint(0, window // 2)})")
    return found


@pytest.mark.parametrize("number", range(5))
def test_extents_are_right_at_every_size(number: int, tmp_path: Path) -> None:
    path = tmp_path / "stack.py"
    path.write_text(TASK.format(layers=", ".join(stack(number)), size=640))
    with load_task(str(path)) as task:
        traces = read_traces(read_signature(task, "stack", windows=False))
    graph = traces.graph()
    model = torch.nn.Sequential(*(eval(layer, {"nn": torch.nn}) for layer in stack(number)))
    declared = graph.declared
    extents = graph.nodes[-1].results[0].shape
    compared = 0
    for size in range(1, 500):
        try:
            wanted = model(torch.empty(2, 3, size, device="meta")).shape
        except RuntimeError:
            continue  # smaller than a window
        shape = dict(zip(map(show, declared.tensors[0].extents), (2, 3, size), strict=True))
        known = {symbol.name: shape[symbol.name] for symbol in declared.symbols}
        known |= {let.name: int(evaluate(let.value, known)) for let in declared.lets}
        assert [int(evaluate(extent, known)) for extent in extents] == list(wanted), size
        compared += 1
    assert compared > 300
