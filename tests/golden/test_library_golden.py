"""The library of each kind of target, whole: what generated files carry as far as they need it.

The goldens of the kernels name what they take from here (rewrite with --update-golden).
"""

from __future__ import annotations

from pathlib import Path

from golden_files import check_golden

from sketchc.lowering.cpp.prelude import HELPERS, prelude
from sketchc.lowering.triton.emit import HELPERS_BY_CALL
from sketchc.lowering.triton.library.texts import function_names, function_sources
from sketchc.lowering.triton.wrapper import HOST_HELPERS

FOLDER = Path(__file__).parent / "library"


def test_cpp_library(update_golden: bool) -> None:
    used = "".join(f"sketch::{name}\n" for name in HELPERS)
    check_golden(FOLDER / "cpp.hpp", prelude(used), update_golden)


def test_triton_library(update_golden: bool) -> None:
    definitions = [*function_sources(function_names(), {}), HOST_HELPERS, *HELPERS_BY_CALL.values()]
    text = "\n\n\n".join(text.strip("\n") for text in definitions) + "\n"
    check_golden(FOLDER / "triton.py", text, update_golden)
