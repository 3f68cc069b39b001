"""Machine facts: one TOML file per chip beside this module, each fact with its source."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.lowering.plan import Hardware

#: The chips that ship with sketchc; one literal line each.
HARDWARE: dict[str, str] = {
    "ascend910b4": "ascend910b4.toml",
    "h200": "h200.toml",
    "cpu": "cpu.toml",
}


def load_hardware(name: str) -> Hardware:
    """The facts of a chip, by its name or one of its aliases (case does not matter).

    Raises `UsageError` for an unknown one, naming those that exist.
    """
    wanted = name.lower()
    for known in HARDWARE:
        facts = _facts(known)
        if wanted == known or wanted in (alias.lower() for alias in facts["aliases"]):
            fields = {f.name: facts[f.name] for f in attrs.fields(Hardware) if f.name != "facts"}
            if facts.get("detect"):
                fields["cores"] = fields["matrix_cores"] = len(os.sched_getaffinity(0))
            return Hardware(**fields, facts=facts)
    raise UsageError(f"unknown hardware {name!r}; known: {', '.join(HARDWARE)}")


def chips_like(name: str) -> list[Hardware]:
    """The chips of the family of chip `name`, itself included: those that one target runs on."""
    family = load_hardware(name).family
    return [chip for chip in map(load_hardware, HARDWARE) if chip.family == family]


@cache
def _facts(name: str) -> dict[str, Any]:
    """The parsed TOML file of a chip; it is cached, so callers must not change it."""
    return tomllib.loads((Path(__file__).parent / HARDWARE[name]).read_text("utf-8"))
