"""Goldens of the execution diagnostics (SK08xx): the rendered text beside each input.

The first line of an input says how it is executed: `# execute: M=3,N=2` interprets it at these
sizes with random inputs of seed 0 (without proofs, which would refuse some of them before), and
`# execute: check` is the self-check of `check --execute`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.base.diagnostics import Diagnostic, DiagnosticError, has_errors
from sketchc.interpreter.api import interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.interpreter.violations import KINDS
from sketchc.parsing.parser import parse
from sketchc.reporting.text import render_text
from sketchc.checker.selfcheck import self_check
from sketchc.base.diagnostics import Source

FOLDER = Path(__file__).parent / "diagnostics"
INPUTS = sorted(FOLDER.glob("SK08*.sketch"))
PREFIX = "# execute: "


def execute(source: Source, sizes: dict[str, int]) -> tuple[Diagnostic, ...]:
    tree, found = parse(source)
    assert tree is not None, found
    sketch, more = elaborate(tree.sketches[0], {})
    assert sketch is not None, more
    inferred, more = infer_domains(sketch)
    try:
        values = bind_values(sketch, sizes, {})
        arrays = random_inputs(
            sketch, tensor_shapes(sketch, values, 2**30), np.random.default_rng(0)
        )
        interpret(sketch if has_errors(more) else inferred, arrays, sizes)
    except DiagnosticError as error:
        return error.diagnostics
    return ()


def diagnose(source: Source) -> tuple[Diagnostic, ...]:
    head = source.line(1)
    assert head.startswith(PREFIX), f"{source.name} must start with {PREFIX!r}"
    how = head.removeprefix(PREFIX)
    if how == "check":
        return self_check(source)
    pairs = (pair.split("=") for pair in how.split(","))
    return execute(source, {name: int(size) for name, size in pairs})


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_execution_diagnostics(path, request):
    source = Source(path.name, path.read_text("utf-8"))
    found = diagnose(source)
    assert [diagnostic.code for diagnostic in found] == [path.stem[:6]]
    text = render_text(found, [source])
    golden = path.with_suffix(".err")
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text, "utf-8")
    assert golden.exists(), "run pytest --update-golden"
    assert text == golden.read_text("utf-8")


def test_every_code_has_an_input():
    codes = {"SK0801", *(row[0] for row in KINDS.values()), "SK0809", "SK0810"}
    assert {path.stem[:6] for path in INPUTS} == codes
