"""Whom a watch lets touch it, and whose calls of torch it lets pass inside of a launch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sketchc.runtime.guards.wrapper_guard import PolicyError, Watch  # noqa: E402


def watch_of(path: str) -> Watch:
    """A watch of a candidate in this file, or elsewhere."""
    found = Watch()
    found.theirs = (path,)
    return found


@pytest.mark.parametrize("name", ["launches", "inside", "theirs", "refused"])
def test_a_candidate_cannot_set_what_its_watch_remembers(name: str) -> None:
    seen = watch_of(__file__)
    with pytest.raises(PolicyError):
        setattr(seen, name, 1)
    assert seen.launches == seen.inside == 0
    assert "guard" in seen.verdict(1)


def test_a_candidate_cannot_enter_a_launch_itself() -> None:
    seen = watch_of(__file__)
    with pytest.raises(PolicyError), seen.launch():
        pass
    with pytest.raises(PolicyError), seen.outside():
        pass
    assert seen.launches == 0


def test_others_may() -> None:
    seen = watch_of("/elsewhere/kernel.py")
    with seen.launch():
        assert seen.inside == 1
    assert (seen.launches, seen.inside, seen.verdict(1)) == (1, 0, "")


def test_a_launch_does_not_cover_what_the_candidate_calls_itself() -> None:
    ones = torch.ones(2)
    here, elsewhere = Watch(), watch_of("/elsewhere/kernel.py")
    for seen in (here, elsewhere):
        with seen.watching(), seen.launch():
            assert ones.exp().shape == (2,)
    here.theirs = (__file__,)
    object.__setattr__(here, "inside", 1)
    with pytest.raises(PolicyError), here.watching():
        ones.exp()
    assert "aten.exp" in here.verdict(1)
