"""Signatures read off tasks, and kernels read from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from foreign_kernels import CPP, TRITON

from sketchc.base.diagnostics import UsageError
from sketchc.interpreter.launch import show_declaration
from sketchc.ir import nodes as ir
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.tasks.signature import signature_of
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.verify.kernel_file import entry_point

pytest.importorskip("torch")

POOLED = "Y[M, N, (K - 2)//2 + 1, (P - 2)//2 + 1]: f32 out"
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"


def task_file(
    folder: Path, forward: str, inputs: str, init: str = "", arguments: str = "x", given: str = ""
) -> Path:
    """A task whose Model has these lines in __init__ and returns `forward`."""
    path = folder / "task.py"
    names = ", ".join(line.split("=")[0].strip() for line in given.split(";") if line)
    path.write_text(
        f"{HEAD}class Model(nn.Module):\n    def __init__(self{', ' * bool(names)}{names}):\n"
        f"        super().__init__()\n        {init or 'pass'}\n\n"
        f"    def forward(self, {arguments}):\n        return {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\n"
        f"def get_init_inputs():\n"
        f"    return [{', '.join(line.split('=')[1] for line in given.split(';') if line)}]\n"
    )
    return path


def declared(sketch: ir.Sketch) -> list[str]:
    return [f"{show_declaration(t)} {t.role.value}" for t in sketch.tensors]


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        ("torch.relu(x)", "torch.randn(7, 40)", ["X[M, N]: f32 in", "Y[M, N]: f32 out"]),
        ("x @ x", "torch.randn(40, 40)", ["X[M, M]: f32 in", "Y[M, M]: f32 out"]),
        ("x.sum(1)", "torch.randn(6, 40)", ["X[M, N]: f32 in", "Y[M]: f32 out"]),
        ("x.flatten(1)", "torch.randn(6, 9, 5)", ["X[M, N, K]: f32 in", "Y[M, N*K]: f32 out"]),
        (
            "x.reshape(-1, 5)",
            "torch.randn(6, 10)",
            ["X[M, 10]: f32 in", "Y[2*M, 5]: f32 out"],
        ),
        ("x[:, 1:-2]", "torch.randn(6, 40)", ["X[M, N]: f32 in", "Y[M, N - 3]: f32 out"]),
        ("torch.cat([x, x], 1)", "torch.randn(6, 40)",
         ["X[M, N]: f32 in", "Y[M, 2*N]: f32 out"]),
        ("x.view(2, 3, 9).sum(0)", "torch.randn(6, 9)", ["X[6, 9]: f32 in", "Y[3, 9]: f32 out"]),
        (
            "F.max_pool2d(x, 2)",
            "torch.randn(3, 4, 32, 24)",
            ["X[M, N, K, P]: f32 in",
             POOLED],
        ),
        (
            "F.avg_pool2d(x, 3)",
            "torch.randn(2, 4, 30, 33)",
            ["X[M, N, K, P]: f32 in",
             "Y[M, N, (K - 3)//3 + 1, (P - 3)//3 + 1]: f32 out"],
        ),
        (
            "F.avg_pool1d(x, 40)",
            "torch.randn(2, 4, 4000)",
            ["X[M, N, K]: f32 in", "Y[M, N, (K - 40)//40 + 1]: f32 out"],
        ),
        ("F.interpolate(x, scale_factor=2).flatten(1)", "torch.randn(2, 4, 9)",
         ["X[M, N, K]: f32 in", "Y[M, 2*(N*K)]: f32 out"]),
        ("x[:, ::2]", "torch.randn(6, 40)",
         ["X[M, N]: f32 in", "Y[M, (N - 1)//2 + 1]: f32 out"]),
        ("F.pad(x, (1, 2, 3, 4)).flatten()",
         "torch.randn(6, 40)",
         ["X[M, N]: f32 in", "Y[(M + 7)*(N + 3)]: f32 out"]),
        ("x.half()", "torch.randn(6, 40)", ["X[M, N]: f32 in", "Y[M, N]: f16 out"]),
        ("x > 0", "torch.randn(1, 40)", ["X[1, M]: f32 in", "Y[1, M]: bool out"]),
    ],
)  # fmt: skip
def test_extents_follow_the_inputs(
    tmp_path: Path, forward: str, inputs: str, expected: list[str]
) -> None:
    path = task_file(tmp_path, forward, inputs)
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
        bind(sketch, task.describe())
    assert declared(sketch) == expected


@pytest.mark.parametrize(
    ("layer", "inputs", "extents"),
    [
        ("nn.ConvTranspose2d(4, 6, 3)", "2, 4, 9, 11", "M, 6, N + 2, K + 2"),
        (
            "nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, dilation=2)",
            "2, 4, 9",
            "M, 6, 2*N + 1",
        ),
        ("nn.Conv1d(4, 6, 3, stride=3, dilation=4)", "2, 4, 50", "M, 6, (N - 9)//3 + 1"),
        ("nn.Conv2d(4, 6, 3, stride=2, padding=1)", "2, 4, 224, 224",
         "M, 6, (N - 1)//2 + 1, (N - 1)//2 + 1"),
        ("nn.AvgPool2d(11)", "2, 4, 2048, 1024",
         "M, N, (K - 11)//11 + 1, (P - 11)//11 + 1"),
    ],
)  # fmt: skip
def test_extents_of_layers_at_any_size(
    tmp_path: Path, layer: str, inputs: str, extents: str
) -> None:
    path = task_file(tmp_path, "self.inner(x)", f"torch.randn({inputs})", f"self.inner = {layer}")
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch)[-1] == f"Y[{extents}]: f32 out"


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("torch.cat([x[:, :48], y[:, :100], x[:, :5]], 1)", ["X[M, 100]: f32 in",
         "X2[M, 100]: f32 in", "Y[M, 153]: f32 out"]),
        ("x[:, :3] + y[:, :3]", ["X[M, 100]: f32 in", "X2[M, 100]: f32 in", "Y[M, 3]: f32 out"]),
        ("(x + y)[:, 1:-2]", ["X[M, N]: f32 in", "X2[M, N]: f32 in", "Y[M, N - 3]: f32 out"]),
    ],
)  # fmt: skip
def test_what_the_model_cuts_keeps_its_size(
    tmp_path: Path, forward: str, expected: list[str]
) -> None:
    inputs = "torch.randn(6, 100), torch.randn(6, 100)"
    path = task_file(tmp_path, forward, inputs, arguments="x, y")
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch) == expected


def test_a_kernel_size_is_a_symbol_beside_a_stride_of_the_same_size(tmp_path: Path) -> None:
    path = task_file(
        tmp_path,
        "self.inner(x)",
        "torch.randn(2, 4, 500)",
        "self.inner = nn.Conv1d(4, 6, size, stride=stride, dilation=4)",
        given="size=3;stride=3",
    )
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch)[1] == "INNER_WEIGHT[6, 4, K]: f32 in"
    assert declared(sketch)[-1] == "Y[M, 6, (N - 4*K + 3)//3 + 1]: f32 out"


def test_three_tensors_side_by_side(tmp_path: Path) -> None:
    inputs = "torch.randn(3, 5), torch.randn(3, 7), torch.randn(3, 9)"
    path = task_file(tmp_path, "torch.cat([x, y, z], 1)", inputs, arguments="x, y, z")
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch)[-1] == "Y[M, N + K + P]: f32 out"


def test_an_extent_that_follows_in_no_simple_way(tmp_path: Path) -> None:
    path = task_file(tmp_path, "x.new_zeros(x.shape[0] ** 2)", "torch.randn(6)")
    with TorchTask(path) as task, pytest.raises(UsageError, match="no simple way"):
        signature_of(task, "f")


def test_parameters_follow_init_inputs(tmp_path: Path) -> None:
    path = task_file(
        tmp_path,
        "self.inner(x) * scale",
        "torch.randn(6, 24), 0.5",
        "self.inner = nn.Linear(width, wide)",
        arguments="x, scale",
        given="width=24;wide=40",
    )
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
        bound = bind(sketch, task.describe())
    assert declared(sketch) == [
        "X[M, N]: f32 in",
        "INNER_WEIGHT[K, N]: f32 in",
        "INNER_BIAS[K]: f32 in",
        "Y[M, K]: f32 out",
    ]
    assert [(p.name, p.default) for p in sketch.params] == [("number_2", 0.5)]
    assert dict(bound.symbols) == {"M": 6, "N": 24, "K": 40}
    assert [source.state for source in bound.tensors] == [None, "inner.weight", "inner.bias"]


def test_sizes_that_are_written_into_the_model_stay(tmp_path: Path) -> None:
    path = task_file(
        tmp_path, "self.inner(x)", "torch.randn(6, 24)", "self.inner = nn.Linear(24, 40)"
    )
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch) == [
        "X[M, 24]: f32 in",
        "INNER_WEIGHT[40, 24]: f32 in",
        "INNER_BIAS[40]: f32 in",
        "Y[M, 40]: f32 out",
    ]


def test_a_size_that_many_weights_happen_to_have_is_a_size(tmp_path: Path) -> None:
    """Rows of a network whose layers are as wide as there are rows: seventeen axes of 12."""
    layers = "self.net = nn.Sequential(*(nn.Linear(12, 12) for _ in range(5)))"
    path = task_file(tmp_path, "self.net(x)", "torch.randn(12, 12)", init=layers)
    with TorchTask(path) as task:
        sketch = signature_of(task, "net")
    assert declared(sketch)[0] == "X[M, 12]: f32 in"
    assert declared(sketch)[-1] == "Y[M, 12]: f32 out"


def test_a_size_that_is_taken_up_to_the_next_patch_only_stays(tmp_path: Path) -> None:
    init = "self.place = nn.Parameter(torch.randn(2, 12))"
    path = task_file(
        tmp_path,
        "x.unfold(1, 16, 16).sum(3) + self.place",
        "torch.randn(3, 32, 12)",
        init,
    )
    with TorchTask(path) as task:
        sketch = signature_of(task, "patches")
    assert declared(sketch) == [
        "X[M, 32, 12]: f32 in", "PLACE[2, 12]: f32 in", "Y[M, 2, 12]: f32 out",
    ]  # fmt: skip


def test_a_task_is_asked_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = task_file(
        tmp_path,
        "F.avg_pool2d(x, 3) @ w",
        "torch.randn(2, 7, 9, 7), torch.randn(2, 4)",
        arguments="x, w",
    )
    asked: list[str] = []
    probe = TorchTask.probe

    def noted(self: TorchTask, *arguments: Any, **named: Any) -> Any:
        asked.append(repr((arguments, sorted(named.items()))))
        return probe(self, *arguments, **named)

    monkeypatch.setattr(TorchTask, "probe", noted)
    with TorchTask(path) as task:
        signature_of(task, "pooled")
    assert len(asked) > 10
    assert len(set(asked)) == len(asked)


def test_several_outputs_have_numbers(tmp_path: Path) -> None:
    path = task_file(tmp_path, "(x, x.sum(0))", "torch.randn(6, 24)")
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch)[1:] == ["Y1[M, N]: f32 out", "Y2[N]: f32 out"]


@pytest.mark.parametrize(
    ("numbers", "forward", "inputs", "expected"),
    [
        (
            "rows = 64\ninner: int = 64\ncolumns = 64",
            "x @ y",
            "torch.randn(rows, inner), torch.randn(inner, columns)",
            ["X[M, N]: f32 in", "X2[N, K]: f32 in", "Y[M, K]: f32 out"],
        ),
        (
            "rows, columns = 64, 64",
            "torch.relu(x) + y",
            "torch.randn(rows, columns), torch.randn(columns)",
            ["X[M, N]: f32 in", "X2[N]: f32 in", "Y[M, N]: f32 out"],
        ),
        # A number and a literal; two numbers that the task wants to be equal; one number for both.
        (
            "rows = 64",
            "torch.relu(x) + y",
            "torch.randn(rows, 64), torch.randn(64)",
            ["X[M, N]: f32 in", "X2[N]: f32 in", "Y[M, N]: f32 out"],
        ),
        (
            "rows = 64\ncolumns = 64",
            "x @ x + y",
            "torch.randn(rows, columns), torch.randn(rows, columns)",
            ["X[M, M]: f32 in", "X2[M, M]: f32 in", "Y[M, M]: f32 out"],
        ),
        (
            "size = 64",
            "torch.relu(x) + y",
            "torch.randn(size, size), torch.randn(size)",
            ["X[M, M]: f32 in", "X2[M]: f32 in", "Y[M, M]: f32 out"],
        ),
    ],
)
def test_extents_of_one_size_move_apart_with_the_numbers_of_the_file(
    tmp_path: Path, numbers: str, forward: str, inputs: str, expected: list[str]
) -> None:
    path = task_file(tmp_path, forward, inputs, arguments="x, y")
    path.write_text(path.read_text().replace("class Model", f"{numbers}\n\n\nclass Model"))
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
        bind(sketch, task.describe())
    assert declared(sketch) == expected


def test_parameters_go_with_the_number_that_they_need(tmp_path: Path) -> None:
    path = task_file(
        tmp_path,
        "self.inner(x)",
        "torch.randn(batch, width)",
        "self.inner = nn.Linear(width, wide)",
        given="width=width;wide=wide",
    )
    numbers = "batch = 24\nwidth = 24\nwide = 24\n\n\n"
    path.write_text(path.read_text().replace("class Model", f"{numbers}class Model"))
    with TorchTask(path) as task:
        sketch = signature_of(task, "f")
    assert declared(sketch) == [
        "X[M, N]: f32 in",
        "INNER_WEIGHT[K, N]: f32 in",
        "INNER_BIAS[K]: f32 in",
        "Y[M, K]: f32 out",
    ]


# ---------------------------------------------------------------- kernel files

BLOCK = 'extern "C" {\nint64_t other(float *x) { if (x) { x[0] = 1; } return 0; }\n}'


@pytest.mark.parametrize(
    ("source", "language", "expected"),
    [
        (TRITON, "python", "twice"),
        (TRITON.replace("def twice(", "def other("), "python", "other"),
        (CPP, "c++", "twice"),
        (CPP.replace("twice", "other"), "c++", "other"),
        (BLOCK, "c++", "other"),
        ("def broken(:", "python", "twice"),
        ("import torch\n\n\ndef _help():\n    pass\n\n\ndef run(X):\n    pass\n", "python", "run"),
    ],
)  # fmt: skip
def test_the_entry_point_is_found(source: str, language: str, expected: str) -> None:
    assert entry_point(source, language, "twice") == expected


@pytest.mark.parametrize(
    ("source", "language", "found"),
    [
        ("def one(X):\n    pass\n\n\ndef two(X):\n    pass\n", "python", "one, two"),
        ("x = 1\n", "python", "defines none"),
        ("int64_t twice(float *x);\n", "c++", "defines none"),
    ],
)
def test_an_entry_point_that_cannot_be_told(source: str, language: str, found: str) -> None:
    with pytest.raises(UsageError, match=found):
        entry_point(source, language, "twice")
    with pytest.raises(UsageError, match=found):
        entry_point(source, language, "twice", wanted="three")
