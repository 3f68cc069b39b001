"""No input makes a traceback: text, token soups and mutated examples through the whole compiler.

Every input goes through parse -> check -> render -> format; what the checker accepts is lowered to
a target and interpreted at tiny sizes. Nothing but the documented exceptions may come out;
`InternalError` is a failure like any other. `SKETCHC_FUZZ=20000 pytest tests/e2e/test_fuzz.py` runs
that many inputs instead of the moderate default; a failure names its seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sketchc.api import Request, check_file
from sketchc.base import diagnostics
from sketchc.base.diagnostics import DiagnosticError, Source, UsageError
from sketchc.base.types import DType
from sketchc.checker.api import CheckResult, check
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import bind_symbols, bind_values, tensor_shapes
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.ops import table
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse, tables
from sketchc.reporting.text import render_proofs, render_text

COUNT = int(os.environ.get("SKETCHC_FUZZ", "2000"))
CHUNK = 100
#: CPU seconds that one input may take; most take a few hundredths.
SECONDS = 60
BY_NAME = {
    path.stem: path.read_text("utf-8")
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))
}
EXAMPLES = list(BY_NAME.values())
FEATURES = [
    path.read_text("utf-8")
    for path in sorted((Path(__file__).parents[1] / "golden" / "diagnostics").glob("*.sketch"))
    if b"\0" not in path.read_bytes()
]
WORDS = sorted(
    {
        *tables().literals,
        *(dtype.value for dtype in DType),
        *("alloc", "load", "store", "fetch", "iota", "range", "init", "llm_hint", "dst", "axis"),
        *("M", "N", "X", "Y", "x", "y", "T", "0", "1", "7", "-1", "1.5", "inf", "nan", "True"),
        *('"parallel"', "'fast'", "\n", "\n    ", "\n        ", "# c\n", "\t", "1e-5", "\r\n"),
    }
)


# ---------------------------------------------------------------- what is done with an input


@contextlib.contextmanager
def clock() -> Iterator[None]:
    """An `AssertionError` inside for whoever takes too long."""

    def stop(*_: object) -> None:
        msg = f"it takes longer than {SECONDS} s"
        raise AssertionError(msg)

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def exercise(text: str, seed: int = 0) -> None:
    """Take a text as far as it goes; raises for anything that a user must never see."""
    with clock():
        _exercise(text, seed)


def _exercise(text: str, seed: int) -> None:
    source = Source("fuzz.sketch", text)
    tree, found = parse(source)
    assert (tree is None) == any(d.severity.value == "error" for d in found)
    result = check(source)
    assert (result.tree is None) == (tree is None)
    render_text(result.diagnostics, [source])
    for diagnostic in result.diagnostics:
        for fix in diagnostic.fixes:
            diagnostics.apply_edits(text, fix.edits)
    for checked in result.sketches:
        render_proofs(checked.sketch.name, checked.proofs)
    if tree is None:
        return
    layout = format_file(tree, source)
    again, _ = parse(Source("fuzz.sketch", layout))
    assert again == tree
    if result.ok:
        lower(result, seed)
        run(result, seed)


def lower(result: CheckResult, seed: int) -> None:
    target = sorted(TARGETS)[seed % len(TARGETS)]
    assert result.tree is not None
    for sketch in result.tree.sketches:
        try:
            load_target(target).emit(build_plan(sketch, target).plan)
        except (DiagnosticError, UsageError):
            continue


def run(result: CheckResult, seed: int) -> None:
    """Interpret at sizes of 0 to 3, unless a number in the text makes loops or tiles long."""
    if any(int(digits) > 5000 for digits in re.findall(r"\d+", result.source.text)):
        return
    chosen = np.random.default_rng(seed)
    for checked in result.sketches:
        sketch = checked.sketch
        sizes = {symbol.name: int(chosen.integers(0, 4)) for symbol in sketch.symbols}
        params = {p.name: p.dtype.is_float and 0.5 for p in sketch.params if p.default is None}
        try:
            symbols = bind_symbols(sketch, {}, sizes)
            shapes = tensor_shapes(sketch, bind_values(sketch, symbols, params), 2**24)
            arrays = random_inputs(sketch, shapes, chosen)
            interpret(sketch, arrays, symbols, params, Options(memory_limit=2**26))
        except (DiagnosticError, UsageError):
            continue


# ---------------------------------------------------------------- mutations


def mutate(seed: int) -> str:
    """An example or a golden input with one to four changes of any kind."""
    chosen = random.Random(seed)
    text = chosen.choice(EXAMPLES if chosen.random() < 0.7 else FEATURES)
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        text = chosen.choice((characters, lines, words, words, meaning, meaning))(text, chosen)
    return text


def characters(text: str, chosen: random.Random) -> str:
    """A few characters deleted, replaced or put in."""
    start = chosen.randrange(len(text) + 1)
    end = min(len(text), start + chosen.randrange(12))
    new = "".join(chosen.choice("()[]{}:;,=@#\"'\n\t -+*/%<>|?.0x\u00e9\u2192") for _ in range(2))
    return text[:start] + chosen.choice(("", new, chosen.choice(WORDS))) + text[end:]


def lines(text: str, chosen: random.Random) -> str:
    """A line deleted, repeated, moved or indented otherwise."""
    parts = text.split("\n")
    at = chosen.randrange(len(parts))
    match chosen.randrange(4):
        case 0:
            parts.pop(at)
        case 1:
            parts.insert(chosen.randrange(len(parts) + 1), parts[at])
        case 2:
            parts.insert(chosen.randrange(len(parts)), parts.pop(at))
        case 3:
            parts[at] = " " * chosen.randrange(14) + parts[at].lstrip()
    return "\n".join(parts)


def words(text: str, chosen: random.Random) -> str:
    """A name or number replaced by another one of the same text."""
    found = list(re.finditer(r"\w+", text))
    if not found:
        return text
    match = chosen.choice(found)
    return text[: match.start()] + chosen.choice(found).group() + text[match.end() :]


def meaning(text: str, chosen: random.Random) -> str:
    """A number, operator, operation or type replaced by another one of its kind."""
    numbers = ("0", "1", "2", "3", "-1", "4", "7", "63", "1.5", "inf", "9223372036854775807")
    kinds = (
        (r"\b\d[\w.]*\b", numbers),
        (r"//|<=|==|[-+*/%<]", ("+", "-", "*", "//", "%", "<", "<=", "==", "/")),
        (r"(?<=\s)\w+(?=\()", (*table.OPS, "load", "store", "atomic_add")),
        (r"\b[fib]f?\d+\b", tuple(dtype.value for dtype in DType)),
        (r"\b(in|out|inout) (?=[fib])", ("in ", "out ", "inout ", "")),
        (r"\bceil\b|\bcdiv\b|\biota\b", ("ceil", "cdiv", "min", "max", "iota", "sqrt")),
    )
    pattern, replacements = chosen.choice(kinds)
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    match = chosen.choice(found)
    return text[: match.start()] + chosen.choice(replacements) + text[match.end() :]


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(max(1, COUNT * 7 // 10 // CHUNK)))
def test_mutated_examples(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        text = mutate(seed)
        try:
            exercise(text, seed)
        except Exception as error:
            error.add_note(f"seed {seed}:\n{text}")
            raise


#: What the fuzzer found once.
REGRESSIONS = [
    BY_NAME["sum_middle"].replace("j*TN:", "inf:"),
    BY_NAME["sum_middle"].replace("X[b, ", "X[nan, "),
    # A loop without end around one that is empty.
    BY_NAME["triangular_matmul"].replace("range(i + 1)", f"range(i + {2**63 - 1})"),
]


@pytest.mark.parametrize("text", REGRESSIONS)
def test_regressions(text):
    assert text not in EXAMPLES
    exercise(text)


SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(SETTINGS, max_examples=max(1, COUNT // 10))
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_token_soups(soup):
    exercise(f"sketch a {{\n    symbols: M, N;\n    {soup}\n}}\n")
    exercise(soup)


@settings(SETTINGS, max_examples=max(1, COUNT // 10))
@given(st.text(max_size=200))
def test_text(text):
    exercise(text)


@settings(SETTINGS, max_examples=max(1, COUNT // 10))
@given(st.sampled_from(EXAMPLES), st.randoms(use_true_random=False))
def test_bytes(tmp_path_factory, example, chosen):
    content = bytearray(example.encode())
    for _ in range(chosen.randrange(1, 4)):
        content[chosen.randrange(len(content))] = chosen.randrange(256)
    path = tmp_path_factory.getbasetemp() / "bytes.sketch"
    path.write_bytes(content)
    report = check_file(str(path), Request())
    assert not report.unreadable
    render_text(report.diagnostics, [report.source])
