"""Parts of the Ascend path that need none of its tools: text fixes, stand-in, guarded buffers."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sketchc.runtime.guards.pages import GuardedBuffer
from sketchc.runtime.toolchains.triton_ascend import standin
from sketchc.runtime.toolchains.triton_ascend.linalg import (
    KERNEL,
    Argument,
    UnsupportedLinalgError,
    glue_source,
    normalise,
    read_function,
)

LINALG = """\
module {
  func.func @sin(%arg0: memref<?xi8>, %arg1: memref<?xi8>, %arg2: memref<?xbf16> \
{tt.tensor_kind = 0 : i32}, %arg3: i64, %arg4: f32, %arg5: i32, %arg6: i32, %arg7: i32, \
%arg8: i32, %arg9: i32, %arg10: i32) attributes {mix_mode = "aiv"} {
    scf.if %7 {
      linalg.fill ins(%cst : f32) outs(%alloc : memref<128xf32>)
    } {hivm.unlikely_condition}
    annotation.mark %8 {MayImplicitTransposeWithLastAxis} : tensor<128xf32>
    gpu.barrier
    "llvm.intr.assume"(%9) : (i1) -> ()
    return
  }
}
"""


def test_the_signature_is_read() -> None:
    function = read_function(LINALG)
    assert function.name == "sin"
    assert function.arguments == (
        Argument("bf16", True),
        Argument("i64", False),
        Argument("f32", False),
    )


def test_hints_go_and_the_kernel_gets_its_own_symbol() -> None:
    text = normalise(LINALG)
    for word in ("hivm", "annotation", "gpu.barrier", "assume", "@sin"):
        assert word not in text
    assert f"func.func @{KERNEL}(" in text
    assert "linalg.fill" in text


def test_the_glue_passes_every_argument() -> None:
    source = glue_source(read_function(LINALG))
    assert "*(int64_t *)arguments[1]" in source
    assert "*(float *)arguments[2]" in source
    assert "lengths[0]" in source
    assert source.count("place->") == 6


@pytest.mark.parametrize(
    "line",
    [
        "  func.func private @triton_sort(tensor<8xf32>, i64, i1) -> tensor<8xf32>",
        "    %1 = hfusion.histogram %2, 8 : tensor<8xi32> -> tensor<8xi32>",
    ],
)
def test_what_has_no_meaning_is_refused_by_name(line: str) -> None:
    with pytest.raises(UnsupportedLinalgError, match=r"triton_sort|hfusion\.histogram"):
        normalise(LINALG.replace("    return\n  }", f"    return\n  }}\n{line}"))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[standin.Launch]]:
    """Launches of the stand-in, which takes the place of `triton` during the test."""
    for name in [n for n in sys.modules if n == "triton" or n.startswith("triton.")]:
        monkeypatch.delitem(sys.modules, name)
    found: list[standin.Launch] = []
    before = set(sys.modules)
    standin.install(found.append)
    yield found
    for name in set(sys.modules) - before:
        del sys.modules[name]


SOURCE = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def kernel(x, n, scale=2.0, BLOCK: tl.constexpr = 8, KIND: tl.constexpr = tl.int32):
    tl.store(x, tl.load(x) * scale)
"""


def load(source: str = SOURCE) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace


def test_a_launch_is_bound_as_triton_does(launches: list[standin.Launch]) -> None:
    kernel = load()["kernel"]
    kernel[lambda meta: (meta["n"] // meta["BLOCK"], 2)]("X", n=64, BLOCK=16, num_warps=4)
    (launch,) = launches
    assert launch.grid == (4, 2, 1)
    assert launch.arguments == {"x": "X", "n": 64, "scale": 2.0}
    assert launch.constants["BLOCK"] == 16
    assert launch.constants["KIND"].name == "int32"
    assert launch.options == {"num_warps": 4}


def test_helpers_of_the_host(launches: list[standin.Launch]) -> None:
    triton = load()["triton"]
    for n in (1, 2, 3, 7, 8, 9, 1000):
        assert triton.cdiv(n, 8) == -(-n // 8)
        power = triton.next_power_of_2(n)
        assert power >= n > power // 2
        assert power & (power - 1) == 0


@pytest.mark.parametrize("grid", [(70000,), (300, 300), (-1,), (1.5,), (1, 1, 1, 1)])
def test_grids_that_the_driver_refuses(launches: list[standin.Launch], grid: Any) -> None:
    with pytest.raises(standin.LaunchError):
        load()["kernel"][grid]("X", 1)
    assert launches == []


@pytest.mark.parametrize("size", [0, 1, 4, 4095, 4096, 4097])
def test_guarded_buffers_copy_there_and_back(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    buffer = GuardedBuffer(array.ctypes.data, size)
    try:
        assert ctypes.string_at(buffer.start, size) == array.tobytes()
        assert not buffer.changed()
        ctypes.memset(buffer.start, 7, size)
        assert buffer.intact()
        assert buffer.changed() == (size > 0)
        buffer.copy_back()
        assert not buffer.changed()
        assert (array == 7).all()
        if buffer.slack_size:
            ctypes.memset(buffer.start - 1, 0, 1)
            assert not buffer.intact()
    finally:
        buffer.close()
