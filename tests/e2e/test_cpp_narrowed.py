"""C++ kernels whose loops run over the lanes that are read, and whose index calculations are
tabulated, give what the interpreter gives at ragged sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpp_cases import check
from toolchains import require

require("cpp")

GRID = '@llm_hint("parallel", "grididx")'
#: One lane, a tile less and more than one lane, several tiles, primes.
SIZES = (1, 15, 16, 17, 31, 37)


def windows(what: str, pad: str = "0") -> str:
    return f"""sketch windows {{
    symbols: M, N;
    params: K: i64 = 3; stride: i64 = 1;
    let: ON = (N + stride - 1)//stride;
    tensors: X[M, N]: in f32; Y[M, ON]: out f32;
    constexpr: TM = 4, TN = 16;
    require: stride >= 1 and K >= 1;
    {GRID}
    for i in range(cdiv(M, TM)):
        {GRID}
        for j in range(cdiv(ON, TN)):
            y = alloc([TM, TN], init=0)
            for k in range(K):
                x = alloc([TM, TN])
                first = j*TN*stride + k - 1
                load(X[i*TM:(i+1)*TM, first:first+TN*stride:stride] -> x, pad={pad})
                add(y, x, y)
            {what}
            store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}"""


SUMMED = """e = alloc([TN])
            s = alloc([1])
            fill(0.5, e)
            reduce_sum(e, 0, s)
            add(y, e, y)
            add(y, s, y)"""
TURNED = """t = alloc([TN, TM])
            transpose(y, t)
            exp(t, t)
            transpose(t, y)"""
SCANNED = """e = alloc([TN])
            s = alloc([TN])
            fill(0.5, e)
            cumsum(e, 0, s, reverse=true)
            add(y, s, y)"""


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    "what", ["relu(y, y)", SUMMED, TURNED, SCANNED], ids=["relu", "sum", "transpose", "scan"]
)
def test_padded_windows(what: str, stride: int, tmp_path: Path) -> None:
    """A reduction and a scan from behind take lanes that no store takes, and these are computed; a
    transposition takes the lanes of other axes."""
    sizes = [{"M": m, "N": n} for m, n in zip((1, 3, 4, 5, 7, 2), SIZES, strict=True)]
    check(windows(what, "0.5"), tmp_path, sizes, {"K": 3, "stride": stride})


@pytest.mark.parametrize("masked", [False, True])
def test_gathers_by_digits_of_rows_and_lanes(masked: bool, tmp_path: Path) -> None:
    """Divisions of lanes come from tables, those of rows and lanes together do not."""
    guard = ", pad=0.25, where=on" if masked else ""
    text = f"""sketch digits {{
    symbols: A, B, C, D;
    tensors: X[A, B, C, D]: in f32; Y[A*B, C*D]: out f32;
    constexpr: TM = 4, TN = 16;
    require: B >= 1 and D >= 1;
    {GRID}
    for i in range(cdiv(A*B, TM)):
        for j in range(cdiv(C*D, TN)):
            x = alloc([TM, TN])
            m = iota(TM, i*TM, A*B)
            n = iota(TN, j*TN, C*D)
            on = ((m // B)[:, None] + (n % D)[None, :]) % B != (n // D)[None, :] % 2
            load(X[(m // B)[:, None], (m % B)[:, None], (n // D)[None, :], (n % D)[None, :]] -> x
                 {guard})
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}"""
    sizes = [
        dict(zip("ABCD", extents, strict=True))
        for extents in ((1, 1, 1, 1), (3, 1, 15, 1), (2, 2, 1, 16), (5, 1, 17, 1), (3, 5, 7, 5))
    ]
    check(text, tmp_path, sizes)
