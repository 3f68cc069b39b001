"""Which tensors count as written by a launch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from sketchc.runtime.guards.wrapper_guard import Writes


@contextmanager
def launch(writes: Writes) -> Iterator[None]:
    writes.enter()
    yield
    writes.leave()


def allocated(writes: Writes, *shape: int) -> torch.Tensor:
    tensor = torch.full(shape or (8,), float("nan"))
    writes.made(tensor)
    return tensor


@pytest.fixture
def writes() -> Writes:
    made = Writes()
    made.begin()
    return made


def idle(writes: Writes, tensor: torch.Tensor, *inputs: torch.Tensor) -> bool:
    return writes.unwritten({"Y": tensor}, inputs) == ["Y"]


def test_what_a_launch_changes_is_written(writes: Writes) -> None:
    first, second = allocated(writes), allocated(writes)
    with launch(writes):
        first[3] = 1.0
    assert not idle(writes, first)
    assert not idle(writes, first[2:5].view(1, 3))
    assert idle(writes, second)
    writes.begin()
    assert idle(writes, first), "in the next forward it must be written again"


def test_copies_inherit(writes: Writes) -> None:
    given, result = torch.ones(8), allocated(writes)
    with launch(writes):
        result.copy_(given)
    clone, other = result.clone(), given.clone()
    writes.made(clone, [result])
    writes.made(other, [given])
    assert not idle(writes, clone)
    assert idle(writes, other)
    writes.made(clone.copy_(given), [given])
    assert idle(writes, clone), "the copy covers all that was written"
    writes.made(result[:2].copy_(given[:2]), [given[:2]])
    assert not idle(writes, result), "and here a part of it"


def test_a_library_may_allocate_its_result(writes: Writes) -> None:
    given = torch.ones(8)
    with launch(writes):
        result, untouched = allocated(writes), allocated(writes)
        result[0] = 2.0
        copied = given.clone()
        writes.made(copied, [given])
    assert not idle(writes, result)
    assert idle(writes, untouched)
    assert idle(writes, copied)


def test_views_of_inputs_are_no_results(writes: Writes) -> None:
    given = torch.ones(4, 2)
    with launch(writes):
        pass
    assert idle(writes, given.t(), given)
    assert not idle(writes, torch.ones(3), given), "made elsewhere: it is not judged"
    assert not idle(writes, given[:0], given)


def test_memory_that_is_gone_is_forgotten(writes: Writes) -> None:
    for _ in range(3):
        gone = allocated(writes, 1 << 20)
        address = gone.untyped_storage().data_ptr()
        del gone
    again = torch.ones(1 << 20)
    if again.untyped_storage().data_ptr() == address:
        assert not idle(writes, again)
    writes.begin()
    assert not writes.memories
