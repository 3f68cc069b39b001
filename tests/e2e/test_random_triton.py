"""A sample of the random sketches in Triton's interpreter and on the Ascend path."""

from __future__ import annotations

import pytest
from random_sketches.corpus import COUNT, corpus
from random_sketches.draft import Generated
from random_sketches.running import difference, inputs, reference
from test_random_cpp import lowered
from toolchains import require
from triton_cases import Case, run_cases

from sketchc.base.diagnostics import DiagnosticError
from sketchc.ir import nodes as ir
from sketchc.runtime.toolchains.base import ToolchainError

SAMPLE = 300
CHUNK = 60
#: Every so many sketches also take the path to Ascend, where each compiles by itself.
ASCEND_STEP = 10


def sample() -> list[tuple[Generated, ir.Sketch]]:
    """Sketches spread over the corpus."""
    accepted = corpus().accepted
    step = len(accepted) / SAMPLE
    return [accepted[int(index * step)] for index in range(SAMPLE)]


def test_the_sample_is_large_enough():
    assert len({generated.seed for generated, _ in sample()}) == SAMPLE <= COUNT


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(SAMPLE // CHUNK))
def test_triton_agrees_with_the_interpreter(chunk, tmp_path):
    require("triton_cuda")
    cases, about = [], []
    for generated, sketch in sample()[chunk * CHUNK : (chunk + 1) * CHUNK]:
        kernel = lowered(generated, "triton_cuda")
        sizes = generated.sizes[-1] if generated.seed % 3 else generated.sizes[0]
        given = inputs(generated, sketch, sizes)
        expected = reference(generated, sketch, sizes, given)
        cases.append(Case(kernel, given, dict(sizes), {}, expected))
        about.append((generated, sketch, sizes))
    wrong = []
    for case, found, (generated, sketch, sizes) in zip(
        cases, run_cases(cases, tmp_path), about, strict=True
    ):
        reply = found
        if not isinstance(found, str):
            reply = difference(generated, sketch, case.expected, found)
        if reply:
            wrong.append(f"{generated.text}\n{sizes}: {reply}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n\n".join(wrong[:3])


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(2))
def test_ascend_agrees_with_the_interpreter(chunk, tmp_path):
    """What the target refuses (f64) is left out; everything else must agree."""
    require("triton_ascend")
    from sketchc.runtime.toolchains.triton_ascend.toolchain import TOOLCHAIN

    wrong, done = [], 0
    for generated, sketch in sample()[chunk * ASCEND_STEP // 2 :: ASCEND_STEP]:
        try:
            kernel = lowered(generated, "triton_ascend")
        except DiagnosticError as refused:
            if all(found.code == "SK0703" for found in refused.diagnostics):
                continue
            raise
        done += 1
        sizes = generated.sizes[-1]
        given = inputs(generated, sketch, sizes)
        expected = reference(generated, sketch, sizes, given)
        try:
            artefact = TOOLCHAIN.compile(kernel, tmp_path / str(generated.seed))
            reply = difference(
                generated, sketch, expected, TOOLCHAIN.run(artefact, given, sizes, {})
            )
        except ToolchainError as error:
            reply = str(error)
        if reply:
            wrong.append(f"{generated.text}\n{sizes}: {reply}")
    assert done >= SAMPLE // ASCEND_STEP // 2
    assert not wrong, f"{len(wrong)} of {done}:\n" + "\n\n".join(wrong[:3])
