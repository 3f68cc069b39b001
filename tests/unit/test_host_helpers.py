"""Checks that generated Python hosts carry along: usual arguments pass in few steps, and what is
refused is what the definitions say."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
helpers = importlib.import_module("sketchc.lowering.python_host.helpers")


def windows(memory: Any) -> list[Any]:
    """Views of a piece of memory: contiguous, with gaps, turned, repeated, with one element, with
    none, and with axes of one element that have any stride."""
    shapes = [
        ((24,), (1,)),
        ((4, 6), (6, 1)),
        ((6, 4), (1, 6)),
        ((4, 3), (6, 2)),
        ((3, 5), (0, 1)),
        ((1, 5), (77, 1)),
        ((5, 1), (1, 77)),
        ((), ()),
        ((0, 3), (3, 1)),
        ((3, 0), (7, 1)),
    ]
    starts = (0, 5, 23, 24, 30)
    return [memory.as_strided(*shape, start) for shape in shapes for start in starts]


def reached(tensor: Any) -> tuple[int, int] | None:
    """The first byte of a tensor and the one behind its last; None where it has no element."""
    size = tensor.element_size()
    places = [
        tensor.data_ptr() + size * sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        for index in itertools.product(*map(range, tensor.shape))
    ]
    return (min(places), max(places) + size) if places else None


def refusal(check: Callable[..., object], *given: Any) -> str:
    """What a check says against its arguments; "" where nothing."""
    try:
        check(*given)
    except helpers.LaunchError as error:
        return str(error)
    return ""


def test_overlaps_are_those_of_the_bytes_between_first_and_last() -> None:
    memory = torch.zeros(256)
    for output, other in itertools.product(windows(memory), repeat=2):
        first, second = reached(output), reached(other)
        meet = bool(first and second and first[0] < second[1] and second[0] < first[1])
        told = refusal(helpers.check_overlap, {"Y": output}, {"X": other})
        where = (output.shape, output.stride(), other.shape, other.stride())
        assert told == ("X overlaps Y in memory" if meet else ""), where


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.zeros(3, 4), ""),
        (torch.zeros(4, 3).t(), ""),
        (torch.zeros(3, 4).double(), "X has type torch.float64; the kernel takes torch.float32"),
        (torch.zeros(4, 3), "X has shape (4, 3); the kernel takes (3, 4)"),
        (torch.zeros(3, 4, device="meta"), "X is on meta, other arguments on cpu"),
        (torch.zeros(4, 3).double(), "X has type torch.float64; the kernel takes torch.float32"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_said(tensor: Any, told: str) -> None:
    given = ("X", tensor, torch.float32, (3, 4), torch.device("cpu"))
    assert refusal(helpers.check_tensor, *given) == told


@pytest.mark.parametrize("shape", [(0, 2**47), (2**47, 0), (2**47, 1), (2**24, 2**23)])
@pytest.mark.parametrize("more", [1, 2])
def test_an_extent_of_none_counts_as_one(shape: tuple[int, ...], more: int) -> None:
    shape = (*shape, more)
    tensor = torch.empty(1).expand(1).as_strided(shape, [0] * len(shape))
    given = ("X", tensor, torch.float32, shape, torch.device("cpu"))
    told = refusal(helpers.check_tensor, *given)
    assert told == ("" if more == 1 else f"X of shape {shape} is too large")


def test_numbers_are_what_they_were() -> None:
    numpy = pytest.importorskip("numpy")
    for given in (0.5, float("inf"), -0.0, 3, True, numpy.float32(0.5), torch.tensor(2)):
        found = helpers.check_number("p", given)
        assert type(found) is float
        assert found == float(given)
    for given in (-(2**63), 2**63 - 1, 0, True, numpy.int64(7), torch.tensor(2)):
        found = helpers.check_integer("p", given)
        assert type(found) is int
        assert found == int(given)
    for check, given in (
        (helpers.check_number, "1"),
        (helpers.check_number, 2**1024),
        (helpers.check_integer, 1.0),
        (helpers.check_integer, 2**63),
        (helpers.check_integer, -(2**63) - 1),
    ):
        with pytest.raises(helpers.LaunchError):
            check("p", given)
