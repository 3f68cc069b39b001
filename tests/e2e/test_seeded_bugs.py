"""Proofs tested by their failures: bugs seeded over the examples (tests/seeded_bugs/seeds.toml).

Each is refuted with a counter-example, and the interpreter, which shares nothing with the proofs
but the evaluation of scalar expressions, finds exactly that violation at exactly those sizes.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sketchc import ir, syntax
from sketchc.checker.api import check_sketch
from sketchc.checker.domains import infer_domains
from sketchc.checker.elaborate import elaborate
from sketchc.checker.proofs import prove
from sketchc.checker.tuning import tuning_points
from sketchc.evaluate import evaluate
from sketchc.interpreter import Options, Violation, interpret
from sketchc.interpreter_inputs import random_inputs
from sketchc.parser import parse
from sketchc.source import Source

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
SEEDS = tomllib.loads((ROOT / "tests/seeded_bugs/seeds.toml").read_text("utf-8"))["seed"]
CLASSES = ("out-of-bounds", "uncovered", "overlap", "uninitialised")


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


def executed(sketch: ir.Sketch, symbols: dict[str, int]) -> tuple[Violation, ...]:
    """What the interpreter finds at these sizes."""
    values = host(sketch, symbols)
    shapes = {
        tensor.name: tuple(int(evaluate(extent, values)) for extent in tensor.extents)
        for tensor in sketch.tensors
    }
    params = {param.name: values[param.name] for param in sketch.params}
    inputs = random_inputs(sketch, shapes, np.random.default_rng(3))
    return interpret(sketch, inputs, symbols, params, Options(collect=True)).violations


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


@pytest.mark.parametrize("seed", SEEDS, ids=[seed["name"] for seed in SEEDS])
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

    violations = executed(sketch, dict(proof.counter_example.symbols))
    assert any(same(sketch, proof, violation) for violation in violations), (
        proof.counter_example,
        violations,
    )


def test_eight_bugs_of_each_class() -> None:
    counts = {kind: sum(seed["class"] == kind for seed in SEEDS) for kind in CLASSES}
    assert counts == dict.fromkeys(CLASSES, 8)
    assert len({seed["name"] for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_no_correct_example_is_left_unproved(path: Path) -> None:
    """At its defaults and at every tuning point; no claim needs more than a launch check."""
    tree = parsed(path.name, path.read_text("utf-8"))
    points = [{}, *tuning_points(tree, {})]
    for point in points:
        checked, reported = check_sketch(tree, point)
        assert checked is not None, reported
        assert checked.proofs
        for proof in checked.proofs:
            assert proof.tier in (ir.Tier.PROVED, ir.Tier.CHECKED_AT_LAUNCH), proof
        outputs = {t.name for t in checked.sketch.tensors if t.role is ir.Role.OUT}
        claims = {(proof.claim, proof.subject) for proof in checked.proofs}
        assert {("covered", name) for name in outputs} <= claims
        assert {("independent", name) for name in outputs} <= claims
