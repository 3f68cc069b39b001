"""Machine facts: one TOML file per chip beside this module, each fact with its source, and those in
the user's folder, where `sketchc targets --probe` writes one."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.files import user_folder
from sketchc.lowering.aims import aims_of
from sketchc.lowering.plan import Hardware

#: The chips that ship with sketchc; one literal line each.
HARDWARE: dict[str, str] = {
    "ascend910b1": "ascend910b1.toml",
    "ascend910b2": "ascend910b2.toml",
    "ascend910b3": "ascend910b3.toml",
    "ascend910b4": "ascend910b4.toml",
    "ascend910c": "ascend910c.toml",
    "a100": "a100.toml",
    "h100": "h100.toml",
    "h200": "h200.toml",
    "b200": "b200.toml",
    "l20": "l20.toml",
    "l40s": "l40s.toml",
    "rtx4090": "rtx4090.toml",
    "cpu": "cpu.toml",
}


def load_hardware(name: str) -> Hardware:
    """The facts of a chip, by its name or one of its aliases (case does not matter).

    Raises `UsageError` for an unknown one, naming those that exist, and for a file of the user's
    that does not hold a chip's facts.
    """
    wanted = name.lower()
    for known, path in _files().items():
        facts = _facts(path)
        if wanted == known or wanted in (alias.lower() for alias in facts["aliases"]):
            return _chip(facts)
    raise UsageError(f"unknown hardware {name!r}; known: {', '.join(_files())}")


def chips_like(name: str) -> list[Hardware]:
    """The chips of the family of chip `name`, itself included: those that one target runs on."""
    family = load_hardware(name).family
    found = map(_facts, _files().values())
    return [_chip(facts) for facts in found if facts["family"] == family]


def architecture(facts: Mapping[str, Any]) -> str:
    """What CUDA's compilers are told of the NVIDIA chip with these facts: its compute capability,
    with the instructions of that one alone ("sm_90a"), where it has some."""
    chip = str(facts["chip"])
    return f"{chip}a" if chip in ("sm_90", "sm_100") else chip


def user_chips() -> Path:
    """The folder of the user's own files of chips; it need not exist."""
    return user_folder("XDG_DATA_HOME", ".local/share") / "hardware"


def _files() -> dict[str, Path]:
    """Name of each chip -> its file: those that ship, then the user's of other names."""
    here = Path(__file__).parent
    found = {name: here / file for name, file in HARDWARE.items()}
    for path in sorted(user_chips().glob("*.toml")):
        found.setdefault(path.stem.lower(), path)
    return found


def _chip(facts: Mapping[str, Any]) -> Hardware:
    fields = {f.name: facts[f.name] for f in attrs.fields(Hardware) if f.name != "facts"}
    if facts.get("detect"):
        fields["cores"] = fields["matrix_cores"] = len(os.sched_getaffinity(0))
        facts = {**facts, "vector_bytes": vector_bytes()}
    return Hardware(**fields, facts=facts)


@cache
def vector_bytes() -> int:
    """The bytes of the widest vectors of this machine's CPU, as far as Linux says; else 16."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text("utf-8", "replace").split())
    except OSError:
        return 16
    return next((size for flag, size in (("avx512f", 64), ("avx2", 32)) if flag in flags), 16)


@cache
def _facts(path: Path) -> dict[str, Any]:
    """The parsed file of a chip; it is cached, so callers must not change it. Raises `UsageError`
    for one that holds none."""
    try:
        facts = tomllib.loads(path.read_text("utf-8"))
        _chip(facts)
        aims_of(facts)
        for place in facts["placement"].values():
            facts["memory"][place]["bytes"]
        named = {"aliases", "chip", "description", "l2_bytes", "memory_bytes", "sources"}
        if missing := named - facts.keys():
            refuse(f"{path} holds no facts of a chip: it lacks {min(missing)}")
    except (OSError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        refuse(f"cannot read the facts of a chip in {path}: {error}", error)
    except KeyError as error:
        refuse(f"{path} holds no facts of a chip: it lacks {error.args[0]}", error)
    if facts["name"] != path.stem:
        refuse(f"{path} holds the facts of another chip, {facts['name']}")
    return facts
