"""The library of each kind of target, whole: what generated files carry as far as they need it.

The goldens of the kernels name what they take from here (rewrite with --update-golden).
"""

from __future__ import annotations

from pathlib import Path

from golden_files import check_golden

from sketchc.lowering.cpp.library.texts import LIBRARY, library_text
from sketchc.lowering.python_host.expressions import HELPERS
from sketchc.lowering.python_host.library import definitions
from sketchc.lowering.tilelang_cuda.emit import FUNCTIONS as TILELANG_FUNCTIONS
from sketchc.lowering.triton.emit import FUNCTIONS

FOLDER = Path(__file__).parent / "library"


def test_cpp_library(update_golden: bool) -> None:
    names = [piece.name for piece in LIBRARY.pieces.values() if piece.inside]
    after = ["propagating_max", "propagating_min"]
    check_golden(FOLDER / "cpp.hpp", library_text([*names, *after]) + "\n", update_golden)


def test_triton_library(update_golden: bool) -> None:
    found = [*definitions(FUNCTIONS).values(), *definitions(HELPERS).values()]
    text = "\n\n\n".join(definition.text for definition in found) + "\n"
    check_golden(FOLDER / "triton.py", text, update_golden)


def test_tilelang_library(update_golden: bool) -> None:
    """The wrapper's part is in the golden of Triton's."""
    text = "\n\n\n".join(each.text for each in definitions(TILELANG_FUNCTIONS).values()) + "\n"
    check_golden(FOLDER / "tilelang.py", text, update_golden)
