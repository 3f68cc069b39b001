"""The random sketches of the test suite on a real GPU, and what hints become there."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_sketches.corpus import COUNT, corpus
from random_sketches.running import difference, inputs, reference
from triton_cases import Case, lower, run_cases

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

CHUNK = 21


@pytest.mark.parametrize("chunk", range(COUNT // CHUNK))
def test_the_gpu_agrees_with_the_interpreter(chunk: int, tmp_path: Path) -> None:
    cases, about = [], []
    for generated, sketch in corpus().accepted[chunk * CHUNK : (chunk + 1) * CHUNK]:
        kernel = lower(generated.text)[1]
        for sizes in generated.sizes:
            given = inputs(generated, sketch, sizes)
            expected = reference(generated, sketch, sizes, given)
            cases.append(Case(kernel, given, dict(sizes), {}, expected))
            about.append((generated, sketch, sizes))
    wrong = []
    for case, found, (generated, sketch, sizes) in zip(
        cases, run_cases(cases, tmp_path, interpret=False), about, strict=True
    ):
        reply = found
        if not isinstance(found, str):
            reply = difference(generated, sketch, case.expected, found)
        if reply:
            wrong.append(f"seed {generated.seed} {sizes}: {reply}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)
