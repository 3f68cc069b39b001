"""The languages that kernels are written in: how their files are named, quoted and parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    import ast


@attrs.frozen
class Language:
    """One language of generated source.

    `syntax` says how source text by others is parsed: as Python, as C (comments, `#include`,
    functions with C linkage), or not at all. `hosted`: a kernel's file holds a Python function that
    takes tensors; else it is compiled to a library with a function that takes pointers
    (`kernel.Kernel`), or called `by_runner`: by the program of a target of documents.
    """

    name: str  # "c++"
    title: str  # "C++"
    standard: str  # "C++17"
    suffixes: tuple[str, ...]  # of its files, the usual one first
    fence: str  # the word behind the fence of a code block
    syntax: Literal["python", "c", "other"]
    hosted: bool
    by_runner: bool = False

    @property
    def suffix(self) -> str:
        """The usual suffix of a file in the language, with the dot."""
        return self.suffixes[0]

    @property
    def comment(self) -> str:
        """What starts a comment that goes to the end of the line."""
        return "//" if self.syntax == "c" else "#"


PYTHON = Language("python", "Python", "Python", (".py",), "python", "python", hosted=True)
CPP = Language("c++", "C++", "C++17", (".cpp", ".cc", ".cxx"), "cpp", "c", hosted=False)
CUDA = Language("cuda", "CUDA-C", "CUDA-C", (".cu",), "cuda", "c", hosted=False)


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of Python text; None for text that does not parse."""
    import ast

    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
