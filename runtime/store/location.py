"""Where the store is, when nobody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

#: Names another file than the default one.
VARIABLE = "SKETCHC_STORE"


def default_store() -> Path:
    """$SKETCHC_STORE, else `sketchc/store.sqlite` in the user's data folder ($XDG_DATA_HOME, else
    ~/.local/share). The file need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "sketchc" / "store.sqlite"
