"""Random sketches in C++, 64 to a translation unit, against the interpreter.

A batch is compiled once, without the costly part of the optimiser: what is tested is the code, not
the compiler's vectoriser, which the feature and example tests use as users do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from every_target import poisoned, quick, unit
from random_sketches.corpus import COUNT, corpus
from random_sketches.draft import Generated
from random_sketches.running import Array, difference, inputs, reference
from toolchains import require

from sketchc.base.diagnostics import Source
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.native.compiler import build
from sketchc.runtime.toolchains.native.session import UNHURRIED, signature

BATCH = 64
HANDLER = Path(__file__).parent / "cpp_random_batch.py"
#: A sketch, its sizes and the outputs of the interpreter.
Launch: TypeAlias = tuple[Generated, ir.Sketch, dict[str, int], dict[str, Array]]


def lowered(generated: Generated, target: str) -> Kernel:
    tree, _ = parse(Source(f"random_{generated.seed}.sketch", generated.text))
    assert tree is not None
    try:
        return load_target(target).emit(build_plan(tree.sketches[0], target).plan)
    except Exception as error:
        error.add_note(generated.text)
        raise


def launches(
    chosen: Iterable[tuple[Generated, ir.Sketch]], kernels: list[Kernel], library: Path
) -> tuple[list[Launch], list[dict[str, Any]], dict[str, Array]]:
    """All runs of kernels in one library: what each must give, and what the worker needs."""
    cases: list[Launch] = []
    requests, arrays = [], {}
    for (generated, sketch), kernel in zip(chosen, kernels, strict=True):
        for sizes in generated.sizes:
            given = inputs(generated, sketch, sizes)
            expected = reference(generated, sketch, sizes, given)
            passed = {**given, **poisoned(expected, given)}
            request = signature(kernel, sizes, {}, passed)
            arrays |= {f"{len(cases)}/{name}": array for name, array in passed.items()}
            requests.append({"library": str(library), "signature": request})
            cases.append((generated, sketch, sizes, expected))
    return cases, requests, arrays


@pytest.mark.sweep
@pytest.mark.parametrize("batch", range(-(-COUNT // BATCH)))
def test_cpp_agrees_with_the_interpreter(batch, tmp_path):
    require("cpp")
    chosen = corpus().accepted[batch * BATCH : (batch + 1) * BATCH]
    if not chosen:
        pytest.skip("fewer sketches are accepted than drawn")
    kernels = [lowered(generated, "cpp") for generated, _ in chosen]
    source, library = tmp_path / "unit.cpp", tmp_path / "unit.so"
    source.write_text(unit(kernels), "utf-8")
    build([source], quick(), library)
    cases, requests, arrays = launches(chosen, kernels, library)
    result = run_worker(
        f"{HANDLER}:run_batch",
        {"cases": requests},
        arrays,
        timeout=120,
        environment=UNHURRIED,
        readable=[library],
    )
    assert result.reply is not None, result.describe() + result.traceback + result.output
    wrong = []
    for index, (case, reply) in enumerate(zip(cases, result.reply["replies"], strict=True)):
        wrong += verdict(index, case, reply, result.arrays)
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n\n".join(wrong[:3])


def verdict(
    index: int,
    case: Launch,
    reply: str,
    arrays: dict[str, Array],
) -> list[str]:
    """What is wrong with one run, with the sketch; empty where nothing is."""
    generated, sketch, sizes, expected = case
    if not reply:
        found = {name: arrays[f"{index}/{name}"] for name in expected}
        reply = difference(generated, sketch, expected, found)
    return [f"{generated.text}\n{sizes}: {reply}"] if reply else []
