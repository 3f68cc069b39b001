"""Complete sketches for the idioms of the language prompt: the code that it prints for each, and a
sketch in which that code stands."""

from __future__ import annotations

import attrs


@attrs.frozen
class Idiom:
    """`printed` stands in the prompt and in `text`."""

    text: str
    printed: tuple[str, ...]


STENCIL = Idiom(
    """sketch stencil {
    symbols: H, W, KW;
    let: OW = W - KW + 1;
    tensors: X[H, W]: in f32; K[KW]: in f32; Y[H, OW]: out f32;
    constexpr: T in [64, 128];
    require: 1 <= KW and KW <= W + 1;

    @llm_hint("parallel", "grididx")
    for h in range(H):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(OW, T)):
            y = alloc([T], f32, init=0)
            for k in range(KW):
                x = alloc([T])
                weight = alloc([1])
                load(X[h, j*T+k:min((j+1)*T, OW)+k] -> x)
                load(K[k] -> weight)
                fma(x, weight, y, y)
            store(y -> Y[h, j*T:(j+1)*T])
}
""",
    (
        "let: OW = W - KW + 1",
        "X[h, j*T+k:min((j+1)*T, OW)+k]",
        "Y[h, j*T:(j+1)*T]",
    ),
)

WINDOW = Idiom(
    """sketch window {
    symbols: L;
    params: K: i64 = 3; S: i64 = 2; P: i64 = 1;
    let: OL = (L + 2*P - K)//S + 1;
    tensors: X[L]: in f32; Y[OL]: out f32; Z[OL]: out f32;
    constexpr: T in [64, 128];
    require: K >= 1 and S >= 1 and P >= 0 and K <= L + 2*P;

    @llm_hint("parallel", "grididx")
    for j in range(ceil(OL, T)):
        y = alloc([T], f32, init=0)
        z = alloc([T], f32, init=-inf)
        for k in range(K):
            x = alloc([T])
            w = alloc([T])
            first = j*T*S + k - P
            load(X[first:first+T*S:S] -> x, pad=0)
            add(y, x, y)
            load(X[first:first+T*S:S] -> w, pad=-inf)
            max(z, w, z)
        store(y -> Y[j*T:(j+1)*T])
        store(z -> Z[j*T:(j+1)*T])
}
""",
    (
        "first = j*T*S + k - P",
        "load(X[first:first+T*S:S] -> x, pad=0)",
        "add(y, x, y)",
        "pad=-inf",
        "init=-inf",
    ),
)

CONVOLUTION = Idiom(
    """sketch convolution {
    symbols: N, C, H, W, O, KH, KW;
    params: S: i64 = 1; P: i64 = 0;
    let: OH = (H + 2*P - KH)//S + 1; OW = (W + 2*P - KW)//S + 1;
    tensors: X[N, C, H, W]: in f32; K[O, C, KH, KW]: in f32; Y[N, O, OH, OW]: out f32;
    views: KF[O, C*KH*KW] = K;
    constexpr: TP in [32, 64], TO in [16, 32], TK in [16, 32];
    require: S >= 1 and P >= 0;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N*OH*OW, TP)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(O, TO)):
            y = alloc([TP, TO], f32, init=0, llm_hint=["accumulator"])
            p = iota(TP, i*TP, N*OH*OW)
            n = p//(OH*OW)
            oh = p//OW % OH
            ow = p % OW
            o = iota(TO, j*TO, O)

            @llm_hint("pipeline")
            for k0 in range(0, C*KH*KW, TK):
                x = alloc([TP, TK])
                weight = alloc([TO, TK])
                k = iota(TK, k0, C*KH*KW)
                h = (oh*S-P)[:, None] + (k//KW%KH)[None, :]
                w = (ow*S-P)[:, None] + (k%KW)[None, :]
                load(X[n[:, None], (k//(KH*KW))[None, :], h, w] -> x, pad=0)
                load(KF[j*TO:(j+1)*TO, k0:k0+TK] -> weight)
                gemm(x, weight, y, trans_b=True)
            store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])
}
""",
    (
        "p = iota(TP, i*TP, N*OH*OW)",
        "k = iota(TK, k0, C*KH*KW)",
        "n = p//(OH*OW)",
        "oh = p//OW % OH",
        "ow = p % OW",
        "load(X[n[:, None], (k//(KH*KW))[None, :], h, w] -> x, pad=0)",
        "h = (oh*S-P)[:, None] + (k//KW%KH)[None, :]",
        "store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])",
    ),
)

SCAN = Idiom(
    """sketch scan {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T in [64, 128];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        c = alloc([1], init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            y = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            cumsum(x, 0, y, carry=c)
            store(y -> Y[i, j*T:(j+1)*T])
}
""",
    ("cumsum(x, 0, y, carry=c)", "c = alloc([1], init=0)"),
)

COLUMNS = Idiom(
    """sketch columns {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T in [64, 128];

    @llm_hint("parallel", "grididx")
    for j in range(ceil(N, T)):
        sum = alloc([T], f32, init=0)
        for k in range(M):
            x = alloc([T])
            load(X[k, j*T:(j+1)*T] -> x)
            add(sum, x, sum)
            store(sum -> Y[k, j*T:(j+1)*T])
}
""",
    ("store(sum -> Y[k, j*T:(j+1)*T])",),
)

LARGEST = Idiom(
    """sketch largest {
    symbols: M, N;
    tensors: X[M, N]: in f32; VALUES[M, K]: out f32; INDICES[M, K]: out i64;
    constexpr: K: i64 = 3, T in [16, 32];
    require: N >= K;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        values = alloc([K], f32, init=-inf)
        indices = alloc([K], i64, init=-1)
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            topk(x, j*T + iota(T), 0, values, indices)
        store(values -> VALUES[i, 0:K])
        store(indices -> INDICES[i, 0:K])
}
""",
    (
        "values = alloc([K], f32, init=-inf)",
        "indices = alloc([K], i64, init=-1)",
        "topk(x, j*T + iota(T), 0, values, indices)",
    ),
)

ONE_NUMBER = Idiom(
    """sketch one_number {
    symbols: N;
    tensors: X[N]: in f32; L[]: out f32 = 0;
    constexpr: T in [64, 128];

    @llm_hint("parallel", "grididx")
    for j in range(ceil(N, T)):
        x = alloc([T])
        part = alloc([1])
        load(X[j*T:(j+1)*T] -> x)
        reduce_sum(x, 0, part)
        atomic_add(part -> L[])
}
""",
    ("L[]: out f32 = 0", "atomic_add(part -> L[])"),
)

CAUSAL = Idiom(
    """sketch causal {
    symbols: M;
    tensors: X[M, M]: in f32; Y[M]: out f32;
    constexpr: T in [64, 128];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        y = alloc([1], f32, init=0)
        for j in range(0, i + 1, T):
            x = alloc([T])
            part = alloc([1])
            load(X[i, j:min(j+T, i+1)] -> x)
            reduce_sum(x, 0, part)
            add(y, part, y)
        store(y -> Y[i])
}
""",
    ("for j in range(0, i + 1, T)", "X[i, j:min(j+T, i+1)]"),
)

#: Every idiom whose code the prompt prints.
IDIOMS: dict[str, Idiom] = {
    "stencil": STENCIL,
    "window": WINDOW,
    "convolution": CONVOLUTION,
    "scan": SCAN,
    "columns": COLUMNS,
    "largest": LARGEST,
    "one_number": ONE_NUMBER,
    "causal": CAUSAL,
}

#: Launches in turn: `steps` is a number that the host reads.
HOST_LOOP = """sketch halvings {
    symbols: N;
    params: more: i64 = 0;
    tensors: STEPS[]: in i64; X[N]: inout f32;
    constexpr: T in [64, 128];

    steps = fetch(STEPS[])
    for step in range(steps):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[j*T:(j+1)*T] -> x)
            mul(x, 0.5, x)
            store(x -> X[j*T:(j+1)*T])

    if more > 0:
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[j*T:(j+1)*T] -> x)
            add(x, more, x)
            store(x -> X[j*T:(j+1)*T])
}
"""
