"""A drop-in Python module around a kernel: a function under the sketch's own names.

`NAME_dropin.py` defines `NAME(X, ..., *, eps=..., out=None)`, which takes the `in` and `inout`
tensors in call order and the params by name, and returns the outputs in call order (one: bare,
several: a tuple). It is the same on every target, and needs torch and the target's DSL, but not
sketchc:

- Tensors of torch and arrays of NumPy, with any strides; results are arrays where nothing but
  arrays was given. `inout` tensors are updated in place; `out` gives the memory of outputs.
- Meta and fake tensors give shapes. The kernel is an operator of torch, which `torch.compile` and
  `torch.export` take as a whole; it has no backward pass.
- Beside it lie the kernel's file and, for C++, the module built from it, which is built again where
  the CPU or the Python is another. The folder can be moved: nothing in it names a place.
- For NVIDIA GPUs, `use_graphs()` has calls that repeat replay a CUDA graph of their launches.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from pathlib import Path

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.abi import wrapped
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.python_host import abi
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.python_host.shapes import shape_function
from sketchc.lowering.registry import load_language, load_target
from sketchc.runtime.toolchains.base import toolchain

#: Files whose text goes into drop-ins. They are not imported for it: they import torch.
LOADING, SUPPORT, MODEL_SUPPORT, LIST_SUPPORT, PARTIAL_SUPPORT, GRAPH_SUPPORT = (
    Path(__file__).with_name(f"{part}_support.py")
    for part in ("loading", "kernel", "model", "list", "partial", "graph")
)
_USE_GRAPHS = '''def use_graphs(on: bool = True) -> None:
    """Whether calls of this module's function replay a CUDA graph where they repeat: the same
    tensors, or others at their addresses, `out` included, and the same params, on one stream."""
    KERNEL.graphs = Graphs(run, len(KERNEL.names) > 0) if on else None'''
_MARKS = ("# ---- copied from here ----\n", "# ---- to here ----\n")


def write_module(folder: Path, kernel: Kernel) -> Path:
    """Put the drop-in and the kernel into `folder`; returns the drop-in's path.

    Raises `ToolchainError` where the kernel's own module cannot be built, and `OSError` where the
    folder cannot be written.
    """
    toolchain(kernel.target).build_module(kernel, folder)
    name = kernel.name
    docstring = (
        f'"""The kernel `{name}` ({kernel.target}) as a function.\n\n'
        f"    from {name}_dropin import {function_name(kernel)}\n\n"
        "It takes tensors of torch, or arrays of NumPy, with any strides. It is an operator of\n"
        'torch, too; it has no backward pass. Made by sketchc.\n"""'
    )
    path = folder / f"{name}_dropin.py"
    path.write_text("\n\n\n".join([docstring, *module_parts(kernel)]) + "\n", "utf-8")
    return path


def module_parts(kernel: Kernel, more: Sequence[Path] = ()) -> list[str]:
    """The parts of a module's text from its imports to the function; `more` are files whose text is
    copied into it, too."""
    built, definition = toolchain(kernel.target).module_parts(kernel)
    taken = [tensor.name for tensor in abi.given(kernel.sketch)]
    graphs = _has_graphs(kernel)
    parts = [LOADING, SUPPORT, *([built] if built else []), *([GRAPH_SUPPORT] if graphs else [])]
    return [
        *copied([*parts, *more]),
        shape_function(kernel.sketch, "_shapes", taken, "ceil_div"),
        _kernel(kernel, definition),
        *([_USE_GRAPHS] if graphs else []),
        _function(kernel),
    ]


def _has_graphs(kernel: Kernel) -> bool:
    """Whether CUDA graphs may hold the launches of a kernel: nothing is read back to the host."""
    steps = walk.statements(kernel.sketch.schedule)
    reads_back = any(isinstance(step, ir.Fetch) for step in steps)
    return load_target(kernel.target).device == "cuda" and not reads_back


def copied(files: Sequence[Path]) -> list[str]:
    """The imports of `files`, without those from sketchc, and their texts between the marks."""
    texts = [file.read_text("utf-8") for file in files]
    parts = (text.split(_MARKS[0])[1].split(_MARKS[1])[0].strip("\n") for text in texts)
    return [_imports(texts), *parts]


def function_name(kernel: Kernel) -> str:
    """The function's name: the sketch's, altered where the module uses that name itself."""
    return names_of(kernel)[kernel.sketch.name]


def names_of(kernel: Kernel) -> Names:
    """The sketch's names as Python identifiers, none of which the module uses itself. (Its tensors
    and params may have names of what is imported, which is then hidden in the function alone.)"""
    built, _ = toolchain(kernel.target).module_parts(kernel)
    files = [LOADING, SUPPORT, MODEL_SUPPORT, GRAPH_SUPPORT]
    files += [built] if built else []
    used = {"torch", "nn", "Any", "out", "Model", "ModelNew", "KERNEL", "FORWARD", "run", "file"}
    used.add("use_graphs")
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        for node in tree.body:
            match node:
                case ast.FunctionDef(name) | ast.ClassDef(name):
                    used.add(name)
                case ast.Assign([ast.Name(name)]):
                    used.add(name)
    names = Names(kernel.sketch, frozenset(used))
    names.taken |= imported(files)
    return names


def imported(files: Sequence[Path]) -> set[str]:
    """The names that the import statements of `files` define."""
    nodes = (node for file in files for node in ast.parse(file.read_text("utf-8")).body)
    return {
        alias.asname or alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _imports(texts: Sequence[str]) -> str:
    """The import statements above the marks of `texts`, merged, without those from sketchc."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for text in texts:
        for node in ast.parse(text.split(_MARKS[0])[0]).body:
            if isinstance(node, ast.Import):
                whole |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                parts.setdefault(node.module, set()).update(alias.name for alias in node.names)
    lines = [f"import {name}" for name in sorted(whole)]
    own = {module: names for module, names in parts.items() if not module.startswith("sketchc")}
    lines += [f"from {module} import {', '.join(sorted(own[module]))}" for module in sorted(own)]
    future, torch = "from __future__", "torch"
    first = [line for line in lines if line.startswith(future)]
    last = [line for line in lines if line.split()[1] == torch]
    between = [line for line in lines if line not in (*first, *last)]
    return "\n".join([*first, "", *between, "", *last])


def _kernel(kernel: Kernel, definition: str) -> str:
    """The text `definition`, which defines `run`, and behind it the definition of `KERNEL`."""
    sketch, target = kernel.sketch, load_target(kernel.target)
    # Two kernels of one name may be loaded side by side.
    name = f"{kernel.name}_{hashlib.sha256(kernel.source.encode()).hexdigest()[:12]}"
    given = abi.given(sketch)
    places = {tensor.name: place for place, tensor in enumerate(given)}
    tensors = [
        f'("{t.name}", torch.{t.dtype.numpy_name}, {t.role is ir.Role.INOUT}, {t.optional})'
        for t in given
    ]
    params = [f'("{spelled}", {kind})' for spelled, kind in _params(kernel)]
    made = [
        f'("{t.name}", torch.{t.dtype.numpy_name}, {places.get(t.name)})'
        for t in abi.results(sketch)
    ]
    own = ", ".join(f'"{word}"' for word in (target.device, target.interpreted_by) if word)
    return "\n".join(
        [
            definition,
            "KERNEL = Kernel(",
            f'    "{name}",',
            "    run,",
            *_listed(tensors),
            *_listed(params),
            *_listed(made),
            "    _shapes,",
            f"    device_types({own}),",
            ")",
        ]
    )


def _listed(items: Sequence[str]) -> list[str]:
    """The lines of a list argument within the call: one where it is short, else one per item."""
    line = f"    [{', '.join(items)}],"
    if len(line) < 100:
        return [line]
    return ["    [", *(f"        {item}," for item in items), "    ],"]


def _params(kernel: Kernel) -> list[tuple[str, str]]:
    """(name, type) of the params as the kernel's own function calls them."""
    hosted = load_language(kernel.language).hosted
    names = Names(kernel.sketch, load_target(kernel.target).reserved)
    return [
        (names[param.name] if hosted else param.name, abi.kind(param))
        for param in kernel.sketch.params
    ]


def _function(kernel: Kernel) -> str:
    """The text of the module's function, with its docstring."""
    sketch, names = kernel.sketch, names_of(kernel)
    given = abi.given(sketch)
    outputs = [tensor for tensor in abi.results(sketch) if tensor.role is ir.Role.OUT]
    arguments, returned = abi.signature(sketch, names, "Any")
    lines = [wrapped(f"def {names[sketch.name]}(", arguments, f") -> {returned}:")]
    lines += [f'    """The sketch `{sketch.name}`.', ""]
    lines += [f"    {names[tensor.name]}: {abi.described(tensor)}" for tensor in (*given, *outputs)]
    lines += ["    `out` takes the results' places where it is given."] if outputs else []
    lines.append('    """')
    tensors = ", ".join(names[tensor.name] for tensor in given)
    numbers = ", ".join(names[param.name] for param in sketch.params)
    out = ", out" if outputs else ""
    lines.append(f"    return KERNEL([{tensors}], [{numbers}]{out})")
    return "\n".join(lines)
