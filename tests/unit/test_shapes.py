"""The sizes at which kernels are tried: what is drawn from the seed, and what ranges add."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.api import sketches
from sketchc.base.types import DType
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.shapes import (
    INTERPRETED,
    NATIVE,
    DrawnSizes,
    Limits,
    Trials,
    candidates,
    is_prime,
)
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.tasks.outline import Domain, read_hints
from sketchc.runtime.tasks.signature import signature_plan

RELU = Path(__file__).resolve().parents[2] / "examples" / "relu.sketch"
FREE = frozenset({"M", "N"})
SEEDS = range(40)


@pytest.fixture(scope="module")
def tiled() -> Plan:
    """A sketch whose tiles go over M*N."""
    _, tree = sketches.load_sketch(str(RELU))
    return build_plan(tree, "cpp").plan


@pytest.fixture(scope="module")
def signature(tiled: Plan) -> Plan:
    """The same without phases: what a kernel without a sketch is known by."""
    return signature_plan(tiled.sketch, "cpp")


def bound(plan: Plan, rows: int, columns: int, hints: str = "") -> Binding:
    spec = TensorSpec("", DType.F32, (rows, columns))
    return bind(
        plan.sketch,
        TaskDescription(
            Path("task.py"),
            (spec,),
            (),
            (),
            {},
            (spec,),
            "tensor",
            names=("x",),
            hints=read_hints(f"# @hint: {hints}\n" if hints else "", "task.py"),
        ),
    )


def test_the_same_seed_gives_the_same_sizes(signature: Plan) -> None:
    binding = bound(signature, 4096, 6144)
    for draw in (Trials.drawn, Trials.ragged):
        first, again, other = (
            [
                case.symbols
                for case in draw(Trials(signature, binding, FREE, NATIVE), DrawnSizes(seed))
            ]
            for seed in (1, 1, 2)
        )
        assert first == again != other


def test_a_kernel_by_others_meets_sizes_around_a_tile_and_a_prime_of_its_seed(
    signature: Plan,
) -> None:
    primes, tiles = set(), set()
    for seed in SEEDS:
        found = candidates(signature, DrawnSizes(seed))
        for sizes in found.values():
            one, below, tile, above, prime = sizes
            assert (one, below, above) == (1, tile - 1, tile + 1)
            assert tile % 32 == 0
            assert prime > above
            assert is_prime(prime)
            primes.add(prime)
            tiles.add(tile)
    assert len(primes) > 20
    assert len(tiles) == 3


def test_no_list_of_sizes_holds_what_will_be_drawn(signature: Plan) -> None:
    """Whatever one verdict tried, another tries something else, with no known size beside it."""
    binding = bound(signature, 12, 40)
    around = {size for sizes in candidates(signature, DrawnSizes(0)).values() for size in sizes}
    known = {1, 2, 3, 5, 12, 17, 31, 32, 33, 40, 53, 63, 64, 65, 95, 96, 97} | around
    told = 0
    for seed in SEEDS:
        trials = Trials(signature, binding, FREE, NATIVE)
        cases = trials.drawn(DrawnSizes(seed))
        assert all(case.drawn for case in cases)
        ragged = trials.ragged(DrawnSizes(seed))
        for name in FREE:
            assert {case.symbols[name] for case in [*cases, *ragged]} - known, (seed, name)
        told += any(known.isdisjoint(case.symbols.values()) for case in cases)
    assert told >= len(SEEDS) - 1


def test_without_a_seed_sizes_are_those_of_the_tiles(tiled: Plan, signature: Plan) -> None:
    tile = next(constant.value for constant in tiled.sketch.constants)
    assert all(sizes[1:4] == (tile - 1, tile, tile + 1) for sizes in candidates(tiled).values())
    assert candidates(signature)["M"] == (1, 31, 32, 33, 53)
    around = candidates(tiled, DrawnSizes(3))
    assert all(sizes[1:4] == (tile - 1, tile, tile + 1) for sizes in around.values())


@pytest.mark.parametrize("limits", [NATIVE, INTERPRETED])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_range_has_a_prime_and_another_size_between_its_ends(
    tiled: Plan, limits: Limits, seed: int
) -> None:
    binding = bound(tiled, 1000, 2000, "M in [3, 2000]; N in [8, 3000]")
    cases = Trials(tiled, binding, FREE, limits).drawn(DrawnSizes(seed))
    for name, (low, high) in {"M": (3, 2000), "N": (8, 3000)}.items():
        sizes = {case.symbols[name] for case in cases}
        assert all(low <= size <= high for size in sizes)
        between = sizes - {low, high}
        assert len(between) >= 2
        assert any(is_prime(size) for size in between)


def test_the_upper_ends_meet_where_that_is_affordable(tiled: Plan) -> None:
    hints = "M in [3, 2000]; N in [8, 3000]"
    near, far = bound(tiled, 1000, 2000, hints), bound(tiled, 10, 20, hints)
    (case,) = Trials(tiled, near, FREE, NATIVE).corner()
    assert dict(case.symbols) == {"M": 2000, "N": 3000}
    assert not Trials(tiled, far, FREE, NATIVE).corner(), "six million elements for a task of 200"
    assert not Trials(tiled, near, FREE, INTERPRETED).corner()
    small = bound(tiled, 10, 20, "M in [3, 20]; N in [8, 30]")
    (case,) = Trials(tiled, small, FREE, INTERPRETED).corner()
    assert dict(case.symbols) == {"M": 20, "N": 30}
    assert not Trials(tiled, bound(tiled, 10, 20), FREE, NATIVE).corner(), "no range, no ends"


def test_what_is_drawn_lies_in_its_range() -> None:
    for domain in (
        Domain(choices=(64.0, 128.0, 256.0)),
        Domain(16, 1024, step=16),
        Domain(lower=100),
        Domain(7, 7),
        Domain(7, 8),
    ):
        for seed in SEEDS:
            for prime in (False, True):
                assert domain.holds(DrawnSizes(seed).inner(0, domain, prime=prime))
    assert {DrawnSizes(seed).inner(0, Domain(choices=(64.0, 128.0, 256.0))) for seed in SEEDS} == {
        128
    }
    assert all(DrawnSizes(seed).prime(0, 96, 20) in (2, 3, 5, 7, 11, 13, 17, 19) for seed in SEEDS)
    assert DrawnSizes(1).prime(0, 32, 1) == 1
