"""Tensors that a task makes for itself, in a run in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from sketchc.runtime.tasks.worker.precision import JoinsFloat64  # noqa: E402

X = torch.arange(12, dtype=torch.float64).reshape(3, 4) / 7
OWN = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "run",
    [
        lambda x, own: x @ own,
        lambda x, own: torch.nn.functional.linear(x, own.T, bias=own[0]),
        lambda x, own: torch.nn.functional.conv1d(x[None], weight=own.T[:, :3, None]),
        lambda x, own: torch.einsum("ij,jk->ik", x, own),
    ],
    ids=["matmul", "linear", "by name", "einsum"],
)
def test_they_join_in_float64(run: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(RuntimeError):
        run(X, OWN)
    with JoinsFloat64():
        found = run(X, OWN)
    assert found.dtype is torch.float64
    assert torch.equal(found, run(X, OWN.double()))


def test_what_is_written_keeps_its_type() -> None:
    own = torch.zeros(3, 4)
    with JoinsFloat64():
        own[torch.tensor([0, 2])] = X[:2]
        own.index_add_(0, torch.tensor([1]), X[2:])
    assert torch.equal(own, torch.stack((X[0], X[2], X[1])).float())


def test_other_errors_stay() -> None:
    with JoinsFloat64(), pytest.raises(RuntimeError, match="shape"):
        torch.mm(X, OWN.T)
    with JoinsFloat64(), pytest.raises(RuntimeError):
        torch.mm(X.float(), OWN.half())
