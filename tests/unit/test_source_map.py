"""The map from generated code to the sketch, on examples: it agrees with comments that quote the
sketch, leaves out no statement with an effect, and names no line that is not there."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from sketchc.api.sketches import load_sketch
from sketchc.base.diagnostics import NOWHERE
from sketchc.cli.main import run
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.lowering.source_map import digest

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Loops that fuse, reductions, products, branches, composites, host loops, several phases.
NAMES = (
    "rms",
    "softmax",
    "matmul_bias_gelu",
    "causal_attention",
    "layer_norm",
    "sum_middle",
    "power_iteration",
)
TARGETS = ("cpp", "triton_cuda", "triton_ascend")


@cache
def _kernel(name: str, target: str) -> tuple[Kernel, list[str]]:
    path = EXAMPLES / f"{name}.sketch"
    _, tree = load_sketch(str(path), None)
    module = load_target(target)
    plan = build_plan(tree, target, None, {}).plan
    return module.emit(plan), path.read_text("utf-8").split("\n")


def _bare(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_the_map_agrees_with_the_quotations(name: str, target: str) -> None:
    kernel, sketch = _kernel(name, target)
    code = kernel.source.split("\n")
    lines: dict[str, set[int]] = {}
    for number, text in enumerate(sketch, 1):
        if _bare(text) and not _bare(text).startswith("#"):
            lines.setdefault(_bare(text.split("  #")[0]), set()).add(number)
    origins = dict(kernel.source_map)
    quoted = 0
    for number, text in enumerate(code, 1):
        comment = re.match(r"\s*(?://|#) (.*)", text)
        if comment and _bare(comment[1]) in lines and number in origins:
            quoted += 1
            assert lines[_bare(comment[1])] & set(origins[number]), (number, text)
    assert quoted >= 3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_every_effect_has_code(name: str, target: str) -> None:
    kernel, sketch = _kernel(name, target)
    code = kernel.source.split("\n")
    reached = {line for _, lines in kernel.source_map for line in lines}
    assert all(1 <= line <= len(sketch) for line in reached)
    assert all(1 <= number <= len(code) for number, _ in kernel.source_map)
    assert all(code[number - 1].strip() for number, _ in kernel.source_map)
    statements = list(walk.in_phases(kernel.sketch.phases))
    effects = [s for s in statements if isinstance(s, ir.Store | ir.Atomic | ir.For)]
    # Loops that a pass made stand nowhere in the sketch.
    assert {s.span.line for s in effects if s.span != NOWHERE} <= reached


def test_a_line_of_a_fused_loop_comes_from_its_own_statement() -> None:
    kernel, sketch = _kernel("rms", "cpp")
    origins = dict(kernel.source_map)
    for number, text in enumerate(kernel.source.split("\n"), 1):
        if "x_row * x_row" in text and "//" not in text:
            assert [sketch[line - 1].strip() for line in origins[number]] == [
                "mul(x_row, x_row, square_row)"
            ]
            return
    pytest.fail("the product of the fused loop is gone")


def test_lower_writes_the_map(tmp_path: Path) -> None:
    sketch, code, found = EXAMPLES / "rms.sketch", tmp_path / "rms.cpp", tmp_path / "rms.map.json"
    words = ["lower", str(sketch), "-t", "cpp", "-q", "-o", str(code), "--source-map", str(found)]
    assert run(words) == 0
    data = json.loads(found.read_text())
    kernel, _ = _kernel("rms", "cpp")
    assert [(line, tuple(origins)) for line, origins in data["lines"]] == list(kernel.source_map)
    assert data["code"] == "rms.cpp"
    assert data["code_digest"] == digest(code.read_text())
    assert data["sketch_digest"] == digest(sketch.read_text())
    assert run([*words, "--emit", "plan"]) == 2
    assert run([*words[:-1], str(tmp_path / "missing" / "map.json")]) == 2
