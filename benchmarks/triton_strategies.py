"""The figures behind docspec/triton_cuda/strategies.md: tile sizes, warps and operand layouts.

    python benchmarks/triton_strategies.py            # on a GPU; writes $OUT/triton_strategies.json

It needs torch and triton alone; docs/data/triton_strategies.json holds a run on an H200. Times are
medians of Triton's `do_bench` (L2 cleared before each).
"""

# mypy: ignore-errors

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

ELEMENTS = 1 << 27
SIDE = 4096


@triton.jit
def double_kernel(X, Y, total, TILE: tl.constexpr):
    """Y = 2 * X, element by element."""
    start = tl.program_id(0).to(tl.int64) * TILE
    lanes = tl.arange(0, TILE)
    inside = lanes < total - start
    tl.store(Y + start + lanes, 2 * tl.load(X + start + lanes, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(X, Y, M, N, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Y = softmax of each row of X."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    rows = tl.arange(0, ROWS)
    lanes = tl.arange(0, TILE)
    inside = (rows[:, None] < M - first) & (lanes[None, :] < N)
    at = first * N + rows[:, None] * N + lanes[None, :]
    x = tl.load(X + at, mask=inside, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(Y + at, x / tl.sum(x, axis=1)[:, None], mask=inside)


@triton.jit
def product_kernel(
    A,
    B,
    C,
    M,
    N,
    K,
    TM: tl.constexpr,
    TN: tl.constexpr,
    TK: tl.constexpr,
    PRECISION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """C = A @ B in tiles."""
    blocks = tl.cdiv(N, TN)
    program = tl.program_id(0)
    first = program // (8 * blocks) * 8
    height = tl.minimum(tl.cdiv(M, TM) - first, 8)
    row = (first + program % (8 * blocks) % height) * TM
    column = program % (8 * blocks) // height * TN
    rows = row + tl.arange(0, TM)
    columns = column + tl.arange(0, TN)
    depths = tl.arange(0, TK)
    c = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        deep = k + depths
        a = tl.load(
            A + rows[:, None] * K + deep[None, :],
            mask=(rows[:, None] < M) & (deep[None, :] < K),
            other=0.0,
        )
        mask = (deep[:, None] < K) & (columns[None, :] < N)
        if TRANSPOSED:
            b = tl.load(B + columns[None, :] * K + deep[:, None], mask=mask, other=0.0)
        else:
            b = tl.load(B + deep[:, None] * N + columns[None, :], mask=mask, other=0.0)
        c = tl.dot(a, b, c, input_precision=PRECISION)
    at = rows[:, None] * N + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(C + at, c.to(C.dtype.element_ty), mask=inside)


def element_wise() -> list[dict]:
    """Bandwidth of y = 2 x by elements per program and warps."""
    x = torch.randn(ELEMENTS, device="cuda")
    y = torch.empty_like(x)
    found = []
    for tile in (256, 512, 1024, 2048, 4096):
        for warps in (1, 2, 4, 8):
            if not 2 <= tile // (32 * warps) <= 64:
                continue
            grid = (triton.cdiv(ELEMENTS, tile),)
            seconds = launched(double_kernel, grid, x, y, ELEMENTS, tile, num_warps=warps)
            found.append({"tile": tile, "warps": warps, "TB/s": 8 * ELEMENTS / seconds / 1e12})
    return found


def softmaxes() -> list[dict]:
    """Bandwidth of a softmax by rows per program and warps."""
    found = []
    for columns in (32, 128, 256, 1000, 4096, 8192, 32768):
        rows = ELEMENTS // columns // 4
        x = torch.randn(rows, columns, device="cuda")
        y = torch.empty_like(x)
        tile = triton.next_power_of_2(columns)
        for together in (1, 2, 4, 8, 16):
            if together > 1 and together * tile > 1024:
                continue
            for warps in (1, 2, 4, 8, 16, 32):
                if not 1 <= together * tile // (32 * warps) <= 512:
                    continue
                grid = (triton.cdiv(rows, together),)
                arguments = (x, y, rows, columns, together, tile)
                seconds = launched(softmax_kernel, grid, *arguments, num_warps=warps)
                rate = 8 * rows * columns / seconds / 1e12
                shape = {"columns": columns, "rows per program": together, "warps": warps}
                found.append({**shape, "TB/s": rate})
    return found


#: (type, precision, TM, TN, TK, warps, stages)
PRODUCTS = (
    ("float16", "ieee", 128, 256, 64, 8, 3),
    ("float16", "ieee", 128, 128, 64, 4, 3),
    ("float16", "ieee", 128, 128, 32, 4, 4),
    ("float16", "ieee", 64, 128, 64, 4, 4),
    ("float16", "ieee", 64, 64, 64, 4, 4),
    ("float32", "ieee", 128, 128, 32, 8, 4),
    ("float32", "ieee", 128, 128, 32, 4, 4),
    ("float32", "ieee", 64, 64, 32, 4, 4),
    ("float32", "tf32x3", 128, 128, 32, 8, 4),
    ("float32", "tf32x3", 128, 64, 32, 4, 4),
    ("float32", "tf32", 128, 128, 32, 8, 4),
    ("float32", "tf32", 128, 256, 32, 8, 3),
)


def products() -> list[dict]:
    """Rates of matrix products by precision, tile and layout of the right operand."""
    found = []
    for name, precision, tm, tn, tk, warps, stages in PRODUCTS:
        a, b = (torch.randn(SIDE, SIDE, device="cuda").to(getattr(torch, name)) for _ in "ab")
        c = torch.empty_like(a)
        grid = (triton.cdiv(SIDE, tm) * triton.cdiv(SIDE, tn),)
        for transposed in (False, True):
            arguments = (a, b, c, SIDE, SIDE, SIDE, tm, tn, tk, precision, transposed)
            options = {"num_warps": warps, "num_stages": stages}
            rate = 2 * SIDE**3 / launched(product_kernel, grid, *arguments, **options) / 1e12
            exact = a[:64].double() @ (b.T if transposed else b).double()
            error = (c[:64] - exact).abs().max() / exact.pow(2).mean().sqrt()
            choice = {"type": name, "precision": precision, "tile": [tm, tn, tk], "warps": warps}
            layout = {"stages": stages, "right operand": "[N, K]" if transposed else "[K, N]"}
            found.append({**choice, **layout, "TFLOP/s": rate, "error / RMS": error.item()})
    return found


def libraries() -> dict[str, float]:
    """Rates of torch's own products, in TFLOP/s."""
    found = {}
    for name, tf32 in (("float16", False), ("float32", False), ("float32", True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a = torch.randn(SIDE, SIDE, device="cuda").to(getattr(torch, name))
        rate = 2 * SIDE**3 / timed(functools.partial(torch.matmul, a, a)) / 1e12
        found["tf32" if tf32 else name] = rate
    return found


def launched(kernel, grid, *arguments, **options) -> float:
    """Seconds of one launch."""
    return timed(lambda: kernel[grid](*arguments, **options))


def timed(launch) -> float:
    """Seconds of one call, the median."""
    return do_bench(launch, rep=60, return_mode="median") / 1e3


def main() -> int:
    """Measure everything and write the results."""
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "element_wise": element_wise(),
        "softmax": softmaxes(),
        "products": products(),
        "torch_products": libraries(),
    }
    rounded = json.loads(json.dumps(report), parse_float=lambda text: float(f"{float(text):.4g}"))
    target = Path(os.environ.get("OUT", ".")) / "triton_strategies.json"
    target.write_text(json.dumps(rounded, indent=1) + "\n", "utf-8")
    print(json.dumps(rounded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
