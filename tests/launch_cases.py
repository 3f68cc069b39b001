"""One small sketch for each kind of launch condition, values that keep it and values that break it:
what every target must refuse before it writes anything."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.launch.conditions import Kind

GRID = '@llm_hint("parallel", "grididx")'
Value = int | float


@attrs.frozen
class Launch:
    """Values of symbols and params; `shapes` where an array is not as the sketch declares it,
    `contents` what integer tensors hold in every element, `absent` the optional tensors that are
    not given, `text` the condition that breaks."""

    symbols: Mapping[str, int]
    params: Mapping[str, Value] = attrs.field(factory=dict)
    text: str = ""
    shapes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    contents: Mapping[str, int] = attrs.field(factory=dict)
    absent: tuple[str, ...] = ()


@attrs.frozen
class Refusal:
    """A sketch with a condition of `kind`, by the name of what it is about."""

    name: str
    kind: Kind
    text: str
    keep: tuple[Launch, ...]
    broken: tuple[Launch, ...]


def filled(name: str, sections: str, extent: str) -> str:
    """A sketch that fills Y[extent] with ones."""
    return f"""sketch {name} {{
    {sections}
    constexpr: T = 16;
    {GRID}
    for i in range(ceil({extent}, T)):
        x = alloc([T], f32, init=1.0)
        store(x -> Y[i*T:(i+1)*T])
}}"""


BOUND = f"""sketch bound {{
    symbols: N <= 16;
    tensors: A[N]: in f32; Y[16]: out f32 = 0;
    {GRID}
    for i in range(N):
        x = alloc([1])
        load(A[i:i+1] -> x)
        store(x -> Y[i:i+1])
}}"""

VIEW = f"""sketch view {{
    symbols: M, N, C;
    tensors: X[M]: in f32; A[N]: in f32; B[C]: in f32; Y[N, C]: out f32;
    views: XV[N, C] = X;
    constexpr: T = 16;
    {GRID}
    for i in range(N):
        {GRID}
        for j in range(ceil(C, T)):
            x = alloc([T])
            load(XV[i, j*T:(j+1)*T] -> x)
            store(x -> Y[i, j*T:(j+1)*T])
}}"""

STEP = f"""sketch step {{
    symbols: N;
    params: s: i64;
    tensors: X[N]: in f32; Y[N]: out f32;
    {GRID}
    for i in range(N):
        x = alloc([1])
        y = alloc([1], f32, init=0.0)
        load(X[i:i+1] -> x)
        for j in range(0, N, s):
            add(y, x, y)
        store(y -> Y[i:i+1])
}}"""

OPERANDS = f"""sketch operands {{
    symbols: N;
    params: d: i32 = 2; m: i32 = -2; s: i32 = 3; p: i32 = 2;
    tensors: X[N]: in i32; Y[N]: out i32;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        x = alloc([T], i32)
        y = alloc([T], i32)
        load(X[i*T:(i+1)*T] -> x)
        floordiv(x, d, y)
        mod(y, m, y)
        shl(y, s, y)
        pow(y, p, y)
        store(y -> Y[i*T:(i+1)*T])
}}"""

SUBSCRIPT = f"""sketch subscript {{
    symbols: M, N;
    params: row: i64;
    tensors: X[M, N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    {GRID}
    for j in range(ceil(N, T)):
        x = alloc([T])
        load(X[row, j*T:(j+1)*T] -> x)
        store(x -> Y[j*T:(j+1)*T])
}}"""

TILE = f"""sketch tile {{
    symbols: N <= 64;
    let: W = N - 3;
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    {GRID}
    for i in range(1):
        x = alloc([W], f32, init=1.0)
        store(x -> Y[0:W])
}}"""

PARAM = f"""sketch param {{
    symbols: N;
    params: k: i8; m: u8 = 0;
    tensors: X[N]: in f32; Y[256]: out f32 = 0; Z[256]: out f32 = 0;
    {GRID}
    for i in range(1):
        x = alloc([1], f32, init=1.0)
        store(x -> Y[k+128:k+129])
        store(x -> Z[m:m+1])
}}"""

DOMAIN = f"""sketch domain {{
    symbols: N;
    params: a: f64 = 2.0; b: f64 = 2.0; c: f64 = 2.0; d: f64 = 2.0; f: f64 = 2.0; g: f64 = 2.0;
        h: f64 = 2.0; u: f64 = 2.0; z: f64 = 2.0;
    let: r = sqrt(a); q = rsqrt(b); l = log(c); m = log2(d); e = exp(f); w = pow(g, h); v = 3.0/u;
        n = int(z); t = r + q + l + m + e + w + v + n;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, t, x)
        store(x -> Y[i*T:(i+1)*T])
}}"""

FETCH = f"""sketch fetched {{
    symbols: N, P;
    tensors: IDX[P]: in i64; FROM[N]: in i64; X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    require: P >= 1;
    k = fetch(IDX[0])
    first = fetch(FROM[k])
    {GRID}
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if first > 0:
            mul(x, 2.0, x)
        store(x -> Y[i*T:(i+1)*T])
}}"""

REPEAT = f"""sketch repeat {{
    symbols: M, N;
    tensors: X[M|1, N]: in f32; Z[M]: in f32; Y[M, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            store(x -> Y[i, j*T:(j+1)*T])
}}"""

#: What counts on every element of a tensor needs them all.
SEEN_WHOLE = f"""sketch seen_whole {{
    symbols: M, N;
    tensors: X[M|1, N]: in f32; Z[M]: in f32; Y[M*N]: out f32;
    views: XV[M*N] = X;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(M*N, T)):
        x = alloc([T])
        load(XV[i*T:(i+1)*T] -> x)
        store(x -> Y[i*T:(i+1)*T])
}}"""

PROGRAMS = f"""sketch programs {{
    symbols: N;
    params: k: i64 = 1;
    tensors: X[N]: in f32; Y[1]: out i32 = 0;
    {GRID}
    for i in range(k):
        x = alloc([1], i32, init=1)
        atomic_add(x -> Y[0:1])
}}"""

BUCKET = f"""sketch bucket {{
    symbols: N;
    params: k: i64;
    tensors: X[N]: in f32; Y[k]: out f32;
    {GRID}
    for i in range(1):
        x = alloc([k], f32, init=1.0)
        y = alloc([k], f32)
        cumsum(x, 0, y)
        store(y -> Y[0:k])
}}"""

ELEMENTS = f"""sketch elements {{
    symbols: M, N;
    tensors: X[M]: in f32; Z[N]: in f32; Y[M, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T], f32, init=1.0)
            store(x -> Y[i, j*T:(j+1)*T])
}}"""

WIDTH = f"""sketch width {{
    symbols: N;
    params: k: i64;
    require: k >= 1;
    tensors: X[N]: in f32; Y[N]: out f32;
    {GRID}
    for i in range(N):
        x = alloc([1])
        load(X[i:i+1] -> x)
        store(x -> Y[(i*k)//k:(i*k)//k+1])
}}"""

FETCHED = f"""sketch number {{
    symbols: N;
    tensors: I[N]: in i64; X[N]: in f32; Y[N]: out f32;
    require: N >= 1;
    s = fetch(I[0])
    {GRID}
    for i in range(N):
        x = alloc([1])
        load(X[i:i+1] -> x)
        if i*s > 8:
            mul(x, 2.0, x)
        store(x -> Y[i:i+1])
}}"""

#: Conditions of many kinds in one sketch.
TOGETHER = f"""sketch together {{
    symbols: N <= 64, P;
    params: s: i64 = 1; k: i8 = 0; a: f32 = 4.0;
    let: W = N//s; r = sqrt(a);
    tensors: IDX[P]: in i64; FROM[N]: in i64; X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    require: P >= 1 and W < 40;
    j = fetch(IDX[0])
    first = fetch(FROM[j])
    {GRID}
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, r, x)
        if first + k > 0:
            mul(x, 2.0, x)
        store(x -> Y[i*T:(i+1)*T])
}}"""


def n(size: int, text: str = "", **params: Value) -> Launch:
    """A launch at N."""
    return Launch({"N": size}, params, text)


def fives(text: str = "", **params: Value) -> Launch:
    """A launch on integers that are all 5."""
    return Launch({"N": 17}, params, text, contents={"X": 5})


def case(name: str, kind: Kind, text: str, keep: list[Launch], broken: list[Launch]) -> Refusal:
    return Refusal(name, kind, text, tuple(keep), tuple(broken))


#: What the Python module around TOGETHER says of (N, P, the index, params).
MODULE_SAYS = [
    ((65, 1, 0, {"s": 5}), "the sketch needs N <= 64 (N = 65)"),
    ((17, 1, 0, {"s": 0}), "the sketch needs s >= 1 (s = 0)"),
    ((17, 0, 0, {}), "the sketch needs P >= 1 and W < 40 (P = 0, W = 17)"),
    ((50, 1, 0, {}), "the sketch needs P >= 1 and W < 40 (P = 1, W = 50)"),
    ((17, 1, 0, {"k": 128}), "the sketch needs -128 <= k and k <= 127 (k = 128)"),
    ((17, 1, 0, {"a": -0.5}), "the sketch needs a >= 0 (a = -0.5)"),
    ((17, 1, 17, {}), "the sketch needs 0 <= j < N"),
    ((17, 1, -1, {}), "the sketch needs 0 <= j < N"),
]

SIZES = {"M": 3, "N": 37}
WHOLE = {**SIZES, "C": 12}

REFUSALS = [
    case(
        "bound",
        Kind.BOUND,
        BOUND,
        [n(0), n(1), n(16)],
        [n(17, "N <= 16"), n(4_000_000, "N <= 16")],
    ),
    case(
        "size",
        Kind.SIZE,
        BOUND.replace("bound", "size", 1),
        [n(5)],
        [n(-1, "N >= 0"), n(-(2**63), "N >= 0")],
    ),
    case(
        "solved",
        Kind.SIZE,
        filled("solved", "symbols: N; tensors: X[N + 3]: in f32; Y[N]: out f32;", "N"),
        [n(0), n(17)],
        [Launch({"N": -1}, {}, "N >= 0", shapes={"X": (2,)})],
    ),
    case(
        "written",
        Kind.REQUIRE,
        filled(
            "written",
            "symbols: N; tensors: X[N]: in f32; Y[N]: out f32; require: N % 2 == 0 or N > 40;",
            "N",
        ),
        [n(0), n(2), n(41)],
        [n(1, "N % 2 == 0"), n(17, "N > 40")],
    ),
    case(
        "divisor",
        Kind.DERIVED,
        filled(
            "divisor",
            "symbols: N; params: s: i64; let: W = N//s; tensors: X[N]: in f32; Y[W]: out f32;",
            "W",
        ),
        [n(37, s=1), n(37, s=3), n(2, s=5)],
        [n(37, "s >= 1", s=0), n(37, "s >= 1", s=-1)],
    ),
    case(
        "extent",
        Kind.DERIVED,
        filled(
            "extent",
            "symbols: N, K; let: W = N - K + 1;"
            " tensors: X[N]: in f32; F[K]: in f32; Y[W]: out f32;",
            "W",
        ),
        [Launch({"N": 17, "K": 1}), Launch({"N": 4, "K": 5})],
        [Launch({"N": 3, "K": 5}, {}, "W >= 0")],
    ),
    case(
        "view",
        Kind.DERIVED,
        VIEW,
        [Launch({"M": 51, "N": 3, "C": 17})],
        [Launch({"M": 50, "N": 3, "C": 17}, {}, "N*C == M")],
    ),
    case(
        "step",
        Kind.DERIVED,
        STEP,
        [n(17, s=1), n(5, s=7)],
        [n(17, "s >= 1", s=0), n(17, "s >= 1", s=-1)],
    ),
    case(
        "subscript",
        Kind.DERIVED,
        SUBSCRIPT,
        [Launch(SIZES, {"row": 0}), Launch(SIZES, {"row": 2})],
        [Launch(SIZES, {"row": 3}, "row <= M-1"), Launch(SIZES, {"row": -1}, "0 <= row")],
    ),
    case("tile", Kind.DERIVED, TILE, [n(3), n(20)], [n(2, "0 <= W")]),
    case(
        "operand",
        Kind.DERIVED,
        OPERANDS,
        [fives(), fives(d=-5, m=1, s=31, p=0)],
        [
            fives("d != 0", d=0),
            fives("m != 0", m=0),
            fives("s >= 0", s=-1),
            fives("s < 32", s=32),
            fives("p >= 0", p=-1),
        ],
    ),
    case(
        "param",
        Kind.PARAM,
        PARAM,
        [n(1, k=-128, m=255), n(1, k=127, m=0)],
        [
            n(1, "-128 <= k and k <= 127", k=128),
            n(1, "-128 <= k and k <= 127", k=-129),
            n(1, "0 <= m and m <= 255", k=0, m=256),
            n(1, "0 <= m and m <= 255", k=0, m=2**40),
        ],
    ),
    case(
        "domain",
        Kind.DOMAIN,
        DOMAIN,
        [n(17), n(17, a=0.0, f=-1000.0, g=-2.0, h=3.0), n(17, g=0.0, h=0.0, u=-1.0, z=-2.5)],
        [
            n(17, "a >= 0", a=-1.0),
            n(17, "b > 0", b=0.0),
            n(17, "c > 0", c=0.0),
            n(17, "d > 0", d=-1.0),
            n(17, "f <= 709.78", f=710.0),
            n(17, "g > 0 or", g=0.0, h=-1.0),
            n(17, "g > 0 or", g=-2.0, h=0.5),
            n(17, "log2(abs(g)) < 1024", g=1e300, h=2.0),
            n(17, "u != 0", u=0.0),
            n(17, "abs(z) <", z=1e19),
            n(17, "abs(z) <", z=float("nan")),
        ],
    ),
    case(
        "fetched",
        Kind.FETCH,
        FETCH,
        [Launch({"N": 17, "P": 1}, contents={"IDX": 16, "FROM": 1})],
        [
            Launch({"N": 17, "P": 1}, {}, "0 <= k < N", contents={"IDX": 17, "FROM": 1}),
            Launch({"N": 17, "P": 1}, {}, "0 <= k < N", contents={"IDX": -1, "FROM": 1}),
        ],
    ),
    case(
        "elements",
        Kind.ELEMENTS,
        ELEMENTS,
        [Launch(SIZES)],
        [Launch({"M": 2**25, "N": 2**25}, {}, "fewer than 2**48 elements")],
    ),
    case("width", Kind.WIDTH, WIDTH, [n(17, k=1), n(17, k=2**50)], [n(17, "< 2**63", k=2**61)]),
    case(
        "number",
        Kind.FETCHED,
        FETCHED,
        [Launch({"N": 17}, contents={"I": 2}), Launch({"N": 17}, contents={"I": -(2**50)})],
        [Launch({"N": 17}, {}, "< 2**63", contents={"I": 2**61})],
    ),
    case(
        "repeat",
        Kind.REPEAT,
        REPEAT,
        [Launch(SIZES), Launch(SIZES, shapes={"X": (1, 37)})],
        [Launch(SIZES, {}, "X_extent_0 == 1 or X_extent_0 == M", shapes={"X": (2, 37)})],
    ),
    case(
        "seen_whole",
        Kind.REPEAT,
        SEEN_WHOLE,
        [Launch(SIZES)],
        [Launch(SIZES, {}, "X_extent_0 == M", shapes={"X": (1, 37)})],
    ),
    case(
        "bucket",
        Kind.BUCKET,
        BUCKET,
        [n(1, k=1), n(1, k=17)],
        [n(1, "k <= 1048576, the widest tile", k=2**20 + 1)],
    ),
    case(
        "programs",
        Kind.PROGRAMS,
        PROGRAMS,
        [n(1, k=1), n(1, k=5)],
        [n(1, "fewer than 2**31 programs", k=2**31)],
    ),
]

#: Limits of some targets only.
LIMITS = (Kind.BUCKET, Kind.PROGRAMS)
#: Sizes that no array has: only the bare C function can be told of them.
NO_ARRAYS = (Kind.SIZE, Kind.ELEMENTS)
