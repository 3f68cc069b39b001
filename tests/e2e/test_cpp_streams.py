"""Outputs that are written past the caches: the same numbers as on the plain path."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from cpp_cases import assert_equal, example, inputs, lower, reference
from native_kernel import NativeKernel
from toolchains import require

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

LIMIT = "constexpr double cache_bytes = 33554432;"

#: Narrow elements, rows that start anywhere in a line, and two outputs of one loop.
TWO_OUTPUTS = """sketch two {
    symbols: M, N;
    tensors: X[M, N]: in bf16; Y[M, N]: out bf16; Z[M, N]: out f64;
    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        y = alloc([N])
        load(X[i, 0:N] -> x)
        mul(x, 0.5, y)
        store(x -> Z[i, 0:N])
        store(y -> Y[i, 0:N])
}
"""

#: Y is read again, Z is not.
READ_AGAIN = """sketch again {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32;
    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        load(X[i, 0:N] -> x)
        mul(x, 0.5, x)
        store(x -> Y[i, 0:N])

    @llm_hint("parallel", "grididx")
    for j in range(M):
        y = alloc([N])
        load(Y[j, 0:N] -> y)
        add(y, 1.0, y)
        store(y -> Z[j, 0:N])
}
"""


def always(kernel: Kernel) -> Kernel:
    """The kernel with no tensor too small for streams."""
    assert LIMIT in kernel.source
    return attrs.evolve(kernel, source=kernel.source.replace(LIMIT, LIMIT.replace("33554432", "0")))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (example("relu"), [(1, 1), (3, 5), (64, 64), (61, 67), (129, 257)]),
        (example("softmax"), [(1, 1), (3, 15), (2, 1024), (5, 1025), (3, 2087)]),
        (TWO_OUTPUTS, [(1, 1), (7, 31), (3, 33), (2, 1023), (5, 3001)]),
        (READ_AGAIN, [(1, 1), (7, 17), (2, 2048), (5, 2049)]),
    ],
    ids=["relu", "softmax", "two outputs", "read again"],
)
def test_streamed_outputs_equal_the_interpreter(
    text: str, sizes: list[tuple[int, int]], tmp_path: Path
) -> None:
    kernel = always(lower(text)[1])
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    assert artefact.details["warnings"] == ""
    native = NativeKernel(artefact)
    for seed, (rows, columns) in enumerate(sizes):
        symbols = {"M": rows, "N": columns}
        tensors = inputs(kernel.sketch, symbols, {}, seed)
        expected = reference(kernel.sketch, tensors, symbols, {})
        assert native(tensors, symbols, {}) == 0
        assert_equal(kernel.sketch, tensors, expected, 64.0)


def test_streams_stay_inside_their_tensor(tmp_path: Path) -> None:
    """Rows that begin and end within a line leave their neighbours alone."""
    kernel = always(lower(example("relu"))[1])
    native = NativeKernel(TOOLCHAIN.compile(kernel, tmp_path))
    for before in (0, 1, 7, 15):
        memory = np.full(5000, 77.0, np.float32)
        place = memory[before : before + 1291]
        x = np.random.default_rng(before).standard_normal((1, 1291)).astype(np.float32)
        assert native({"X": x, "Y": place.reshape(1, 1291)}, {"M": 1, "N": 1291}, {}) == 0
        np.testing.assert_array_equal(place, np.maximum(x[0], 0))
        assert (memory[:before] == 77).all()
        assert (memory[before + 1291 :] == 77).all()


def test_outputs_that_are_read_are_not_streamed() -> None:
    source = lower(READ_AGAIN)[1].source
    assert "Z_streams" in source
    assert "Y_streams" not in source
    in_place = READ_AGAIN.replace("Z[M, N]: out", "Z[M, N]: inout")
    assert "sketch::stream" not in lower(in_place)[1].source
