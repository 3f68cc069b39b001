"""Sweeps: a property at every case of a long list, of which one run of the tests takes a part.

The cases of a test marked `sweep` are dealt out to `PARTS` runs one after the other, or to
`CROSSED`, where two lists cross: each of these parts has every value of both, so that a feature
that one part tries on one target is tried on another one in the next. What is slow and has no cases
is in one of the parts. `SKETCHC_SWEEPS` says which part (the first by default), or `all`.

Where each kernel takes seconds to compile, all end-to-end cases of a target are dealt out, marked
or not, to as many parts as `SLOW` says; and a mark may say its own number, `sweep(12)`, where each
case takes much of a minute. Tests that need the same costly fixture are in the same part where
their marks say so, `sweep(3, together="lists")`: a run makes it for all of them, or not at all.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

PARTS, CROSSED = 6, 3
#: The targets whose kernels take seconds to compile, each with its number of parts.
SLOW = {"tilelang_cuda": 24, "cuda_c": 12}
MARK = "sweep"
#: In the environment: the part of each sweep that is taken, or `all`.
CHOICE = "SKETCHC_SWEEPS"


def choice_of(config: pytest.Config) -> str:
    """What this run takes: all, where it is given tests by name."""
    named = config.option.keyword or any("::" in argument for argument in config.args)
    return "all" if named else os.environ.get(CHOICE, "0")


def dealt(items: Sequence[pytest.Item], choice: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that this run takes, and those that it leaves."""
    if choice == "all":
        return list(items), []
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        swept = item.get_closest_marker(MARK) is not None or _own_parts(item) > 0
        (left if swept and not _is_dealt(item, int(choice)) else taken).append(item)
    return taken, left


def _own_parts(item: Any) -> int:
    """To how many parts a test's cases are dealt out: the most that its mark or a target of theirs
    says; 0 for as many as others'."""
    mark = item.get_closest_marker(MARK)
    said = mark.args[0] if mark is not None and mark.args else 0
    return max(said, _slow_parts(item))


def _slow_parts(item: Any) -> int:
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = (SLOW.get(value, 0) for value in given if isinstance(value, str))
    return max(named, default=0) if item.nodeid.startswith("tests/e2e/") else 0


def _is_dealt(item: Any, part: int) -> bool:
    """Whether a case is in this part."""
    own, mark = _own_parts(item), item.get_closest_marker(MARK)
    if own or not hasattr(item, "callspec"):
        dealt_as = mark.kwargs.get("together", item.nodeid) if mark is not None else item.nodeid
        return (zlib.crc32(dealt_as.encode()) - part) % (own or PARTS) == 0
    lists = [mark.args[0] for mark in item.iter_markers("parametrize")]
    firsts = (
        names.split(",")[0].strip() if isinstance(names, str) else names[0] for names in lists
    )
    # The places of neighbours in any of the lists differ by 1.
    place = sum(item.callspec.indices[name] for name in firsts)
    return (place - part) % (PARTS if len(lists) == 1 else CROSSED) == 0


def taken_by(request: pytest.FixtureRequest, test: object, name: str) -> set[Any]:
    """The values of a parameter with which this run calls a test: what a fixture makes them of."""
    items = (item for item in request.session.items if getattr(item, "function", None) is test)
    return {getattr(item, "callspec").params[name] for item in items}  # noqa: B009
