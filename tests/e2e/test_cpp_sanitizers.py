"""Generated C++ under the address and undefined-behaviour sanitizers, at ragged sizes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_cases import PARAMS, TILES, example, lower, sizes
from example_sizes import params_for
from toolchains import require

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
from sketchc.runtime.toolchains.native.compiler import LIBRARIES, find_compiler

require("cpp")

#: One example for each way in which code touches memory.
SANITIZED = (
    *("add", "batched_matmul", "layer_norm", "matmul_bias_gelu", "online_softmax", "rms"),
    *("sum_middle", "conv2d", "causal_attention", "cumsum_two_phase", "gather", "histogram"),
    *("masked_select", "scatter_add", "sort_rows", "topk", "unpack_int4", "heat"),
)
_C_TYPES = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.U32: "uint32_t",
    DType.BOOL: "bool",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", SANITIZED)
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    """A program calls the kernel at ragged sizes on exact heap blocks, under ASan and UBSan."""
    _, kernel = lower(example(name), TILES.get(name))
    params = params_for(kernel.sketch, PARAMS.get(name))
    cases = sizes(kernel, params)
    shared = re.sub(r"(?<=least_shared_work = )\d+", "0", kernel.source)  # all threads take part
    (tmp_path / "kernel.cpp").write_text(shared + _main(kernel, cases, params))
    optimise = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC", "-O3", "-fwrapv")]
    command = [str(find_compiler()), *optimise, "-O1", "-g", "-fsanitize=address,undefined"]
    command += ["-fno-sanitize-recover=all", str(tmp_path / "kernel.cpp"), *LIBRARIES]
    command += ["-o", str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [str(tmp_path / "program")],
        capture_output=True,
        text=True,
        check=False,
        env={"OMP_NUM_THREADS": "2", "ASAN_OPTIONS": "detect_leaks=1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "clean\n"


def _main(kernel: Kernel, cases: list[dict[str, int]], params: dict[str, Any]) -> str:
    """A C++ main that calls the kernel once for each case, all elements 1."""
    from sketchc.ir.evaluate import evaluate, host_values

    lines = [
        *("#include <algorithm>", "#include <cstdint>", "#include <cstdio>", "#include <memory>"),
        "template <class T> std::unique_ptr<T[]> ones(long count)",
        "{ std::unique_ptr<T[]> all(new T[count]); std::fill_n(all.get(), count, T(1));",
        "  return all; }",
        *("int main()", "{"),
    ]
    for number, symbols in enumerate(cases):
        values = host_values(kernel.sketch, symbols, params)
        arguments = []
        for tensor in kernel.sketch.tensors:
            if tensor.role is ir.Role.WORKSPACE:
                continue
            count = int(np.prod([int(evaluate(e, values)) for e in tensor.extents]))
            kind = _C_TYPES[tensor.dtype]
            lines.append(f"    auto {tensor.name}_{number} = ones<{kind}>({count});")
            arguments.append(f"{tensor.name}_{number}.get()")
        arguments += [str(symbols[symbol.name]) for symbol in kernel.sketch.symbols]
        for param in kernel.sketch.params:
            floats = param.dtype.is_float
            arguments.append(repr(float(values[param.name]) if floats else int(values[param.name])))
        for tensor in kernel.sketch.tensors:
            for extent, free in zip(tensor.extents, tensor.broadcast, strict=False):
                arguments += [str(int(evaluate(extent, values)))] if free else []
        lines.append(f"    if ({kernel.entry}({', '.join(arguments)}) != 0) return 1;")
    return "\n".join([*lines, '    std::puts("clean");', "}", ""])
