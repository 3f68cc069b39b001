"""The kernel that a Coder returns: source, entry point, the launch contract, and the source map."""

from __future__ import annotations

from typing import Any

import attrs

from sketchc.ir import nodes as ir
from sketchc.lowering.source_map import SourceMap, digest


@attrs.frozen
class LibraryPart:
    """Neighbouring definitions in a kernel's source that come from the library of its target.

    `names` says what is defined, in the order of definition; `text` is the part as it stands in
    the source.
    """

    names: tuple[str, ...]
    text: str


@attrs.frozen
class Kernel:
    """Generated (or LLM-written) code for one sketch and one target.

    `source` is one complete file. For Python targets `entry` names a wrapper function that takes
    the `in` and `inout` tensors in call order (torch tensors), params by keyword, and optionally
    `out=` (the one `out` tensor, or a tuple of all in call order); it returns all `out` and `inout`
    tensors in call order (one: bare, several: a tuple). Arguments that do not fit raise an error
    class named `LaunchError`, a `ValueError`.
    For C++ `entry` names an `extern "C" int64_t` function that takes pointers of all non-workspace
    tensors in call order, then symbols as int64_t in declaration order, then params (integers as
    int64_t, floats as double) in declaration order, then, for each axis that may broadcast
    (`X[M|1]`), its actual extent as int64_t. It returns 0 when done, k > 0 where the launch
    condition of number k does not hold (`launch_conditions(sketch)`), -1 where memory could not be
    had.
    `sketch` is the signature: roles, dtypes, extents, requires. `foreign`: the source is not the
    built-in Coder's, so that verification also asks whether the kernel does the work itself.
    `source_map` says which lines of `source` implement which lines of the sketch's file; empty for
    code by others. `library` has the parts of `source` that come from the target's library, in
    order; empty for code by others, too.
    """

    target: str
    hardware: str
    name: str
    entry: str
    language: str  # "python" or "c++"
    source: str
    sketch: ir.Sketch
    extras: tuple[tuple[str, str], ...] = ()  # further files: (file name, text)
    foreign: bool = False
    source_map: SourceMap = attrs.field(default=(), eq=False, repr=False)
    library: tuple[LibraryPart, ...] = attrs.field(default=(), eq=False, repr=False)


#: Version of a source map as JSON; raised with every change that an older reader would misread.
MAP_VERSION = 1


def source_map_json(kernel: Kernel, sketch_text: str, code_name: str) -> dict[str, Any]:
    """The source map of `kernel` as JSON data. Its digests tell readers whether it fits the texts
    in hand: `code_name` is the file that holds the kernel, `sketch_text` the sketch as written."""
    return {
        "version": MAP_VERSION,
        "sketch": kernel.name,
        "target": kernel.target,
        "code": code_name,
        "code_digest": digest(kernel.source),
        "sketch_digest": digest(sketch_text),
        "lines": [[line, list(origins)] for line, origins in kernel.source_map],
    }
