"""Hints mean what docs/TASKS.md says, sizes keep to them, and values do."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType, numpy_dtype
from sketchc.runtime.tasks.description import HintError
from sketchc.runtime.tasks.inputs import KINDS, generate, within
from sketchc.runtime.tasks.outline import Domain, read_hints, read_outline

INSIDE = {
    "M in [1, 4096]": ([1, 2, 4096], [0, 4097]),
    "x in [0, 10)": ([0, 9.99], [-0.01, 10]),
    "x in (0, 1]": ([1e-9, 1], [0, 1.01]),
    "x in [0, inf)": ([0, 1e30], [-1e-9]),
    "M in [64, 128, 256]": ([64, 128, 256], [63, 192]),
    "M in {64, 128}": ([64, 128], [65]),
    "M in range(16, 65, step=16)": ([16, 48, 64], [17, 80]),
    "M in range(3, 6)": ([3, 5], [2, 6]),
    "M in pow2(3, 5)": ([8, 16, 32], [4, 12, 64]),
    "M in pow of 2": ([1, 1 << 20], [3]),
    "M = 64": ([64], [65]),
    "x>0": ([1e-9], [0]),
    "x <= -2.5e1": ([-25, -26], [-24.9]),
}
OLDER = {
    '# @range_hint("M", start=8, end=64)': ([8, 64], [7, 65]),
    "# @range_hint('M', 8, 64)": ([8, 64], [65]),
    '# @elemwise_hint("M", [8, 16, 64])': ([8, 16, 64], [9]),
    '# @elem_hint("M", [8, 16, 64])': ([8, 16, 64], [9]),
}


@pytest.mark.parametrize("text", [*INSIDE, *OLDER])
def test_what_a_hint_allows(text: str) -> None:
    inside, outside = (INSIDE | OLDER)[text]
    comment = text if text.startswith("#") else f"# @hint: {text}"
    (hint,) = read_hints(f"y = 3  {comment}\n", "task.py")
    assert (hint.name, hint.line) == (text[0] if text[0] != "#" else "M", 1)
    assert hint.domain is not None
    assert [value for value in inside if not hint.domain.holds(value)] == []
    assert [value for value in outside if hint.domain.holds(value)] == []
    assert not hint.domain.holds(math.nan)


def test_text_that_only_looks_like_a_hint_is_none() -> None:
    assert read_hints('"""# @hint: nonsense"""\n# hint: nonsense\nx = "# @hint: y"\n', "t.py") == ()


@pytest.mark.parametrize(
    "text", ["M", "M in", "M in []", "M in [3, 1]", "M in (1, 1]", "x: f32[M", "3 in [1, 2]",
             "M in range(5, 2)", "x: f32[M-1]", "M in [a, b, c]"],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(HintError, match=r"t\.py, line 2: the hint `.*` cannot be read; write `M"):
        read_hints(f"\n# @hint: {text}\n", "t.py")


@pytest.mark.parametrize(
    "domain",
    [Domain(3, 40), Domain(3, 40, True, True), Domain(5, 40, step=7), Domain(choices=(4, 9, 32)),
     Domain(2)],
)  # fmt: skip
def test_sizes_are_moved_to_the_nearest_that_is_allowed(domain: Domain) -> None:
    allowed = [size for size in range(1, 200) if domain.holds(size)]
    for size in range(1, 60):
        assert domain.at_least(size) == min((a for a in allowed if a >= size), default=None)
        assert domain.at_most(size) == max((a for a in allowed if a <= size), default=None)
        assert domain.holds(domain.near(size))
    assert domain.integer_range[0] == allowed[0]


DOMAINS = [Domain(0, 10, open_upper=True), Domain(0, 1, open_lower=True), Domain(-3, 5), Domain(2)]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.I32, DType.U8])
def test_inputs_of_every_kind_are_moved_inside(domain: Domain, dtype: DType) -> None:
    for seed, kind in enumerate(KINDS):
        array = generate(kind, dtype, (12, 9), np.random.default_rng(seed))
        moved = within(array, domain, dtype)
        assert moved.dtype == numpy_dtype(dtype)
        assert moved.shape == array.shape
        values = moved.astype(np.float64).reshape(-1)
        assert [value for value in values if not domain.holds(value)] == []


def test_the_order_of_floats_stays() -> None:
    """What structured inputs are for: sorted rows stay sorted, equal elements equal."""
    array = np.asarray([-1e3, -2, -2, 0, 1e-30, 5, 1e3], np.float32)
    moved = within(array, Domain(-1, 4), DType.F32)
    assert (np.diff(moved) >= 0).all()
    assert moved[1] == moved[2] < moved[3] < moved[5]


def test_a_choice_is_one_of_its_values() -> None:
    array = generate("normal", DType.I32, (50,), np.random.default_rng(0))
    assert set(within(array, Domain(choices=(1, 2, 4)), DType.I32).tolist()) == {1, 2, 4}


TORCH, NUMPY = "import torch\nfrom torch import nn\n", "import numpy as np\n"
SPORE = "import mindspore\nfrom mindspore import nn as layers\nimport numpy as np\n"
FOUND = {
    "a function of torch": (TORCH + "def f(x): return torch.relu(x)", ("torch", "f", "function")),
    "a function of numpy": (NUMPY + "def f(x): return np.abs(x)", ("numpy", "f", "function")),
    "a function of numpy beside torch": (
        TORCH + NUMPY + "def f(x): return _g(x)\ndef _g(x): return np.abs(x)",
        ("numpy", "f", "function"),
    ),
    "a function that uses nothing": (NUMPY + "def f(x): return x + 1", ("numpy", "f", "function")),
    "Model before all": (
        TORCH + "class Other(nn.Module): pass\nclass Model(nn.Module): pass\ndef f(): pass",
        ("torch", "Model", "class"),
    ),
    "an inherited module": (
        TORCH + "class _Base(nn.Linear): pass\nclass Net(_Base): pass",
        ("torch", "Net", "class"),
    ),
    "a cell": (SPORE + "class Net(layers.Cell): pass", ("mindspore", "Net", "class")),
    "an instance": (
        TORCH + "class Net(nn.Module): pass\nnet = Net()",
        ("torch", "net", "instance"),
    ),
    "a class that is built with init inputs": (
        TORCH + "class Net(nn.Module): pass\nnet = Net()\ndef get_init_inputs(): return []",
        ("torch", "Net", "class"),
    ),
    "a class that can be called": (
        NUMPY + "class Net:\n    def __call__(self, x): return x",
        ("numpy", "Net", "class"),
    ),
    "an autograd function is no module": (
        TORCH + "class Own(torch.autograd.Function): pass\ndef f(x): return Own.apply(x)",
        ("torch", "f", "function"),
    ),
    "definitions under if": (
        NUMPY + "if True:\n    def f(x): return np.abs(x)",
        ("numpy", "f", "function"),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_task_and_its_framework_are_found(name: str, tmp_path: Path) -> None:
    text, wanted = FOUND[name]
    path = tmp_path / "task.py"
    path.write_text(text)
    outline = read_outline(path)
    assert (outline.framework, outline.subject, outline.kind) == wanted


def test_a_name_chooses_among_several_and_hints_follow_it(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        NUMPY + "# @hint: N in [1, 9]\n\n# @hint: x: f32[N]\ndef f(x): return x\n\n"
        "def g(x):\n    # @hint: x: i32[N]\n    return x\n"
    )
    with pytest.raises(UsageError, match=r"several functions \(f, g\): .* task.py:f"):
        read_outline(path)
    for name, dtype in (("f", DType.F32), ("g", DType.I32)):
        outline = read_outline(path, name)
        (parameter,) = outline.parameters
        assert parameter.declared is not None
        assert parameter.declared.dtype is dtype
        assert [hint.name for hint in outline.hints] == ["N", "x"]
    with pytest.raises(UsageError, match="defines no `h`; it defines f, g"):
        read_outline(path, "h")
