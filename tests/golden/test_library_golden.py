"""The library of each kind of target, whole: what generated files carry as far as they need it.

The goldens of the kernels name what they take from here (rewrite with --update-golden).
"""

from __future__ import annotations

from pathlib import Path

from golden_files import check_golden

from sketchc.lowering.cpp.library.texts import library_text, pieces
from sketchc.lowering.triton.emit import HELPERS_BY_CALL
from sketchc.lowering.triton.library.texts import function_names, function_sources
from sketchc.lowering.triton.wrapper import HOST_HELPERS

FOLDER = Path(__file__).parent / "library"


def test_cpp_library(update_golden: bool) -> None:
    names = [piece.name for piece in pieces().values() if piece.inside]
    after = ["propagating_max", "propagating_min"]
    check_golden(FOLDER / "cpp.hpp", library_text([*names, *after]) + "\n", update_golden)


def test_triton_library(update_golden: bool) -> None:
    definitions = [*function_sources(function_names(), {}), HOST_HELPERS, *HELPERS_BY_CALL.values()]
    text = "\n\n\n".join(text.strip("\n") for text in definitions) + "\n"
    check_golden(FOLDER / "triton.py", text, update_golden)
