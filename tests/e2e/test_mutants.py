"""What the checker accepts, the interpreter runs without a violation: random edits of the examples.

Most edits break a sketch, and the checker says so; those that it accepts run at small ragged sizes
with shadow memory and with every static domain compared to the lanes found.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from sketchc import ir
from sketchc.checker.api import check_sketch
from sketchc.diagnostics import DiagnosticError
from sketchc.evaluate import evaluate
from sketchc.interpreter import Options, interpret
from sketchc.interpreter_inputs import random_inputs
from sketchc.parser import parse
from sketchc.source import Source

#: The examples of slices and products alone: their sizes and params suit the edits. Other forms of
#: access are drawn at random in random_sketches.
NAMED = (
    *("add", "batched_matmul", "gelu", "layer_norm", "matmul", "matmul_bias_gelu"),
    *("online_softmax", "relu", "rms", "softmax", "sum_middle"),
)
EXAMPLES = [Path(__file__).parents[2] / "examples" / f"{name}.sketch" for name in NAMED]
NAMES = (
    "M",
    "N",
    "K",
    "B",
    "F",
    "D1",
    "D2",
    "i",
    "j",
    "k",
    "b",
    "f",
    "m",
    "TM",
    "TN",
    "TK",
    "TILE",
)
OPERATORS = ("+", "-", "*", "//", "%")
TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|//|[-+*%]")
CONSTANTS = {"TM": 2, "TN": 3, "TK": 2, "TILE": 4, "TILE_SIZE": 3, "eps": 1e-5}
MUTANTS = 50
SIZES = (0, 1, 2, 3, 4, 5, 7, 9)


def mutated(text: str, source: random.Random) -> str:
    """One to three edits behind the first hint: a name, operator or number becomes another, or a
    range a different one."""
    start = text.index("@llm_hint")
    for _ in range(source.choice((1, 1, 2, 3))):
        body = text[start:]
        names = [name for name in NAMES if re.search(rf"\b{name}\b", text)]
        tokens = list(TOKEN.finditer(body))
        token = source.choice([t for t in tokens if _editable(t.group())])
        old = token.group()
        if old in OPERATORS:
            new = source.choice(OPERATORS)
        elif old.isdigit():
            new = str(source.choice((0, 1, 2, 3)))
        elif source.random() < 0.5:
            new = source.choice(names)
        else:
            new = old + source.choice((" + 1", " - 1", "*2", " // 2", " % 2"))
        text = text[:start] + body[: token.start()] + new + body[token.end() :]
        if source.random() < 0.2:
            text = re.sub(r"ceil\(([\w*]+), (\w+)\)", r"\1 // \2", text, count=1)
    return text


def _editable(token: str) -> bool:
    return token in NAMES or token in OPERATORS or token.isdigit()


def run(sketch: ir.Sketch, source: random.Random) -> None:
    symbols = {symbol.name: source.choice(SIZES) for symbol in sketch.symbols}
    params = {param.name: 1e-5 for param in sketch.params}
    values = {c.name: c.value for c in sketch.constants} | symbols | params
    try:
        admitted = all(evaluate(r.condition, values) for r in sketch.requires)
        shapes = {
            tensor.name: tuple(int(evaluate(e, values)) for e in tensor.extents)
            for tensor in sketch.tensors
        }
    except ZeroDivisionError:
        return
    if not admitted or any(extent < 0 for shape in shapes.values() for extent in shape):
        return
    inputs = random_inputs(sketch, shapes, np.random.default_rng(1))
    options = Options(collect=True, check_domains=True)
    try:
        result = interpret(sketch, inputs, symbols, params, options)
    except DiagnosticError as refused:
        if "negative extent" not in str(refused):  # a launch condition, told as such
            raise
        return
    assert not result.violations, (symbols, result.violations)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_accepted_mutants_break_no_rule(path: Path) -> None:
    source = random.Random(path.stem)
    text = path.read_text("utf-8")
    accepted = 0
    for _ in range(MUTANTS):
        mutant = mutated(text, source)
        tree, _ = parse(Source(path.name, mutant))
        if tree is None:
            continue
        checked, _ = check_sketch(tree.sketches[0], CONSTANTS)
        if checked is None:
            continue
        accepted += 1
        for _ in range(3):
            run(checked.sketch, source)
    assert accepted, "the edits leave some sketches correct"
