"""The built-in Designer computes long reductions to few results in parts: the sketch is proved, and
means what PyTorch computes at any sizes; short ones, and such to many results, stay in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from designed_functions import designed, written  # noqa: E402
from toolchains import require  # noqa: E402

from sketchc.agents.autosketch.designer import design  # noqa: E402
from sketchc.cli.main import run  # noqa: E402
from sketchc.interpreter.api import interpret  # noqa: E402
from sketchc.ir import nodes as ir  # noqa: E402
from sketchc.ir.evaluate import evaluate, host_values  # noqa: E402
from sketchc.runtime.tasks.task import load_task  # noqa: E402

#: The body of a function of x (and w), and the shapes of its own inputs, which make it long.
LONG: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "loss": ("((x - w) ** 2).mean()", ((1031, 1200), (1031, 1200))),
    "largest": ("x.max()", ((1100, 1000),)),
    "smallest_of_three_axes": ("x.abs().min()", ((7, 300, 601),)),
    "frobenius_norm": ("x / torch.norm(x, p='fro')", ((64, 40, 500),)),
    "few_rows": ("F.layer_norm(x, tuple(x.shape[1:]))", ((2, 64, 9000),)),
    "few_columns": ("x.sum((0, 2))", ((2100, 3, 200),)),
    "variance": ("torch.var(x) + x.mean()", ((1100, 1001),)),
    "one_axis": ("x.sum()", ((2_000_003,),)),
    "two_rows": ("x.amax(1)", ((2, 1_000_003),)),
    "one_column": ("x.sum(0)", ((1_100_003, 3),)),
    "few_planes": ("(x * x).sum((1, 2))", ((3, 17, 90_001),)),
    "place": ("x.argmax()", ((1_500_007,),)),
    "logarithm_of_sum": ("torch.logsumexp(x, 0)", ((1_300_001,),)),
    "dot": ("x @ w", ((1_400_003,), (1_400_003,))),
    "product": ("x @ w", ((8, 300_000), (300_000, 8))),
    "products": ("(x @ w).relu() - 1", ((2, 16, 100_003), (2, 100_003, 24))),
    "two_losses": ("(x - w).abs().mean() / (x * w).sum().abs().add(1.0)", ((1100, 999),) * 2),
}
#: Sizes that a symbol has beside the others: of one, and primes on both sides of a tile.
OTHERS = (1, 2, 17, 257)
SHORT: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "short": ("((x - w) ** 2).mean()", ((40, 60), (40, 60))),
    "many_rows": ("x.sum((1, 2))", ((4096, 20, 30),)),
    "product": ("x @ w", ((1024, 8192), (8192, 1024))),
}


@pytest.mark.parametrize("name", LONG)
def test_the_parts_mean_the_whole(name: str, tmp_path: Path) -> None:
    body, shapes = LONG[name]
    text, sketch = designed(written(tmp_path, body, shapes))
    assert "workspace: PARTIAL" in text
    symbols = [symbol.name for symbol in sketch.symbols]
    torch.manual_seed(1)
    for turn in range(len(OTHERS)):
        # Each size meets each other one; a variance of one element is none.
        drawn = [OTHERS[(turn + n * (turn + 1)) % len(OTHERS)] for n in range(len(symbols))]
        sizes = dict(zip(symbols, drawn if max(drawn) > 1 else [5, *drawn[1:]], strict=True))
        values = host_values(sketch, sizes, {})
        given = {
            tensor.name: torch.randn([int(evaluate(e, values)) for e in tensor.extents]) * 3 - 1
            for tensor in sketch.tensors
            if tensor.role is ir.Role.IN
        }
        double = (tensor.double() for tensor in given.values())
        scope = {"torch": torch, "F": torch.nn.functional, **dict(zip("xw", double, strict=False))}
        wanted = eval(body, scope)
        arrays = {key: tensor.numpy() for key, tensor in given.items()}
        (output,) = interpret(sketch, arrays, sizes, {}).outputs.values()
        off = (torch.as_tensor(output).double() - wanted).abs().max()
        assert off <= 1e-4 * max(wanted.abs().max(), 1e-2), sizes


def test_no_lanes_lie_along_the_parts(tmp_path: Path) -> None:
    """Also where the terms are alike, so that nothing runs along what is added up."""
    count = ("x.sum() / torch.ones_like(x).sum()", ((2_000_003,),))
    text, _ = designed(written(tmp_path, *count))
    assert text.count("for i in range(") == text.count("range(i, ") == 2


@pytest.mark.parametrize("name", SHORT)
def test_other_reductions_stay_in_one(name: str, tmp_path: Path) -> None:
    with load_task(str(written(tmp_path, *SHORT[name]))) as task:
        assert "workspace" not in design(task)


@pytest.mark.parametrize("name", ["loss", "frobenius_norm", "few_rows"])
def test_gen_leaves_a_kernel_that_passed(name: str, tmp_path: Path) -> None:
    require("cpp")
    path, out = written(tmp_path, *LONG[name]), tmp_path / "out"
    words = ["gen", str(path), "-t", "cpp", "--designer", "builtin", "--no-bench", "--quiet"]
    assert run([*words, "-o", str(out)]) == 0
    verdict = json.loads((out / "verdict.json").read_text())["verdict"]
    assert verdict["passed"]
    assert "PARTIAL" in (out / "task.sketch").read_text()
