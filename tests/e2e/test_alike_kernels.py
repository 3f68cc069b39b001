"""Phases that differ in their tensors alone share a kernel, and each does its own work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from toolchains import require
from triton_cases import Array, lower

from sketchc.lowering.triton.dialect import DIALECTS

from every_target import agreement, disagreements  # isort: skip

#: Phase 1 and 3 are alike, though what 3 reads is declared after what it writes; 2 computes
#: something else, 4 another type, and 5 another order of axes.
LAYERS = """\
sketch layers {
    symbols: M, N;
    params: gain: f32 = 0.7;
    tensors: X[M, N]: in f32; W1[N]: in f32; W2[N]: in f32; A[N, M]: out f32; Y[M, N]: out f32;
             Z[M, N]: out f16;
    workspace: C[M, N]: f32; B[M, N]: f32;
    constexpr: T = 16, S = 16;

@PHASES@}
"""


def phase(source: str, weight: str, out: str, **other: str) -> str:
    """Rows times a weight of their own and a number."""
    told = {
        "rows": "M",
        "columns": "N",
        "tile": "T",
        "operation": "mul",
        "factor": "gain * 3.0",
        "kind": "f32",
    } | other
    return """\
    @llm_hint("parallel", "grididx.x")
    for i in range({rows}):
        for j in range(0, {columns}, {tile}):
            x = alloc([{tile}])
            load({source} -> x)
            w = alloc([{tile}])
            load({weight} -> w)
            mul(x, w, x)
            {operation}(x, {factor}, x)
            y = alloc([{tile}], {kind})
            cast(x, y)
            store(y -> {out}[i, j:j+{tile}])
""".format(source=source, out=out, weight=weight, **told)


TEXT = LAYERS.replace(
    "@PHASES@",
    phase("X[i, j:j+T]", "W1[j:j+T]", "B")
    + phase("B[i, j:j+T]", "W1[j:j+T]", "C", operation="max", factor="gain * 0.5")
    + phase("C[i, j:j+S]", "W2[j:j+S]", "Y", tile="S")
    + phase("Y[i, j:j+T]", "W2[j:j+T]", "Z", kind="f16")
    + phase("Y[j:j+T, i]", "X[j:j+T, i]", "A", rows="N", columns="M"),
)


def kernels(source: str) -> list[str]:
    """The kernels of a file: jitted functions that the function for the host names."""
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    jitted = {
        f.name
        for f in functions
        if any("triton.jit" in ast.unparse(each) for each in f.decorator_list)
    }
    named = {node.id for node in ast.walk(functions[-1]) if isinstance(node, ast.Name)}
    return sorted(jitted & named)


@pytest.mark.parametrize("target", sorted(DIALECTS))
def test_alike_phases_are_one_kernel_and_mean_what_they_did(target: str, tmp_path: Path) -> None:
    require(target)
    sizes = [(1, 1), (3, 17)] if target == "triton_ascend" else [(1, 1), (3, 17), (16, 15), (5, 32)]
    runs: list[tuple[dict[str, int], dict[str, Array]]] = [({"M": m, "N": n}, {}) for m, n in sizes]
    _, kernel = lower(TEXT, target)
    assert kernels(kernel.source) == [f"layers_phase_{number}_kernel" for number in (1, 2, 4, 5)]
    assert not disagreements(target, {"layers": (TEXT, runs)}, tmp_path, agreement)


@pytest.mark.parametrize("target", sorted(DIALECTS))
def test_a_shared_kernel_says_which_lines_it_carries_out(target: str) -> None:
    _, kernel = lower(TEXT, target)
    lines = TEXT.splitlines()
    shared = {
        number
        for _, numbers in kernel.source_map
        for number in numbers
        if len(numbers) > 1 and lines[number - 1].lstrip().startswith("store")
    }
    assert {lines[number - 1].strip() for number in shared} == {
        "store(y -> B[i, j:j+T])",
        "store(y -> Y[i, j:j+S])",
    }
