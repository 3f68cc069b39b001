"""Attention in the built-in Designer's sketches: scores stay out of memory, and the sketch means
what PyTorch computes at ragged sizes, whichever way the task spells it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from toolchains import require  # noqa: E402

from sketchc.agents.autosketch.designer import design  # noqa: E402
from sketchc.base.diagnostics import Source  # noqa: E402
from sketchc.checker.api import check  # noqa: E402
from sketchc.cli.main import run  # noqa: E402
from sketchc.interpreter.api import interpret  # noqa: E402
from sketchc.ir import nodes as ir  # noqa: E402
from sketchc.ir.evaluate import evaluate  # noqa: E402
from sketchc.lowering.passes.pipeline import build_plan  # noqa: E402
from sketchc.parsing.parser import parse  # noqa: E402
from sketchc.runtime.tasks.task import load_task  # noqa: E402

HEADS = ((2, 3, 37, 16), (2, 3, 41, 16), (2, 3, 41, 24))
SAME = ((2, 3, 37, 16), (2, 3, 37, 16), (2, 3, 37, 16))
#: The body of a function of q, k, v (and m), and the shapes of its inputs; all others are f32.
TASKS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "plain": ("return F.scaled_dot_product_attention(q, k, v)", HEADS),
    "causal": ("return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)", SAME),
    "masked": (
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m > -1.0)",
        (*HEADS, (37, 41)),
    ),
    "biased": (
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        (*HEADS, (2, 1, 37, 41)),
    ),
    "grouped": (
        "return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
        ((2, 6, 37, 16), (2, 2, 41, 16), (2, 2, 41, 24)),
    ),
    "written_out": (
        "a = (q @ k.transpose(-2, -1)) / math.sqrt(16)\n"
        "        return torch.softmax(a.masked_fill(m == 0, float('-inf')), -1) @ v * 2.0",
        (*HEADS, (37, 41)),
    ),
    "lower_triangle": (
        "n = q.shape[-2]\n"
        "        a = (q @ k.mT).masked_fill(torch.tril(torch.ones(n, n)) == 0, -math.inf)\n"
        "        return torch.einsum('bhij,bhjd->bhid', a.softmax(-1), v)",
        SAME,
    ),
    "window": (
        "i = torch.arange(q.shape[-2])\n"
        "        near = (i[None] <= i[:, None]) & (i[:, None] - i[None] < 5)\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=near)",
        SAME,
    ),
    "by_hand": (
        "a = torch.bmm(q, k.transpose(1, 2)) * 0.25\n"
        "        e = torch.exp(a - a.amax(-1, keepdim=True))\n"
        "        return torch.bmm(e / e.sum(-1, keepdim=True), v) + q[..., :1]",
        ((3, 37, 16), (3, 41, 16), (3, 41, 24)),
    ),
    "transposed": (
        "return torch.softmax(q.transpose(1, 2) @ k, -1) @ v.transpose(1, 2)",
        ((3, 16, 37), (3, 16, 41), (3, 24, 41)),
    ),
}
#: In the task with a mask, the queries from this one on see no key.
HIDDEN = 2


def written(folder: Path, name: str, body: str, inputs: str) -> Path:
    """The file of a task whose inputs are made by `inputs`."""
    path = folder / f"{name}.py"
    names = ("q", "k", "v", "m")[: inputs.count("torch.rand")]
    path.write_text(
        "import math\n\nimport torch\nimport torch.nn.functional as F\n\n\n"
        f"class Model(torch.nn.Module):\n    def forward(self, {', '.join(names)}):\n"
        f"        {body}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return path


def drawn(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(f"torch.randn{shape}" for shape in shapes)


def planned(name: str, text: str) -> ir.Sketch:
    """The sketch, which has to check, with small tiles."""
    source = Source(f"{name}.sketch", text)
    result = check(source)
    assert result.ok, result.diagnostics
    tree, _ = parse(source)
    assert tree is not None
    tiles = {"T": 8, "TM": 8, "TN": 8, "TK": 8, "TQ": 4, "TS": 8, "TD": 8, "TH": 8}
    held = {n: size for n, size in tiles.items() if f"{n} in" in text}
    return build_plan(tree.sketches[0], "cpp", None, held).plan.sketch


@pytest.mark.sweep
@pytest.mark.parametrize("name", TASKS)
def test_scores_stay_out_of_memory_and_the_sketch_means_the_task(name: str, tmp_path: Path) -> None:
    body, shapes = TASKS[name]
    path = written(tmp_path, name, body, drawn(shapes))
    with load_task(str(path)) as task:
        text = design(task)
    sketch = planned(name, text)
    assert not [t for t in sketch.tensors if t.role is ir.Role.WORKSPACE], text
    scope: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    model = scope["Model"]()  # type: ignore[operator]
    generator = np.random.default_rng(7)
    compared = 0
    for turn in range(5):
        sizes = {s.name: (1, 3, 8, 9, 13)[(turn + n) % 5] for n, s in enumerate(sketch.symbols)}
        given = {}
        for tensor in (t for t in sketch.tensors if t.role is ir.Role.IN):
            shape = [int(evaluate(extent, sizes)) for extent in tensor.extents]
            scale = np.exp2(generator.integers(-2, 3, shape))
            given[tensor.name] = (generator.standard_normal(shape) * scale).astype(np.float32)
        if name == "masked" and "M" in given:
            given["M"][..., HIDDEN:, :] = -5.0
        try:
            exact = model(*(torch.from_numpy(a).double() for a in given.values())).numpy()
        except RuntimeError:
            continue  # PyTorch refuses these sizes
        (output,) = interpret(sketch, given, sizes, {}).outputs.values()
        np.testing.assert_allclose(output, exact, rtol=2e-5, atol=2e-5 * np.abs(exact).max())
        compared += 1
    assert compared > 1


@pytest.mark.parametrize(
    ("name", "body", "shapes"),
    [
        (
            "given_back",
            "w = torch.softmax(q @ k.transpose(1, 2), -1)\n        return w @ v, w",
            ((3, 37, 16), (3, 41, 16), (3, 41, 24)),
        ),
        (
            "wide",
            "return torch.softmax(q @ k.transpose(1, 2), -1) @ v",
            ((3, 37, 16), (3, 41, 16), (3, 41, 2000)),
        ),
        (
            "values_of_each_query",
            "w = torch.softmax(q @ k.transpose(1, 2), -1)\n"
            "        return (w.unsqueeze(-1) * v).sum(2)",
            ((3, 37, 16), (3, 41, 16), (3, 37, 41, 24)),
        ),
    ],
)
def test_scores_that_others_read_or_that_take_long_are_computed_once(
    name: str, body: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    with load_task(str(written(tmp_path, name, body, drawn(shapes)))) as task:
        text = design(task)
    sketch = planned(name, text)
    queries, keys = (sketch.tensor(name).extents[1] for name in ("Q", "K"))
    kept = [t for t in sketch.tensors if t.role is ir.Role.WORKSPACE]
    assert any({queries, keys} <= {*t.extents} for t in kept), text


@pytest.mark.sweep
def test_gen_makes_a_kernel_of_heads_that_share_keys(tmp_path: Path) -> None:
    """In half floats the products have half operands; a head's columns are part of a row."""
    require("triton_cuda")
    body = (
        "b, t, c = q.shape\n"
        "        q, k, v = (e.view(b, t, -1, 12).transpose(1, 2) for e in (q, k, v))\n"
        "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)\n"
        "        return y.transpose(1, 2).reshape(b, t, c)"
    )
    shapes = ((2, 21, 48), (2, 21, 24), (2, 21, 24))
    inputs = ", ".join(f"torch.randn{shape}.half()" for shape in shapes)
    path, out = written(tmp_path, "shared", body, inputs), tmp_path / "out"
    command = ["gen", str(path), "-t", "triton_cuda", "--no-bench", "--no-store", "-o", str(out)]
    assert run(command) == 0
    text = (out / "shared.sketch").read_text()
    assert "workspace" not in text
    assert "f16" in re.findall(r"weights_2 = alloc\((.*)\)", text)[0]
