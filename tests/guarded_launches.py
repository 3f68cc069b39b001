"""Launch conditions of statements under guards: sizes that break them launch where the guard does
not hold, and are refused where it does."""

from __future__ import annotations

from launch_cases import GRID, Launch, Refusal, Value, case

from sketchc.launch.conditions import Kind


def scaled(name: str, sections: str, body: str) -> str:
    """A sketch that copies X to Y, changed in each tile by `body`."""
    inner = "\n        ".join(body.strip("\n").split("\n"))
    return f"""sketch {name} {{
    {sections}
    constexpr: T = 16;
    {GRID}
    for i in range(0, N, T):
        x = alloc([T])
        n = iota(T, i, N)
        load(X[i:i+T] -> x)
        {inner}
        store(x -> Y[i:i+T])
}}"""


def tensors(more: str) -> str:
    return f"tensors: X[N]: in f32; {more}; Y[N]: out f32;"


def at(text: str = "", absent: str = "", **values: Value) -> Launch:
    """A launch with sizes (capitals) and params; `absent`: a tensor that is not given."""
    sizes = {name: int(value) for name, value in values.items() if name.isupper()}
    params = {name: value for name, value in values.items() if not name.isupper()}
    return Launch(sizes, params, text, absent=(absent,) if absent else ())


FETCHED = scaled(
    "guarded_fetch",
    "symbols: N, B; params: g: i64 = 0; " + tensors("S[B]: in f32?"),
    """
if present(S):
    b = fetch(S[g])
    add(x, b, x)
""",
)

DIVISOR = scaled(
    "guarded_divisor",
    "symbols: N, G; " + tensors("S[G]: in f32?"),
    """
if present(S):
    s = alloc([T])
    load(S[n % G] -> s)
    mul(x, s, x)
""",
)

SIZES = scaled(
    "guarded_by_a_size",
    "symbols: N, G; " + tensors("S[G]: in f32"),
    """
if G > 0:
    s = alloc([T])
    load(S[n % G] -> s)
    mul(x, s, x)
""",
)

COLUMN = scaled(
    "guarded_column",
    "symbols: N, H; " + tensors("S[N, H]: in f16?"),
    """
if not present(S):
    mul(x, 2.0, x)
else:
    s = alloc([T])
    load(S[i:i+T, H - 1] -> s)
    add(x, s, x)
""",
)

VIEW = scaled(
    "guarded_view",
    "symbols: N, E, A, B; "
    + tensors("S[E]: in f32?; P[A]: in f32; Q[B]: in f32")
    + " views: V[A, B] = S;",
    """
if present(S):
    if A > 0 and B > 0:
        s = alloc([T])
        load(V[n % A, n % B] -> s)
        add(x, s, x)
""",
)

EXTENT = scaled(
    "guarded_extent",
    "symbols: N; " + tensors("S[N - 3]: in f32?"),
    """
if present(S):
    s = alloc([T])
    load(S[i:i+T] -> s, pad=0.0)
    add(x, s, x)
""",
)

MODE = scaled(
    "guarded_by_a_param",
    "symbols: N; params: mode: i32 = 0; k: i64 = 0; " + tensors("S[N]: in f32"),
    """
if mode == 1 or mode == 2:
    for j in range(0, 4, k):
        add(x, j, x)
else:
    if mode == 3:
        s = alloc([T])
        load(S[n // k] -> s)
        add(x, s, x)
""",
)

LETS = scaled(
    "guarded_lets",
    "symbols: N, G; params: a: f64 = 4.0; "
    + tensors("S[G]: in f32?")
    + " let: per = ceil(N, G); last = per - 1; share = 1.0/G; root = sqrt(a);",
    """
if present(S):
    s = alloc([T])
    load(S[n // per] -> s)
    add(x, s, x)
    mul(x, share, x)
    add(x, last, x)
    if G > 1:
        mul(x, root, x)
""",
)

SCALARS = scaled(
    "guarded_scalars",
    "symbols: N, G; params: a: f64 = 4.0; mode: i64 = 0; " + tensors("S[G]: in f32?"),
    """
if present(S):
    mul(x, 1.0/G + N // G, x)
if mode == 1:
    mul(x, sqrt(a), x)
    s = alloc([T])
    fill(N // max(mode, 1), s)
    add(x, s, x)
""",
)

HOST = f"""sketch guarded_launch {{
    symbols: N, G;
    tensors: X[N]: in f32; S[G]: in f32?; Y[N]: out f32;
    constexpr: T = 16;
    if present(S):
        {GRID}
        for i in range(0, N, T):
            x = alloc([T])
            n = iota(T, i, N)
            load(S[n % G] -> x)
            store(x -> Y[i:i+T])
    else:
        {GRID}
        for i in range(0, N, T):
            x = alloc([T])
            load(X[i:i+T] -> x)
            store(x -> Y[i:i+T])
}}"""

GUARDED: list[Refusal] = [
    case(
        "guarded_fetch",
        Kind.DERIVED,
        FETCHED,
        [at(N=17, B=3, g=2), at(N=17, B=0, g=5, absent="S"), at(N=0, B=0, g=-1, absent="S")],
        [at("g <= B - 1", N=17, B=3, g=3), at("0 <= g", N=17, B=3, g=-1)],
    ),
    case(
        "guarded_divisor",
        Kind.DERIVED,
        DIVISOR,
        [at(N=17, G=3), at(N=17, G=0, absent="S")],
        [at("G >= 1", N=17, G=0)],
    ),
    case("guarded_by_a_size", Kind.SIZE, SIZES, [at(N=17, G=3), at(N=17, G=0)], []),
    case(
        "guarded_column",
        Kind.DERIVED,
        COLUMN,
        [at(N=17, H=3), at(N=17, H=1), at(N=17, H=0, absent="S")],
        [at("0 < H", N=17, H=0)],
    ),
    case(
        "guarded_view",
        Kind.DERIVED,
        VIEW,
        [at(N=17, E=6, A=2, B=3), at(N=17, E=0, A=2, B=3, absent="S")],
        [at("A*B == E", N=17, E=5, A=2, B=3)],
    ),
    case(
        "guarded_extent",
        Kind.DERIVED,
        EXTENT,
        [at(N=19), at(N=3), at(N=2, absent="S"), at(N=0, absent="S")],
        [],
    ),
    case(
        "guarded_by_a_param",
        Kind.DERIVED,
        MODE,
        [
            at(N=17, mode=0, k=0),
            at(N=17, mode=1, k=2),
            at(N=17, mode=3, k=5),
            at(N=5, mode=4, k=-9),
        ],
        [at("k >= 1", N=17, mode=1, k=0), at("k >= 1", N=17, mode=3, k=-1)],
    ),
    case(
        "guarded_lets",
        Kind.DERIVED,
        LETS,
        [
            at(N=17, G=3, a=4.0),
            at(N=17, G=0, a=-1.0, absent="S"),
            at(N=17, G=17, a=2.0),
            at(N=0, G=0, absent="S"),
        ],
        [at("G >= 1", N=17, G=0), at("per >= 1", N=0, G=3), at("a >= 0", N=17, G=3, a=-1.0)],
    ),
    case(
        "guarded_scalars",
        Kind.DERIVED,
        SCALARS,
        [
            at(N=17, G=3),
            at(N=17, G=0, absent="S"),
            at(N=17, G=0, a=-4.0, absent="S"),
            at(N=17, G=2, mode=1, a=9.0),
        ],
        [at("G >= 1", N=17, G=0), at("a >= 0", N=17, G=3, mode=1, a=-1.0)],
    ),
    case(
        "guarded_launch",
        Kind.DERIVED,
        HOST,
        [at(N=17, G=3), at(N=17, G=0, absent="S")],
        [at("G >= 1", N=17, G=0)],
    ),
]
