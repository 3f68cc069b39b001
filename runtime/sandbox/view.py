"""What of this machine's files a worker sees: no private places, but for what it needs of them."""

from __future__ import annotations

import functools
import importlib.util
import os
import tempfile
from pathlib import Path

#: Folders of which a candidate sees nothing, besides the home and the temporary folder.
_PRIVATE = ("/root", "/home", "/tmp", "/var/tmp", "/run", "/dev/shm", "/mnt", "/media", "/srv")
_PACKAGES = ("agents", "docspec", "grammar", "lowering", "runtime")


def private() -> list[str]:
    """Folders that may hold what is no candidate's business."""
    return sorted({*_PRIVATE, str(Path.home()), tempfile.gettempdir()})


@functools.lru_cache(maxsize=1)
def own_packages() -> tuple[str, ...]:
    """Where sketchc itself is: an editable installation may be anywhere."""
    import sketchc

    found = list(sketchc.__path__)
    for name in _PACKAGES:
        specification = importlib.util.find_spec(f"sketchc.{name}")
        if specification is not None:
            found += specification.submodule_search_locations or []
    return tuple(found)


def tools() -> list[str]:
    """Where compilers and libraries of the user's may be."""
    names = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CUDA_HOME", "CUDA_PATH")
    places = [place for name in names for place in os.environ.get(name, "").split(os.pathsep)]
    return [place for place in places if os.path.isabs(place)]


@functools.lru_cache(maxsize=64)
def others_may_read(paths: tuple[str, ...]) -> bool:
    """Whether another user could run what lies there; else root's candidates stay root, without any
    capability."""
    return all(os.stat(path).st_mode & 5 == 5 for path in paths if os.path.isdir(path))
