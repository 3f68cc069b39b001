"""The headers of the C++ library compile, each by itself and without a warning."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import nanobind
import pytest
from toolchains import require

from sketchc.lowering.cpp.library import texts
from sketchc.lowering.cpp.library.texts import LIBRARY

require("cpp")
#: What kernels do not carry.
OF_MODULES = Path(texts.__file__).with_name("python_module.hpp")
FOLDERS = sorted({header.parent for header in LIBRARY.headers})
HEADERS = [*LIBRARY.headers, OF_MODULES]


@pytest.mark.sweep
@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.name)
def test_a_header_compiles_by_itself(path: Path) -> None:
    folders = [sysconfig.get_path("include"), nanobind.include_dir()]
    command = ["g++", "-std=c++17", "-fopenmp", "-march=native", "-Wall", "-Wextra", "-Werror"]
    command += [f"-isystem{folder}" for folder in folders] + [f"-I{folder}" for folder in FOLDERS]
    command += ["-Wno-unused-function", "-fsyntax-only", "-include", str(path), "-xc++", "-"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_every_header_is_read() -> None:
    assert sorted(path for folder in FOLDERS for path in folder.glob("*.hpp")) == sorted(HEADERS)
