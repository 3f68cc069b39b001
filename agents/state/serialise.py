"""The state of a run as JSON data and back: what a checkpoint holds.

`load_state(dump_state(state)) == state` for every state whose free data (evidence, verdict,
details) is JSON data already; tuples come back as lists, NaN and infinities as text. An engine that
goes on with the loaded state after every step writes the same prompts with and without a stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.state.state import RunState
from sketchc.base.diagnostics import UsageError
from sketchc.base.json_form import from_plain, to_plain

#: Raised by one with every change that an older reader would misread.
VERSION = 1
#: What every checkpoint has held.
_ALWAYS = ("node", "kernel", "feedback", "history")


def dump_state(state: RunState) -> dict[str, Any]:
    """The state as JSON data, with the version of this format."""
    plain: dict[str, Any] = to_plain(attrs.asdict(state, recurse=True))
    return {"version": VERSION, **plain}


def load_state(data: Mapping[str, Any]) -> RunState:
    """The state that `dump_state` wrote. Raises `UsageError` for anything else."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        found = data.get("version") if isinstance(data, Mapping) else None
        msg = f"the checkpoint is of format {found!r}; this version of sketchc reads {VERSION}"
        raise UsageError(msg)
    try:
        # A field that is newer than the checkpoint has its default.
        older = {k: v for k, v in attrs.asdict(RunState("")).items() if k not in _ALWAYS}
        if unknown := data.keys() - {*older, *_ALWAYS, "version"}:
            raise TypeError(*sorted(unknown))
        return from_plain(RunState, {**older, **data}, strict=True)
    except (KeyError, TypeError) as error:
        msg = f"the checkpoint does not hold the state of a run: {error}"
        raise UsageError(msg) from error
