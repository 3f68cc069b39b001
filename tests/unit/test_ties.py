"""Indices may differ on a tie, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from sketchc.base.types import DType
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.verify.compare import differs_on_ties_only
from sketchc.runtime.verify.references import References

RANDOM = np.random.default_rng(3)
#: Few different values: many ties in every row.
TIED = RANDOM.integers(-3, 4, (6, 40)).astype(np.float32)
DISTINCT = RANDOM.permutation(240).reshape(6, 40).astype(np.float32)


def of(function: Callable[[torch.Tensor], torch.Tensor], array: Array) -> Array:
    found: Array = function(torch.from_numpy(array)).numpy()
    return found


def last_argmax(array: Array) -> Array:
    """The last of the largest elements, where torch names the first."""
    return array.shape[-1] - 1 - np.argmax(array[..., ::-1], axis=-1)


FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[Array], Array]]] = {
    "argmax": (lambda x: x.argmax(-1), last_argmax),
    "argmax, kept": (lambda x: x.argmax(-1, keepdim=True), lambda x: last_argmax(x)[:, None]),
    "argmin": (lambda x: x.argmin(-1), lambda x: last_argmax(-x)),
    "argmax of columns": (lambda x: x.argmax(0), lambda x: last_argmax(x.T)),
    "argmax of all": (lambda x: x.argmax(), lambda x: np.asarray(last_argmax(x.reshape(-1)))),
    "topk": (
        lambda x: x.topk(5).indices,
        lambda x: (39 - np.argsort(-x[:, ::-1], axis=-1, kind="stable"))[:, :5],
    ),
    "argsort": (
        lambda x: x.argsort(stable=True),
        lambda x: 39 - np.argsort(x[:, ::-1], axis=-1, kind="stable"),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_indices_of_equal_elements_pass(name: str) -> None:
    by_torch, otherwise = FUNCTIONS[name]
    reference, other = of(by_torch, TIED), otherwise(TIED)
    assert (reference != other).any()
    found = References([reference], inputs=(DISTINCT, TIED)).compare(0, "Y", other, DType.I64, 1)
    assert found.passed, found.reason
    assert "equal elements" in found.reason
    assert (of(by_torch, DISTINCT) == otherwise(DISTINCT)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indices_of_other_elements_fail(name: str) -> None:
    by_torch, _ = FUNCTIONS[name]
    for source in (TIED, DISTINCT):
        reference = of(by_torch, source)
        wrong = reference.copy()
        where = (0,) * wrong.ndim
        for index in range(40):
            wrong[where] = index
            same = source.reshape(-1)[index] == source.reshape(-1)[reference.reshape(-1)[0]]
            if name != "argmax of columns" and not same:
                assert not differs_on_ties_only(wrong, reference, [source])
        for outside in (-1, 10**6):
            wrong[where] = outside
            assert not differs_on_ties_only(wrong, reference, [source])


def test_an_element_named_twice_fails() -> None:
    reference = of(lambda x: x.topk(5).indices, np.zeros((2, 40), np.float32))
    twice = reference.copy()
    twice[0, 1] = twice[0, 0]
    assert not differs_on_ties_only(twice, reference, [np.zeros((2, 40), np.float32)])


def test_other_integers_are_no_indices() -> None:
    """A count that is wrong, on an input that is constant: every index would be a tie."""
    source = np.tile(np.arange(40, dtype=np.float32), (6, 1))
    counts = np.full(6, 7)
    assert not differs_on_ties_only(counts + 1, counts, [source])
    differing = np.array([True, False])
    assert not differs_on_ties_only(~differing, differing, [np.zeros((2, 2), np.float32)])
