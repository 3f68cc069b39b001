"""The search for the fastest point, on spaces whose times are known: it needs far fewer points than
random search, keeps to what is legal, and is the same for the same seed."""

from __future__ import annotations

import math
from statistics import mean

import numpy as np
import pytest
from synthetic_spaces import SyntheticProblem, synthetic

from sketchc.runtime.tune.search import BATCH, FIRST_BATCH, STRATEGIES, Search, spread
from sketchc.runtime.tune.surrogate import improvement_scores, standardised

SPACES = range(8)
#: How much of the best speed is to be reached, and in which share of random search's evaluations.
SPEED, SHARE = 0.98, 1 / 3


def evaluations(space: int, seed: int, *, informed: bool) -> int:
    """After how many points the search reached `SPEED` of the best speed."""
    problem = synthetic(space, informed=informed)
    search = Search(problem, STRATEGIES["lfbo"](), seed, done=problem.reached(SPEED))
    search.run()
    found = problem.evaluations(SPEED)
    assert found is not None
    return found


def by_chance(problem: SyntheticProblem) -> float:
    """After how many points random search does so, on average: the first of some good points among
    all in random order."""
    times = problem.times[np.isfinite(problem.predictions)]
    return float((len(times) + 1) / ((times * SPEED <= problem.best).sum() + 1))


@pytest.mark.parametrize("informed", [True, False], ids=["prior", "no prior"])
def test_it_needs_a_third_of_the_points_that_random_search_needs(informed: bool) -> None:
    shares = [
        mean(evaluations(space, seed, informed=informed) for seed in range(3))
        / by_chance(synthetic(space))
        for space in SPACES
    ]
    assert mean(shares) <= SHARE, shares


def test_random_search_needs_what_chance_says() -> None:
    needed = []
    for seed in range(40):
        problem = synthetic(1, most=300)
        Search(problem, STRATEGIES["random"](), seed, done=problem.reached(SPEED)).run()
        needed.append(problem.evaluations(SPEED) or 0)
    assert mean(needed) == pytest.approx(by_chance(problem), rel=0.35)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_measures_every_legal_point_and_no_other_and_then_ends(strategy: str) -> None:
    problem = synthetic(3, most=300)
    pool = Search(problem, STRATEGIES[strategy](), 1).run()
    legal = set(np.flatnonzero(np.isfinite(problem.predictions)))
    assert set(problem.asked) == set(pool.times) == legal
    assert pool.times[pool.ranking[0]] == problem.best


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_the_same_for_the_same_seed(strategy: str) -> None:
    def batches(seed: int) -> list[tuple[int, ...]]:
        problem = synthetic(5, most=300)
        search = Search(problem, STRATEGIES[strategy](), seed)
        search.done = lambda: len(problem.asked) >= 40
        search.run()
        return problem.batches

    assert batches(1) == batches(1)
    assert strategy == "all" or batches(1) != batches(2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_point_is_planned_once_the_time_is_up(strategy: str) -> None:
    planned: list[int] = []

    class Counting(SyntheticProblem):
        def predict(self, point: int) -> float:
            planned.append(point)
            return super().predict(point)

    spaces = synthetic(3)
    problem = Counting(spaces.vectors, spaces.times, spaces.predictions)
    legal = [int(point) for point in np.flatnonzero(np.isfinite(problem.predictions))]
    problem.predictions[legal[FIRST_BATCH:]] = math.inf  # nearly all points are illegal
    search = Search(problem, STRATEGIES[strategy](), 1, start=legal[:1])
    search.done = lambda: len(planned) >= 40
    search.looked = lambda: len(planned) >= 20
    pool = search.run()
    assert pool.times
    assert len(planned) <= 41 < len(problem.vectors)


def test_what_is_known_is_not_measured_again_and_the_start_comes_first() -> None:
    problem = synthetic(2, most=300)
    legal = [int(point) for point in np.flatnonzero(np.isfinite(problem.predictions))]
    known = {point: float(problem.times[point]) for point in legal[::2]}
    slowest = max(legal[1::2], key=lambda point: problem.times[point])
    search = Search(problem, STRATEGIES["lfbo"](), 1, start=[slowest])
    search.run(known)
    assert slowest in problem.batches[0]
    # The best known point so far is timed in turn with each batch; the other known ones are not.
    assert set(problem.asked) & set(known) <= {min(known, key=lambda point: known[point])}
    assert set(problem.asked) >= set(legal[1::2])


def test_a_start_that_is_illegal_is_left_out() -> None:
    problem = synthetic(2, most=300)
    illegal = int(np.flatnonzero(~np.isfinite(problem.predictions))[0])
    Search(problem, STRATEGIES["random"](), 1, start=[illegal]).run()
    assert illegal not in problem.asked


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_points_that_fail_are_never_the_best_and_end_nothing(strategy: str) -> None:
    problem = synthetic(4, most=300)
    problem.failing = frozenset(int(point) for point in np.argsort(problem.times)[:20])
    search = Search(problem, STRATEGIES[strategy](), 1)
    pool = search.run()
    assert not set(pool.ranking) & problem.failing
    assert problem.failing & set(pool.times)
    assert search.finals(3, 5)[0] == pool.ranking[0]


def test_where_all_points_fail_there_is_no_best() -> None:
    problem = synthetic(4, most=300)
    problem.failing = frozenset(range(len(problem.times)))
    search = Search(problem, STRATEGIES["lfbo"](), 1)
    assert search.run().ranking == []
    assert search.finals(3, 5) == []


def test_it_stops_after_the_batch_in_which_time_is_up() -> None:
    problem = synthetic(1)
    search = Search(problem, STRATEGIES["lfbo"](), 1, start=[0], done=lambda: bool(problem.asked))
    search.run()
    assert 0 < len(problem.asked) <= FIRST_BATCH
    assert len(problem.batches) == 1  # not even a second round of the race


def test_no_more_is_predicted_than_there_is_time_for() -> None:
    problem = synthetic(1)
    looked = iter(range(10_000))
    search = Search(problem, STRATEGIES["lfbo"](), 1, looked=lambda: next(looked) >= 10)
    search.done = lambda: bool(problem.asked)
    assert len(search.run().predictions) <= 10 + 2 * (FIRST_BATCH + BATCH)


def test_fast_points_get_more_samples_than_slow_ones() -> None:
    problem = synthetic(6)
    search = Search(problem, STRATEGIES["random"](), 3)
    search.done = lambda: len(problem.asked) >= FIRST_BATCH and len(problem.batches) >= 3
    search.run()
    first = problem.batches[0]
    ranked = sorted(first, key=lambda point: problem.times[point])
    assert problem.asked[ranked[0]] > problem.asked[ranked[-1]] > 0


def test_the_surrogate_prefers_what_is_near_fast_points() -> None:
    line = standardised(np.arange(16.0)[:, None])
    times = np.abs(np.arange(16.0) - 11.0)
    known = [0, 3, 6, 9, 13, 15]
    rest = [point for point in range(16) if point not in known]
    scores = improvement_scores(line[known], times[known], line[rest])
    assert rest[int(np.argmax(scores))] in (10, 11, 12)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("times", [[1.0], [2.0, 2.0, 2.0]], ids=["one point", "equal times"])
def test_the_surrogate_takes_few_and_equal_points(times: list[float]) -> None:
    features = standardised(np.array([[1.0, math.pi]] * 4))
    scores = improvement_scores(features[: len(times)], np.array(times), features)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_come_after_all_points_that_have_none(seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = random.integers(0, 5, (60, 3)).astype(np.float64)
    ranked = [int(point) for point in random.permutation(60)]
    order = list(spread(ranked, vectors))
    assert sorted(order) == sorted(ranked)
    assert order[0] == ranked[0]
    places = {point: place for place, point in enumerate(ranked)}

    def near(point: int, others: list[int]) -> bool:
        return any(np.abs(vectors[point] - vectors[other]).sum() < 2 for other in others)

    first = [point for n, point in enumerate(order) if not near(point, order[:n])]
    assert order[: len(first)] == first == sorted(first, key=places.__getitem__)
    rest = order[len(first) :]
    assert rest == sorted(rest, key=places.__getitem__)
