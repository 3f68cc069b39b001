"""Make the front end's Linalg digestible for upstream MLIR, and read its signature.

The text uses dialects of the NPU's own compiler for hints (dropped), for a few library functions
(given a body, in C or in MLIR) and for float remainders (rewritten).
"""

from __future__ import annotations

import re

import attrs

from sketchc.runtime.toolchains.triton_ascend.library import UnsupportedLinalgError, library_body

_HINT_LINES = re.compile(
    r"^\s*(?:annotation\.mark|gpu\.barrier|\"?llvm\.intr\.assume\"?)\b.*\n", re.MULTILINE
)
_HINT_ATTRIBUTES = re.compile(r" \{hivm\.[^{}]*\}")
_FUNCTION = re.compile(r"func\.func @(\w+)\((.*?)\) attributes", re.DOTALL)
_ARGUMENT = re.compile(r"%\w+: (memref<\?x(\w+)>|\w+)")
_PRIVATE = re.compile(r"^\s*func\.func private @(\w+)\((.*)\)(?: -> (.*?))?(?: attributes .*)?$")
_REMAINDER = re.compile(
    r"hfusion\.elemwise_binary \{fun = #hfusion\.binary_fn<mod>\} "
    r"ins\((%\w+), (%\w+) : (tensor<[^>]*>), tensor<[^>]*>\) outs\(%\w+ : tensor<[^>]*>\) "
    r"-> tensor<[^>]*>"
)

#: Arguments before the user's (lock, workspace) and after them (grid and position).
LEADING, TRAILING = 2, 6

#: The kernel's symbol in the library: its own name may be that of a C function.
KERNEL = "sketchc_kernel"


@attrs.frozen
class Argument:
    """One user argument: a buffer of `element` types, or a scalar of that type."""

    element: str  # "f32", "bf16", "i1", ...
    buffer: bool


@attrs.frozen
class Function:
    """The kernel: its name and the user's arguments in order."""

    name: str
    arguments: tuple[Argument, ...]


def read_function(linalg: str) -> Function:
    """The kernel's signature. Raises `UnsupportedLinalgError` where there is none."""
    found = _FUNCTION.search(linalg)
    if found is None:
        message = "the front end's output has no kernel function"
        raise UnsupportedLinalgError(message)
    every = [
        Argument(buffer or scalar, bool(buffer))
        for scalar, buffer in _ARGUMENT.findall(found.group(2))
    ]
    return Function(found.group(1), tuple(every[LEADING:-TRAILING]))


def normalise(linalg: str) -> str:
    """Text that `mlir-opt` parses, with a meaning for every function that stays declared.

    Raises `UnsupportedLinalgError` for a function or an operation without one.
    """
    name = read_function(linalg).name
    text = re.sub(rf"@{name}\b", f"@{KERNEL}", linalg)
    text = _HINT_LINES.sub("", text)
    text = _HINT_ATTRIBUTES.sub("", text)
    text = _REMAINDER.sub(r"arith.remf \1, \2 : \3", text)
    lines = []
    for line in text.split("\n"):
        found = _PRIVATE.match(line)
        lines.append(library_body(found.group(1), line, text) if found else line)
    text = "\n".join(lines)
    odd = sorted(set(re.findall(r"(?<![#\w.\"])((?:hivm|hfusion)\.[\w.]+)", text)))
    if odd:
        message = f"the Linalg uses {', '.join(odd)}, which cannot be executed on the CPU"
        raise UnsupportedLinalgError(message)
    return text
