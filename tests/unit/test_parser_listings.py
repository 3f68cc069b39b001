"""Listings in the style of the public ones parse; what is wrong in them is diagnosed later."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source, has_errors
from sketchc.parsing.parser import parse

# ---------------------------------------------------------------- the style of public listings
LISTINGS = {
    "matmul over tile indices, constants bound in the body": """\
sketch product {
    symbols: M, K, N;
    tensors: A[M, K]: f16; B[K, N]: f16; C[M, N]: f32;

    m0, k0, n0 = 128, 256, 256
    @llm_hint("parallel", "grididx.x")
    for i_outer in range(0, ceil(M, m0)):
        @llm_hint("parallel", "grididx.y")
        for j_outer in range(0, ceil(N, n0)):
            c_tile = alloc([m0, n0], llm_hint=["fastest", "accumulator", "init_zero"])
            @llm_hint("pipeline")
            for k_outer in range(0, ceil(K, k0)):
                a_tile = alloc([m0, k0], llm_hint=["fast", "input_cache"])
                b_tile = alloc([k0, n0], llm_hint=["fast", "input_cache"])
                load(A[i_outer:i_outer+m0, k_outer:k_outer+k0] -> a_tile)
                load(B[k_outer:k_outer+k0, j_outer:j_outer+n0] -> b_tile)
                gemm(a_tile, b_tile, dst=c_tile)
            store(c_tile -> C[i_outer:i_outer+m0, j_outer:j_outer+n0])
}
""",
    "activation with a hardware name as hint": """\
sketch activation {
    symbols: N;
    tensors: X[N]: f16; Y[N]: f16;
    tile_size = 1024
    @llm_hint("parallel", "coreidx")
    for i in range(ceil(N, tile_size)):
        x_tile = alloc([tile_size], llm_hint="l1_buffer")
        y_tile = alloc([tile_size], llm_hint="l1_buffer")
        load(X[i:i+tile_size] -> x_tile)
        relu(x_tile, y_tile)
        store(y_tile -> Y[i:i+tile_size])
}
""",
    "row softmax with the destination behind a keyword": """\
sketch row_softmax {
    symbols: M, N
    tensors: X[M, N]: f32; Y[M, N]: f32
    @llm_hint("parallel")
    for m in range(M):
        x_row = alloc([N], llm_hint=["fast"])
        max_val = alloc([1])
        sum_val = alloc([1])
        load(X[m, 0:N] -> x_row)
        reduce_max(x_row, axis=0, max_val)
        sub(x_row[N], max_val[1], x_row)
        exp(x_row, x_row)
        reduce_sum(x_row, axis=0, sum_val)
        div(x_row, sum_val, x_row)
        store(x_row -> Y[m, 0:N])
}
avaliable_tiling:
    N = 1024
""",
}


@pytest.mark.parametrize("title", LISTINGS)
def test_the_style_of_public_listings_parses(title):
    file, found = parse(Source("test", LISTINGS[title]))
    assert file is not None, found
    assert not has_errors(found)
    assert file.sketches[0].body
