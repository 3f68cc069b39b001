"""The importable module that wraps a C++ kernel."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from cpp_cases import example, load_module, lower
from toolchains import require

from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

F = torch.nn.functional
GRID = '@llm_hint("parallel", "grididx")'


def test_module_is_a_drop_in(tmp_path: Path) -> None:
    _, kernel = lower(example("layer_norm"))
    path = TOOLCHAIN.build_module(kernel, tmp_path)
    module = load_module(path, "layer_norm_module")
    x, weight, bias = torch.randn(5, 37), torch.randn(37), torch.randn(37)
    wanted = F.layer_norm(x, (37,), weight, bias, 1e-3)
    from_torch = module.layer_norm(x, weight, bias, eps=1e-3)
    assert isinstance(from_torch, torch.Tensor)
    torch.testing.assert_close(from_torch, wanted)
    from_numpy = module.layer_norm(x.numpy(), weight.numpy(), bias.numpy(), eps=1e-3)
    assert isinstance(from_numpy, np.ndarray)
    np.testing.assert_array_equal(from_numpy, from_torch.numpy())
    strided = torch.randn(37, 5).T
    torch.testing.assert_close(
        module.layer_norm(strided, weight, bias), F.layer_norm(strided, (37,), weight, bias)
    )
    with pytest.raises(ValueError, match="WEIGHT has extent 36 on axis 0, expected N = 37"):
        module.layer_norm(x, weight[1:], bias)
    with pytest.raises(ValueError, match="X must be float32, not float64"):
        module.layer_norm(x.double(), weight, bias)
    with pytest.raises(ValueError, match="X must have 2 dimensions, not 1"):
        module.layer_norm(x[0], weight, bias)


def test_module_with_inout_bfloat16_and_requires(tmp_path: Path) -> None:
    text = f"""sketch update {{
    symbols: M, N;
    params: scale: f32 = 2.0; count: i64;
    tensors: X[M, N]: inout bf16; S[N]: in bf16; Y[M, N]: out bf16;
    constexpr: T = 16;
    require: count > 0;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T])
            s = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            load(S[j*T:(j+1)*T] -> s)
            store(x -> Y[i, j*T:(j+1)*T])
            fma(x, scale, s, x)
            store(x -> X[i, j*T:(j+1)*T])
}}"""
    _, kernel = lower(text)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "update_module")
    original = torch.randn(3, 37).bfloat16()
    shift = torch.randn(37).bfloat16()
    x = original.clone()
    result, copy = module.update(x, shift, scale=3.0, count=1)
    wanted = (original.double() * 3.0 + shift.double()).bfloat16()
    assert torch.equal(copy, original)
    assert torch.equal(x, wanted)
    assert result is x
    with pytest.raises(ValueError, match="count > 0"):
        module.update(x, shift, count=0)
    with pytest.raises(ValueError, match="must not overlap"):
        module.update(x, x[0], count=1)
    with pytest.raises(TypeError):
        module.update(x, shift)
    numbers = np.arange(3 * 37).reshape(3, 37).astype(ml_dtypes.bfloat16)
    every_other = np.repeat(numbers, 2, axis=1)[:, ::2]
    result, copy = module.update(every_other, np.zeros(37, ml_dtypes.bfloat16), count=1)
    assert result is every_other
    np.testing.assert_array_equal(result, numbers * np.asarray(2, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(copy, numbers)
    numbers.flags.writeable = False
    with pytest.raises(ValueError, match="X is read-only"):
        module.update(numbers, np.zeros(37, ml_dtypes.bfloat16), count=1)
