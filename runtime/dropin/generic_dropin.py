"""One drop-in module for a sketch with `types:`, which calls that of the instance for its tensors.

`NAME_dropin.py` has the function that other drop-ins have (`kernel_module`); the drop-ins of the
instances lie beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sketchc.ir import nodes as ir
from sketchc.lowering.abi import wrapped
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.python_host import abi
from sketchc.runtime.dropin import kernel_module
from sketchc.runtime.dropin.kernel_module import LOADING, copied

_SUPPORT = Path(__file__).with_name("generic_support.py")


def write_generic_module(folder: Path, name: str, kernels: Sequence[Kernel]) -> Path:
    """Put the drop-in of the sketch `name` and those of the `kernels` of its instances into
    `folder`; returns its path. Raises `ToolchainError` and `OSError` as `write_module` does."""
    for kernel in kernels:
        kernel_module.write_module(folder, kernel)
    first, function = kernels[0], function_name(name, kernels)
    docstring = (
        f'"""The sketch `{name}` ({first.target}) as a function, for tensors of several types.\n\n'
        f"    from {name}_dropin import {function}\n\n"
        "It calls the kernel beside it that was made for tensors of these types. Made by sketchc.\n"
        '"""'
    )
    parts = ["PARTS = [", *map(_part, kernels), "]"]
    text = "\n\n\n".join(
        [docstring, *copied([LOADING, _SUPPORT]), "\n".join(parts), _function(function, first)]
    )
    path = folder / f"{name}_dropin.py"
    path.write_text(text + "\n", "utf-8")
    return path


def function_name(name: str, kernels: Sequence[Kernel]) -> str:
    """The function's name: that of the sketch, or another where its tensors or params have it."""
    names, sketch = kernel_module.names_of(kernels[0]), kernels[0].sketch
    taken = {names[tensor.name] for tensor in sketch.tensors}
    taken |= {names[param.name] for param in sketch.params}
    taken |= {"torch", "PARTS", "out", "kernel_for", "dtype_of", "load_file"}
    taken |= kernel_module.imported([LOADING, _SUPPORT])
    return f"{name}_" if name in taken else name


def _part(kernel: Kernel) -> str:
    """The entry of a kernel in `PARTS`: its function, and the types of its tensors."""
    sketch, module = kernel.sketch, f"{kernel.name}_dropin"
    outputs = [tensor for tensor in abi.results(sketch) if tensor.role is ir.Role.OUT]
    given, made = (
        ", ".join(f"torch.{tensor.dtype.numpy_name}" for tensor in tensors)
        for tensors in (abi.given(sketch), outputs)
    )
    function = kernel_module.function_name(kernel)
    return f'    (load_file("{module}", "{module}.py").{function}, [{given}], [{made}]),'


def _function(function: str, kernel: Kernel) -> str:
    """The text of the module's function, whose arguments are those of every instance."""
    sketch, names = kernel.sketch, kernel_module.names_of(kernel)
    arguments, returned = abi.signature(sketch, names, "Any")
    tensors = ", ".join(names[tensor.name] for tensor in abi.given(sketch))
    named = [f"{names[param.name]}={names[param.name]}" for param in sketch.params]
    has_out = any(tensor.role is ir.Role.OUT for tensor in sketch.tensors)
    out = "out" if has_out else "None"
    call = ", ".join([tensors, *named, *(["out=out"] if has_out else [])])
    return "\n".join(
        [
            wrapped(f"def {function}(", arguments, f") -> {returned}:"),
            '    """The kernel that was made for tensors of such types."""',
            f"    return kernel_for(PARTS, [{tensors}], {out})({call})",
        ]
    )
