"""Inputs of a case: indices in range, what the model corrects, and tensors left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from sketchc.base.diagnostics import Source, UsageError
from sketchc.base.types import DType
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.drawing import draw
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.tasks.inputs import KINDS, generate
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.verify.case_runner import Buffers

SKETCH = """sketch pick {
    symbols: N, K;
    tensors: X[N]: in f32; INDEX[K]: in i64; BIAS[K]: in f32?; Y[K]: out f32; SUM[]: out f32;
    total = alloc([1], f32, init=0)
    for i in range(ceil(K, 8)):
        index = alloc([8])
        y = alloc([8])
        part = alloc([1])
        load(INDEX[i*8:(i+1)*8] -> index)
        load(X[index] -> y)
        if present(BIAS):
            bias = alloc([8])
            load(BIAS[i*8:(i+1)*8] -> bias)
            add(y, bias, y)
        store(y -> Y[i*8:(i+1)*8])
        reduce_sum(y, 0, part)
        add(total, part, total)
    store(total -> SUM[])
}
"""
TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, index, bias=None):
        y = x[index] if bias is None else x[index] + bias
        return y, y.sum()
{hook}
def get_inputs():
    return [torch.randn(1000), torch.randint(1000, (60,)), {bias}]
"""
HOOK = """
    def valid_inputs(self, inputs):
        x, index, bias = inputs
        return [x.abs(), index % 3, bias]
"""


def elaborated(text: str) -> ir.Sketch:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    return sketch


def opened(folder: Path, hook: str = "", bias: str = "torch.randn(60)") -> TorchTask:
    path = folder / "task.py"
    path.write_text(TASK.format(hook=hook, bias=bias))
    return TorchTask(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Binding, TorchTask]]:
    with opened(tmp_path_factory.mktemp("plain")) as task:
        yield bind(elaborated(SKETCH), task.describe()), task


@pytest.mark.parametrize("kind", KINDS)
def test_indices_stay_in_range_at_every_size(plain: tuple[Binding, TorchTask], kind: str) -> None:
    binding, task = plain
    for size in (1, 2, 37, 5000):
        case = ShapeCase("", {"N": size, "K": 50})
        found = draw(binding, task, case, kind, 3, {})
        index = found.values["INDEX"]
        assert index.min() >= 0
        assert index.max() < size
        assert size < 30 or len(np.unique(index)) > 10
        assert [a is not None for a in found.arguments] == [True] * 3
        y, total = task.reference(found.arguments)
        assert y.shape == (50,)
        assert total.shape == ()


def test_the_tasks_own_inputs_are_taken_as_they_are(plain: tuple[Binding, TorchTask]) -> None:
    binding, task = plain
    found = draw(binding, task, ShapeCase("", binding.symbols, own=True), "task", 5, {})
    for value, own in zip(found.arguments, task.own_inputs(5), strict=True):
        assert isinstance(value, np.ndarray)
        assert isinstance(own, np.ndarray)
        np.testing.assert_array_equal(value, own)


def test_an_optional_tensor_may_be_left_out(plain: tuple[Binding, TorchTask]) -> None:
    binding, task = plain
    assert binding.omissible == ("BIAS",)
    case = ShapeCase("", {"N": 9, "K": 4}, absent=("BIAS",))
    assert case.text == "N=9, K=4, without BIAS"
    found = draw(binding, task, case, "normal", 3, {})
    assert found.arguments[2] is None
    assert set(found.values) == {"X", "INDEX"}
    y, total = task.reference(found.arguments)
    x, index = found.values["X"].astype(np.float64), found.values["INDEX"]
    np.testing.assert_allclose(y, x[index])
    np.testing.assert_allclose(total, x[index].sum())
    buffers = Buffers(binding, case.symbols, found.values)
    assert set(buffers.tensors) == {"X", "INDEX", "Y", "SUM"}
    assert buffers.tensors["SUM"].shape == ()
    assert not buffers.stray_writes()


def test_a_task_may_give_none_itself(tmp_path: Path) -> None:
    with opened(tmp_path, bias="None") as task:
        binding = bind(elaborated(SKETCH), task.describe())
        found = draw(binding, task, ShapeCase("", {"N": 9, "K": 4}), "normal", 3, {})
        assert found.arguments[2] is None
        assert "BIAS" not in found.values
        assert not binding.omissible
        with pytest.raises(UsageError, match="input 3 of the task is None, and BIAS is not opt"):
            bind(
                elaborated(SKETCH.replace("f32?", "f32").replace("present(BIAS)", "K >= 0")),
                task.describe(),
            )


def test_a_model_may_correct_what_was_drawn(tmp_path: Path) -> None:
    with opened(tmp_path, HOOK) as task:
        binding = bind(elaborated(SKETCH), task.describe())
        found = draw(binding, task, ShapeCase("", {"N": 40, "K": 30}), "normal", 3, {})
        assert found.values["X"].min() >= 0
        assert set(found.values["INDEX"]) <= {0, 1, 2}
        assert found.arguments[1] is not None
        np.testing.assert_array_equal(found.values["INDEX"], found.arguments[1])


def test_the_file_may_correct_beside_a_model(tmp_path: Path) -> None:
    with opened(tmp_path, "\n" + dedent(HOOK).replace("self, ", "")) as task:
        binding = bind(elaborated(SKETCH), task.describe())
        found = draw(binding, task, ShapeCase("", {"N": 40, "K": 30}), "normal", 3, {})
    assert found.values["X"].min() >= 0
    assert set(found.values["INDEX"]) <= {0, 1, 2}


def test_a_correction_must_keep_shapes(tmp_path: Path) -> None:
    hook = HOOK.replace("x.abs()", "x[1:]")
    with opened(tmp_path, hook) as task:
        binding = bind(elaborated(SKETCH), task.describe())
        with pytest.raises(UsageError, match="valid_inputs changes the shape or type of input 1"):
            draw(binding, task, ShapeCase("", {"N": 40, "K": 30}), "normal", 3, {})


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_without_axes_can_be_drawn(kind: str, dtype: DType) -> None:
    array = generate(kind, dtype, (), np.random.default_rng(1))
    assert array.shape == ()
    assert array.dtype.name == dtype.numpy_name


def test_tensors_that_rise_keep_their_shapes(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n\ndef kernel(x, most):\n    return torch.minimum(x, most)\n\n"
        "def get_inputs():\n    return [torch.randn(6, 33), torch.tensor(0.5)]\n"
    )
    text = (
        SKETCH[: SKETCH.index("symbols")]
        + """symbols: M, N;
    tensors: X[M, N]: in f32; MOST[]: in f32; Y[M, N]: out f32;
    most = alloc([1])
    load(MOST[] -> most)
    for i in range(M):
        for j in range(ceil(N, 8)):
            x = alloc([8])
            load(X[i, j*8:(j+1)*8] -> x)
            min(x, most, x)
            store(x -> Y[i, j*8:(j+1)*8])
}
"""
    )
    with TorchTask(path) as task:
        binding = bind(elaborated(text), task.describe())
        case = ShapeCase("", {"M": 3, "N": 7})
        found = draw(binding, task, case, "normal", 3, {}, rising=True).values
    assert {name: array.shape for name, array in found.items()} == {"X": (3, 7), "MOST": ()}
    assert (np.diff(np.abs(found["X"].ravel())) >= 0).all()


def test_parameters_have_the_scale_of_the_models_own_initialisation(tmp_path: Path) -> None:
    """And what starts as zeros is none."""
    from sketchc.runtime.tasks.signature import signature_of, signature_plan

    path = tmp_path / "task.py"
    path.write_text("""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.03 * torch.randn(60, 50))
        self.bias = nn.Parameter(torch.zeros(60))
        self.gain = nn.Parameter(torch.ones(60))

    def forward(self, x):
        return (x @ self.weight.T + self.bias) * self.gain

def get_inputs():
    return [torch.randn(7, 50)]

def get_init_inputs():
    return []
""")
    with TorchTask(path) as task:
        plan = signature_plan(signature_of(task, "f"), "cpp")
        binding = bind(plan.sketch, task.describe(1))
        case = ShapeCase("own", binding.symbols, own=True)
        scales = {
            name: np.sqrt(np.mean(np.square(array.astype(np.float64))))
            for name, array in draw(binding, task, case, "normal", 3, {}).state.items()
        }
        large = draw(binding, task, case, "large", 3, {}).state["weight"]
    assert scales["weight"] == pytest.approx(0.03, rel=0.2)
    assert scales["gain"] == pytest.approx(1.0, rel=0.4)
    assert scales["bias"] == pytest.approx(1.0, rel=0.4)
    assert np.abs(large).max() > 3.0
