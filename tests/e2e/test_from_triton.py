"""docs/FROM_TRITON.md: each sketch checks, is lowered to every target, and gives what the NumPy
above it gives. README's sketch is laid out as `sketchc fmt` does."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from example_sizes import inputs_for, params_for

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check
from sketchc.interpreter.api import Options, interpret
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "FROM_TRITON.md").read_text("utf-8")
BLOCKS = [
    (found[3], found[2], {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", found[1])})
    for found in re.finditer(
        r"<!-- run: (.*?) -->\n```numpy\n(.*?)```\n```sketch\n(.*?)```", TEXT, re.DOTALL
    )
]
NAMES = [re.match(r"sketch (\w+)", text)[1] for text, _, _ in BLOCKS]


def formatted(text: str) -> str:
    source = Source("page", text)
    tree, _ = parse(source)
    return format_file(tree, source)


def test_every_sketch_has_its_numpy():
    assert len(re.findall(r"```sketch\n", TEXT)) == len(BLOCKS) >= 8


@pytest.mark.parametrize(("text", "numpy", "sizes"), BLOCKS, ids=NAMES)
def test_the_sketch_means_what_the_numpy_does(text, numpy, sizes):
    result = check(Source("page", text))
    assert not [d for d in result.diagnostics if d.severity is not Severity.NOTE]
    assert formatted(text) == text
    (checked,) = result.sketches
    sketch = checked.sketch
    for least in (1, 3):
        tried = {name: max(size // least, 1) for name, size in sizes.items()}
        inputs = inputs_for(sketch, tried, seed=5)
        params = params_for(sketch)
        got = interpret(sketch, inputs, tried, params, Options(shuffle=2, check_domains=True))
        wide = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in inputs.items()}
        names = {"np": np, **wide, **tried, **params}
        exec(numpy, names)
        for name, values in got.outputs.items():
            scale = 1e-5 * max(1.0, float(np.abs(names[name]).max(initial=0)))
            np.testing.assert_allclose(values, names[name], rtol=1e-5, atol=scale)


@pytest.mark.parametrize(("text", "numpy", "sizes"), BLOCKS, ids=NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_the_sketch_is_lowered(text, numpy, sizes, target):
    tree, _ = parse(Source("page", text))
    plan = build_plan(tree.sketches[0], target).plan
    kernel = load_target(target).emit(plan)
    assert kernel.entry in kernel.source


def test_the_first_sketch_of_the_readme_is_as_fmt_has_it():
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```\n(sketch .*?)```", readme, re.DOTALL)
    assert blocks
    for text in blocks:
        assert formatted(text) == text
        assert not check(Source("README.md", text)).diagnostics
    assert "docs/FROM_TRITON.md" in readme
