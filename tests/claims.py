"""Challenges what the checker says of a text, by running the sketch in the interpreter.

A claim that is proved must hold in every run that a launch admits, poisoned, padded and shuffled;
one that is refuted must fail at the very numbers that the counter-example names; and where results
were tested not to depend on tile sizes, sizes that the test did not use must not show that they do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from sketchc.base.diagnostics import DiagnosticError, Source, UsageError, has_errors
from sketchc.checker.api import CheckedSketch
from sketchc.checker.check import judge_sketch
from sketchc.checker.selfcheck import tile_size_verdict
from sketchc.checker.testing.settings import rehearse
from sketchc.interpreter.api import Options, Result, interpret
from sketchc.interpreter.inputs import indices_exist, random_inputs
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

#: Settings of sizes and params at which each sketch runs, and how many are drawn to find them.
SETTINGS = 8
DRAWS = 80
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13)
#: Tile sizes small enough for these sizes to cross them, ragged ones among them.
TILES = (2, 3, 4, 5)
#: The most elements of one setting, and the bytes and work (in lanes) that a run may take.
VOLUME = 3000
MEMORY = 2**26
WORK = 50_000_000

Numbers = dict[str, Any]


def challenge(text: str, number: int) -> list[str]:
    """What is wrong with the checker's verdicts on a text; nothing for one that does not parse or
    has no claims. `number` decides which sizes are tried."""
    tree, _ = parse(Source("claims.sketch", text))
    if tree is None:
        return []
    return [fault for sketch in tree.sketches for fault in _challenge(sketch, number)]


def _challenge(tree: syntax.Sketch, number: int) -> Iterator[str]:
    generator = np.random.default_rng(number)
    own, found = judge_sketch(tree)
    if own is None:
        return
    yield from _refutations(own)
    small = own if any(tile.tunable for tile in own.sketch.constants) else None
    tiles = _small_tiles(own.sketch)
    if tiles:
        small, more = judge_sketch(tree, tiles)
        found = (*found, *more)
    if small is None:
        small = own
    else:
        yield from _refutations(small)
    yield from _proofs(small, not has_errors(found), generator)
    if not has_errors(found):
        yield from _tests(tree, number)


def _small_tiles(sketch: ir.Sketch) -> Numbers:
    names = [c.name for c in sketch.constants if c.tunable and c.dtype.is_integer]
    return {name: TILES[place % len(TILES)] for place, name in enumerate(names)}


# ---------------------------------------------------------------- proved


def _proofs(judged: CheckedSketch, accepted: bool, generator: np.random.Generator) -> Iterator[str]:
    """Violations, in any of the runs, of what is said to be proved, or was tested at other sizes;
    and of an accepted sketch those that no claim speaks of."""
    said = _said(judged)
    bases = {view.name: view.base for view in judged.sketch.views}
    for place, (symbols, params) in enumerate(_settings(judged.sketch, generator)):
        options = Options(
            collect=True,
            check_domains=True,
            shuffle=int(generator.integers(2**31)),
            poison=math.nan if place % 2 else 1e30,
            padding=3 * (place % 3 == 0),
            memory_limit=MEMORY,
        )
        result = _run(judged.sketch, symbols, params, options, generator)
        for violation in result.violations if result else ():
            base = bases.get(violation.tensor, violation.tensor)
            kind, name = violation.kind, violation.tensor
            tier = said.get((kind, name if (kind, name) in said else base))
            if tier in (ir.Tier.PROVED, ir.Tier.TESTED) and not violation.promised:
                yield f"false {tier.value}, {kind} {name}: {symbols} {params}"
            elif tier is None and accepted:
                yield f"accepted without a claim, {kind} {name}: {symbols} {params}"


def _said(judged: CheckedSketch) -> dict[tuple[str, str], ir.Tier]:
    """How well each claim is known: as well as that on the access which is known the least."""
    best_first = list(ir.Tier)
    said: dict[tuple[str, str], ir.Tier] = {}
    for proof in judged.proofs:
        claim = (proof.claim, proof.subject)
        tiers = (said.get(claim, ir.Tier.PROVED), proof.tier)
        said[claim] = max(tiers, key=best_first.index)
    return said


def _settings(
    sketch: ir.Sketch, generator: np.random.Generator
) -> Iterator[tuple[Numbers, Numbers]]:
    """Sizes and params that a launch admits: all 1, all 7, then whatever is drawn."""
    found = 0
    for draw in range(DRAWS):
        sizes = [int(generator.choice(SIZES)) for _ in sketch.symbols]
        if draw < 2:
            sizes = [(1, 7)[draw]] * len(sizes)
        symbols = {symbol.name: size for symbol, size in zip(sketch.symbols, sizes, strict=True)}
        params = {p.name: _param(p, draw, generator) for p in sketch.params}
        if math.prod(max(1, size) for size in sizes) <= VOLUME and admitted(
            sketch, symbols, params
        ):
            yield symbols, params
            found += 1
        if found == SETTINGS or not (sketch.symbols or sketch.params):
            return


def _param(param: ir.Param, draw: int, generator: np.random.Generator) -> int | float | bool:
    if param.default is not None and draw % 2 == 0:
        return param.default
    if param.dtype is param.dtype.BOOL:
        return bool(generator.integers(2))
    if param.dtype.is_float:
        return float(generator.choice([-1.5, 0.0, 0.1, 0.5, 2.0]))
    return int(generator.integers(0 if not param.dtype.is_signed else -2, 6))


def admitted(sketch: ir.Sketch, symbols: Mapping[str, int], params: Numbers) -> bool:
    """Whether a launch with these numbers passes its conditions and is short, and valid indices
    exist."""
    try:
        values = bind_values(sketch, symbols, params)
        shapes = tensor_shapes(sketch, values, MEMORY)
    except (DiagnosticError, UsageError):
        return False
    short = rehearse(sketch, values, WORK) is not None
    return short and indices_exist(sketch, shapes, params)


def _run(
    sketch: ir.Sketch,
    symbols: Mapping[str, int],
    params: Numbers,
    options: Options,
    generator: np.random.Generator,
    whole: bool = False,
) -> Result | None:
    """One run on random inputs, optional tensors there (all if `whole`) or not; None where it is
    refused."""
    shapes = tensor_shapes(sketch, bind_values(sketch, symbols, params), MEMORY)
    inputs = random_inputs(sketch, shapes, generator, params)
    for tensor in sketch.tensors:
        if tensor.optional and not whole and generator.integers(2):
            inputs.pop(tensor.name, None)
    try:
        return interpret(sketch, inputs, symbols, params, options)
    except (DiagnosticError, UsageError):
        return None


# ---------------------------------------------------------------- refuted


def _refutations(judged: CheckedSketch) -> Iterator[str]:
    """Claims both proved and refuted, and counter-examples that do not fail."""
    tiers: dict[tuple[str, str], set[ir.Tier]] = {}
    for proof in judged.proofs:
        tiers.setdefault((proof.claim, proof.subject), set()).add(proof.tier)
        if proof.tier is ir.Tier.REFUTED:
            example = proof.counter_example
            if example is None:
                yield f"no counter-example, {proof.claim} {proof.subject}: {proof.detail}"
            elif not _fails(judged.sketch, proof, example):
                yield f"not reproduced, {proof.claim} {proof.subject}: {example}"
    for claim, found in tiers.items():
        if {ir.Tier.PROVED, ir.Tier.REFUTED} <= found:
            yield f"proved and refuted: {' '.join(claim)}"


def _fails(sketch: ir.Sketch, proof: ir.Proof, example: ir.CounterExample) -> bool:
    """Whether a run at the numbers of the counter-example, and no others, breaks the claim."""
    params = {p.name: 1 if p.dtype.is_integer else 0.5 for p in sketch.params if p.default is None}
    params |= dict(example.params)
    options = Options(collect=True, memory_limit=2**30)
    generator = np.random.default_rng(0)
    for attempt in range(4):
        try:
            result = _run(sketch, example.symbols, params, options, generator, attempt == 0)
        except (DiagnosticError, UsageError):
            return False
        if result is not None and any(v.kind == proof.claim for v in result.violations):
            return True
    return False


# ---------------------------------------------------------------- tested


def _tests(tree: syntax.Sketch, number: int) -> Iterator[str]:
    """Tile sizes said to be tested that other sizes show to matter."""
    verdict, _ = tile_size_verdict(tree)
    if verdict is None or verdict.tier is not ir.Tier.TESTED:
        return
    other, found = tile_size_verdict(tree, seed=number + 1, thorough=True)
    if other is not None and other.tier is ir.Tier.REFUTED:
        yield f"tested, and other sizes differ: {attrs.asdict(found[0])['message']}"
