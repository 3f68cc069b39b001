"""A drop-in Python module around a verified kernel, in KernelBench's form.

`NAME_dropin.py` defines `ModelNew`, `get_inputs` and `get_init_inputs`. `ModelNew` derives from the
task's own `Model` (the task's file is copied beside it), so its constructor, parameters and
state_dict are the task's; only `forward` calls the kernel. Beside it lie the kernel's file and, for
C++, the nanobind module built from it. The folder can be moved: nothing in it names a place.

What `ModelNew` takes and refuses is in `model_support`: tensors or arrays, and `out=` besides. It
computes what the task computes in evaluation mode. The kernel is an operator of torch with an
implementation for fake tensors, so that `torch.compile(fullgraph=True)` and `torch.export` take it
as a whole, without a derivative: an input that requires a gradient is refused, and so is the
backward pass of what was computed. The module has the kernel's own function, too: see
`kernel_module`.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from pathlib import Path

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.python_host import abi
from sketchc.lowering.registry import load_target
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.dropin.kernel_module import MODEL_SUPPORT, function_name, module_parts
from sketchc.runtime.tasks.description import OtherSpec, Scalar
from sketchc.runtime.tasks.layout import is_text, paths
from sketchc.runtime.tasks.outline import modules_beside
from sketchc.runtime.toolchains.base import toolchain


def write_dropin(
    folder: Path,
    kernel: Kernel,
    binding: Binding,
    task_path: Path,
    freedom: Freedom | None = None,
    note: str = "",
) -> Path:
    """Put the drop-in, the task and the kernel into `folder`; returns the drop-in's path.

    `freedom` says which init inputs are sizes that the kernel follows (`reach.find_freedom`);
    without it `ModelNew` takes the task's own only. `note` is a sentence for its docstring. A C++
    kernel is built here, but not loaded: importing the drop-in does that. Raises
    `ToolchainError` where the build fails, `OSError` where the folder cannot be written, and
    `UsageError` for a task that no `ModelNew` can stand for.
    """
    _require_model(binding)
    folder.mkdir(parents=True, exist_ok=True)
    toolchain(kernel.target).build_module(kernel, folder)
    task_file = f"{kernel.name}_task.py"
    shutil.copyfile(task_path, folder / task_file)
    neighbours = modules_beside(task_path)
    for file in neighbours:
        if file.resolve() != (folder / file.name).resolve():
            shutil.copyfile(file, folder / file.name)
    path = folder / f"{kernel.name}_dropin.py"
    writer = _Writer(kernel, binding, task_path.name, task_file, note)
    path.write_text(writer.text(freedom, bool(neighbours)), "utf-8")
    return path


def _require_model(binding: Binding) -> None:
    task, reason = binding.description, ""
    for position in sorted(binding.nothing):
        value = task.inputs[position]
        if isinstance(value, OtherSpec) and not is_text(value.text):
            reason = f"{task.name_of(position)} of the task is a {value.type}"
    if task.framework != "torch" or task.kind != "class":
        reason = f"the task is a {task.framework} {task.kind}"
    elif not reason and task.returns not in ("tensor", "tuple", "list"):
        words = {"none": "the task returns nothing", "changes": "the task changes its inputs"}
        reason = words.get(task.returns, f"the task returns a {task.returns}")
    if reason:
        refuse(
            f"{reason}; a drop-in stands for a class of PyTorch that returns tensors "
            "(`sketchc lower --module` makes a module for any sketch)"
        )


@attrs.frozen
class _Writer:
    """Writes the text of one drop-in."""

    kernel: Kernel
    binding: Binding
    task_name: str
    task_file: str
    note: str

    def text(self, freedom: Freedom | None, neighbours: bool) -> str:
        """The text of the module; `neighbours` says whether the task imports files beside it."""
        parts = [self._docstring(), *module_parts(self.kernel, [MODEL_SUPPORT])]
        if neighbours:
            parts.append("sys.path.append(str(FOLDER))  # the task imports files beside it")
        parts += [self._task(), self._data(freedom), self._model()]
        return "\n\n\n".join(parts) + "\n"

    def _docstring(self) -> str:
        kernel, name = self.kernel, self.kernel.name
        untried = textwrap.fill(load_target(kernel.target).untried, 88)
        notes = "".join(f"\n{note}" for note in (untried, self.note) if note)
        return (
            f'"""Drop-in for the task {self.task_name}: the kernel `{name}` ({kernel.target}).\n\n'
            f"    from {name}_dropin import ModelNew, get_init_inputs, get_inputs\n\n"
            "    model = ModelNew(*get_init_inputs()).eval()\n"
            "    result = model(*get_inputs())\n\n"
            "`ModelNew` is the task's `Model` with another `forward`: same constructor, same\n"
            "state_dict. Inputs are tensors or arrays of NumPy, contiguous or not, and are never\n"
            "changed; those of another dtype, or elsewhere than the kernel's device, are refused;\n"
            "`out=` takes the results' places. The kernel is an operator of torch, which\n"
            "torch.compile and torch.export take as it is; it has no backward pass. Its own\n"
            f"function is `{function_name(kernel)}`. Made by sketchc.\n"
        ) + (f'{notes}\n"""' if notes else '"""')

    def _task(self) -> str:
        return "\n".join(
            [
                f'_task = load_file("{self.kernel.name}_task", "{self.task_file}")',
                f"Model = _task.{self.binding.description.subject}",
                "FORWARD = arguments_of(Model.forward)",
                'get_inputs = getattr(_task, "get_inputs", None)',
                'get_init_inputs = getattr(_task, "get_init_inputs", list)',
            ]
        )

    def _data(self, freedom: Freedom | None) -> str:
        """The definition of `MAY_DIFFER`: constructor arguments that need not be the task's own."""
        may_differ: list[int | str] = list(freedom.follows) if freedom else []
        may_differ += [name for name, _ in self._attributes()]
        return (
            "#: Constructor arguments that the kernel follows: sizes by position, attributes by\n"
            f"#: name.\nMAY_DIFFER = {may_differ!r}"
        )

    def _attributes(self) -> list[tuple[str, Scalar]]:
        """(name, value) of the params that are read from attributes of the model."""
        scalars = self.binding.description.scalars
        taken = set(self.binding.param_inputs.values())
        return [
            (name, value)
            for name, value in self.binding.params.items()
            if name not in taken and name in scalars and scalars[name] == value
        ]

    def _model(self) -> str:
        binding = self.binding
        count = len(binding.description.layout or binding.description.inputs)
        returns = binding.description.returns
        kinds = (output.dtype.numpy_name for output in binding.description.outputs)
        outputs = ", ".join(f"torch.{kind}" for kind in kinds)
        sources = {source.tensor.name: source for source in binding.tensors}
        given = [sources.get(tensor.name) for tensor in abi.given(self.kernel.sketch)]
        lines = [
            "class ModelNew(Model):  # type: ignore[misc, valid-type]",
            f'    """`Model` of {self.task_file}, computed by the kernel `{self.kernel.name}`."""',
            "",
            "    def __init__(self, *args: Any, **kwargs: Any) -> None:",
            "        super().__init__(*args, **kwargs)",
            "        init = get_init_inputs()",
            "        check_construction(self, Model, (args, kwargs), init, MAY_DIFFER)",
            "",
            "    def forward(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:",
            "        check_mode(self)",
            f"        given = bind_arguments(Model.forward, FORWARD, args, kwargs, {count})",
            *(f"        {line}" for line in self._constants()),
            "        tensors = [",
            *(f"            {self._tensor(source)}," for source in given),
            "        ]",
            f"        params = [{', '.join(self._params())}]",
            f"        dtypes = [{outputs}]",
            f'        return run_model(KERNEL, tensors, params, dtypes, "{returns}", given, out)',
            "",
            "    # For help() and torch.export.",
            "    forward.__signature__ = inspect.signature(  # type: ignore[attr-defined]",
            "        Model.forward",
            "    )",
        ]
        return "\n".join(lines)

    def _given(self, position: int | None) -> str:
        """The expression of one of forward's inputs, which may be a part of an argument."""
        ways = paths(self.binding.description.layout)
        path = (position,) if position is None or position >= len(ways) else ways[position]
        return "given" + "".join(f"[{key!r}]" for key in path)

    def _constants(self) -> list[str]:
        """Statements that refuse other values of inputs that reach no param and no tensor."""
        task = self.binding.description
        values = {position: task.inputs[position] for position in sorted(self.binding.nothing)}
        return [
            f"require_constant({task.name_of(position)!r}, {self._given(position)}, "
            f"{value.text if isinstance(value, OtherSpec) else repr(value)})"
            for position, value in values.items()
        ]

    def _tensor(self, source: TensorSource | None) -> str:
        """The tuple (value, its name, its dtypes in the task and in the kernel) of one tensor."""
        if source is None:
            return "(None, '', [])"
        own, wanted = source.specification.dtype, source.tensor.dtype
        dtypes = ", ".join(f"torch.{dtype.numpy_name}" for dtype in dict.fromkeys((own, wanted)))
        if source.state is not None:
            name, value = source.state, f'state(self, "{source.state}")'
        else:
            name, value = source.text, self._given(source.position)
        return f'({value}, "{name}", [{dtypes}])'

    def _params(self) -> list[str]:
        """An expression for each param: an input of forward, an attribute, or a fixed number."""
        where = {name: self._given(i) for i, name in self.binding.param_inputs.items()}
        where |= {name: f"self.{name}" for name, _ in self._attributes()}
        given = self.binding.params
        return [
            f'number("{p.name}", {where.get(p.name) or _literal(given[p.name])}, {abi.kind(p)})'
            for p in self.kernel.sketch.params
        ]


def _literal(value: Scalar) -> str:
    """A number as Python spells it, infinities and NaN included."""
    return repr(value) if math.isfinite(value) else f'float("{value}")'
