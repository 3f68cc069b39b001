"""Every example of every target's documents: built, run, and compared with its sketch."""

from __future__ import annotations

from pathlib import Path

import attrs
import documents
import pytest
from toolchains import require

from sketchc.cli.commands.docspec import verify_example
from sketchc.docspec.loader import folder_of, inspect, load
from sketchc.lowering.registry import TARGETS

SEED = 20260101


def examples() -> list[tuple[str, str]]:
    """(target, example); a target whose documents cannot be read stands with ""."""
    found: list[tuple[str, str]] = []
    for target in (*TARGETS, "opencl"):
        spec, _ = inspect(folder_of(target))
        names = [example.name for example in spec.examples] if spec is not None else []
        found += [(target, name) for name in names or [""]]
    return found


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "name"), examples())
def test_an_example_does_what_its_sketch_says(target: str, name: str, tmp_path: Path) -> None:
    spec = load(target)
    toolchain = require(target)
    example = next(example for example in spec.examples if example.name == name)
    # A case of interpreted Triton takes seconds: the smallest, one between, and the largest.
    interpreted = toolchain.status().interpreted
    select = (lambda cases: [cases[0], cases[len(cases) // 2], cases[-1]]) if interpreted else None
    verdict = verify_example(spec, example, tmp_path, SEED, select)
    assert verdict.passed, [(case.shape.text, case.reason) for case in verdict.failures]
    assert len(verdict.cases) >= 3


@pytest.mark.parametrize(
    ("old", "new", "failure"),
    [
        ("lane < N; ++lane", "lane < N - 1; ++lane", "numerical"),
        ("const float *const x = X + i * N", "const float *const x = Y + i * N", "numerical"),
        ("return 0;", "return 0", "syntax"),
    ],
)
def test_a_wrong_example_fails(old: str, new: str, failure: str, tmp_path: Path) -> None:
    require("cpp")
    spec = load("cpp")
    example = next(example for example in spec.examples if example.name == "softmax")
    wrong = attrs.evolve(example, source=example.source.replace(old, new))
    assert wrong != example
    assert verify_example(spec, wrong, tmp_path, SEED).failure == failure


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    ("name", "old", "new", "failure"),
    [
        ("matmul_bias", "__pipeline_wait_prior(1);", "__pipeline_wait_prior(2);", "numerical"),
        ("matmul_bias", "fetch(W, N, K, column0, 0", "fetch(W, N, K, row0, 0", "numerical"),
        ("half_matmul", "half a[tile][depth + 8];", "half a[tile][depth + 7];", "numerical"),
        ("half_matmul", "][k], depth + 8);", "][k], depth + 4);", "launch"),
        ("half_matmul", "float c[tile][tile + 4];", "float c[tile][tile];", "numerical"),
        ("turned", "    __syncthreads();\n", "", "numerical"),
        ("sum_middle", "if (n < N) {", "if (n >= N) return; {", "launch"),
        ("swish", "#include <cstdint>", "#include <cublas_v2.h>", "policy"),
        ("noise", "c[3] = static_cast", 'asm(""); c[3] = static_cast', "policy"),
    ],
)
def test_a_wrong_cuda_example_fails(
    name: str, old: str, new: str, failure: str, tmp_path: Path
) -> None:
    require("cuda_c")
    spec = load("cuda_c")
    example = next(example for example in spec.examples if example.name == name)
    assert old in example.source
    wrong = attrs.evolve(example, source=example.source.replace(old, new))
    assert verify_example(spec, wrong, tmp_path, SEED).failure == failure


@pytest.mark.parametrize(
    ("name", "old", "new", "failure"),
    [
        ("softmax", "total += parts[other];", "total = parts[other];", "numerical"),
        ("swish", "if (n < total)", "if (n <= total)", "illegal_access"),
        ("smoothing", '"times": "steps"', '"times": "steps + 1"', "numerical"),
        ("weighted_counts", '    {"fill": "Y", "value": 0},\n', "", "numerical"),
        ("abs_max", '"arguments": ["X", "PARTIAL", "N"]', '"arguments": ["X", "N"]', "api_misuse"),
        ("noise", "c1 = b_low;", "c1 = b_low", "syntax"),
    ],
)
@pytest.mark.sweep
def test_a_wrong_opencl_example_fails(
    name: str, old: str, new: str, failure: str, tmp_path: Path
) -> None:
    require("opencl")
    spec = load("opencl")
    example = next(example for example in spec.examples if example.name == name)
    assert example.source.count(old) == 1
    wrong = attrs.evolve(example, source=example.source.replace(old, new))
    assert verify_example(spec, wrong, tmp_path, SEED).failure == failure


def test_examples_that_nobody_can_build_are_read(tmp_path: Path) -> None:
    """They fit their sketches' plans, and their text holds nothing that leads out of a kernel."""
    spec = load("ascendc")
    for example in spec.examples:
        verdict = verify_example(spec, example, tmp_path / example.name, SEED)
        assert (verdict.word, verdict.failures) == ("generated, not built", ())
        assert f"__aicore__ void {example.entry}(" in example.source
        assert example.source.count("{") == example.source.count("}")
        assert example.source.count("AllocTensor") == example.source.count("FreeTensor")


def test_documents_without_a_toolchain_are_not_run(tmp_path: Path) -> None:
    from sketchc.base.diagnostics import UsageError

    spec = load(documents.write(tmp_path))
    with pytest.raises(UsageError, match="unknown toolchain 'toy'"):
        verify_example(spec, spec.examples[0], tmp_path, SEED)
