"""Elements that the task's own arithmetic gets wrong are not judged, and no others are excused."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.base.types import DType
from sketchc.runtime.verify.compare import compare, wrong_elements
from sketchc.runtime.verify.references import References

RNG = np.random.default_rng(5)


def _normalise(x: np.ndarray) -> np.ndarray:
    """x over its norm along the last axis, in x's own precision."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


@pytest.fixture
def rows() -> np.ndarray:
    """Ordinary rows, and one whose squares no float32 can hold."""
    x = RNG.standard_normal((5, 33)).astype(np.float32)
    x[2] = 1e-30
    return x


def test_what_the_task_cannot_compute_either_is_not_judged(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    with np.errstate(all="ignore"):
        own = _normalise(rows)
    assert compare("Y", own, exact, DType.F32, 33).wrong == 33
    found = References([exact], lambda: [own], True).compare(0, "Y", own, DType.F32, 33)
    assert found.passed
    assert "33 pass because" in found.reason


def test_other_elements_are_judged_as_ever(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    with np.errstate(all="ignore"):
        own = _normalise(rows)
    actual = own.copy()
    actual[4, 7] += 0.01
    found = References([exact], lambda: [own], True).compare(0, "Y", actual, DType.F32, 33)
    assert (found.failure, found.wrong) == ("numerical", 1)
    assert found.first is not None
    assert found.first.index == (4, 7)


def test_a_task_that_is_right_excuses_nothing(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    actual = exact.astype(np.float32)
    actual[0, 0] = np.nan
    own = exact.astype(np.float32)
    found = References([exact], lambda: [own], True).compare(0, "Y", actual, DType.F32, 33)
    assert found.wrong == 1
    assert not References([exact], None).compare(0, "Y", actual, DType.F32, 33).passed


def test_the_task_is_not_asked_when_the_candidate_is_right(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))

    def own() -> list[np.ndarray]:
        pytest.fail("asked without need")

    actual = exact.astype(np.float32)
    assert References([exact], own, True).compare(0, "Y", actual, DType.F32, 33).passed


@pytest.mark.parametrize("shape", [(1,), (7, 11), (0, 4)])
def test_the_mask_counts_what_the_rule_counts(shape: tuple[int, ...]) -> None:
    exact = RNG.standard_normal(shape)
    actual = exact.astype(np.float32)
    actual.reshape(-1)[::3] += 1.0
    mask = wrong_elements(actual, exact, DType.F32)
    assert mask.shape == shape
    assert int(mask.sum()) == compare("Y", actual, exact, DType.F32).wrong


def _gelu_tail() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, the exact gelu of it, and float32's, where 1 + erf(x) cancels."""
    import torch

    x = torch.linspace(-4.0, -2.5, 64, dtype=torch.float32)
    exact = torch.nn.functional.gelu(x.double()).numpy()
    own = (0.5 * x * (1.0 + torch.erf(x * 0.70710678))).numpy()
    return x.numpy(), exact, own


def test_an_element_as_near_as_the_tasks_own_passes_on_any_input() -> None:
    _, exact, own = _gelu_tail()
    errors = np.abs(own - exact)
    worst = int(np.argmax(errors / np.abs(exact)))
    one = slice(worst, worst + 1)
    # One element alone, as at sizes of 1: its own value is the only scale there is.
    assert not compare("Y", own[one], exact[one], DType.F32).passed
    references = References([exact[one]], lambda: [own[one]])
    assert references.compare(0, "Y", own[one], DType.F32, 1).passed
    opposite = (exact[one] - 1.8 * (own[one] - exact[one])).astype(np.float32)
    assert references.compare(0, "Y", opposite, DType.F32, 1).passed
    farther = (exact[one] + 2.2 * (own[one] - exact[one])).astype(np.float32)
    assert not references.compare(0, "Y", farther, DType.F32, 1).passed
    assert not references.compare(0, "Y", np.full(1, np.nan, np.float32), DType.F32, 1).passed


def test_errors_are_shared_along_a_row() -> None:
    """A row whose logits are large: another order of the same sum is off elsewhere, as much."""
    import torch

    torch.manual_seed(3)
    q, k = torch.randn(4, 64) + 10.0, 0.03 * torch.randn(96, 64) + 10.0
    exact = torch.softmax(q.double() @ k.double().T, -1).numpy()
    own = torch.softmax(q @ k.T, -1).numpy()
    other = sum((q[:, i : i + 8] @ k[:, i : i + 8].T for i in range(0, 64, 8)), torch.zeros(4, 96))
    actual = torch.softmax(other, -1).numpy()
    references = References([exact], lambda: [own])
    assert not compare("Y", own, exact, DType.F32, 64).passed
    assert references.compare(0, "Y", actual, DType.F32, 64).passed
    halved = torch.softmax((q.half() @ k.half().T).float(), -1).numpy()
    assert not references.compare(0, "Y", halved, DType.F32, 64).passed
    dropped = torch.softmax(q[:, :63] @ k[:, :63].T, -1).numpy()
    assert not references.compare(0, "Y", dropped, DType.F32, 64).passed
    shifted = np.roll(actual, 1, axis=0)
    assert not references.compare(0, "Y", shifted, DType.F32, 64).passed


def test_integers_equal_the_task_in_either_precision_and_nothing_else() -> None:
    exact = np.array([3, 4, 5, 6], np.int8)
    own = np.array([3, 5, 5, 6], np.int8)  # on the border between 4 and 5

    def judged(*values: int) -> bool:
        references = References([exact], lambda: [own])
        return references.compare(0, "Q", np.array(values, np.int8), DType.I8, 1).passed

    assert judged(3, 4, 5, 6)
    assert judged(3, 5, 5, 6)
    assert not judged(3, 6, 5, 6)
    assert not judged(3, 5, 5, 7)


def test_waivers_say_how_many_where_and_by_how_much(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    with np.errstate(all="ignore"):
        own = _normalise(rows)
    found = References([exact], lambda: [own], True).compare(0, "Y", own, DType.F32, 33)
    assert [(waiver.count, waiver.index[0]) for waiver in found.waivers] == [(33, 2)]
    _, exact, own = _gelu_tail()
    found = References([exact], lambda: [own]).compare(0, "Y", own, DType.F32, 1)
    broke = int(wrong_elements(own, exact, DType.F32, 1).sum())
    assert broke
    assert [waiver.count for waiver in found.waivers] == [broke]
    worst = found.waivers[0]
    assert worst.error == np.abs(own - exact)[wrong_elements(own, exact, DType.F32, 1)].max()
    assert worst.allowed == 2 * np.abs(own - exact).max()
    assert found.max_error == np.abs(own - exact).max()


def test_an_error_in_another_row_is_a_measure_too() -> None:
    """A gate whose row saturates is exact; the other rows tell what the task's sums are worth."""
    exact = np.array([[1.0, 1.0, 1.0], [0.3, 0.4, 0.5]])
    own = np.array([[1.0, 1.0, 1.0], [0.3, 0.4 + 4e-5, 0.5]], np.float32)

    def judged(error: float) -> bool:
        actual = (exact + np.array([[0, error, 0], [0, 0, 0]])).astype(np.float32)
        return References([exact], lambda: [own]).compare(0, "Y", actual, DType.F32, 1).passed

    assert judged(7e-5)
    assert not judged(9e-5)
    assert not judged(0.01 * 0.7)


@pytest.mark.parametrize(
    ("off", "asked", "passes"), [(1.8, 0, True), (7.8, 2, True), (30.0, 8, False)]
)
def test_runs_on_nearby_inputs_end_where_all_is_excused(
    off: float, asked: int, passes: bool
) -> None:
    """Each is two runs of the whole task, which may be a network."""
    exact = RNG.standard_normal((16, 33)) * 1e-3
    own = exact.astype(np.float32)
    error = 2e-7
    own[3, 5] += error
    numbers: list[int] = []

    def near(number: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        numbers.append(number)
        other = exact.astype(np.float32)
        other[number, 0] += (number % 4 + 1) * 2 * error  # 2, 4, 6 and 8 times, and again
        return [exact], [other]

    actual = exact.astype(np.float32)
    actual[9, 9] += off * error
    references = References([exact], lambda: [own], near=near)
    assert references.compare(0, "Y", actual, DType.F32, 33).passed is passes
    assert numbers == list(range(asked))
