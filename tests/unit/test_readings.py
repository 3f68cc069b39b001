"""What is as right as the reference passes: the other side of a border that a value was rounded at,
another place of an equal element, another run of a task whose threads race. Nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sketchc.base.types import DType
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Scalar, TaskFailure
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.evidence import _wrong
from sketchc.runtime.verify.references import BORDER, RACES, TIED, References

FUNCTIONS = """
import torch

def rows(x: torch.Tensor):
    scale = torch.clamp(x.abs().amax(dim=1, keepdim=True), min=1e-12) / 127
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8)

def round_trip(x: torch.Tensor):
    scale = x.abs().amax() / 127
    return torch.round(x / scale) * scale

def half_up(x: torch.Tensor):
    y = x * 7.1
    y.add_(0.5).floor_()
    return y.int()

def copied(x: torch.Tensor):
    y = torch.zeros(x.shape, dtype=torch.int32)
    y.copy_(x * 7.1)
    return y

def buckets(x: torch.Tensor):
    return torch.bucketize(torch.softmax(x, 1), torch.tensor([0.01, 0.05, 0.25]))

def exact(x: torch.Tensor):
    return torch.round(x.reshape(-1).clamp(-9.5, 9.5)).int()

def kept(x: torch.Tensor):
    p = torch.softmax(x, 1)
    return torch.where(p > 0.0625, p, 0.0)

def top2(x: torch.Tensor):
    return torch.softmax(x, 1).topk(2, dim=1)

def chosen(x: torch.Tensor):
    return x.sin().gather(1, torch.softmax(x, 1).argmax(1, keepdim=True))

def put(x: torch.Tensor, i: torch.Tensor):
    return torch.zeros(40, x.shape[1], dtype=x.dtype).index_copy(0, i, x)

def entropy(x: torch.Tensor):
    return torch.nn.functional.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.int64))
"""

Judge = Callable[..., Comparison]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Judges an output of one of the functions on some inputs, as `CaseRunner` does."""
    folder = tmp_path_factory.mktemp("tasks")
    tasks: dict[str, TorchTask] = {}

    def run(name: str, given: list[Array], actual: Array, position: int = 0) -> Comparison:
        if name not in tasks:
            (folder / f"{name}.py").write_text(FUNCTIONS + "\ndef get_inputs(): return []\n")
            tasks[name] = _loaded(folder / f"{name}.py", name)
        task = tasks[name]
        arguments: list[Array | Scalar | None] = [*given]
        references = References(
            task.reference(arguments),
            lambda: task.reference(arguments, double=False),
            inputs=tuple(given),
            read=lambda rtol: task.readings(arguments, rtol=rtol),
            path="task.py",
        )
        dtype = DType(actual.dtype.name.replace("float", "f").replace("int", "i"))
        return references.compare(position, "Y", actual, dtype, given[0].shape[-1])

    yield run
    for task in tasks.values():
        task.close()


def _loaded(path: Path, name: str) -> TorchTask:
    from sketchc.runtime.tasks.outline import read_outline

    return TorchTask(path, outline=read_outline(path, name))


def drawn(seed: int, shape: tuple[int, ...]) -> Array:
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return found


def folded_rows(x: Array) -> Array:
    """Quantised by the inverse of the scale, as a kernel would."""
    inverse = np.float32(127) / np.abs(x).max(axis=1, keepdims=True)
    found: Array = np.clip(np.rint(x * inverse), -128, 127).astype(np.int8)
    return found


def test_a_step_at_a_border_passes_for_every_seed(judge: Judge) -> None:
    borders = 0
    for seed in range(30):
        x = drawn(seed, (60, 1500))
        found = judge("rows", [x], folded_rows(x))
        assert found.passed, (seed, found)
        borders += sum(waiver.count for waiver in found.waivers)
    assert borders, "no seed has an element at a border: this tests nothing"


@pytest.mark.parametrize("step", [1, -1])
def test_a_step_elsewhere_fails_and_the_value_before_rounding_is_shown(
    step: int, judge: Judge
) -> None:
    x = drawn(5, (6, 40))
    actual = folded_rows(x)
    actual[3, 7] += step
    found = judge("rows", [x], actual)
    assert found.wrong == 1
    assert found.first is not None
    assert found.first.index == (3, 7)
    before = float(x[3, 7]) * 127 / float(np.abs(x[3]).max())
    assert found.first.before == pytest.approx(before, rel=1e-6)
    assert _wrong(found)["first_wrong"]["before_rounding"] == pytest.approx(before, rel=1e-3)


def test_two_steps_fail_even_at_a_border(judge: Judge) -> None:
    x = np.array([[127.0, 2.5, -3.5]], np.float32) * np.float32(1.1)
    x[0, 0] = 127 * np.float32(1.1)
    for value, right in ((2, True), (3, True), (4, False), (1, False)):
        actual = np.array([[127, value, -4]], np.int8)
        assert judge("rows", [x], actual).passed is right, value


def test_what_is_exact_is_rounded_as_the_task_does(judge: Judge) -> None:
    """Inputs that are copied, cut and reshaped are no matter of tolerance."""
    x = np.array([[0.5, 1.5, 2.5, -0.5, 30.0]], np.float32)
    assert judge("exact", [x], np.array([0, 2, 2, 0, 10], np.int32)).passed
    assert not judge("exact", [x], np.array([1, 2, 3, -1, 10], np.int32)).passed


@pytest.mark.parametrize("name", ["half_up", "copied"])
def test_rounding_in_place_is_seen(name: str, judge: Judge) -> None:
    value = np.float32(3.5 / 7.1) if name == "half_up" else np.float32(3 / 7.1)
    x = np.array([[value, 0.9]], np.float32)
    last = 6
    for first, right in (((3, True), (4, True), (2, False)), ((2, True), (3, True), (4, False)))[
        name == "copied"
    ]:
        actual = np.array([[first, last]], np.int32)
        assert judge(name, [x], actual).passed is right, first
    assert not judge(name, [x], np.array([[3, 7]], np.int32)).passed


def test_a_value_that_was_rounded_on_the_way_may_be_a_step_off(judge: Judge) -> None:
    x = np.array([[1.27, 0.025, 0.3]], np.float32)
    scale = np.abs(x).max() / np.float32(127)
    steps = np.rint(x.astype(np.float64) / scale)
    for offset, right in ((0, True), (1, True), (-1, True), (2, False)):
        other = steps.copy()
        other[0, 1] = 2.0 + max(offset, 0) if offset >= 0 else 2.0
        assert judge("round_trip", [x], (other * scale).astype(np.float32)).passed is right
    other = steps.copy()
    other[0, 2] += 1
    assert not judge("round_trip", [x], (other * scale).astype(np.float32)).passed


def test_buckets_and_comparisons_of_computed_values(judge: Judge) -> None:
    x = np.log(np.array([[1.0, 1.0, 2.0, 12.0]], np.float32))  # 1/16, 1/16, 1/8, 3/4
    p = torch.softmax(torch.from_numpy(x), 1).numpy()
    dropped = p.copy()
    dropped[0, 0] = 0.0
    found = judge("kept", [x], dropped)
    assert found.passed
    assert judge("kept", [x], np.where(p > 0.0625, p, p).astype(np.float32)).passed
    dropped[0, 2] = 0.0
    assert not judge("kept", [x], dropped).passed
    quarter = np.log(np.array([[1.0, 3.0]], np.float32))
    for place, right in ((2, True), (3, True), (1, False)):
        assert judge("buckets", [quarter], np.array([[place, 3]])).passed is right


def test_places_of_computed_values_that_are_equal_within_tolerance(judge: Judge) -> None:
    """Where softmax underflows or is flat, the order of what is left is arbitrary."""
    x = np.full((3, 9), -500.0, np.float32)
    x[0, 4], x[1, 2], x[1, 8] = 500.0, 7.0, 7.0
    assert judge("top2", [x], np.array([[4, 7], [8, 2], [5, 6]]), 1).passed
    found = judge("top2", [x], np.array([[4, 7], [8, 2], [5, 6]]), 1)
    assert found.waivers[0].why == TIED
    for wrong in ([[4, 4], [8, 2], [5, 6]], [[3, 7], [8, 2], [5, 6]], [[4, 9], [8, 2], [5, 6]]):
        assert not judge("top2", [x], np.array(wrong), 1).passed, wrong


def test_what_was_chosen_among_equals_may_differ_too(judge: Judge) -> None:
    x = np.array([[1.0, 5.0, np.nextafter(np.float32(5.0), np.float32(9)), 0.0]], np.float32)
    x[0, 1], x[0, 2] = 5.0, 5.0
    for value, right in ((np.sin(5.0), True), (np.sin(1.0), False)):
        assert judge("chosen", [x], np.array([[value]], np.float32)).passed is right


def test_what_threads_of_the_task_race_for_is_no_fault_of_a_kernel(judge: Judge) -> None:
    """One thread lets the last row win; others need not."""
    places = np.arange(900) % 40
    x = drawn(3, (900, 400))
    last = np.zeros((40, 400), np.float32)
    for row, place in zip(x, places, strict=True):
        last[place] = row
    try:
        found = judge("put", [x, places], last)
        assert found.passed, found
        assert {waiver.why for waiver in found.waivers} <= {RACES}
    except TaskFailure as error:  # a row that came from neither run
        pytest.fail(str(error))


def test_what_differs_in_its_own_runs_is_the_tasks(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchc.runtime.tasks.description import Readings

    one, two = np.array([1.0, 2.0, 3.0]), np.array([1.0, 7.0, 3.0])
    references = References([one], read=lambda _: Readings(runs=((one,), (two,))), path="task.py")

    def judged(*values: float) -> Comparison:
        return references.compare(0, "Y", np.array(values, np.float32), DType.F32, 1)

    assert judged(1, 2, 3).passed
    found = judged(1, 7, 3)
    assert found.passed
    assert [(w.why, w.count, w.index) for w in found.waivers] == [(RACES, 1, (1,))]
    assert not judged(9, 7, 3).passed
    with pytest.raises(TaskFailure, match=r"task.py: the task is not deterministic.*threads?"):
        judged(1, 5, 3)


def test_a_reference_of_exactly_zero_has_a_tolerance_from_its_operands(judge: Judge) -> None:
    """The cross entropy of one class is 0; its terms are not."""
    x = np.array([[3.7]], np.float32)
    assert judge("entropy", [x], np.asarray(2e-7, np.float32)).passed
    assert not judge("entropy", [x], np.asarray(1e-3, np.float32)).passed
    assert not judge("entropy", [x], np.asarray(3.7, np.float32)).passed
    zero = np.zeros((1, 1), np.float32)
    assert not judge("entropy", [zero], np.asarray(2e-7, np.float32)).passed


def test_borders_are_said(judge: Judge) -> None:
    x = np.array([[127.0, 2.5]], np.float32) * np.float32(1.1)
    exact = 2 if judge("rows", [x], np.array([[127, 2]], np.int8)).waived == 0 else 3
    found = judge("rows", [x], np.array([[127, 5 - exact]], np.int8))
    assert [(waiver.why, waiver.index) for waiver in found.waivers] == [(BORDER, (0, 1))]
    assert BORDER in found.reason
