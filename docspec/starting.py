"""Starting the folder of a target of documents: a copy of `docspec/skeleton` under another name."""

from __future__ import annotations

import re
from pathlib import Path

from sketchc.base.diagnostics import refuse, refusing
from sketchc.lowering.documents.target import NAME, NO_NAME

_SKELETON = Path(__file__).resolve().with_name("skeleton")


def start(name: str, folder: Path) -> list[Path]:
    """Write the skeleton of the target `name` into `folder`, which must not exist; returns the
    files. Raises `UsageError`."""
    if not NAME.fullmatch(name):
        refuse(f"{name!r} is no name of a target: {NO_NAME}")
    if folder.name != name:
        refuse(f"the folder of the target {name} must be called {name}, not {folder.name!r}")
    if folder.exists():
        refuse(f"{folder} exists already")
    written = []
    with refusing(f"cannot write {folder}"):
        for path in sorted(_SKELETON.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                copy = folder / path.relative_to(_SKELETON)
                copy.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text("utf-8")
                copy.write_text(re.sub(r"\bskeleton\b", name, text), "utf-8")
                written.append(copy)
    return written
