"""The random sketches find compiler bugs: each of `random_sketches.bugs` is put in, and found.

A bug counts as found when the code of some sketch whose plan it changes gives another result than
the interpreter, is refused by the compiler, or crashes. Bugs of the checker are found by the
interpreter, which compares every static domain with the lanes that it meets.
"""

from __future__ import annotations

import functools
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
from sketchc.runtime.toolchains.cpp.toolchain import UNHURRIED, _build

#: So many sketches whose plan a bug changes are tried for each.
TRIES = 4


@functools.cache
def plan_of(seed: int, text: str) -> Plan:
    tree, _ = parse(Source(f"random_{seed}.sketch", text))
    assert tree is not None
    return build_plan(tree.sketches[0], "cpp").plan


def changed(bug: str) -> list[tuple[Generated, ir.Sketch, Plan]]:
    """The first sketches that the bug spoils, with their spoilt plans."""
    found = []
    for generated, sketch in corpus().accepted:
        plan = plan_of(generated.seed, generated.text)
        spoilt = BUGS[bug](plan)
        same = (plan.phases, plan.sketch.schedule, plan.neutral, plan.fills)
        if (spoilt.phases, spoilt.sketch.schedule, spoilt.neutral, spoilt.fills) != same:
            found.append((generated, sketch, spoilt))
            if len(found) == TRIES:
                break
    return found


def test_there_are_at_least_fifteen_bugs():
    assert len(BUGS) >= 15


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_found(bug, tmp_path: Path):
    require("cpp")
    spoilt = changed(bug)
    assert spoilt, "no sketch of the corpus has what this bug spoils"
    try:
        kernels = [load_target("cpp").emit(plan) for _, _, plan in spoilt]
        source, library = tmp_path / "unit.cpp", tmp_path / "unit.so"
        source.write_text(unit(kernels), "utf-8")
        _build([source], quick(), library)
    except (InternalError, ToolchainError):
        return  # the emitter or the compiler refuses such code
    sketches = [(generated, sketch) for generated, sketch, _ in spoilt]
    cases, requests, arrays = launches(sketches, kernels, library)
    result = run_worker(
        f"{HANDLER}:run_batch",
        {"cases": requests},
        arrays,
        timeout=120,
        environment=UNHURRIED,
        readable=[library],
    )
    if result.reply is None:
        return  # a crash: read or written outside
    wrong = [
        line
        for index, (case, reply) in enumerate(zip(cases, result.reply["replies"], strict=True))
        for line in verdict(index, case, reply, result.arrays)
    ]
    assert wrong, "all results are as they should be"


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
