"""The record of a target that exists only as documents, made of its folder's manifest."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path

from sketchc.base.diagnostics import refuse
from sketchc.base.files import user_folder
from sketchc.lowering.documents.manifest import described
from sketchc.lowering.language import Language
from sketchc.lowering.target import Target

#: Name of the manifest in its folder.
MANIFEST = "docspec.toml"


def user_targets() -> Path:
    """The folder of the user's own targets, each a folder of documents by its name: what
    $SKETCHC_TARGETS names, else `targets` among the user's data. It need not exist."""
    own = user_folder("XDG_DATA_HOME", ".local/share") / "targets"
    return Path(os.path.expanduser(os.environ.get("SKETCHC_TARGETS") or own)).absolute()


def user_target_folders() -> dict[str, Path]:
    """The folders of the user's own targets by name; those that hold a manifest."""
    found = sorted(user_targets().glob(f"*/{MANIFEST}"))
    return {path.parent.name: path.parent for path in found}


def document_target(folder: Path, known: tuple[Language, ...]) -> Target:
    """The target that the documents in `folder` describe, whose language may be one of those
    `known`. Raises `UsageError` with the first finding for a manifest that describes none."""
    path = folder / MANIFEST
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        refuse(f"cannot read {path}: {error}", error)
    return _target(folder, text, known)


@cache
def _target(folder: Path, text: str, known: tuple[Language, ...]) -> Target:
    where = folder / MANIFEST
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        refuse(f"{where} is not TOML: {error}", error)
    findings: list[str] = []
    found = described(data, folder.name, lambda key, message, place: findings.append(message))
    if data.get("target") != folder.name:
        findings.insert(0, f"target is {data.get('target')!r}, and its folder {folder.name!r}")
    if found.language is None:
        language = next((one for one in known if one.name == data.get("language")), None)
    else:
        language = found.language
        for other in known:
            if other != language and clash(language, other):
                findings.append(clash(language, other))
    if language is None:
        findings.append(f"unknown language {data.get('language')!r}")
    if findings or found.capabilities is None or language is None:
        told = findings[0] if findings else "[capabilities] and [toolchain] are missing"
        refuse(f"{where} describes no target: {told}; see `sketchc docspec check {folder}`")
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


def clash(language: Language, other: Language) -> str:
    """Why two languages that are not the same cannot be told apart; "" where they can."""
    if language.name == other.name:
        return f"there is another language {language.name!r}, with other properties"
    shared = sorted({*language.suffixes} & {*other.suffixes})
    return f"files that end in {shared[0]} are {other.title} here" if shared else ""
