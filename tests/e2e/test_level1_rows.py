"""The rows of the suite `level1` against the originals of KernelBench, where a checkout is given:
`SKETCHC_KERNELBENCH=DIR pytest tests/e2e/test_level1_rows.py`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

from sketchc.agents.suites.level1 import Row, rows  # noqa: E402

VARIABLE = "SKETCHC_KERNELBENCH"


class Recorder(TorchDispatchMode):
    """Keeps each operation with its arguments: of tensors their types and shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        said = tree_map(described, (args, dict(kwargs or {})))
        self.seen.append((str(func), said))
        return func(*args, **(kwargs or {}))


def described(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape))
    return value


def module_of(text: str, name: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def facts(module: ModuleType) -> Mapping[str, object]:
    """Types, shapes and numbers of the inputs; the layers with the arguments of their constructors;
    the operations. Without data: the full sizes fill many machines."""
    with torch.device("meta"), torch.no_grad():
        inputs = module.get_inputs()
        model = module.Model(*module.get_init_inputs()).eval()
        with Recorder() as recorder:
            model(*inputs)
    return {
        "inputs": [described(value) for value in inputs],
        "layers": [repr(layer) for layer in model.children()],
        "parameters": [tuple(value.shape) for value in model.state_dict().values()],
        "operations": sorted(recorder.seen, key=str),  # what is independent has no order
    }


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.number}_{row.name}")
def test_a_row_is_what_the_original_is(row: Row) -> None:
    checkout = os.environ.get(VARIABLE)
    if not checkout:
        pytest.skip(f"no checkout of KernelBench is named by {VARIABLE}")
    (original,) = Path(checkout).glob(f"KernelBench/level1/{row.number}_*.py")
    wanted = facts(module_of(original.read_text("utf-8"), "original"))
    found = facts(module_of(row.source(full=True), "row"))
    assert found == wanted


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.number}_{row.name}")
def test_small_sizes_do_the_same_operations(row: Row) -> None:
    small = facts(module_of(row.source(), "small"))
    full = facts(module_of(row.source(full=True), "full"))
    assert [name for name, _ in small["operations"]] == [name for name, _ in full["operations"]]  # type: ignore[attr-defined]
    assert small["inputs"] != full["inputs"]
