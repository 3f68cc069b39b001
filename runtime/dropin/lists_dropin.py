"""One drop-in module for a task whose lists of inputs need several kernels.

`NAME_dropin.py` has the same `ModelNew` as other drop-ins do (`torch_dropin`); its `forward`
calls the drop-in beside it that was made for inputs with these types, ranks and constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from sketchc.runtime.dropin.kernel_module import LIST_SUPPORT, LOADING, copied
from sketchc.runtime.tasks.description import InputSpec, OtherSpec, TensorSpec


@attrs.frozen
class Part:
    """The drop-in of one kernel, a module, and the lists of inputs that it was made for."""

    module: str
    lists: Sequence[Sequence[InputSpec]]


def write_lists_dropin(
    folder: Path, module: str, task: str, target: str, parts: Sequence[Part]
) -> Path:
    """Put the drop-in of a task beside those of its parts; returns its path. Raises `OSError`."""
    docstring = (
        f'"""Drop-in for the task {task}.py, whose lists of inputs need {len(parts)} kernels '
        f"({target}).\n\n"
        f"    from {module} import ModelNew, get_init_inputs, get_inputs\n\n"
        "    model = ModelNew(*get_init_inputs()).eval()\n"
        "    result = model(*get_inputs())\n\n"
        "`ModelNew` is the task's `Model` with another `forward`, which takes the kernel that was\n"
        "made for tensors of such types and ranks. Made by sketchc.\n"
        '"""'
    )
    loaded = [f'    load_file("{part.module}", "{part.module}.py"),' for part in parts]
    served = {
        f"    ({number}, [{', '.join(map(_form, values))}]),": None
        for number, part in enumerate(parts)
        for values in part.lists
    }
    lines = [
        "PARTS = [",
        *loaded,
        "]",
        "#: For each list of inputs: the part that serves it, and what it holds. Of a tensor that",
        "#: is the type and, for each axis, whether it has one place or more.",
        "SERVED = [",
        *served,
        "]",
        "Model = PARTS[0].Model",
        "get_inputs, get_init_inputs = PARTS[0].get_inputs, PARTS[0].get_init_inputs",
        "ORDER = names_of(Model.forward)",
    ]
    text = "\n\n\n".join(
        [docstring, *copied([LOADING, LIST_SUPPORT]), "\n".join(lines), _MODEL.strip("\n")]
    )
    path = folder / f"{module}.py"
    path.write_text(text + "\n", "utf-8")
    return path


_MODEL = '''
class ModelNew(PARTS[0].ModelNew):  # type: ignore[misc, name-defined]
    """`Model`, computed by one kernel or another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for part in PARTS[1:]:
            init = part.get_init_inputs()
            part.check_construction(self, Model, (args, kwargs), init, part.MAY_DIFFER)

    def forward(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        part = PARTS[chosen(ORDER, args, kwargs, SERVED)]
        return part.ModelNew.forward(self, *args, out=out, **kwargs)

    # For help() and torch.export.
    forward.__signature__ = inspect.signature(Model.forward)  # type: ignore[attr-defined]
'''


def _form(value: InputSpec) -> str:
    """The Python text of what the module's `form_of` returns for such an input."""
    if isinstance(value, TensorSpec):
        ones = "".join(', "1"' if size == 1 else ', "n"' for size in value.shape)
        return f"(torch.{value.dtype.numpy_name}{ones or ','})"
    if isinstance(value, OtherSpec):
        return "None" if value.is_none else repr(value.text)
    return repr(value)
