"""Sorts of a task keep the order of equal elements, however they are called."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sketchc.runtime.tasks.worker.orders import InOrder  # noqa: E402

CALLS = {
    "function": lambda x: torch.sort(x, 1)[1],
    "descending": lambda x: torch.sort(x, 1, True)[1],
    "method": lambda x: x.sort(dim=1)[1],
    "indices": lambda x: torch.argsort(x, dim=1),
    "indices of a method": lambda x: x.argsort(1, descending=True),
    "by name": lambda x: torch.sort(input=x, descending=True)[1],
    "not stable": lambda x: torch.sort(x, dim=1, stable=False)[1],
    "the last axis": lambda x: torch.argsort(x),
    "a result given": lambda x: torch.sort(
        x, 1, out=(x.clone(), torch.empty(0, dtype=torch.int64))
    )[1],
}


@pytest.mark.parametrize("name", CALLS)
def test_equal_elements_keep_their_order(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 5, (3, 201)).float()
    descending = name in ("descending", "indices of a method", "by name")
    expected = torch.sort(x, dim=1, descending=descending, stable=True)[1]
    with InOrder():
        found = CALLS[name](x)
    if name != "not stable":  # as the task says
        assert torch.equal(found, expected)
    assert torch.equal(torch.gather(x, 1, found), torch.gather(x, 1, expected))
