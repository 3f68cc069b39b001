"""What the interpreter lets pass, the compiler may not: every feature and operation as a cubin."""

from __future__ import annotations

from pathlib import Path

from test_triton_operations import cast_case, float_case, integer_case
from toolchains import require
from triton_cases import compile_all, lower
from triton_sketches import SKETCHES

require("triton_cuda")


def test_every_feature_and_operation_compiles(tmp_path: Path) -> None:
    kernels = {name: lower(text)[1] for name, (text, _, _) in SKETCHES.items()}
    kernels |= {f"operations_{dtype}": float_case(dtype).kernel for dtype in ("f32", "f64")}
    kernels["operations_i32"] = integer_case("i32").kernel
    kernels["casts"] = cast_case().kernel
    built = compile_all(list(kernels.values()), tmp_path, (90,))
    for name, variants in zip(kernels, built, strict=True):
        assert variants, name
        for variant in variants:
            assert variant["registers"] <= 255, name
            assert Path(variant["cubin"]).stat().st_size > 0, name
