"""Tasks run in their own process, bind by position, and fail with one line of the user's own."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import attrs
import numpy as np
import pytest

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType, numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.reach import find_freedom
from sketchc.runtime.process import messages, peer
from sketchc.runtime.tasks.description import OtherSpec, TaskDescription, TensorSpec
from sketchc.runtime.tasks.task import TorchTask

HEADER = "import torch\nfrom torch import nn\n"
ADD = """
class Model(nn.Module):
    def forward(self, x, y):
        return x + y
def get_inputs():
    return [torch.randn(3, 5), torch.randn(5)]
def get_init_inputs():
    return []
"""
LINEAR = """
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.scale = 2.5
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        return self.linear(x) * self.scale
def get_inputs():
    return [torch.randn(4, 6)]
def get_init_inputs():
    return [6, 6]
"""


def ref(name: str) -> ir.Ref:
    return ir.Ref(name, ir.NameKind.SYMBOL)


def tensor(
    name: str, extents: str, role: ir.Role = ir.Role.IN, dtype: DType = DType.F32
) -> ir.Tensor:
    return ir.Tensor(name, tuple(ref(e) for e in extents.split()), dtype, role)


def sketch(*tensors: ir.Tensor, params: tuple[ir.Param, ...] = ()) -> ir.Sketch:
    names = dict.fromkeys(
        extent.name for t in tensors for extent in t.extents if isinstance(extent, ir.Ref)
    )
    symbols = tuple(ir.Symbol(name) for name in names)
    return ir.Sketch("s", symbols, params, (), (), tensors, (), (), (), ())


ADD_SKETCH = sketch(tensor("X", "M N"), tensor("B", "N"), tensor("Y", "M N", ir.Role.OUT))
LINEAR_SKETCH = sketch(
    tensor("X", "M K"),
    tensor("W", "N K"),
    tensor("BIAS", "N"),
    tensor("Y", "M N", ir.Role.OUT),
    params=(ir.Param("scale", DType.F32),),
)


def write(folder: Path, text: str) -> Path:
    path = folder / "task.py"
    path.write_text(HEADER + dedent(text))
    return path


@pytest.fixture(scope="module")
def add_task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchTask]:
    with TorchTask(write(tmp_path_factory.mktemp("add"), ADD)) as task:
        yield task


@pytest.fixture(scope="module")
def linear_task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchTask]:
    with TorchTask(write(tmp_path_factory.mktemp("linear"), LINEAR)) as task:
        yield task


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_arrays_travel_unchanged(dtype: DType, shape: tuple[int, ...]) -> None:
    array = (np.random.default_rng(0).random(shape) * 2).astype(numpy_dtype(dtype))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, {"some": [{"where": messages.raw_of(array)}]})
        received = messages.receive(theirs)
    again = messages.array_of(received["some"][0]["where"])
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


def test_a_task_is_described_at_its_own_sizes(linear_task: TorchTask) -> None:
    found = linear_task.describe()
    assert found.inputs == (TensorSpec("", DType.F32, (4, 6)),)
    assert found.init_inputs == (6, 6)
    assert [spec.name for spec in found.state] == ["linear.weight", "linear.bias"]
    assert found.scalars == {"scale": 2.5}
    assert found.outputs == (TensorSpec("", DType.F32, (4, 6)),)


def test_huge_tasks_are_described_without_their_data(tmp_path: Path) -> None:
    text = ADD.replace("3, 5", "1 << 22, 1 << 20").replace("(5)", "(1 << 20)")
    with TorchTask(write(tmp_path, text)) as task:
        assert task.describe().outputs[0].shape == (1 << 22, 1 << 20)


def test_own_inputs_follow_the_seed(add_task: TorchTask) -> None:
    first, again, other = (add_task.own_inputs(seed) for seed in (1, 1, 2))
    assert isinstance(first[0], np.ndarray)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16], ids=lambda d: d.value)
def test_the_reference_is_computed_in_float64(add_task: TorchTask, dtype: DType) -> None:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(s).astype(numpy_dtype(dtype)) for s in ((7, 9), (9,)))
    (found,) = add_task.reference([x, y])
    assert found.dtype == np.float64
    assert np.array_equal(found, x.astype(np.float64) + y.astype(np.float64))


def test_the_reference_takes_other_parameters_and_sizes(linear_task: TorchTask) -> None:
    random = np.random.default_rng(0)
    x, w, b = (random.standard_normal(s).astype(np.float32) for s in ((5, 3), (2, 3), (2,)))
    state = {"linear.weight": w, "linear.bias": b}
    (found,) = linear_task.reference([x], state, {0: 3, 1: 2})
    expected = (x.astype(np.float64) @ w.T.astype(np.float64) + b) * 2.5
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_inputs_then_parameters_fill_the_tensors_by_position(linear_task: TorchTask) -> None:
    binding = bind(LINEAR_SKETCH, linear_task.describe())
    assert [(s.tensor.name, s.position, s.state) for s in binding.tensors] == [
        ("X", 0, None),
        ("W", None, "linear.weight"),
        ("BIAS", None, "linear.bias"),
    ]
    assert binding.symbols == {"M": 4, "K": 6, "N": 6}
    assert binding.params == {"scale": 2.5}


def test_parameters_are_found_by_name_first(linear_task: TorchTask) -> None:
    swapped = sketch(
        tensor("X", "M K"),
        tensor("BIAS", "N"),
        tensor("WEIGHT", "N K"),
        tensor("Y", "M N", ir.Role.OUT),
    )
    binding = bind(swapped, linear_task.describe())
    assert [s.state for s in binding.tensors] == [None, "linear.bias", "linear.weight"]


def test_a_setting_wins_over_the_models_attribute(linear_task: TorchTask) -> None:
    assert bind(LINEAR_SKETCH, linear_task.describe(), {"scale": 7.0}).params == {"scale": 7.0}


def test_symbols_of_parameters_are_freed_by_rebuilding_the_model(linear_task: TorchTask) -> None:
    """K and N have the same size in the task: only probing tells which init input is which."""
    freedom = find_freedom(bind(LINEAR_SKETCH, linear_task.describe()), linear_task)
    assert freedom.free == {"M", "K", "N"}
    assert freedom.substitutes({"M": 1, "K": 3, "N": 9}) == {0: 3, 1: 9}


POOLING = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, kernel, features):
        super().__init__()
        self.pool, self.features = nn.AvgPool1d(kernel, stride=1), features

    def forward(self, x):
        return self.pool(x.reshape(-1, self.features, x.shape[-1]))

def get_inputs():
    return [torch.randn(4, 6, 20)]

def get_init_inputs():
    return [4, 6]
"""


def test_an_init_input_follows_a_symbol_only_where_the_model_needs_it(tmp_path: Path) -> None:
    """The kernel's size equals the batch's and is no size of the data; the features' is one."""
    pooled = sketch(tensor("X", "B C L"), tensor("Y", "B C R", ir.Role.OUT))
    reduced = ir.Binary("-", ir.Ref("L", ir.NameKind.SYMBOL), ir.Literal(3))
    output = attrs.evolve(pooled.tensors[1], extents=(*pooled.tensors[0].extents[:2], reduced))
    pooled = attrs.evolve(
        pooled,
        tensors=(pooled.tensors[0], output),
        symbols=tuple(symbol for symbol in pooled.symbols if symbol.name != "R"),
    )
    with TorchTask(write(tmp_path, POOLING)) as task:
        freedom = find_freedom(bind(pooled, task.describe()), task)
    assert freedom.free == {"B", "C", "L"}
    assert freedom.substitutes({"B": 2, "C": 3, "L": 9}) == {1: 3}


def test_symbols_that_the_model_fixes_are_not_free(tmp_path: Path) -> None:
    text = LINEAR.replace("nn.Linear(inner, outer)", "nn.Linear(6, 6)")
    with TorchTask(write(tmp_path, text)) as task:
        assert find_freedom(bind(LINEAR_SKETCH, task.describe()), task).free == {"M"}


def described(
    *inputs: object, outputs: int = 1, shape: tuple[int, ...] = (3, 5)
) -> TaskDescription:
    specs = [TensorSpec("", DType.F32, i) if isinstance(i, tuple) else i for i in inputs]
    out = tuple(TensorSpec("", DType.F32, (3, 5)) for _ in range(outputs))
    return TaskDescription(Path("t.py"), tuple(specs), (), (), {}, out)  # type: ignore[arg-type]


def test_numbers_fill_the_params_in_order() -> None:
    both = (ir.Param("alpha", DType.F32, 1.0), ir.Param("beta", DType.F32, 2.0))
    with_params = sketch(*ADD_SKETCH.tensors, params=both)
    binding = bind(with_params, described((3, 5), 0.5, (5,)))
    assert binding.params == {"alpha": 0.5, "beta": 2.0}
    assert binding.param_inputs == {1: "alpha"}
    assert binding.tensors[1].position == 2


def named(*names: str, inputs: tuple[object, ...], **more: object) -> TaskDescription:
    return attrs.evolve(described(*inputs), names=names, **more)  # type: ignore[arg-type]


def with_params(*params: ir.Param) -> ir.Sketch:
    return sketch(*ADD_SKETCH.tensors, params=params)


def test_numbers_go_to_params_of_their_names_first() -> None:
    both = with_params(ir.Param("beta", DType.F32), ir.Param("ALPHA", DType.F32))
    task = named("x", "y", "alpha", "beta", inputs=((3, 5), (5,), 0.5, 0.25))
    assert bind(both, task).params == {"beta": 0.25, "ALPHA": 0.5}


def test_a_number_that_the_sketch_does_not_need_is_left_out() -> None:
    task = named("x", "y", "dim", "eps", inputs=((3, 5), (5,), 1, 0.25))
    binding = bind(with_params(ir.Param("eps", DType.F32)), task)
    assert binding.params == {"eps": 0.25}
    assert binding.nothing == {2}
    assert any("input 3 (`dim`) of the task fills no param" in note for note in binding.notes)
    assert bind(ADD_SKETCH, task).nothing == {2, 3}
    # No name agrees: a float param takes either, an integer one the only integer.
    rows = bind(with_params(ir.Param("axis", DType.I32)), task)
    assert (rows.params, rows.nothing) == ({"axis": 1}, {3})
    with pytest.raises(UsageError, match="give its params the names"):
        bind(with_params(ir.Param("epsilon", DType.F32)), task)


def test_a_setting_that_the_task_overrides_and_a_default_are_told() -> None:
    params = (ir.Param("eps", DType.F32, 1e-5), ir.Param("alpha", DType.F32, 1.0))
    task = named("x", "y", "eps", inputs=((3, 5), (5,), 0.25))
    notes = bind(with_params(*params), task, {"eps": 2.0}).notes
    assert any("eps = 0.25" in note and "--set does not change it" in note for note in notes)
    assert any("alpha = 1.0, the sketch's default" in note for note in notes)
    parts = attrs.evolve(task, constants={"norm.alpha": "0.5", "norm.eps": "1e-06"})
    assert any(
        note.endswith("(norm.alpha = 0.5)") for note in bind(with_params(*params), parts).notes
    )


TEXT = OtherSpec("'mean'", "str")
NOTHING = OtherSpec("None", "NoneType")


def test_texts_and_tuples_are_constants() -> None:
    task = described((3, 5), TEXT, (5,), OtherSpec("(1, 2)", "tuple"))
    binding = bind(ADD_SKETCH, task)
    assert [source.position for source in binding.tensors] == [0, 2]
    assert binding.nothing == {1, 3}
    assert binding.symbols_of(task.inputs) == binding.symbols
    with pytest.raises(UsageError, match=r"input 2 is 'sum' there, and 'mean' in the first"):
        binding.symbols_of([*task.inputs[:1], OtherSpec("'sum'", "str"), *task.inputs[2:]])


def test_another_list_may_have_other_numbers() -> None:
    both = with_params(ir.Param("alpha", DType.F32), ir.Param("axis", DType.I32))
    binding = bind(both, named("x", "y", "alpha", "axis", inputs=((3, 5), (5,), 0.5, 1)))
    x, y = binding.description.inputs[:2]
    assert binding.symbols_of([x, y, 2, 0]) == binding.symbols
    assert binding.numbers_of([x, y, 2, 0]) == {"alpha": 2, "axis": 0}
    assert binding.with_numbers({"alpha": 2}).number(2) == 2
    with pytest.raises(UsageError, match=r"axis is 0.5 there, and 1 in the first"):
        binding.symbols_of([x, y, 2, 0.5])


def test_none_stands_for_an_optional_tensor_where_the_sketch_has_one() -> None:
    optional = attrs.evolve(tensor("BIAS", "N"), optional=True)
    out = tensor("Y", "M N", ir.Role.OUT)
    three = sketch(tensor("X", "M N"), optional, tensor("B", "N"), out)
    task = described((3, 5), NOTHING, (5,))
    assert [s.tensor.name for s in bind(three, task).tensors] == ["X", "B"]
    assert [s.tensor.name for s in bind(ADD_SKETCH, task).tensors] == ["X", "B"]
    last = sketch(tensor("X", "M N"), tensor("B", "N"), optional, out)
    assert [s.tensor.name for s in bind(last, task).tensors] == ["X", "B"]
    with pytest.raises(UsageError, match="input 2 of the task is None, and B is not optional"):
        bind(ADD_SKETCH, described((3, 5), NOTHING))


@pytest.mark.parametrize(
    ("x", "y", "wrong"),
    [
        (DType.F16, DType.F32, "X is f16, and input 1 of the task f32"),
        (DType.F64, DType.F32, "X is f64"),
        (DType.F32, DType.F16, "Y is f16, and the task returns f32"),
        (DType.F32, DType.I32, "Y is i32"),
    ],
)
def test_other_types_are_told_and_other_kinds_an_error(x: DType, y: DType, wrong: str) -> None:
    other = sketch(tensor("X", "M N", dtype=x), tensor("Y", "M N", ir.Role.OUT, dtype=y))
    assert any(wrong in text for text in bind(other, described((3, 5))).other_types)
    assert not bind(ADD_SKETCH, described((3, 5), (5,))).other_types
    integers = sketch(tensor("X", "M N", dtype=DType.I32), tensor("Y", "M N", ir.Role.OUT))
    with pytest.raises(UsageError, match="f32 and X is i32"):
        bind(integers, described((3, 5)))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (described((3, 5)), "2 inputs; the task's forward takes 1 tensor"),
        (described((3, 5), (5,), (5,)), "takes 3 tensors and the sketch s has 2 inputs"),
        (described((3, 5, 1), (5,)), r"input 1 of the task has rank 3 .* and X has rank 2"),
        (described((3, 5), (6,)), "N is 5 by axis 1 of input 1 and 6 by axis 0 of input 2"),
        (described((3, 5), (5,), outputs=2), "returns 2 tensors and the sketch s has 1 output"),
    ],
)
def test_a_task_that_does_not_fit_is_one_message(task: TaskDescription, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bind(ADD_SKETCH, task)


def test_a_param_without_a_value_says_how_to_give_one() -> None:
    needs = sketch(*ADD_SKETCH.tensors, params=(ir.Param("eps", DType.F32),))
    with pytest.raises(UsageError, match="--set eps="):
        bind(needs, described((3, 5), (5,)))


def test_a_symbols_bound_is_kept() -> None:
    bounded = ir.Sketch(
        "s", (ir.Symbol("M", 2), ir.Symbol("N")), (), (), (), ADD_SKETCH.tensors, (), (), (), ()
    )
    with pytest.raises(UsageError, match="M is 3 by axis 0 of input 1; the sketch allows 2"):
        bind(bounded, described((3, 5), (5,)))


def test_other_extents_are_checked() -> None:
    double = ir.Tensor("Z", (ir.Binary("*", ir.Literal(2), ref("N")),), DType.F32, ir.Role.IN)
    wide = sketch(tensor("X", "M N"), double, tensor("Y", "M N", ir.Role.OUT))
    assert isinstance(bind(wide, described((3, 5), (10,))), Binding)
    with pytest.raises(UsageError, match="axis 0 of Z is 11; the sketch says 10"):
        bind(wide, described((3, 5), (11,)))


BROKEN = {
    "the file does not exist": (None, "there is no task file"),
    "a syntax error": ("def f(:\n", r"loading the file raised SyntaxError: .*line 3: def f\(:"),
    "an import error": ("import nothing_here\n", "ModuleNotFoundError: No module named"),
    "no Model": ("def get_inputs(): return []\n", "defines no `Model`"),
    "no get_inputs": ("class Model(nn.Module): pass\n", "defines no `get_inputs`"),
    "Model is no module": ("class Model: pass\ndef get_inputs(): return []\n", "torch.nn.Module"),
    "forward raises": (
        ADD.replace("return x + y", "raise ValueError('too bad')"),
        r"Model.forward raised ValueError: too bad \(line 6: raise ValueError\('too bad'\)\)",
    ),
    "__init__ raises": (LINEAR.replace("self.scale = 2.5", "1 / 0"), "ZeroDivisionError"),
    "get_inputs raises": (ADD.replace("torch.randn(5)", "torch.randn(-5)"), "get_inputs raised"),
    "get_inputs returns a tensor": (
        ADD.replace("[torch.randn(3, 5), torch.randn(5)]", "torch.randn(3)"),
        "get_inputs must return a list, and returns Tensor",
    ),
    "forward returns text": (ADD.replace("x + y", "'text'"), "must return a tensor or several"),
    "forward exits": (ADD.replace("return x + y", "raise SystemExit(3)"), "ends the process"),
    "the process dies": ("import os\nos._exit(7)\n", "exit status 7, while the file was loaded"),
    "an unknown dtype": (ADD.replace("return x + y", "return x + 1j"), "no counterpart"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_task_is_one_line(tmp_path: Path, name: str) -> None:
    text, message = BROKEN[name]
    path = tmp_path / "missing.py" if text is None else write(tmp_path, text)
    with pytest.raises(UsageError, match=message) as caught, TorchTask(path) as task:
        task.describe()
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_task_that_hangs_is_ended(tmp_path: Path) -> None:
    text = ADD.replace("return x + y", "import time; time.sleep(1000)")
    with TorchTask(write(tmp_path, text)) as task:
        task.timeout = 0.5
        with pytest.raises(UsageError, match=r"no answer within 0.5 s .*forward was run"):
            task.describe()
    assert task.process.wait() == -signal.SIGKILL


def test_a_task_that_closes_its_pipe_and_goes_on_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "_GRACE", 0.2)
    text = ADD.replace("return x + y", "import os, time; os.closerange(3, 256); time.sleep(1000)")
    with TorchTask(write(tmp_path, text)) as task:
        with pytest.raises(UsageError, match=r"ended its process \(signal SIGKILL"):
            task.describe()
        assert task.process.wait() == -signal.SIGKILL


def test_the_limit_on_requests_does_not_bound_loading(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, ADD), timeout=0.001) as task:
        task.timeout = 60.0
        assert len(task.describe().inputs) == 2


def test_what_a_task_prints_disturbs_nothing(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, 'print("{}")\n' + ADD)) as task:
        assert len(task.describe().inputs) == 2


STRIDED = ["x[:, ::7]", "x[0, ::7]", "x.t()[:1]", "x[:, :1, None].transpose(0, 1)", "x[:0]",
           "x.half()[:, ::7]"]  # fmt: skip


@pytest.mark.parametrize("result", STRIDED)
def test_results_of_any_strides_come_back(tmp_path: Path, result: str) -> None:
    text = f"class Model(nn.Module):\n    def forward(self, x):\n        return {result}\n"
    inputs = "def get_inputs():\n    return [torch.arange(7.0).reshape(1, 7)]\n"
    with TorchTask(write(tmp_path, text + inputs)) as task:
        (given,) = task.own_inputs(0)
        assert isinstance(given, np.ndarray)
        (found,) = task.reference([given], double=False)
    row = given.reshape(7)
    expected = {"x.t()[:1]": row[:1], "x[:0]": row[:0]}.get(result, row[:1])
    assert found.size == expected.size
    assert np.array_equal(found.reshape(-1), expected)


NORMED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.utils.weight_norm(nn.Linear(6, 4))
    def forward(self, x):
        return self.inner(x)
def get_inputs():
    return [torch.randn(3, 6)]
"""


def test_a_model_that_cannot_be_copied_is_built_again(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, NORMED)) as task:
        state = {spec.name: spec.shape for spec in task.describe().state}
        task.require_deterministic()
        (given,) = task.own_inputs(0)
        ones = {name: np.ones(shape, np.float32) for name, shape in state.items()}
        (found,) = task.reference([given], ones)
    assert isinstance(given, np.ndarray)
    expected = given.sum(axis=1, keepdims=True, dtype=np.float64) / np.sqrt(6) + 1
    np.testing.assert_allclose(found, np.repeat(expected, 4, axis=1))


NESTED = """
class Model(nn.Module):
    def forward(self, xs, mode, *, shape):
        assert (mode, shape) == ("sum", (2, 1))
        return (xs[0] + xs[1]).repeat(*shape)
def get_inputs():
    return {"xs": (torch.randn(3, 6), torch.randn(3, 6)), "mode": "sum", "shape": (2, 1)}
"""


def test_a_run_before_any_description_gets_the_tasks_own_constants(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, NESTED)) as task:
        ones = np.ones((3, 6), np.float32)
        (found,) = task.reference([ones, 2 * ones, None, None])
        assert np.array_equal(found, np.full((6, 6), 3.0))
        assert task.describe().names == ("xs[0]", "xs[1]", "mode", "shape")
