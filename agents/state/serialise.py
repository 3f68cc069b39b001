"""The state of a run as JSON data and back: what a checkpoint holds.

`load_state(dump_state(state)) == state` for every state whose free data (evidence, verdict,
details) is JSON data already; tuples come back as lists, NaN and infinities as text. An engine that
goes on with the loaded state after every step writes the same prompts with and without a stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.state.state import Feedback, KernelText, RunState, Step
from sketchc.base.diagnostics import UsageError
from sketchc.runtime.verify.verdict import jsonable

#: Raised by one with every change that an older reader would misread.
VERSION = 1


def dump_state(state: RunState) -> dict[str, Any]:
    """The state as JSON data, with the version of this format."""
    plain: dict[str, Any] = jsonable(attrs.asdict(state, recurse=True))
    return {"version": VERSION, **plain}


def load_state(data: Mapping[str, Any]) -> RunState:
    """The state that `dump_state` wrote. Raises `UsageError` for anything else."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        found = data.get("version") if isinstance(data, Mapping) else None
        msg = f"the checkpoint is of format {found!r}; this version of sketchc reads {VERSION}"
        raise UsageError(msg)
    try:
        fields = {key: value for key, value in data.items() if key != "version"}
        kernel, feedback = data["kernel"], data["feedback"]
        fields["kernel"] = None if kernel is None else KernelText(**kernel)
        fields["feedback"] = None if feedback is None else Feedback(**feedback)
        fields["history"] = tuple(Step(**step) for step in data["history"])
        return RunState(**fields)
    except (KeyError, TypeError) as error:
        msg = f"the checkpoint does not hold the state of a run: {error}"
        raise UsageError(msg) from error
