"""The random sketches find compiler bugs: each of `random_sketches.bugs` is put in, and found.

A bug counts as found when the code of some sketch whose plan it changes gives another result than
the interpreter, is refused by the compiler, or crashes. Bugs of the checker are found by the
interpreter, which compares every static domain with the lanes that it meets.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from every_target import quick, unit
from random_sketches.bugs import BUGS
from random_sketches.corpus import corpus
from random_sketches.draft import Generated
from random_sketches.running import checked, inputs, reference
from test_random_cpp import HANDLER, launches, verdict
from toolchains import require

from sketchc.base.diagnostics import DiagnosticError, InternalError, Source
from sketchc.checker.domains import bounds
from sketchc.ir import nodes as ir
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.native.compiler import build
from sketchc.runtime.toolchains.native.session import UNHURRIED

#: So many sketches whose plan a bug changes are tried for each.
TRIES = 4


@functools.cache
def plan_of(seed: int, text: str) -> Plan:
    tree, _ = parse(Source(f"random_{seed}.sketch", text))
    assert tree is not None
    return build_plan(tree.sketches[0], "cpp").plan


Spoilt = tuple[Generated, ir.Sketch, Plan]


def changed(bug: str) -> Iterator[Spoilt]:
    """The sketches that the bug spoils, with their spoilt plans."""
    for generated, sketch in corpus().accepted:
        plan = plan_of(generated.seed, generated.text)
        spoilt = BUGS[bug](plan)
        same = (plan.phases, plan.sketch.schedule, plan.neutral, plan.fills)
        if (spoilt.phases, spoilt.sketch.schedule, spoilt.neutral, spoilt.fills) != same:
            yield generated, sketch, spoilt


def test_there_are_at_least_fifteen_bugs():
    assert len(BUGS) >= 15


@pytest.mark.sweep(12)
@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_found(bug, tmp_path: Path):
    require("cpp")
    tried = 0
    for spoilt in itertools.islice(changed(bug), TRIES):
        if is_found(spoilt, tmp_path):
            return
        tried += 1
    assert tried, "no sketch of the corpus has what this bug spoils"
    raise AssertionError("all results are as they should be")


def is_found(spoilt: Spoilt, folder: Path) -> bool:
    """Whether the code of this plan shows that it is spoilt."""
    generated, sketch, plan = spoilt
    source, library = folder / f"{generated.seed}.cpp", folder / f"{generated.seed}.so"
    try:
        kernel = load_target("cpp").emit(plan)
        source.write_text(unit([kernel]), "utf-8")
        build([source], quick(), library)
    except (InternalError, ToolchainError):
        return True  # the emitter or the compiler refuses such code
    cases, requests, arrays = launches([(generated, sketch)], [kernel], library)
    result = run_worker(
        f"{HANDLER}:run_batch",
        {"cases": requests},
        arrays,
        timeout=120,
        environment=UNHURRIED,
        readable=[library],
    )
    if result.reply is None:
        return True  # a crash: read or written outside
    replies = result.reply["replies"]
    return any(
        line
        for index, (case, reply) in enumerate(zip(cases, replies, strict=True))
        for line in verdict(index, case, reply, result.arrays)
    )


CHECKER_BUGS = {
    "bounds that are lost": lambda scope, domains, extent: ir.FULL,
    "only one of several bounds": lambda scope, domains, extent: next(
        (domain for domain in domains if not domain.full), ir.FULL
    ),
}


@pytest.mark.parametrize("bug", CHECKER_BUGS)
def test_a_bug_in_domain_inference_is_found(bug, monkeypatch):
    sound = [generated for generated, _ in corpus().accepted[:60]]
    monkeypatch.setattr(bounds, "minimal", CHECKER_BUGS[bug])
    for generated in sound:
        try:
            sketch = checked(generated)
            if sketch is None:
                return  # refused: the proofs saw it
            for sizes in generated.sizes:
                given = inputs(generated, sketch, sizes)
                reference(generated, sketch, sizes, given, check_domains=True)
        except (InternalError, DiagnosticError):
            return
    pytest.fail("all domains are as they should be")
