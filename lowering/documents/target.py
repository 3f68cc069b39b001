"""The record of a target that exists only as documents, made of its folder's manifest."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.base.files import user_folder
from sketchc.lowering.documents.manifest import Described, Say, described
from sketchc.lowering.language import Language
from sketchc.lowering.target import Target

#: Name of the manifest in its folder.
MANIFEST = "docspec.toml"
#: A target's name: a folder's, too, and in capitals a part of an environment variable's.
NAME = re.compile(r"[a-z][a-z0-9_]*")
NO_NAME = "lower-case letters, digits and _, a letter first"

#: The languages of targets, each with the name of a target that has it.
Spoken = tuple[tuple[str, Language], ...]


def user_targets() -> Path:
    """The folder of the user's own targets, each a folder of documents by its name: what
    $SKETCHC_TARGETS names, else `targets` among the user's data. It need not exist."""
    own = user_folder("XDG_DATA_HOME", ".local/share") / "targets"
    return Path(os.path.expanduser(os.environ.get("SKETCHC_TARGETS") or own)).absolute()


def user_target_folders() -> dict[str, Path]:
    """The folders of the user's own targets by name; those that hold a manifest."""
    found = sorted(user_targets().glob(f"*/{MANIFEST}"))
    return {path.parent.name: path.parent for path in found}


def document_target(folder: Path, known: Spoken) -> Target:
    """The target that the documents in `folder` describe; the languages of its files must be told
    from those `known`. Raises `UsageError` with the first finding for a manifest that describes
    none."""
    path = folder / MANIFEST
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        refuse(f"cannot read {path}: {error}", error)
    return _target(folder, text, known)


def described_in(folder: Path, data: Mapping[str, Any], known: Spoken, say: Say) -> Described:
    """What the manifest `data` in `folder` says of its target; `say` hears all for which
    `document_target` refuses it."""
    name = Path(os.path.abspath(folder)).name
    found = described(data, name, say)
    if found.capabilities is None:
        if Path(os.path.abspath(folder)).parent == user_targets():
            say("target", "[capabilities] and [toolchain] are missing: they make a target", "")
        return found
    if not NAME.fullmatch(name):
        say("target", f"the folder's name {name!r} is no name of a target: {NO_NAME}", "")
    elif data.get("target") != name:
        say("target", f"target is {data.get('target')!r}, and its folder {name!r}", "")
    for target, other in known if found.language is not None else ():
        if found.language is not None and (why := clash(found.language, target, other)):
            say("name", why, "language")
            break
    return found


@cache
def _target(folder: Path, text: str, known: Spoken) -> Target:
    where = folder / MANIFEST
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        refuse(f"{where} is not TOML: {error}", error)
    findings: list[str] = []
    found = described_in(folder, data, known, lambda key, message, place: findings.append(message))
    if findings or found.capabilities is None or found.language is None:
        told = findings[0] if findings else "[capabilities] and [toolchain] are missing"
        refuse(f"{where} describes no target: {told}; see `sketchc docspec check {folder}`")
    language = found.language
    return Target(
        found.capabilities,
        description=str(data.get("title", folder.name)),
        language=language,
        coder="",
        hints="sketchc.lowering.documents.hints",
        abi="sketchc.lowering.documents.abi",
        toolchain="sketchc.runtime.toolchains.documents.toolchain",
        dsl=language.title,
        documents=str(folder),
        tools=found.tools,
        imports=found.imports,
        failures=found.failures,
    )


def clash(language: Language, target: str, other: Language) -> str:
    """Why `language` cannot be told from the `other` one, of a `target`; "" where it can, or where
    they are the same."""
    if language == other:
        return ""
    if language.name == other.name:
        ours, theirs = attrs.asdict(language), attrs.asdict(other)
        different = next(key for key in ours if ours[key] != theirs[key])
        return (
            f"the target {target} has another language {language.name!r} ({different}: "
            f"{_shown(theirs[different])} there, {_shown(ours[different])} here): choose another "
            "name, or describe the same language"
        )
    shared = sorted({*language.suffixes} & {*other.suffixes})
    return (
        f"files that end in {shared[0]} are {other.title} here, those of the target {target}: "
        "choose other suffixes"
        if shared
        else ""
    )


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def spoken_by(targets: Iterable[Target]) -> Spoken:
    """The languages of targets, each once, with the first that has it."""
    first: dict[Language, str] = {}
    for target in targets:
        first.setdefault(target.language, target.name)
    return tuple((name, language) for language, name in first.items())
