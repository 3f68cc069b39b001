"""The launch condition that 64 bits hold every integer: what it accepts, wrapped arithmetic gets
right at every lane; what it leaves out cannot fail."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import BINARY, evaluate, host_values
from sketchc.ir.show import show
from sketchc.ir.walk import children
from sketchc.launch.index_width import index_width
from sketchc.launch.magnitudes import LARGEST
from sketchc.parsing.parser import parse

EXAMPLES = Path(__file__).parents[2] / "examples"


def typed(text: str) -> ir.Sketch:
    """The sketch with its domains, unproved."""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    return infer_domains(sketch)[0]


# ---------------------------------------------------------------- random expressions

PARAMS = ("j", "k", "m")
LITERALS = (0, 1, 2, 3, 7, 64, 1000, 2**31, 2**40, 2**61, 2**62, 2**63 - 1, 6364136223846793005)


def random_expression(generator: random.Random, depth: int) -> str:
    """An integer expression over a size, params, a loop variable and lanes."""
    if depth == 0 or generator.random() < 0.15:
        names = ("N", *PARAMS, "i", "i", "iota(T)", "iota(T)", "L")
        return generator.choice((*names, str(generator.choice(LITERALS))))
    left, right = (random_expression(generator, depth - 1) for _ in range(2))
    match generator.choice("++--**/%cmMn"):
        case "/":
            return f"({left})//{divisor(generator)}"
        case "%":
            return f"({left})%{divisor(generator)}"
        case "c":
            return f"cdiv({left}, {divisor(generator)})"
        case "m":
            return f"min({left}, {right})"
        case "M":
            return f"max({left}, {right})"
        case "n":
            return f"(-({left}))"
        case operator:
            return f"(({left}) {operator} ({right}))"


def divisor(generator: random.Random) -> str:
    literals = ("3", "4096", str(2**62))
    names = ("N", "k", "m", "(k + 1)", "(N*m)", "(k*2)", "max(i, 1)", "(k % m + 1)", "min(k, m)")
    return generator.choice((*literals, *names, "(k % m)"))


def random_text(seed: int) -> str:
    generator = random.Random(seed)
    index = random_expression(generator, generator.randint(1, 4))
    guard = random_expression(generator, generator.randint(0, 2))
    let = random_expression(generator, 2).replace("iota(T)", "k").replace("i", "j")
    let = let.replace("mjn", "min").replace("cdjv", "cdiv").replace("L", "m")
    stop = generator.choice(("N", "N", "3", "N*2", "min(N, k)"))
    return f"""sketch s {{
    symbols: N;
    params: j: i64; k: i64; m: i64;
    let: L = {let};
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    constexpr: T = 4;
    require: k >= 1 and m >= 1 and N >= 1;

    @llm_hint("parallel")
    for i in range({stop}):
        x = alloc([T])
        p = {index} + 0*iota(T)
        load(X[p] -> x, pad=0, where=({guard}) + 0*iota(T) < {random_expression(generator, 1)})
        store(x -> Y[i*T:(i+1)*T])
}}
"""


# ---------------------------------------------------------------- exact and wrapped


def parts(expression: ir.Expr) -> Iterator[ir.Expr]:
    yield expression
    for child in children(expression):
        yield from parts(child)


def wrap(value: int) -> int:
    return (value + LARGEST) % (2 * LARGEST) - LARGEST


def lanes_of(expression: ir.Expr, values: Mapping[str, object], wrapped: bool) -> list[int] | None:
    """The expression at four lanes, in integers without limits or in 64 bits; None where a divisor
    is 0."""

    def inner(part: ir.Expr) -> list[int]:
        match part:
            case ir.Literal(value):
                return [int(value)] * 4
            case ir.Ref(name):
                found = values[name]
                return list(found) if isinstance(found, list) else [int(found)] * 4  # type: ignore[call-overload]
            case ir.Iota(_, lower, _):
                return [fit(low + lane) for lane, low in enumerate(inner(lower))]
            case ir.Unary(_, operand):
                return [fit(-value) for value in inner(operand)]
            case ir.Binary(operator, left, right):
                pairs = zip(inner(left), inner(right), strict=True)
                return [fit(int(BINARY[operator](a, b))) for a, b in pairs]
            case _:
                raise AssertionError(part)

    def fit(value: int) -> int:
        return wrap(value) if wrapped else value

    try:
        return inner(expression)
    except ZeroDivisionError:
        return None


def kernel_expressions(sketch: ir.Sketch) -> list[ir.Expr]:
    """What the one loop of a random sketch computes with."""
    (loop,) = (s for s in sketch.phases[0].body if isinstance(s, ir.For))
    found: list[ir.Expr] = []
    for statement in loop.body:
        if isinstance(statement, ir.Bind):
            found.append(statement.value)
        if isinstance(statement, ir.Load):
            found += [statement.where] if statement.where is not None else []
            found += statement.guards
    return found


def agree(sketch: ir.Sketch, symbols: dict[str, int], params: dict[str, int]) -> None:
    """Every part has in 64 bits the value that it has without limits."""
    values: dict[str, object] = dict(host_values(sketch, symbols, params))
    for let in sketch.lets:
        for part in parts(let.value):
            exact = lanes_of(part, values, wrapped=False)
            assert exact is None or max(map(abs, exact)) < LARGEST, show(part)
    (loop,) = (s for s in sketch.phases[0].body if isinstance(s, ir.For))
    trips = int(evaluate(loop.stop, values))  # type: ignore[arg-type]
    for trip in sorted({0, 1, trips // 2, trips - 1}):
        if not 0 <= trip < trips:
            continue
        values[loop.variable] = trip
        for bind in (s for s in loop.body if isinstance(s, ir.Bind)):
            values[bind.name] = lanes_of(bind.value, values, wrapped=False)
            if values[bind.name] is None:
                return
        for expression in kernel_expressions(sketch):
            for part in parts(expression):
                if isinstance(part, ir.Unary) and part.operator == "not":
                    continue
                exact = lanes_of(part, values, wrapped=False)
                assert exact == lanes_of(part, values, wrapped=True), show(part)
                assert exact is None or max(map(abs, exact)) < LARGEST, show(part)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(250))
def test_what_the_condition_accepts_fits(seed: int) -> None:
    tree, found = parse(Source("test.sketch", random_text(seed)))
    assert tree is not None, found
    sketch, _ = elaborate(tree.sketches[0], {})
    if sketch is None:  # a literal of more than 64 bits after folding, say
        pytest.skip("not a sketch")
    width = index_width(sketch)
    generator = random.Random(seed)
    accepted = 0
    for _ in range(40):
        symbols = {"N": generator.choice((1, 2, 5, 1000, 2**20, 2**31, 2**40, 2**47))}
        bits = generator.choice((3, 16, 31, 45, 60, 63))
        params = {name: generator.randrange(1, 2**bits) for name in PARAMS}
        params["j"] *= generator.choice((1, -1))
        try:
            values = host_values(sketch, symbols, params)
        except ZeroDivisionError:
            continue
        if width.holds(values):
            accepted += 1
            agree(sketch, symbols, params)
    if width.hopeless is not None:
        assert accepted == 0


def test_random_expressions_are_accepted_and_refused() -> None:
    """The property above would hold of a condition that refuses everything."""
    outcomes = []
    for seed in range(60):
        tree, _ = parse(Source("test.sketch", random_text(seed)))
        assert tree is not None
        sketch, _ = elaborate(tree.sketches[0], {})
        if sketch is None:
            continue
        for size in (3, 2**45, 2**62):
            params = dict.fromkeys(PARAMS, size)
            try:
                values = host_values(sketch, {"N": 5}, params)
            except ZeroDivisionError:
                continue
            outcomes.append(index_width(sketch).holds(values))
    assert outcomes.count(True) > 40
    assert outcomes.count(False) > 40


# ---------------------------------------------------------------- what is left out


def test_sizes_alone_are_not_checked() -> None:
    """A tensor that exists has fewer than 2^48 elements."""
    for name in ("add", "rms", "matmul", "softmax", "causal_attention", "triangular_matmul"):
        text = (EXAMPLES / f"{name}.sketch").read_text("utf-8")
        assert index_width(typed(text)).terms == (), name


def test_products_that_grow_are_told_soon() -> None:
    """Sixty squares of a sum: refused, and not expanded."""
    squares = "\n".join(f"        m{n} = m{n - 1}*m{n - 1}" for n in range(1, 60))
    text = f"""sketch s {{
    symbols: N, M, K;
    tensors: X[N, M, K]: in f32; Y[N]: out f32 = 0;

    @llm_hint("parallel")
    for i in range(N):
        m0 = i + N + M + K + 1
{squares}
        x = alloc([1])
        load(X[i:i+1, 0, 0] -> x, where=iota(1) < m59)
        store(x -> Y[i:i+1])
}}
"""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    place = index_width(sketch).hopeless
    assert place is not None
    assert place.line == 11
