"""What sources include first is compiled once, and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolchains import require

from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
from sketchc.runtime.toolchains.native import compiler, headers
from sketchc.runtime.toolchains.native.headers import first_includes

SOURCE = """// A kernel.

#include <cmath>
#include <vector>
#if defined(__AVX__)
#include <immintrin.h>
#endif
#if defined(NEVER)
#define LATER
#endif
#include <string>
extern "C" double root(double x) { return std::sqrt(x) + %d; }
"""


def test_includes_end_where_something_else_begins() -> None:
    """What is defined ahead of an include may change what it says."""
    found = first_includes(SOURCE)
    assert found.splitlines()[0] == "#include <cmath>"
    assert found.splitlines()[-1] == "#endif"
    assert "immintrin" in found
    assert "string" not in found
    assert first_includes('#include "own.hpp"\n#include <cmath>\n') == ""
    assert first_includes("#define X\n#include <cmath>\n") == ""
    assert first_includes("#if 1\n#include <cmath>\n") == ""
    assert first_includes("int x;") == ""
    level = '#pragma GCC optimize("O1")\n#include <cmath>\n'
    assert first_includes(level) == "#include <cmath>\n"
    assert first_includes(level.replace("O1", "fast-math")) == ""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty build cache."""
    require("cpp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiler.cache_folder() / "headers"


def build(folder: Path, text: str) -> str:
    """Compile a source; the warnings."""
    source = folder / "kernel.cpp"
    source.write_text(text)
    flags = (*FLAGS, "-Winvalid-pch", "-H")
    printed, cached = compiler.build([source], flags, folder / "kernel.so")
    assert not cached
    return printed


def test_a_header_that_is_seen_again_is_compiled_once_and_used(cache: Path, tmp_path: Path) -> None:
    first = build(tmp_path, SOURCE % 1)
    assert not list(cache.glob("*.gch"))
    second = build(tmp_path, SOURCE % 2)
    (made,) = cache.glob("*.gch")
    written = made.stat().st_mtime_ns
    third = build(tmp_path, SOURCE % 3)
    assert made.stat().st_mtime_ns == written
    # -H lists the headers that are read, and marks a precompiled one with "!".
    assert "avxintrin.h" in first
    for printed in (second, third):
        assert f"! {made}" in printed
        assert "avxintrin.h" not in printed


def test_a_source_that_leaves_an_include_out_is_not_helped(cache: Path, tmp_path: Path) -> None:
    for number in range(3):
        build(tmp_path, SOURCE % number)
    with pytest.raises(ToolchainError, match="sqrt"):
        build(tmp_path, "#include <cstdint>\n" + SOURCE.split("#endif\n")[-1] % 9)


def test_damaged_headers_and_full_folders_cost_nothing_but_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        build(tmp_path, SOURCE % number)
    (made,) = cache.glob("*.gch")
    made.write_bytes(b"damaged")
    build(tmp_path, SOURCE % 4)
    monkeypatch.setattr(headers, "MOST_HEADERS", 1)
    for number in range(3):
        build(tmp_path, f"#include <map>\n{SOURCE % (10 + number)}")
    assert len(list(cache.glob("*.gch"))) == 1
