"""Triton for CUDA without a GPU: numbers through Triton's interpreter, cubins by ptxas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweeps import taken_by
from toolchains import require
from triton_cases import (
    EXAMPLES,
    Case,
    assert_close,
    compile_all,
    example,
    lower,
    make_case,
    run_cases,
)
from triton_sketches import SKETCHES

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.triton_cuda.toolchain import ARCHITECTURES, TOOLCHAIN

require("triton_cuda")

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
#: Sizes around the tiles: 1, T-1, T, T+1, a prime, and empty loops. The other examples run in
#: test_examples.py.
SIZES: dict[str, list[dict[str, int]]] = {
    "add": [{"M": 1, "N": 1}, {"M": 9, "N": 513}, {"M": 8, "N": 512}, {"M": 0, "N": 3}],
    "batched_matmul": [{"B": 2, "M": 129, "N": 65, "K": 33}, {"B": 1, "M": 1, "N": 1, "K": 0}],
    "gelu": [{"M": 1, "N": 1}, {"M": 3, "N": 1367}],
    "layer_norm": [{"M": 3, "N": 101}, {"M": 2, "N": 256}, {"M": 1, "N": 1}],
    "matmul": [{"M": 129, "N": 127, "K": 33}, {"M": 1, "N": 1, "K": 1}],
    "matmul_bias_gelu": [{"M": 65, "N": 131, "K": 31}],
    "online_softmax": [{"M": 2, "N": 5003}, {"M": 2, "N": 0}, {"M": 1, "N": 1}],
    "relu": [{"M": 7, "N": 599}, {"M": 1, "N": 1}],
    "rms": [{"B": 2, "F": 3, "D1": 9, "D2": 257}, {"B": 1, "F": 1, "D1": 1, "D2": 1}],
    "softmax": [{"M": 3, "N": 101}, {"M": 1, "N": 1}, {"M": 2, "N": 128}],
    "sum_middle": [{"B": 2, "M": 17, "N": 257}, {"B": 1, "M": 0, "N": 5}],
}


def test_sizes_are_those_of_examples() -> None:
    assert set(SIZES) <= set(NAMES)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Case, Any]]:
    """Every example and every feature sketch at its sizes, all run in one worker."""
    cases: list[tuple[str, Case]] = []
    for name, sizes in SIZES.items():
        kernel = lower(example(name))[1]
        params = {param.name: 1e-5 for param in kernel.sketch.params}
        cases += [(name, make_case(kernel, symbols, params)) for symbols in sizes]
    for name, (text, assignments, params) in SKETCHES.items():
        kernel = lower(text)[1]
        cases += [(name, make_case(kernel, symbols, params)) for symbols in assignments]
    folder = Path(tmp_path_factory.mktemp("numbers"))
    results = run_cases([case for _, case in cases], folder)
    return [(name, case, r) for (name, case), r in zip(cases, results, strict=True)]


@pytest.mark.parametrize("name", [*SIZES, *SKETCHES])
def test_numbers_match_the_interpreter(name: str, outcomes: list[tuple[str, Case, Any]]) -> None:
    found = [(case, result) for other, case, result in outcomes if other == name]
    assert found
    for case, result in found:
        assert isinstance(result, dict), (case.symbols, result)
        for tensor, expected in case.expected.items():
            assert_close(result[tensor], expected, terms=64)


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """NaN and infinities through reductions; outputs without poison and non-contiguous inputs."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 101)).astype(np.float32)
    x[0, 100], x[1, 5], x[2, 0] = np.nan, -np.inf, np.inf
    case = make_case(lower(example("softmax"))[1], {"M": 3, "N": 101}, tensors={"X": x})
    text, _, _ = SKETCHES["reductions"]
    y = rng.standard_normal((2, 5, 101)).astype(np.float32)
    y[0, 2, 7], y[1, 0, 0], y[1, 1, 1] = np.nan, np.inf, -np.inf
    sizes = {"B": 2, "M": 5, "N": 101}
    other = make_case(lower(text)[1], sizes, tensors={"X": y})
    folder = Path(tmp_path_factory.mktemp("special"))
    return list(zip([case, other], run_cases([case, other], folder, poison=False), strict=True))


def test_nan_and_infinity_pass_through_reductions(special: list[Any]) -> None:
    for case, result in special:
        assert isinstance(result, dict), result
        for tensor, expected in case.expected.items():
            assert_close(result[tensor], expected, terms=64)
    largest = special[1][1]["R"]
    assert np.isnan(largest[0, 2])  # the largest of a row with NaN is NaN
    assert largest[1, 0] == np.inf


# ---------------------------------------------------------------- cubins

DIVISIBLE = """sketch divisible {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM = 16, TN = 64;
    require: M % 16 == 0; require: N % 64 == 0;
    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}"""


@pytest.fixture(scope="module")
def cubins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    names = sorted(taken_by(request, test_every_example_compiles, "name"))
    kernels: dict[str, Kernel] = {name: lower(example(name))[1] for name in names}
    kernels["divisible"] = lower(DIVISIBLE)[1]
    ragged = re.sub("require: M.*", "", DIVISIBLE).replace("sketch divisible", "sketch ragged")
    kernels["ragged"] = lower(ragged)[1]
    folder = Path(tmp_path_factory.mktemp("cubins"))
    # The later examples differ in constructs, not in what an architecture sees of them.
    both = {name: kernel for name, kernel in kernels.items() if name in SIZES or name not in NAMES}
    found: dict[str, Any] = {}
    for group, architectures in ((both, ARCHITECTURES), (kernels, (90,))):
        rest = [name for name in group if name not in found]
        for start in range(0, len(rest), 16):  # what one worker does in time on a busy machine
            batch = rest[start : start + 16]
            place = folder / str(len(found))
            # Both types of indices: a kernel may spill with one of them alone.
            widths = ("int32", "int64")
            made = compile_all([group[n] for n in batch], place, architectures, widths=widths)
            found |= dict(zip(batch, made, strict=True))
    return found


#: Exact f32 products (`precision="ieee"`) of tiles that are too large for the registers: right, and
#: slow. The plan's choice of tile sizes does not count registers of products yet.
#: The convolutions do so with 64-bit indices alone.
SPILLING = frozenset({"causal_attention", "conv2d", "conv_transpose2d", "triangular_matmul"})
#: Sine and cosine of f64 keep the digits of huge arguments in local memory; registers are few.
LOCAL_MEMORY = frozenset({"great_circle"})


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", NAMES)
def test_every_example_compiles(name: str, cubins: dict[str, list[dict[str, Any]]]) -> None:
    built = cubins[name]
    wanted = {"sm_80", "sm_90"} if name in SIZES else {"sm_90"}
    assert {variant["architecture"] for variant in built} == wanted
    for variant in built:
        assert Path(variant["cubin"]).stat().st_size > 0
        assert 0 < variant["registers"] <= 255
        assert variant["spill_bytes"] <= 64 or name in SPILLING | LOCAL_MEMORY


def test_memory_accesses_are_wide_and_unpredicated_where_sizes_divide(
    cubins: dict[str, list[dict[str, Any]]],
) -> None:
    def accesses(name: str) -> list[str]:
        text = Path(cubins[name][0]["ptx"]).read_text()
        return re.findall(r"^.*(?:ld|st)\.global\S*", text, re.MULTILINE)

    assert accesses("divisible")
    for line in accesses("divisible"):
        assert "@" not in line
        assert ".v4." in line
    assert any("@" in line for line in accesses("ragged"))  # the test can fail


# ---------------------------------------------------------------- the toolchain itself


def test_the_toolchain_runs_compiles_and_refuses(tmp_path: Path) -> None:
    text = DIVISIBLE.replace("require: M % 16 == 0; ", "")
    kernel = lower(text)[1]
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    variants = {(v["architecture"], v["index"]) for v in artefact.details["kernels"]}
    assert variants == {(f"sm_{a}", i) for a in ARCHITECTURES for i in ("int32", "int64")}
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    kept = x.copy()
    out = TOOLCHAIN.run(artefact, {"X": x}, {"M": 5, "N": 64}, {})
    np.testing.assert_array_equal(out["Y"], kept)
    np.testing.assert_array_equal(x, kept)
    with pytest.raises(ToolchainError) as failure:
        TOOLCHAIN.run(artefact, {"X": x[:, :63].copy()}, {"M": 5, "N": 63}, {})
    assert failure.value.stage == "launch"
    assert "N % 64 == 0" in str(failure.value)


def test_broken_code_and_endless_code_are_told_apart(tmp_path: Path) -> None:
    import attrs

    kernel = lower(DIVISIBLE)[1]
    x = np.zeros((16, 64), np.float32)
    sizes = {"M": 16, "N": 64}
    broken = attrs.evolve(
        kernel, source=kernel.source.replace("tl.arange(0, TM)", "tl.nothing(TM)")
    )
    with pytest.raises(ToolchainError) as failure:
        TOOLCHAIN.compile(broken, tmp_path)
    assert failure.value.stage == "compile"
    assert "nothing" in str(failure.value) + failure.value.log
    endless = attrs.evolve(kernel, source=kernel.source + "\n\nwhile True:\n    pass\n")
    with pytest.raises(ToolchainError) as failure:
        TOOLCHAIN.run(Artefact(endless, tmp_path), {"X": x}, sizes, {}, timeout=1.0)
    assert failure.value.stage == "timeout"


def test_status_names_the_versions() -> None:
    status = TOOLCHAIN.status()
    assert status.can_compile
    assert {"torch", "triton"} <= set(status.versions)
