"""The rule that says which point serves which sizes leads every measured size to one that does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sketchc.runtime.tune.rule import Leaf, Question, Served, follow, learn, lines

SIZES = st.lists(
    st.tuples(st.integers(1, 5000), st.sampled_from([1, 7, 64, 4096])),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(SIZES, st.data())
def test_every_measured_size_is_served(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    points = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
    served = [Served({"M": m, "N": n}, tuple(data.draw(points))) for m, n in sizes]
    rule = learn(served)
    assert all(follow(rule, size.symbols) in size.points for size in served)


def test_a_point_that_serves_all_is_asked_nothing() -> None:
    served = [Served({"N": 10}, (1, 0)), Served({"N": 90}, (2, 0)), Served({"N": 900}, (0,))]
    assert learn(served) == Leaf(0)


def test_it_asks_for_the_symbol_that_decides() -> None:
    """In the middle between the sizes, by their ratio; and it reads as it is meant."""
    served = [
        Served({"M": m, "N": n}, (0 if n < 1000 else 1,)) for m in (16, 4096) for n in (64, 4096)
    ]
    rule = learn(served)
    assert rule == Question("N", 512, Leaf(0), Leaf(1))
    assert list(lines(rule, ["T=64", "T=256"])) == ["N <= 512:", "  T=64", "else:", "  T=256"]
    assert [follow(rule, {"M": 1, "N": n}) for n in (1, 512, 513, 9999)] == [0, 0, 1, 1]
