"""The headers of the C++ library compile, each by itself and without a warning."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import nanobind
import pytest
from toolchains import require

import sketchc.lowering.cpp.library.texts as library

require("cpp")
FOLDER = Path(library.__file__).parent


@pytest.mark.sweep
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.hpp")), ids=lambda path: path.name)
def test_a_header_compiles_by_itself(path: Path) -> None:
    folders = [sysconfig.get_path("include"), nanobind.include_dir()]
    command = ["g++", "-std=c++17", "-fopenmp", "-march=native", "-Wall", "-Wextra", "-Werror"]
    command += [f"-isystem{folder}" for folder in folders]
    command += ["-Wno-unused-function", "-fsyntax-only", "-include", str(path), "-xc++", "-"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_every_header_is_read() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.hpp")) == sorted(
        [*library.FILES, "python_module.hpp"]
    )
