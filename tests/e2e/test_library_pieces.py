"""Each piece of the libraries of C++ and CUDA-C compiles beside what it names, and nothing else;
and so does the CUDA-C of every example, with the pieces that it carries."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from toolchains import require

from sketchc.lowering.c_source.library.texts import Library, split
from sketchc.lowering.cpp.library.texts import LIBRARY as CPP
from sketchc.lowering.cpp.library.texts import include_lines, library_text
from sketchc.lowering.cuda_c.library.texts import LIBRARY as CUDA_C
from sketchc.runtime.toolchains.cuda_c.toolchain import EMULATOR
from sketchc.runtime.toolchains.cuda_c.translation import for_cpu

require("cpp")
GOLDENS = sorted(Path(__file__).parents[1].glob("golden/cuda_c/*.cu"))
#: What stands in for the library in a golden: the names of its pieces.
_LIBRARY = re.compile(r"^// The library: (.*(?:\n//.*)*)", re.MULTILINE)
_INCLUDE = re.compile(r"^#include.*", re.MULTILINE)


def check(texts: dict[str, str], beside: list[str], flags: list[str]) -> None:
    """Compile C++ texts at once, each in a namespace of its own, with the lines `beside` them."""
    lines = [*beside]
    for number, (name, text) in enumerate(texts.items()):
        lines += [f"namespace text_{number} {{", f'#line 1 "{name}"', text, "}"]
    command = ["g++", "-w", "-fopenmp", *flags, "-S", "-O0", "-o-", "-xc++", "-"]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=300
    )
    wrong = [line for line in done.stderr.splitlines() if "error: " in line]
    assert done.returncode == 0, "\n".join(wrong[:20])


def with_partners(library: Library) -> dict[str, list[str]]:
    """Each piece with those that it is carried with."""
    return {name: [name, *piece.partners] for name, piece in library.pieces.items()}


def test_a_piece_of_cpp_compiles_with_what_it_names() -> None:
    names = with_partners(CPP)
    texts = {name: library_text(carried) for name, carried in names.items() if name != "intrinsics"}
    check(texts, [include_lines(CPP.pieces)], ["-std=c++17", "-march=native"])


_CUDA = (['#include "cuda_runtime.h"'], ["-std=c++20", f"-I{EMULATOR}", "-DSKETCH_EMULATOR=state"])


def test_a_piece_of_cuda_c_compiles_with_what_it_names() -> None:
    names = with_partners(CUDA_C)
    texts = {name: for_cpu(CUDA_C.namespace(carried)) for name, carried in names.items()}
    check(texts, [*CUDA_C.includes, *_CUDA[0]], _CUDA[1])


def test_the_cuda_c_of_an_example_has_all_that_it_names() -> None:
    """In every run, where only some examples run."""
    texts = {}
    for path in GOLDENS:
        golden = _INCLUDE.sub("", path.read_text("utf-8"))
        carried = _LIBRARY.search(golden)
        assert carried is not None, path
        library = CUDA_C.namespace(re.findall(r"\w+", carried[1]))
        texts[path.name] = for_cpu(golden.replace(carried[0], library))
    check(texts, [*CUDA_C.includes, *_CUDA[0]], _CUDA[1])


def test_a_piece_is_not_needed_for_a_comment() -> None:
    parts = ["namespace sketch {", "struct both {};", "// Of both.\nstruct one {};", "} // end"]
    pieces = {piece.name: piece for piece in split("\n\n".join(parts))}
    assert pieces.keys() == {"both", "one"}
    assert "both" not in pieces["one"].words
