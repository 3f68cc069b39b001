"""The targets: those with a built-in Coder, one literal line each, import paths resolved lazily,
and those that exist only as documents, in `docspec/` and in the user's folder."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.lowering.documents.target import (
    document_target,
    spoken_by,
    user_target_folders,
)
from sketchc.lowering.language import PYTHON, Language

if TYPE_CHECKING:
    from sketchc.lowering.target import Target

#: target -> module with its record, `TARGET`.
TARGETS: dict[str, str] = {
    "triton_cuda": "sketchc.lowering.triton.cuda",
    "triton_ascend": "sketchc.lowering.triton.ascend",
    "cpp": "sketchc.lowering.cpp.target",
    "cuda_c": "sketchc.lowering.cuda_c.target",
    "tilelang_cuda": "sketchc.lowering.tilelang_cuda.target",
}

#: Targets that exist only as documents: folders of `docspec/`.
DOCUMENTED: tuple[str, ...] = ("opencl", "ascendc")


def _folders() -> dict[str, Path]:
    """The folders of the targets that exist only as documents: those that ship, then the user's of
    other names."""
    here = Path(__file__).resolve().parent
    # In the checkout and where it is installed, `docspec` is beside `lowering`.
    found = {name: here.parent / "docspec" / name for name in DOCUMENTED}
    for name, folder in user_target_folders().items():
        if name not in TARGETS:
            found.setdefault(name, folder)
    return found


def target_names() -> tuple[str, ...]:
    """The names of all targets, also of a user's whose documents cannot be used: those with a
    built-in Coder, then those of documents."""
    return (*TARGETS, *_folders())


def load_target(name: str) -> Target:
    """The record of a target. Raises `UsageError` for an unknown one, and for one of documents that
    cannot be used."""
    if name in TARGETS:
        target: Target = importlib.import_module(TARGETS[name]).TARGET
        return target
    folders = _folders()
    if name not in folders:
        refuse(f"unknown target {name!r}; known: {', '.join(target_names())}")
    if name in DOCUMENTED:
        return document_target(folders[name], spoken_by(built_in_targets()))
    found = _own_targets()[name]
    if isinstance(found, UsageError):
        raise UsageError(str(found)) from found
    return found


def _shipped() -> tuple[Target, ...]:
    """The records of the targets that are sketchc's, in the order of `target_names`."""
    return tuple(load_target(name) for name in (*TARGETS, *DOCUMENTED))


def _own_targets() -> dict[str, Target | UsageError]:
    """The records of the user's own targets, in the order of `target_names`; for one that cannot be
    used, the error. Its language must be told from those of the targets before it."""
    usable, found = list(_shipped()), dict[str, "Target | UsageError"]()
    for name, folder in _folders().items():
        if name not in DOCUMENTED:
            try:
                usable.append(document_target(folder, spoken_by(usable)))
                found[name] = usable[-1]
            except UsageError as error:
                found[name] = error
    return found


def all_targets() -> tuple[Target, ...]:
    """The records of all targets that can be used, in the order of `target_names`: a user's own
    that cannot be must not stand in the way of others."""
    own = (found for found in _own_targets().values() if not isinstance(found, UsageError))
    return (*_shipped(), *own)


def built_in_targets() -> tuple[Target, ...]:
    """The records of the targets that have a built-in Coder, in the order of the registry."""
    return tuple(load_target(name) for name in TARGETS)


def targets_in(language: str) -> tuple[Target, ...]:
    """The targets whose kernels are written in a language: "python", "c++"."""
    return tuple(target for target in all_targets() if target.language.name == language)


def all_languages() -> tuple[Language, ...]:
    """The languages that some target's kernels are written in, by their names."""
    return tuple(sorted(_languages_of(all_targets()), key=lambda language: language.name))


def _languages_of(targets: Iterable[Target]) -> tuple[Language, ...]:
    return tuple(dict.fromkeys(target.language for target in targets))


def load_language(name: str) -> Language:
    """The language of that name; Python for one that no target has (an older record's)."""
    return next((language for language in all_languages() if language.name == name), PYTHON)


def language_of_file(path: str) -> Language:
    """The language that the ending of a file's name says; Python for any other ending."""
    found = (other for other in all_languages() if path.lower().endswith(other.suffixes))
    return next(found, PYTHON)
