"""The library of generated CUDA-C: what is C++ on any machine, what the threads of a block do
together, and what the host does around the kernels."""

from __future__ import annotations

import re
from pathlib import Path

from sketchc.lowering.c_source.library.texts import Library, shared

_FOLDER = Path(__file__).parent

#: What g++ has as a built-in, CUDA has as a function of the C library.
_BUILTIN = re.compile(r"__builtin_(\w+)\(")
_FUNCTION = re.compile(r"^(template <.*>\s+)?(inline |constexpr (?=[\w:]+ \w+\())", re.MULTILINE)
_METHOD = re.compile(r"^    (?=void take\()", re.MULTILINE)
_UNROLL = "#pragma GCC unroll"


def _for_both(header: Path, text: str) -> str:
    """A piece of C++ as functions for the host and for the device; what the host alone needs, and
    CUDA-C, as it is."""
    if header.parent == _FOLDER or header.name == "launch.hpp":
        return text
    text = _BUILTIN.sub(r"::\1(", text).replace(_UNROLL, "#pragma unroll")
    text = _METHOD.sub("    __host__ __device__ ", text)
    return _FUNCTION.sub(lambda found: f"{found[1] or ''}__host__ __device__ {found[2]}", text)


LIBRARY = Library(
    (
        *shared("numbers.hpp", "functions.hpp", "lanes.hpp", "random.hpp", "launch.hpp"),
        _FOLDER / "device.hpp",
        _FOLDER / "block.hpp",
        _FOLDER / "scans.hpp",
        _FOLDER / "sums.hpp",
        _FOLDER / "product.hpp",
        _FOLDER / "groups.hpp",
        _FOLDER / "maps.hpp",
        _FOLDER / "host.hpp",
    ),
    _for_both,
)
