"""The strict rule is calibrated: right kernels pass on every kind of input, wrong ones fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from sketchc.base.types import DType, numpy_dtype
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.inputs import KINDS, generate, poison
from sketchc.runtime.verify.compare import compare, relative_tolerance

TORCH = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}


def to_torch(array: Array) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor, dtype: DType) -> Array:
    if dtype is DType.BF16:
        return tensor.view(torch.int16).numpy().view(numpy_dtype(dtype))
    array: Array = tensor.numpy()
    return array


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def rms(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt(torch.mean(x * x, 0, keepdim=True) + 1e-5)


def matmul(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T


EAGER: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "relu": (torch.relu, 1),
    "gelu": (torch.nn.functional.gelu, 1),
    "softmax": (softmax, 1013),
    "layer_norm": (layer_norm, 1013),
    "rms": (rms, 37),
    "sum": (lambda x: x.sum(0), 37),
    "matmul": (matmul, 1013),
}


@pytest.mark.parametrize("dtype", TORCH, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EAGER)
def test_the_frameworks_own_kernels_pass(name: str, kind: str, dtype: DType) -> None:
    function, length = EAGER[name]
    for seed in range(3):
        x = generate(kind, dtype, (37, 1013), np.random.default_rng(seed))
        eager = to_numpy(function(to_torch(x)), dtype)
        reference = function(torch.from_numpy(x.astype(np.float64))).numpy()
        verdict = compare("y", eager, reference, dtype, length)
        assert verdict.passed, verdict


def product(seed: int, inner: int = 1000) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    a = random.standard_normal((48, inner)).astype(np.float32)
    b = random.standard_normal((inner, 56)).astype(np.float32)
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("inner", [16, 1000])
def test_a_product_accumulated_in_f16_fails(inner: int) -> None:
    a, b, reference = product(0, inner)
    total = np.zeros(reference.shape, np.float16)
    for k in range(inner):
        total += (a[:, k : k + 1] * b[k]).astype(np.float16)
    assert not compare("y", total.astype(np.float32), reference, DType.F32, inner).passed


@pytest.mark.parametrize("inner", [16, 1000, 100_000])
def test_a_product_in_tf32_fails(inner: int) -> None:
    a, b, reference = product(0, inner)

    def tf32(x: Array) -> Array:
        return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)

    rounded = tf32(a).astype(np.float64) @ tf32(b).astype(np.float64)
    assert not compare("y", rounded.astype(np.float32), reference, DType.F32, inner).passed


def test_a_dropped_last_tile_of_k_fails() -> None:
    a, b, reference = product(1, 1000)
    dropped = (a[:, :992] @ b[:992]).astype(np.float32)
    verdict = compare("y", dropped, reference, DType.F32, 1000)
    assert verdict.failure == "numerical"
    assert verdict.wrong > 0.9 * reference.size


@pytest.mark.parametrize("length", [1, 64, 4096])
@pytest.mark.parametrize(
    ("dtype", "share"),
    [(DType.F64, 0.01), (DType.F32, 0.01), (DType.F16, 0.01), (DType.BF16, 0.03)],
)
def test_one_element_off_by_a_hundredth_of_the_rms_fails(
    dtype: DType, share: float, length: int
) -> None:
    """In bf16, whose neighbours are up to 0.8 % apart, by three hundredths."""
    reference = np.random.default_rng(2).standard_normal((64, 65))
    good = reference.astype(numpy_dtype(dtype))
    assert compare("y", good, reference, dtype, length).passed
    bad = good.copy()
    bad[7, 11] = float(good[7, 11]) + share * np.sqrt(np.mean(reference**2))
    verdict = compare("y", bad, reference, dtype, length)
    assert verdict.wrong == 1
    assert verdict.first is not None
    assert verdict.first.index == (7, 11)
    assert verdict.first.expected == reference[7, 11]
    assert verdict.paper is not None
    assert verdict.paper.passed, "the paper's rule lets one wrong element pass"


def test_an_output_of_nans_fails_although_the_papers_rule_accepts_it() -> None:
    reference = np.random.default_rng(3).standard_normal((5, 7))
    verdict = compare("y", np.full((5, 7), np.nan, np.float32), reference, DType.F32)
    assert verdict.failure == "numerical"
    assert verdict.wrong == 35
    assert verdict.paper is not None
    assert verdict.paper.passed


def test_nan_and_infinity_stand_exactly_where_the_reference_has_them() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf, 1e300])
    good = np.array([1.0, np.nan, np.inf, -np.inf, np.inf], np.float32)
    assert compare("y", good, reference, DType.F32).passed
    for position in range(5):
        for value in (np.nan, np.inf, -np.inf, 3.0):
            bad = good.copy()
            bad[position] = value
            same = np.array_equal(bad, good, equal_nan=True)
            assert compare("y", bad, reference, DType.F32).passed is same, (position, value)


@pytest.mark.parametrize("dtype", TORCH, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("zeros", [False, True])
def test_a_nan_that_belongs_there_changes_nothing_for_the_others(zeros: bool, dtype: DType) -> None:
    """Blocks of nothing but numbers are counted in fewer steps: with the same result."""
    random = np.random.default_rng(5)
    reference = random.standard_normal(1009) * 10.0 ** random.integers(-10, 4, 1009)
    if zeros:
        reference[::7] = 0.0
    errors = random.standard_normal(1009) * 10.0 ** random.integers(-9, 1, 1009)
    actual = (reference * (1 + errors)).astype(numpy_dtype(dtype))
    actual[::91] = 1e-9
    allowance = np.where(random.random(1009) < 0.1, np.inf, 10.0 ** random.integers(-6, 2, 1009))
    for allowed in (None, allowance):
        alone = compare("y", actual, reference, dtype, 100, allowed)
        with_nan = [np.append(array, np.nan) for array in (reference, allowance)]
        beside = compare(
            "y",
            np.append(actual, actual.dtype.type(np.nan)),
            with_nan[0],
            dtype,
            100,
            None if allowed is None else with_nan[1],
        )
        assert alone.wrong > 0
        assert alone.paper is not None
        assert beside.paper is not None
        assert round(alone.paper.fraction * 1009) == round(beside.paper.fraction * 1010)
        for fact in ("wrong", "first", "rtol", "max_error", "max_relative_error", "worst"):
            assert getattr(alone, fact) == getattr(beside, fact), fact


def test_shape_and_dtype_are_exact() -> None:
    reference = np.ones((3, 4))
    good = np.ones((3, 4), np.float32)
    assert compare("y", good.T.copy(), reference, DType.F32).failure == "wrong_shape"
    assert compare("y", good[:2], reference, DType.F32).failure == "wrong_shape"
    assert compare("y", good.astype(np.float16), reference, DType.F32).failure == "wrong_shape"
    assert compare("y", good, reference, DType.F32).passed


def test_integers_are_exact() -> None:
    reference = np.arange(12, dtype=np.int64).reshape(3, 4)
    good = reference.astype(np.int32)
    assert compare("y", good, reference, DType.I32).passed
    good[2, 1] += 1
    verdict = compare("y", good, reference, DType.I32)
    assert verdict.wrong == 1
    assert verdict.first is not None
    assert (verdict.first.index, verdict.first.expected, verdict.first.actual) == ((2, 1), 9, 10)


def test_an_empty_output_passes() -> None:
    assert compare("y", np.ones((0, 4), np.float32), np.ones((0, 4)), DType.F32).passed


def test_the_tolerance_never_exceeds_the_papers() -> None:
    for dtype, tau in ((DType.F32, 0.001), (DType.F16, 0.004), (DType.BF16, 0.03)):
        assert relative_tolerance(dtype, 10**12) <= tau
        assert relative_tolerance(dtype, 1) < relative_tolerance(dtype, 10**6)
    assert relative_tolerance(DType.I32, 100) == 0


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_have_the_dtype_asked_for_and_follow_the_seed(kind: str, dtype: DType) -> None:
    first = generate(kind, dtype, (6, 50), np.random.default_rng(5))
    again = generate(kind, dtype, (6, 50), np.random.default_rng(5))
    other = generate(kind, dtype, (6, 50), np.random.default_rng(6))
    assert first.dtype == numpy_dtype(dtype)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.isfinite(first.astype(np.float64)).all()
    assert poison(dtype, (2, 3)).dtype == numpy_dtype(dtype)


@pytest.mark.parametrize("kind", ["normal", "mixed_scale", "structured", "large"])
def test_inputs_are_signed(kind: str) -> None:
    x = generate(kind, DType.F32, (12, 100), np.random.default_rng(7))
    assert (x < 0).any()
    assert (x > 0).any()
