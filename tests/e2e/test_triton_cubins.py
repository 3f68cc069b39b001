"""What the interpreter lets pass, the compiler may not: every feature and operation as a cubin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import test_triton_operations as operations
from toolchains import require
from triton_cases import compile_all, lower
from triton_sketches import SKETCHES

from sketchc.base.diagnostics import Source
from sketchc.lowering.hardware import load_hardware, user_chips
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.triton_cuda.toolchain import TOOLCHAIN

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

require("triton_cuda")


#: Lane operations go through different code for words of 32 and 64 bits, floats and integers; the
#: many merges of topk take the compiler long.
LANE_TYPES = ("f32", "f64", "i64", "u8")
TOP_TYPES = ("f32", "i64")


def _features() -> dict[str, Kernel]:
    return {name: lower(text)[1] for name, (text, _, _) in SKETCHES.items()}


def _operations() -> dict[str, Kernel]:
    cases = {dtype: operations.float_case(dtype) for dtype in operations.FLOATS}
    cases |= {dtype: operations.integer_case(dtype) for dtype in operations.INTEGERS}
    cases["cast"] = operations.cast_case()
    for name in operations.CONVERSIONS:
        cases[name] = operations.conversion_case(name.removeprefix("from-"))
    cases |= {name: operations.product_case(name) for name in operations.PRODUCTS}
    return {name: case.kernel for name, case in cases.items()}


def _lanes() -> dict[str, Kernel]:
    return {
        name: lower(text)[1]
        for name, (dtype, text) in operations.LANES.items()
        if dtype in (TOP_TYPES if "tops" in name else LANE_TYPES)
    }


@pytest.mark.sweep
@pytest.mark.parametrize("group", [_features, _operations, _lanes])
def test_every_feature_and_operation_compiles(
    group: Callable[[], dict[str, Kernel]], tmp_path: Path
) -> None:
    kernels = group()
    built = compile_all(list(kernels.values()), tmp_path, (90,))
    for name, variants in zip(kernels, built, strict=True):
        assert variants, name
        for variant in variants:
            assert variant["registers"] <= 255, name
            assert Path(variant["cubin"]).stat().st_size > 0, name


@pytest.mark.parametrize("chip", ["l40s", "b200"])
def test_cubins_are_made_for_the_chip_that_was_planned_for(
    chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = load_hardware(chip).facts
    path = EXAMPLES / "matmul_half.sketch"
    tree, _ = parse(Source(path.name, path.read_text("utf-8")))
    assert tree is not None
    target = load_target("triton_cuda")
    kernel = target.emit(build_plan(tree.sketches[0], "triton_cuda", chip).plan)
    variants = TOOLCHAIN.compile(kernel, tmp_path).details["kernels"]
    own = [v for v in variants if v["architecture"] == facts["chip"]]
    assert {v["index"] for v in own} == {"int32", "int64"}
    assert all(v["shared_bytes"] <= facts["memory"]["shared"]["bytes"] for v in own)
    # A chip of the user's whose blocks have less shared memory than the kernel takes.
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    user_chips().mkdir(parents=True)
    text = (ROOT / "lowering" / "hardware" / f"{chip}.toml").read_text("utf-8")
    text = text.replace(f'name = "{chip}"', 'name = "narrow"')
    text = text.replace(f"bytes = {facts['memory']['shared']['bytes']}", "bytes = 4096")
    (user_chips() / "narrow.toml").write_text(text)
    with pytest.raises(ToolchainError, match="shared memory"):
        TOOLCHAIN.compile(attrs.evolve(kernel, hardware="narrow"), tmp_path / "narrow")


@pytest.mark.parametrize("name", ["matmul_half", "sum_middle"])
def test_cubins_are_made_for_the_warps_and_stages_that_were_set(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.sketch").read_text("utf-8")
    settings = [{"num_warps": 4, "num_stages": stages} for stages in (1, 2)]
    kernels = [lower(text, constants={**each, "TN": 64})[1] for each in settings]
    built = compile_all(kernels, tmp_path, (90,), widths=("int32",))
    for (variant,) in built:
        assert variant["num_warps"] == 4
    # A deeper pipeline holds another block of what it loads.
    assert built[0][0]["shared_bytes"] < built[1][0]["shared_bytes"]
