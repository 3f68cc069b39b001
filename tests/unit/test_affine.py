"""The quick decision procedure against isl: it may fail to refute, but never refutes wrongly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.checker.affine import ONE, Atoms, Fact, add, constant, scale
from sketchc.checker.feasibility import infeasible
from sketchc.checker.polyhedra import Space
from sketchc.checker.scope import relevant

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
    if infeasible(relevant(atoms, (), tuple(facts))):
        space = Space(atoms, frozenset(), variables)
        assert space.solve(facts).empty


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


def _points(variables: list[int]) -> list[dict[int, int]]:
    span = range(-6, 7)
    return [
        dict(zip(variables, values, strict=True))
        for values in ((a, b, c) for a in span for b in span for c in span)
    ]


def _value(atoms: Atoms, form: object, point: dict[int, int]) -> int:
    from sketchc.checker.affine import Extremum, Floor

    assert isinstance(form, dict)
    total = 0
    for atom, coefficient in form.items():
        match atoms.definitions[atom]:
            case Floor(numerator, divisor):
                value = _value(atoms, numerator, point) // divisor
            case Extremum(operator, left, right):
                pair = (_value(atoms, left, point), _value(atoms, right, point))
                value = min(pair) if operator == "min" else max(pair)
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
    assert infeasible(relevant(atoms, tuple(loop), (outside,)))
    whole = add(add(m, i, -64), constant(-64))  # the last tile is full
    ragged = Fact(add(scale(whole, -1), constant(-1)))
    assert not infeasible(relevant(atoms, tuple(loop), (ragged,)))
    divisible = Fact(add(m, atoms.floor(m, 64), -64), equality=True)
    assert infeasible(relevant(atoms, (*loop, divisible), (ragged,)))
