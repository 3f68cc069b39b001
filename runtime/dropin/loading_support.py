"""The part of a drop-in module that loads files beside it. `kernel_module` copies the text between
the two marks, which uses nothing of sketchc, into the drop-in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

# ---- copied from here ----
FOLDER = Path(__file__).resolve().parent


def load_file(name: str, file: str) -> ModuleType:
    """Load the module `name` from a file of this folder; raises `ImportError` if it cannot."""
    path = FOLDER / file
    specification = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise ImportError(f"{path} is missing")
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(name, module)
    try:
        specification.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from error
    return module


# ---- to here ----
