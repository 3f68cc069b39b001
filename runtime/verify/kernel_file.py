"""An existing kernel file as a `Kernel`: what `verifier-only` and `coder-only` start from."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language, load_target

#: The class of a file in KernelBench's format, in place of a function.
MODULE_CLASS = "ModelNew"


def load_kernel(
    path: Path,
    target: str,
    sketch: ir.Sketch,
    entry: str | None = None,
    hardware: str | None = None,
) -> Kernel:
    """The kernel in a file; `sketch` is its sketch or its signature.

    The entry point is `entry`, else the function named as the sketch, else the file's only public
    function (C++: the only `extern "C"` function). Raises `UsageError` for a file that cannot be
    read, and where no entry point can be told, with what was found.
    """
    found = load_target(target)
    source, language = _source(path), found.language.name
    chosen = entry_point(source, language, sketch.name, str(path), entry)
    chip = hardware or found.capabilities.default_hardware
    return Kernel(target, chip, sketch.name, chosen, language, source, sketch, foreign=True)


def entry_point(
    source: str, language: str, name: str, where: str = "the kernel", wanted: str | None = None
) -> str:
    """The function of a kernel's source that is called. `name` is the sketch's, `wanted` what the
    user says. Raises `UsageError`; text that does not parse is taken to define `name`, so that
    verification can say what is wrong with it."""
    in_c = load_language(language).syntax == "c"
    found = _c_functions(source) if in_c else _python_functions(source)
    if found is None:
        return wanted or name
    listed = f"it defines {', '.join(found)}" if found else "it defines none"
    if wanted is not None:
        if wanted in found:
            return wanted
        msg = f"{where} has no entry point {wanted}: {listed}"
        raise UsageError(msg)
    if name in found:
        return name
    if len(found) == 1:
        return found[0]
    kind = 'extern "C" function' if in_c else "public function"
    msg = f"{where} has no entry point {name} and not exactly one {kind}: {listed}"
    raise UsageError(msg)


def _python_functions(source: str) -> list[str] | None:
    """Public functions at the top of a file that Triton does not compile; None if it is no Python.

    Where `__all__` is a plain list, it says which are public.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("__all__")], ast.List(elements) | ast.Tuple(elements)):
                public = [e.value for e in elements if isinstance(e, ast.Constant)]
                return [name for name in found if name in public] or found
            case _:
                pass
    return found


def _c_functions(source: str) -> list[str]:
    """Functions that are defined with C linkage, one by one or in a block."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    single = re.findall(r'extern\s*"C"\s+(?:[\w:]+[\s*&]+)+(\w+)\s*\([^;{}]*\)\s*\{', text)
    found = list(single)
    for block in re.finditer(r'extern\s*"C"\s*\{', text):
        inner = text[block.end() : _closing(text, block.end())]
        depth_one = re.sub(r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", "{}", inner)
        found += re.findall(r"(?:[\w:]+[\s*&]+)+(\w+)\s*\([^;{}]*\)\s*\{", depth_one)
    return list(dict.fromkeys(found))


def _closing(text: str, start: int) -> int:
    """Where the brace that was opened before `start` is closed."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def is_module_file(path: Path) -> bool:
    """Whether a Python file defines a class `ModelNew`; False for one that cannot be read."""
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == MODULE_CLASS for node in tree.body)


def load_module(path: Path, target: str, sketch: ir.Sketch, hardware: str) -> Kernel:
    """The file of a `ModelNew` as a kernel whose entry is that class. Raises `UsageError`."""
    return Kernel(
        target,
        hardware,
        sketch.name,
        MODULE_CLASS,
        "python",
        _source(path),
        sketch,
        foreign=True,
    )


def _source(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        msg = f"cannot read the kernel {path}: {why}"
        raise UsageError(msg) from error
