"""Files that are replaced as a whole, and the user's folders."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ASIDE = re.compile(r"\.(?P<name>.+)\.\d+\.\d+")


def replace_file(
    path: str | os.PathLike[str],
    content: bytes | str,
    mode: int | None = None,
    *,
    durable: bool = False,
) -> None:
    """Give a file this content (text in UTF-8), whole or not at all: whoever reads it meanwhile
    sees the old content or the new one, whatever other threads and processes write.

    A symbolic link stays one. `mode` are the file's permissions: by default those of the file that
    is there, else those of any new file. `durable`: the content is on the disk before it takes its
    place. Raises `OSError`, and then the file is as it was.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    aside = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}")
    if mode is None:
        with suppress(OSError):
            mode = os.stat(target).st_mode
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(aside, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(aside, mode)
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def written_for(name: str) -> str:
    """The name of the file whose next content was written under this `name` when `replace_file` was
    killed; any other name as it is."""
    aside = _ASIDE.fullmatch(name)
    return aside["name"] if aside else name


def user_folder(variable: str, default: str) -> Path:
    """sketchc's folder in the one that the XDG variable `variable` names, or in `~/default`."""
    from pathlib import Path

    configured = os.environ.get(variable)
    return (Path(configured) if configured else Path.home() / default) / "sketchc"


def default_store() -> Path:
    """$SKETCHC_STORE, else `sketchc/store.sqlite` in the user's data folder ($XDG_DATA_HOME, else
    ~/.local/share). The file need not exist."""
    from pathlib import Path

    named = os.environ.get("SKETCHC_STORE")
    return Path(named) if named else user_folder("XDG_DATA_HOME", ".local/share") / "store.sqlite"
