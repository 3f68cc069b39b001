"""Launches of a `ModelNew` on Ascend: a stand-in for Triton passes them to the front end."""

from __future__ import annotations

import ast
from typing import Any

import torch

from sketchc.runtime.toolchains.torch_module.worker import LoadedModule
from sketchc.runtime.toolchains.triton_ascend import execute, standin


def prepare(session: LoadedModule, request: dict[str, Any]) -> None:
    """`ModelRun.prepare`: has launches compiled by the front end and for the chip of `request`."""
    torch.set_num_threads(1)
    kernels = session.path.with_name("kernels.py")
    kernels.write_text(kernels_of(session.path.read_text()))
    machine = execute.Machine(kernels, request["python"], request["chip"], "shuffled", False)

    def launch(launched: standin.Launch) -> None:
        with session.guard.launch():
            machine.launch(launched)

    standin.install(launch)


#: Modules that can be imported in the Ascend front end's environment, torch as a stand-in.
_KNOWN_MODULES = frozenset({"triton", "torch", "math", "typing", "__future__"})


def kernels_of(source: str) -> str:
    """The parts of `source` that its kernels need, on unchanged line numbers: imports, constants,
    and the functions that Triton compiles. Text that does not parse is returned as it is."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    lines = source.split("\n")
    kept = [""] * len(lines)
    for node in tree.body:
        if _of_kernels(node):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            kept[first - 1 : node.end_lineno] = lines[first - 1 : node.end_lineno]
    return "\n".join(kept)


def _of_kernels(node: ast.stmt) -> bool:
    match node:
        case ast.Import(names):
            return all(n.name in _KNOWN_MODULES or n.name.startswith("triton.") for n in names)
        case ast.ImportFrom(module):
            return module in _KNOWN_MODULES - {"torch"} or str(module).startswith("triton.")
        case ast.Assign(_, ast.Constant() | ast.Tuple() | ast.UnaryOp()):
            return True
        case ast.Assign(_, ast.Call(function)) | ast.AnnAssign(_, _, ast.Call(function)):
            return "constexpr" in ast.unparse(function)
        case ast.AnnAssign(_, _, ast.Constant()):
            return True
        case ast.FunctionDef():
            return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
        case _:
            return False
