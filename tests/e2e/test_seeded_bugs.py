"""Proofs tested by their failures: bugs seeded over the examples (tests/seeded_bugs/seeds.toml).

Each is refused; where a claim is refuted, the interpreter, which shares nothing with the proofs but
the evaluation of scalar expressions, finds exactly that violation at exactly the sizes of the
counter-example. What breaks no rule of an execution gives other results.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check, check_sketch
from sketchc.checker.claims.proofs import prove
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.checker.selfcheck import tile_size_verdict
from sketchc.interpreter.api import Options, Result, Violation, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
SEEDS = tomllib.loads((ROOT / "tests/seeded_bugs/seeds.toml").read_text("utf-8"))["seed"]
REFUTED = ("out-of-bounds", "uncovered", "overlap", "uninitialised", "promise")
CLASSES = (*REFUTED, "padding", "tile-size")

#: Examples with a claim that is assumed, or worse, and why. At most two.
ASSUMED = {
    "masked_select": "where an element goes is a running count of the mask, which is data",
    "rank_rows": "where an element goes is its place in a sorted row, which is data",
}


def parsed(name: str, text: str) -> syntax.Sketch:
    tree, found = parse(Source(name, text))
    assert tree is not None, found
    return tree.sketches[0]


def seeded(seed: dict[str, Any]) -> syntax.Sketch:
    text = (ROOT / "examples" / f"{seed['example']}.sketch").read_text("utf-8")
    for old, new in seed["edits"]:
        assert text.count(old) == 1, f"`{old}` stands {text.count(old)} times in {seed['example']}"
        text = text.replace(old, new)
    return parsed(seed["name"], text)


def host(sketch: ir.Sketch, symbols: dict[str, int]) -> dict[str, Any]:
    values: dict[str, Any] = {constant.name: constant.value for constant in sketch.constants}
    values |= {p.name: 1e-5 if p.default is None else p.default for p in sketch.params} | symbols
    for let in sketch.lets:
        values[let.name] = evaluate(let.value, values)
    return values


def executed(
    sketch: ir.Sketch, symbols: dict[str, int], given: dict[str, int]
) -> tuple[Violation, ...]:
    """What the interpreter finds at these sizes, with these params."""
    return run(sketch, symbols, given, collect=True).violations


def run(
    sketch: ir.Sketch, symbols: dict[str, int], given: dict[str, int], collect: bool = False
) -> Result:
    values = host(sketch, symbols) | given
    shapes = {
        tensor.name: tuple(int(evaluate(extent, values)) for extent in tensor.extents)
        for tensor in sketch.tensors
    }
    params = {param.name: values[param.name] for param in sketch.params}
    inputs = random_inputs(sketch, shapes, np.random.default_rng(3))
    return interpret(sketch, inputs, symbols, params, Options(collect=collect))


def in_base(sketch: ir.Sketch, violation: Violation, values: dict[str, Any]) -> tuple[int, ...]:
    """The violation's element in the tensor's own coordinates."""
    names = {view.name for view in sketch.views}
    if violation.tensor not in names:
        return violation.element
    seen = [int(evaluate(extent, values)) for extent in sketch.extents(violation.tensor)]
    own = [int(evaluate(extent, values)) for extent in sketch.tensor(violation.tensor).extents]
    position = int(np.ravel_multi_index(violation.element, seen))
    return tuple(int(index) for index in np.unravel_index(position, own))


def same(sketch: ir.Sketch, proof: ir.Proof, violation: Violation) -> bool:
    """Whether the execution shows what the counter-example says."""
    example = proof.counter_example
    assert example is not None
    if violation.kind != proof.claim:
        return False
    tiles = {tile.source_name for tile in sketch.tiles}
    bases = {view.name: view.base for view in sketch.views}
    found, subject = (bases.get(name, name) for name in (violation.tensor, proof.subject))
    if found != subject:
        return False
    if example.element and violation.tensor not in tiles:
        values = host(sketch, dict(example.symbols))
        element = violation.element
        if violation.kind != "in-bounds":
            element = in_base(sketch, violation, values)
        if element != example.element:
            return False
    if not example.iterations:
        return True
    told = [dict(iteration) for iteration in example.iterations]
    seen = [dict(iteration) for iteration in violation.iterations]
    return len(told) == len(seen) and all(
        any(all(one[name] == value for name, value in other.items()) for one in told)
        for other in seen
    )


def of_class(*kinds: str) -> pytest.MarkDecorator:
    seeds = [seed for seed in SEEDS if seed["class"] in kinds]
    return pytest.mark.parametrize("seed", seeds, ids=[seed["name"] for seed in seeds])


@of_class(*REFUTED)
def test_seeded_bug_is_refuted_and_reproduced(seed: dict[str, Any]) -> None:
    tree = seeded(seed)
    checked, reported = check_sketch(tree)
    assert checked is None
    assert seed["code"] in {diagnostic.code for diagnostic in reported}, reported

    sketch, _ = elaborate(tree, {})
    assert sketch is not None
    sketch, _ = infer_domains(sketch)
    sketch, proofs, _ = prove(sketch)
    refuted = [
        proof
        for proof in proofs
        if proof.claim == seed["claim"]
        and proof.subject == seed["subject"]
        and proof.tier is ir.Tier.REFUTED
    ]
    assert refuted, proofs
    proof = refuted[0]
    assert proof.counter_example is not None
    assert proof.counter_example.text
    told = [d for d in reported if proof.counter_example.text in (d.label, *d.notes)]
    assert told, "the diagnostic shows the counter-example"

    example = proof.counter_example
    violations = executed(sketch, dict(example.symbols), dict(example.params))
    assert any(same(sketch, proof, violation) for violation in violations), (
        proof.counter_example,
        violations,
    )


def differ(one: Result, two: Result) -> bool:
    return any(
        not np.array_equal(array, two.outputs[name], equal_nan=array.dtype.kind == "f")
        for name, array in one.outputs.items()
    )


@of_class("padding")
def test_padding_that_counts_as_data_is_refused_and_changes_results(seed: dict[str, Any]) -> None:
    tree = seeded(seed)
    checked, reported = check_sketch(tree)
    assert checked is None
    assert seed["code"] in {diagnostic.code for diagnostic in reported}, reported

    path = ROOT / "examples" / f"{seed['example']}.sketch"
    right, _ = check_sketch(parsed(path.name, path.read_text("utf-8")))
    assert right is not None
    wrong, _ = elaborate(tree, {})
    assert wrong is not None
    wrong, _ = infer_domains(wrong)
    results = [run(sketch, seed["sizes"], {}) for sketch in (right.sketch, wrong)]
    assert differ(*results)


@of_class("tile-size")
def test_results_that_depend_on_tile_sizes_are_refuted_and_reproduced(seed: dict[str, Any]) -> None:
    """Every proof succeeds; only executing the sketch shows the bug."""
    tree = seeded(seed)
    checked, reported = check_sketch(tree)
    assert checked is not None, reported
    proof, found = tile_size_verdict(tree)
    assert proof is not None
    assert (proof.claim, proof.tier) == ("tile-size", ir.Tier.REFUTED)
    (error,) = [item for item in found if item.severity is Severity.ERROR]
    assert error.code == seed["code"]
    one, two, sizes = error.notes
    symbols = assigned(sizes)
    results = []
    for note in (one, two):
        sketch, _ = check_sketch(tree, assigned(note.partition(" with ")[2]))
        assert sketch is not None
        results.append(run(sketch.sketch, symbols, {}))
    assert differ(*results)


def assigned(text: str) -> dict[str, int]:
    """`executed with M = 3, N = 5` as numbers by name."""
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", text)}


def test_ten_bugs_of_each_class() -> None:
    counts = {kind: sum(seed["class"] == kind for seed in SEEDS) for kind in CLASSES}
    assert counts == dict.fromkeys(CLASSES, 10)
    assert len({seed["name"] for seed in SEEDS}) == len(SEEDS)
    assert len({seed["example"] for seed in SEEDS}) >= 20


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_no_correct_example_is_left_unproved(path: Path) -> None:
    """No claim of an example is worse than tested, but for those named with the reason."""
    tree = parsed(path.name, path.read_text("utf-8"))
    checked, reported = check_sketch(tree)
    assert checked is not None, reported
    assert checked.proofs
    order = list(ir.Tier)
    worse = [
        proof for proof in checked.proofs if order.index(proof.tier) > order.index(ir.Tier.TESTED)
    ]
    assert bool(worse) == (path.stem in ASSUMED), worse
    assert all(proof.tier is ir.Tier.ASSUMED for proof in worse)
    outputs = {
        tensor.name
        for tensor in checked.sketch.tensors
        if tensor.role is ir.Role.OUT and tensor.initial is None
    }
    assert {("covered", name) for name in outputs} <= {(p.claim, p.subject) for p in checked.proofs}


def test_few_examples_rest_on_promises() -> None:
    assert len(ASSUMED) <= 2
    assert set(ASSUMED) <= {path.stem for path in EXAMPLES}


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_tuning_point_of_an_example_is_accepted(path: Path) -> None:
    result = check(Source(path.name, path.read_text("utf-8")))
    assert result.ok, result.diagnostics
