"""The targets that have a built-in Coder: one literal line each, import paths resolved lazily."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sketchc.base.diagnostics import refuse
from sketchc.lowering.language import PYTHON, Language

if TYPE_CHECKING:
    from sketchc.lowering.target import Target

#: target -> module with its record, `TARGET`.
TARGETS: dict[str, str] = {
    "triton_cuda": "sketchc.lowering.triton.cuda",
    "triton_ascend": "sketchc.lowering.triton.ascend",
    "cpp": "sketchc.lowering.cpp.target",
    "cuda_c": "sketchc.lowering.cuda_c.target",
}


def load_target(name: str) -> Target:
    """The record of a target. Raises `UsageError` for an unknown one."""
    if name not in TARGETS:
        refuse(f"unknown target {name!r}; known: {', '.join(TARGETS)}")
    target: Target = importlib.import_module(TARGETS[name]).TARGET
    return target


def all_targets() -> tuple[Target, ...]:
    """The records of all targets, in the order of the registry."""
    return tuple(load_target(name) for name in TARGETS)


def targets_in(language: str) -> tuple[Target, ...]:
    """The targets whose kernels are written in a language: "python", "c++"."""
    return tuple(target for target in all_targets() if target.language.name == language)


def all_languages() -> tuple[Language, ...]:
    """The languages that some target's kernels are written in, by their names."""
    found = dict.fromkeys(target.language for target in all_targets())
    return tuple(sorted(found, key=lambda language: language.name))


def load_language(name: str) -> Language:
    """The language of that name; Python for one that no target has (an older record's)."""
    return next((language for language in all_languages() if language.name == name), PYTHON)


def language_of_file(path: str) -> Language:
    """The language that the ending of a file's name says; Python for any other ending."""
    found = (other for other in all_languages() if path.lower().endswith(other.suffixes))
    return next(found, PYTHON)
