"""The quick decision procedure against isl: it may fail to refute, but never refutes wrongly."""

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.checker.facts import (
    ONE,
    Atoms,
    Fact,
    Linear,
    Space,
    add,
    constant,
    refuted,
    relation,
    scale,
)
from sketchc.ir.evaluate import BINARY

COEFFICIENTS = st.integers(-4, 4)
NAMES = ("a", "b", "c")


@st.composite
def systems(draw: st.DrawFn) -> tuple[Atoms, list[Fact], list[int]]:
    """Random facts over three variables, quotients, minima and maxima of them."""
    atoms = Atoms()
    variables = [atoms.variable(name) for name in NAMES]

    def form(depth: int) -> dict[int, int]:
        result: dict[int, int] = {ONE: value} if (value := draw(st.integers(-9, 9))) else {}
        for variable in variables:
            result = add(result, {variable: 1}, draw(COEFFICIENTS))
        if depth and draw(st.booleans()):
            kind = draw(st.sampled_from(("floor", "min", "max")))
            if kind == "floor":
                extra = atoms.floor(form(depth - 1), draw(st.integers(2, 5)))
            else:
                extra = atoms.extremum(kind, form(depth - 1), form(depth - 1))
            result = add(result, extra, draw(COEFFICIENTS))
        return result

    count = draw(st.integers(1, 5))
    facts = [Fact(form(1), draw(st.integers(0, 4)) == 0) for _ in range(count)]
    box = [
        Fact(add(scale({variable: 1}, sign), constant(6)))
        for variable in variables
        for sign in (1, -1)
    ]
    return atoms, [*facts, *box], variables


@settings(max_examples=300, deadline=None)
@given(systems())
def test_quick_refutation_is_sound(system: tuple[Atoms, list[Fact], list[int]]) -> None:
    atoms, facts, variables = system
    if refuted(atoms, (), tuple(facts)):
        space = Space(atoms, frozenset(), variables)
        assert space.solve(facts).empty


@st.composite
def digits(draw: st.DrawFn) -> tuple[Atoms, list[Fact], list[int]]:
    """Bounds of a sum of digits of one number, written as quotients of numbers that differ."""
    atoms = Atoms()
    variables = [atoms.variable(name) for name in NAMES]
    number = {variable: draw(st.integers(0, 4)) for variable in variables}
    number = {variable: count for variable, count in number.items() if count}
    total: Linear = {}
    for _ in range(draw(st.integers(1, 3))):
        fine, times = draw(st.integers(1, 4)), draw(st.integers(2, 4))
        one = atoms.floor(add(number, constant(draw(st.integers(-5, 5)))), fine)
        other = atoms.floor(number, fine * times)
        total = add(total, add(one, other, -times), draw(st.sampled_from((-2, -1, 1, 2))))
    bound = constant(draw(st.integers(-12, 12)))
    box = [Fact({variable: 1, ONE: 6}) for variable in variables]
    box += [Fact({variable: -1, ONE: 6}) for variable in variables]
    return atoms, [Fact(add(total, bound)), *box], variables


@settings(max_examples=300, deadline=None)
@given(digits())
def test_refutation_by_digits_is_sound(system: tuple[Atoms, list[Fact], list[int]]) -> None:
    atoms, facts, variables = system
    if refuted(atoms, (), tuple(facts)):
        assert not any(
            all(_holds(atoms, fact, point) for fact in facts) for point in _points(variables)
        )


def test_the_digits_of_a_place_in_windows_are_bounded_without_isl() -> None:
    """`j//56//7*8 + j%56//7` for j = 256*t + lane < 3136: the window that a pixel is in."""
    atoms = Atoms()
    tile, lane = atoms.variable("t"), atoms.variable("lane")
    place = {tile: 256, lane: 1}
    upper = atoms.floor(place, 56)
    lower = atoms.floor(add(place, upper, -56), 7)
    window = add(scale(atoms.floor(upper, 7), 8), lower)
    known = (
        Fact({tile: 1}),
        Fact({lane: 1}),
        Fact({lane: -1, ONE: 255}),
        Fact(add(constant(3135), place, -1)),
    )
    assert refuted(atoms, known, (Fact(add(window, constant(-64))),))
    assert not refuted(atoms, known, (Fact(add(window, constant(-63))),))


@settings(max_examples=200, deadline=None)
@given(systems())
def test_points_of_isl_satisfy_the_facts(system: tuple[Atoms, list[Fact], list[int]]) -> None:
    """The translation to isl keeps quotients, minima and maxima exact, both ways."""
    atoms, facts, variables = system
    answer = Space(atoms, frozenset(), variables).solve(facts)
    found = next(
        (point for point in _points(variables) if all(_holds(atoms, f, point) for f in facts)),
        None,
    )
    assert answer.empty == (found is None)
    if not answer.empty:
        assert all(_holds(atoms, fact, answer.point) for fact in facts)


@st.composite
def systems_of_products(draw: st.DrawFn) -> tuple[Atoms, list[Fact], list[int]]:
    """Random facts over three variables and products of them, some of which have a known sign."""
    atoms = Atoms()
    variables = [atoms.variable(name, draw(st.integers(0, 3)) == 0) for name in NAMES]
    terms: list[Linear] = [{variable: 1} for variable in variables]
    for _ in range(draw(st.integers(1, 3))):
        one, two = draw(st.sampled_from(terms[:3])), draw(st.sampled_from(terms))
        terms.append(atoms.multiply(one, two))
    terms.append(atoms.floor(draw(st.sampled_from(terms)), draw(st.integers(2, 3))))
    facts = [
        Fact(
            add({variable: sign}, constant(draw(st.integers(-4, 2)))), draw(st.integers(0, 5)) == 0
        )
        for variable in variables
        for sign in draw(st.sampled_from(((), (1,), (1,), (-1,))))
    ]
    for _ in range(draw(st.integers(1, 5))):
        form: dict[int, int] = {ONE: draw(st.integers(-9, 9))}
        for _ in range(draw(st.integers(1, 3))):
            form = add(form, draw(st.sampled_from(terms)), draw(st.sampled_from((-2, -1, 1, 2))))
        facts.append(Fact({a: c for a, c in form.items() if c}, draw(st.integers(0, 4)) == 0))
    return atoms, facts, variables


@settings(max_examples=200, deadline=None)
@given(systems_of_products())
def test_quick_refutation_of_products_is_sound(
    system: tuple[Atoms, list[Fact], list[int]],
) -> None:
    atoms, facts, variables = system
    if refuted(atoms, (), tuple(facts)):
        signed = [variable for variable in variables if atoms.non_negative[variable]]
        for point in _points(variables):
            if all(point[variable] >= 0 for variable in signed):
                assert not all(_holds(atoms, fact, point) for fact in facts)


def test_a_fact_gives_a_param_its_sign() -> None:
    """From g >= 1 and g*s >= 1 follows s >= 1, which without the first does not."""
    atoms = Atoms()
    groups, size = {atoms.variable("g"): 1}, {atoms.variable("s"): 1}
    some = Fact(add(atoms.multiply(groups, size), constant(-1)))
    negative = Fact(scale(size, -1))
    positive = Fact(add(groups, constant(-1)))
    assert refuted(atoms, (positive, some), (negative,))
    assert not refuted(atoms, (some,), (negative,))
    assert not refuted(atoms, (Fact(add(groups, constant(1))), some), (negative,))
    assert not refuted(atoms, (Fact(scale(groups, -1)), some), (negative,))


def _points(variables: list[int]) -> list[dict[int, int]]:
    span = range(-6, 7)
    return [
        dict(zip(variables, values, strict=True))
        for values in ((a, b, c) for a in span for b in span for c in span)
    ]


def _value(atoms: Atoms, form: object, point: dict[int, int]) -> int:
    from sketchc.checker.facts import Extremum, Floor, Product

    assert isinstance(form, dict)
    total = 0
    for atom, coefficient in form.items():
        match atoms.definitions[atom]:
            case Floor(numerator, divisor):
                value = _value(atoms, numerator, point) // divisor
            case Extremum(operator, left, right):
                pair = (_value(atoms, left, point), _value(atoms, right, point))
                value = min(pair) if operator == "min" else max(pair)
            case Product(factors):
                value = prod(_value(atoms, {factor: 1}, point) for factor in factors)
            case _:
                value = 1 if atom == ONE else point[atom]
        total += coefficient * value
    return total


def _holds(atoms: Atoms, fact: Fact, point: dict[int, int]) -> bool:
    value = _value(atoms, fact.form, point)
    return value == 0 if fact.equality else value >= 0


def test_the_plain_questions_are_decided_without_isl() -> None:
    """Tile loops over ragged and divisible extents are settled by the quick part alone."""
    atoms = Atoms()
    m = {atoms.variable("M", non_negative=True): 1}
    i = {atoms.variable("i", non_negative=True): 1}
    trips = atoms.floor(add(m, constant(63)), 64)
    loop = [Fact(i), Fact(add(add(trips, i, -1), constant(-1)))]
    inside = add(add(m, i, -64), constant(-1))  # i*64 <= M - 1
    outside = Fact(add(scale(inside, -1), constant(-1)))
    assert refuted(atoms, tuple(loop), (outside,))
    whole = add(add(m, i, -64), constant(-64))  # the last tile is full
    ragged = Fact(add(scale(whole, -1), constant(-1)))
    assert not refuted(atoms, tuple(loop), (ragged,))
    divisible = Fact(add(m, atoms.floor(m, 64), -64), equality=True)
    assert refuted(atoms, (*loop, divisible), (ragged,))


@given(st.sampled_from(("==", "<", "<=", ">", ">=")), st.integers(-9, 9), st.integers(-9, 9))
def test_relations_hold_where_the_comparison_does(operator: str, left: int, right: int) -> None:
    gap = {ONE: right - left} if right != left else {}
    fact = relation(operator, gap)
    value = fact.form.get(ONE, 0)
    assert (value == 0 if fact.equality else value >= 0) == BINARY[operator](left, right)


@given(
    *(st.dictionaries(st.integers(0, 3), st.integers(-4, 4).filter(bool)) for _ in range(2)),
    st.tuples(*(st.integers(-5, 5) for _ in NAMES)),
)
def test_products_and_sums_have_the_values_of_their_parts(
    left: dict[int, int], right: dict[int, int], point: tuple[int, ...]
) -> None:
    atoms = Atoms()
    for name in NAMES:
        atoms.variable(name)
    values = (1, *point)

    def value(form: Linear) -> int:
        return sum(c * prod(values[f] for f in atoms.factors(atom)) for atom, c in form.items())

    product, total = atoms.multiply(left, right), add(left, right, -2)
    assert value(product) == value(left) * value(right)
    assert value(total) == value(left) - 2 * value(right)
    assert 0 not in (*product.values(), *total.values())
