"""What reaches a drop-in's kernel: the first arguments; others keep their defaults."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from sketchc.runtime.dropin.model_support import arguments_of, bind_arguments


def plain(self: Any, x: Any, scale: float = 1.0) -> None: ...


def named(self: Any, x: Any, *, scale: float = 1.0) -> None: ...


def collecting(self: Any, x: Any, scale: float = 1.0, **rest: Any) -> None: ...


@pytest.mark.parametrize("forward", [plain, named, collecting])
def test_others_keep_their_defaults(forward: Any) -> None:
    known = arguments_of(forward)
    assert bind_arguments(forward, known, (3,), {}, 1) == [3]
    assert bind_arguments(forward, known, (), {"x": 3}, 1) == [3]
    for args, kwargs in (((3,), {"scale": 2.0}), ((), {}), ((3,), {"x": 3})):
        with pytest.raises(TypeError):
            bind_arguments(forward, known, args, kwargs, 1)
