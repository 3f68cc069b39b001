"""The prompts: complete and true sketches in them, every operation and hint named, and the same
bytes on every machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import numpy as np
import pytest
from prompt_probes import PROMPT, STORED, codes, probe

from sketchc.agents.prompts.hardware import hardware
from sketchc.agents.prompts.language import EXAMPLES, example_sketches, language
from sketchc.agents.prompts.rendering import as_json, fenced, render
from sketchc.base.diagnostics import DiagnosticError, Source, UsageError
from sketchc.base.types import DType
from sketchc.checker.api import check
from sketchc.checker.context.hints import LOOP_HINTS, TILE_HINTS
from sketchc.checker.selfcheck import self_check
from sketchc.interpreter.api import interpret
from sketchc.lowering.aims import aims_of
from sketchc.lowering.hardware import HARDWARE, load_hardware
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.ops.table import OPS, Op, Result, Shape
from sketchc.parsing.formatter import format_file
from sketchc.parsing.syntax import SECTIONS
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec

FOLDER = Path(__file__).parents[2] / "agents" / "prompts"

#: Tokens are estimated as a third of the characters: more than tokenisers make of such text. What
#: the language takes without its operations, what one operation may take, and its examples.
MOST_TOKENS, MOST_OF_AN_OPERATION, MOST_OF_EXAMPLES = 5400, 20, 2430

Arrays = dict[str, np.ndarray]


def tokens(text: str) -> int:
    return len(text) // 3


def snippets() -> dict[str, str]:
    """The complete sketches of the language prompt, by name."""
    found = re.findall(r"^```sketch\n(.*?)^```$", language(), re.M | re.S)
    return {text.partition("sketch ")[2].partition(" ")[0]: text for text in found}


# ---------------------------------------------------------------- sketches in the prompt


def test_every_example_of_the_folder_is_shown_whole() -> None:
    assert sorted(path.stem for path in (FOLDER / "examples").glob("*.sketch")) == sorted(EXAMPLES)
    for name, text in zip(EXAMPLES, example_sketches(), strict=True):
        assert snippets()[name] == text
    assert language().count("```sketch\n") == len(EXAMPLES) + 1


@pytest.mark.parametrize("name", [*EXAMPLES, "scaled_mean"])
def test_sketches_in_the_prompt_check_run_and_lower_everywhere(name: str) -> None:
    source = Source(f"{name}.sketch", snippets()[name])
    result = check(source)
    assert result.diagnostics == ()
    assert self_check(source) == ()
    assert result.tree is not None
    assert format_file(result.tree, source) == source.text
    for target in TARGETS:
        planned = build_plan(result.tree.sketches[0], target)
        assert planned.diagnostics == ()
        assert load_target(target).emit(planned.plan).source


def _norm(x: np.ndarray, v: Arrays) -> np.ndarray:
    def channel(name: str) -> np.ndarray:
        return v[name][None, :, None, None]

    scale = channel("WEIGHT") / np.sqrt(channel("RUNNING_VAR") + 1e-5)
    return (x - channel("RUNNING_MEAN")) * scale + channel("BIAS")


#: What the sketches compute, by their first comments, in NumPy.
MEANINGS = {
    "scaled_tanh": lambda x, v: np.tanh(x),
    "log_sum_exp": lambda x, v: np.log(np.exp(x).sum(1)),
    "min_max_rows": lambda x, v: (
        (x - x.min(1, keepdims=True)) / (np.ptp(x, axis=1, keepdims=True) + 1e-6)
    ),
    "batch_norm": _norm,
    "linear_tanh": lambda x, v: np.tanh(x @ v["WEIGHT"].T + v["BIAS"]),
    "scale_by_total": lambda x, v: x / np.abs(x).sum(),
    "scaled_mean": lambda x, v: x.mean(1),
}


@pytest.mark.parametrize("name", MEANINGS)
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (3, 17, 33, 2)])
def test_sketches_in_the_prompt_mean_what_they_say(name: str, sizes: tuple[int, ...]) -> None:
    (checked,) = check(Source(name, snippets()[name])).sketches
    symbols = dict(zip((s.name for s in checked.sketch.symbols), sizes, strict=False))
    random = np.random.default_rng(sum(sizes))
    inputs: Arrays = {}
    for tensor in checked.sketch.tensors:
        if tensor.role.value != "in":
            continue
        shape = tuple(symbols[extent.name] for extent in tensor.extents)
        values = random.standard_normal(shape).astype(tensor.dtype.numpy_name)
        inputs[tensor.name] = abs(values) if tensor.name == "RUNNING_VAR" else values
    (actual,) = interpret(checked.sketch, inputs).outputs.values()
    wide = {key: value.astype(np.float64) for key, value in inputs.items()}
    tolerance = 2e-3 if actual.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(actual, MEANINGS[name](wide["X"], wide), tolerance, tolerance)


# ---------------------------------------------------------------- what is named


def test_types_hints_and_sections_are_all_named() -> None:
    for hint in LOOP_HINTS | TILE_HINTS:
        assert f'"{hint}"' in PROMPT
    types = ", ".join(dtype.value for dtype in DType)
    assert f"Element types: {types}." in PROMPT
    # A run's sketch is for the types of one task: it needs no `types:`.
    for section in SECTIONS - {"types"}:
        assert f"- `{section}:" in language()


# ---------------------------------------------------------------- the op table


#: Shapes of the destinations, where they are not that of the sources.
_SHAPES = {
    Shape.REDUCED: "[16, 1]",
    Shape.TOP_K: "[16, 4]",
}
#: Types of the operands and of the destination, where they are not f32.
_GIVEN = {Result.INTEGER: "i32"}
_MADE = {Result.INTEGER: "i32", Result.BOOL: "bool", Result.I64: "i64"}


def _operand(row: Op, name: str) -> str:
    """An operand called `name` in the op table."""
    if row.name == "fill":
        return "2.5"
    return {
        "condition": "c",
        **dict.fromkeys(("indices", "their_indices"), "k[None, :]"),
        "seed": "7",
        "offset": "k",
    }.get(name, "a")


#: What the attributes of a kind are in calls, where the default is none.
_OF_KIND = {"float": 1.5, "tile": "t"}


def _call(row: Op) -> str:
    """Statements that make operands for `row` and call it in the form that the prompt prints."""
    boolean = row.name.startswith("logical") or row.name in ("reduce_any", "reduce_all")
    given = "bool" if row.name in ("reduce_any", "reduce_all") else _GIVEN.get(row.result, "f32")
    made = "bool" if boolean else _MADE.get(row.result, "f32")
    shape = "[16, 32]" if row.name == "concat" else _SHAPES.get(row.shape, "[16, 16]")
    lines = [f"a = alloc([16, 16], {given})", f"fill({'False' if given == 'bool' else 1}, a)"]
    lines += ["c = alloc([16, 16], bool)", "fill(True, c)", "k = iota(16)"]
    first = ", init=-inf" if row.outputs == 2 and row.accumulates else ", init=0"
    lines += [f"d = alloc({shape}, {made}{first if row.accumulates else ''})"]
    destinations = ["d"]
    if row.outputs == 2:
        lines += [f"e = alloc({shape}, i64{', init=-1' if row.accumulates else ''})"]
        destinations += ["e"]
    operands = [_operand(row, name) for name in row.operands]
    lines += ["t = alloc([16, 1], init=0)"]
    operands += ["[1, 0]" if a.name == "axes" else "1" for a in row.attributes if a.positional]
    keywords = [
        f'{item.name}="{item.default}"'
        if item.choices
        else f"{item.name}={_OF_KIND[item.kind] if item.default is None else item.default}"
        for item in row.attributes
        if not item.positional
    ]
    return "\n".join([*lines, f"{row.name}({', '.join([*operands, *destinations, *keywords])})"])


@pytest.mark.parametrize("name", OPS)
def test_each_operation_stands_in_the_prompt_and_checks(name: str) -> None:
    row = OPS[name]
    table = language().partition("## Operations")[2].partition("## Mistakes")[0]
    calls = re.findall(rf"- `{name}\((.*?)\)`: ", table)
    assert len(calls) == 1
    arguments = calls[0].split(", ")
    positional = [item.name for item in row.attributes if item.positional]
    destinations = ["dst", "dst_indices"][: row.outputs]
    wanted = [*row.operands, *positional, *destinations]
    assert arguments[: len(wanted)] == wanted
    assert {item.name for item in row.attributes} <= set(re.findall(r"\w+", calls[0]))
    assert f"`: {row.doc}\n" in table
    assert codes(probe(STORED + _call(row))) == set()


def test_there_is_no_other_operation() -> None:
    assert "There is no other operation" in PROMPT
    table = language().partition("## Operations")[2].partition("## Mistakes")[0]
    assert set(re.findall(r"^- `(\w+)\(", table, re.M)) == set(OPS)


# ---------------------------------------------------------------- the hardware


@pytest.mark.parametrize("target", TARGETS)
def test_hardware_states_the_facts_of_the_file_and_the_target(target: str) -> None:
    text = hardware(target)
    found = load_target(target)
    capabilities = found.capabilities
    chip = load_hardware(capabilities.default_hardware).facts
    assert target in text
    assert found.description in text
    assert ", ".join(sorted(capabilities.dtypes)) in text
    assert ", ".join(sorted(capabilities.precisions)) in text
    for memory in capabilities.memories(chip).values():
        assert f"{memory['bytes']} bytes" in text
    for name in ("tile_elements", "loop_elements", "inner_elements", "matrix_depth"):
        assert re.search(rf"\b{getattr(aims_of(chip), name)}\b", text)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("live", [1, 2, 4])
def test_the_longest_row_fits_and_four_times_as_much_does_not(target: str, live: int) -> None:
    pattern = rf"(\d+) elements with {live} tiles? of it alive"
    (row,) = (int(n) for n in re.findall(pattern, hardware(target)))
    names = "abcd"[:live]
    body = [f"{name} = alloc([N])" for name in names]
    body += [f"load(X[i, 0:N] -> {name})" for name in names]
    body += ["m = alloc([1])"]
    body += [f"reduce_max({name}, 0, m)\nmul({name}, m, {name})" for name in names]
    body += [f"store({name} -> Y[i, 0:N])" for name in names]
    lines = "\n".join(f"        {line}" for line in "\n".join(body).split("\n"))
    text = f"""sketch rows {{
    symbols: M, N <= ROW;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    @llm_hint("parallel")
    for i in range(M):
{lines}
}}
"""
    fits, too_long = (check(Source("rows", text.replace("ROW", str(n)))) for n in (row, 4 * row))
    assert fits.tree is not None
    assert too_long.tree is not None
    build_plan(fits.tree.sketches[0], target)
    with pytest.raises(DiagnosticError, match=r"SK070[12]"):
        build_plan(too_long.tree.sketches[0], target)


def test_hardware_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {target: hardware(target) for target in TARGETS}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(77)))
    assert load_hardware("cpu").cores == 77
    assert {target: hardware(target) for target in TARGETS} == before
    assert not re.search(r"\b77\b", before["cpp"])


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown hardware"):
        hardware("cpp", "abacus")
    assert len(HARDWARE) >= 3


# ---------------------------------------------------------------- a task's values


def _bound(
    tensors: str, params: str, state: Sequence[str]
) -> tuple[dict[str, str], Mapping[str, object]]:
    """Where the tensors and params of a sketch come from, for a task that takes a matrix, a number
    and a matrix, with vectors as parameters and an attribute `eps`."""
    text = f"""sketch probe {{
    symbols: M, N;
    params: {params};
    tensors: {tensors};
    constexpr: T = 8;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T, T])
        for j in range(ceil(N, T)):
            load(A[i*T:(i+1)*T, j*T:(j+1)*T] -> x)
            store(x -> Y[i*T:(i+1)*T, j*T:(j+1)*T])
}}
"""
    (checked,) = check(Source("probe", text)).sketches
    matrix = TensorSpec("", DType.F32, (4, 5))
    vectors = tuple(TensorSpec(name, DType.F32, (5,)) for name in state)
    task = TaskDescription(
        Path("task.py"), (matrix, 0.5, matrix), (), vectors, {"eps": 0.25}, (matrix,)
    )
    bound = bind(checked.sketch, task)
    return {source.tensor.name: source.text for source in bound.tensors}, bound.params


def test_values_reach_a_sketch_as_the_prompt_says() -> None:
    words = " ".join((FOLDER / "designer.jinja").read_text().split())
    assert "in the order of the `tensors:` section. Declare all of them" in words
    assert "by name first (the last part of the dotted name, in any case" in words
    assert "Numbers that `forward` takes fill the `params:` by position" in words
    tensors, params = _bound(
        "A[M, N]: in f32; B[M, N]: in f32; BIAS[N]: in f32; OTHER[N]: in f32; Y[M, N]: out f32",
        "alpha: f32; eps: f32 = 0.1; more: f32 = 0.7",
        ("norm.weight", "norm.bias"),
    )
    assert tensors == {
        "A": "input 1",
        "B": "input 3",
        "BIAS": "the model's norm.bias",
        "OTHER": "the model's norm.weight",
    }
    assert params == {"alpha": 0.5, "eps": 0.25, "more": 0.7}


def test_parameters_with_the_same_last_part_go_by_position() -> None:
    words = " ".join((FOLDER / "designer.jinja").read_text().split())
    assert (
        "Where two have the same last part, declare every parameter, in the order listed" in words
    )
    tensors, _ = _bound(
        "A[M, N]: in f32; B[M, N]: in f32; W1[N]: in f32; B1[N]: in f32; W2[N]: in f32; "
        "B2[N]: in f32; Y[M, N]: out f32",
        "alpha: f32",
        ("one.weight", "one.bias", "two.weight", "two.bias"),
    )
    found = [tensors[name].removeprefix("the model's ") for name in ("W1", "B1", "W2", "B2")]
    assert found == ["one.weight", "one.bias", "two.weight", "two.bias"]


def test_all_inputs_of_forward_must_be_declared() -> None:
    with pytest.raises(UsageError, match="takes 2 tensors and the sketch probe has 1 input"):
        _bound("A[M, N]: in f32; Y[M, N]: out f32", "alpha: f32", ())


# ---------------------------------------------------------------- rendering


def test_the_language_prompt_stays_short() -> None:
    without = tokens(language(examples=False))
    assert without < MOST_TOKENS + MOST_OF_AN_OPERATION * len(OPS)
    assert 2000 < tokens(language()) - without < MOST_OF_EXAMPLES


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_prompts_are_the_same_bytes_in_every_process(seed: str) -> None:
    program = (
        "from sketchc.agents.prompts.language import language\n"
        "from sketchc.agents.prompts.hardware import hardware\n"
        f"texts = [language(), language(False), *map(hardware, {list(TARGETS)!r})]\n"
        "print('\\n'.join(texts))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"}
    finished = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, check=True
    )
    texts = [language(), language(False), *map(hardware, TARGETS)]
    assert finished.stdout.decode() == "\n".join(texts) + "\n"
    assert not re.search(r"(?<![\w.`/])/(home|root|tmp|usr|work)/", finished.stdout.decode())


def test_a_prompt_with_a_hole_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("language.jinja")


def test_a_fence_is_longer_than_any_in_its_text() -> None:
    assert fenced("x", "sketch") == "```sketch\nx\n```"
    assert fenced("a\n````\nb") == "`````\na\n````\nb\n`````"


def test_numbers_have_four_digits_and_text_stays() -> None:
    given = {"a": [1.23456789, True, 7, float("nan"), float("-inf")], "b": {"c": "1.23456"}}
    kept = {"a": [1.235, True, 7, "nan", "-inf"], "b": {"c": "1.23456"}}
    assert json.loads(as_json(given)) == kept
