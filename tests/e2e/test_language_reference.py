"""docs/LANGUAGE.md: its tables are up to date, and every sketch in it holds on every target."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check
from sketchc.checker.selfcheck import self_check
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import tensor_shapes
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.ops.table import OPS
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse
from sketchc.reporting import language_pages

PAGE = Path(__file__).parents[2] / "docs" / "LANGUAGE.md"
TEXT = PAGE.read_text("utf-8")
BLOCKS = [
    (found[2], {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", found[1])})
    for found in re.finditer(r"<!-- run: (.*?) -->\n```sketch\n(.*?)```", TEXT, re.DOTALL)
]
NAMES = [re.match(r"(?:sketch|program) (\w+)", text)[1] for text, _ in BLOCKS]


def test_the_tables_are_those_of_the_compiler():
    assert language_pages.filled(TEXT) == TEXT, (
        "python -m sketchc.reporting.language_pages docs/LANGUAGE.md"
    )
    for operation in OPS:
        assert f"`{operation}(" in TEXT


def test_every_sketch_has_sizes_to_run_at():
    assert len(re.findall(r"```sketch\n", TEXT)) == len(BLOCKS) >= 10


@pytest.mark.parametrize(("text", "sizes"), BLOCKS, ids=NAMES)
def test_the_sketch_checks_without_a_remark(text, sizes):
    source = Source("LANGUAGE.md", text)
    result = check(source)
    assert not [d for d in result.diagnostics if d.severity is not Severity.NOTE]
    tree, _ = parse(source)
    again, _ = parse(Source("again", format_file(tree, source)))
    assert again == tree


@pytest.mark.sweep
@pytest.mark.parametrize(("text", "sizes"), BLOCKS, ids=NAMES)
def test_the_sketch_runs_and_tile_sizes_do_not_matter(text, sizes):
    source = Source("LANGUAGE.md", text)
    result = check(source)
    (entry,) = result.tree.entries
    (sketch,) = [one.sketch for one in result.sketches if one.sketch.name == entry.name]
    shapes = tensor_shapes(sketch, host_values(sketch, sizes), 1 << 28)
    inputs = random_inputs(sketch, shapes, np.random.default_rng(0))
    options = Options(shuffle=1, check_domains=True)
    result = interpret(sketch, inputs, sizes, options=options)
    for tensor in sketch.tensors:
        if tensor.name in result.outputs:
            wanted = tuple(int(evaluate(e, host_values(sketch, sizes))) for e in tensor.extents)
            assert result.outputs[tensor.name].shape == wanted
    assert not self_check(source, {})


@pytest.mark.parametrize(("text", "sizes"), BLOCKS, ids=NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_the_sketch_is_lowered(text, sizes, target):
    tree, _ = parse(Source("LANGUAGE.md", text))
    plan = build_plan(tree.entries[0], target).plan
    kernel = load_target(target).emit(plan)
    assert kernel.entry in kernel.source
