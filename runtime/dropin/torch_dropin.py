"""A drop-in Python module around a verified kernel, in KernelBench's form.

`NAME_dropin.py` defines `ModelNew`, `get_inputs` and `get_init_inputs`. `ModelNew` derives from the
task's own `Model` (the task's file is copied beside it), so its constructor, parameters and
state_dict are the task's; only `forward` calls the kernel. Beside it lie the kernel's file and, for
C++, the nanobind module built from it. The folder can be moved: nothing in it names a place.

What `ModelNew` takes and refuses is in `dropin_support`. It computes what the task computes in
evaluation mode. The kernel is an operator of torch with an implementation for fake tensors, so that
`torch.compile(fullgraph=True)` and `torch.export` take it as a whole; inputs that require a
gradient are taken, and the backward pass is an error.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.python_host import abi
from sketchc.lowering.python_host.shapes import shape_function
from sketchc.lowering.registry import load_language, load_target
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.tasks.description import OtherSpec, Scalar
from sketchc.runtime.tasks.layout import is_text, paths
from sketchc.runtime.tasks.outline import modules_beside
from sketchc.runtime.toolchains.base import toolchain

_MARKS = ("# ---- copied from here ----\n", "# ---- to here ----\n")


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
    without it `ModelNew` insists on the task's own. `note` is a sentence for its docstring. A C++
    kernel is built here, but not loaded: that is done by whoever imports the drop-in. Raises
    `ToolchainError` where the build fails, `OSError` where the folder refuses, and `UsageError` for
    a task that no `ModelNew` can stand for.
    """
    _require_model(binding)
    folder.mkdir(parents=True, exist_ok=True)
    tool = toolchain(kernel.target)
    tool.build_module(kernel, folder)
    command = tool.module_command(kernel)
    rebuild = f"; build it with: {command}" if command else ""
    task_file = f"{kernel.name}_task.py"
    shutil.copyfile(task_path, folder / task_file)
    neighbours = modules_beside(task_path)
    for file in neighbours:
        if file.resolve() != (folder / file.name).resolve():
            shutil.copyfile(file, folder / file.name)
    path = folder / f"{kernel.name}_dropin.py"
    writer = _Writer(kernel, binding, task_path.name, task_file, rebuild, note)
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
    rebuild: str
    note: str

    def text(self, freedom: Freedom | None, neighbours: bool) -> str:
        """The whole module; `neighbours`: the task imports files beside it."""
        support = Path(__file__).with_name("dropin_support.py").read_text("utf-8")
        body = support.split(_MARKS[0])[1].split(_MARKS[1])[0].strip("\n")
        parts = [self._docstring(), body]
        if neighbours:
            parts.append("sys.path.append(str(FOLDER))  # the task imports files beside it")
        parts += [self._modules(), *self._operator(), self._data(freedom), self._model()]
        return "\n\n\n".join(parts) + "\n"

    def _docstring(self) -> str:
        kernel, name = self.kernel, self.kernel.name
        return (
            f'"""Drop-in for the task {self.task_name}: the kernel `{name}` ({kernel.target}).\n\n'
            f"    from {name}_dropin import ModelNew, get_init_inputs, get_inputs\n\n"
            "    model = ModelNew(*get_init_inputs()).eval()\n"
            "    result = model(*get_inputs())\n\n"
            "`ModelNew` is the task's `Model` with another `forward`: same constructor, same\n"
            "state_dict. Inputs may be non-contiguous and are never changed; those of another\n"
            "dtype, or elsewhere than the kernel's device, are refused. The kernel is an operator\n"
            "of torch, which torch.compile and torch.export take as it is; it has no backward\n"
            "pass. Made by sketchc.\n"
        ) + (f'\n{self.note}\n"""' if self.note else '"""')

    def _modules(self) -> str:
        name = self.kernel.name
        lines = [f'_task = load_file("{name}_task", "{self.task_file}")']
        if not load_language(self.kernel.language).hosted:
            lines += [
                f"_REBUILD = {self.rebuild!r}",
                f'_MODULE = load_file("{name}_module", built_file("{name}_module"), _REBUILD)',
                f"_kernel = _MODULE.{name}",
            ]
        else:
            module = f'load_file("{name}_kernel", "{name}.py")'
            lines.append(f"_kernel = {module}.{self.kernel.entry}")
        lines += [
            f"Model = _task.{self.binding.description.subject}",
            "FORWARD = arguments_of(Model.forward)",
            'get_inputs = getattr(_task, "get_inputs", None)',
            'get_init_inputs = getattr(_task, "get_init_inputs", list)',
        ]
        return "\n".join(lines)

    def _operator(self) -> Iterator[str]:
        """The kernel as an operator of torch."""
        kernel, sources = self.kernel, self.binding.tensors
        given = [source.tensor.name for source in sources]
        yield shape_function(kernel.sketch, "_shapes", given, "ceil_div")
        taken = abi.given(kernel.sketch)
        written = [t.role is ir.Role.INOUT if t.name in given else None for t in taken]
        # Two kernels of one name may be loaded side by side.
        name = f"{kernel.name}_{hashlib.sha256(kernel.source.encode()).hexdigest()[:12]}"
        arguments = [f"Tensor t{place}" for place in range(len(sources))]
        arguments += [f"{abi.kind(p)} p{place}" for place, p in enumerate(kernel.sketch.params)]
        quoted = [f'"{param.name}"' for param in kernel.sketch.params]
        kinds = [f"torch.{tensor.dtype.numpy_name}" for tensor in abi.results(kernel.sketch)]
        returned = "Tensor" if len(kinds) == 1 else f"({', '.join('Tensor' for _ in kinds)})"
        yield "\n".join(
            [
                "_OPERATOR = operator(",
                f'    "{name}",',
                f'    "({", ".join(arguments)}) -> {returned}",',
                "    _kernel,",
                f"    {written!r},",
                f"    [{', '.join(quoted)}],",
                "    _shapes,",
                f"    [{', '.join(kinds)}],",
                ")",
            ]
        )

    def _data(self, freedom: Freedom | None) -> str:
        """What may differ from the task's own model, and where the kernel's tensors live."""
        may_differ: list[int | str] = list(freedom.follows) if freedom else []
        may_differ += [name for name, _ in self._attributes()]
        target = load_target(self.kernel.target)
        own = ", ".join(f'"{word}"' for word in (target.device, target.interpreted_by) if word)
        return (
            "#: Constructor arguments that the kernel follows: sizes by position, attributes by\n"
            f"#: name.\nMAY_DIFFER = {may_differ!r}\n"
            f"DEVICES = device_types({own})"
        )

    def _attributes(self) -> list[tuple[str, Scalar]]:
        """Params that the model's own attributes give."""
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
        lines = [
            "class ModelNew(Model):  # type: ignore[misc, valid-type]",
            f'    """`Model` of {self.task_file}, computed by the kernel `{self.kernel.name}`."""',
            "",
            "    def __init__(self, *args: Any, **kwargs: Any) -> None:",
            "        super().__init__(*args, **kwargs)",
            "        init = get_init_inputs()",
            "        check_construction(self, Model, (args, kwargs), init, MAY_DIFFER)",
            "",
            "    def forward(self, *args: Any, **kwargs: Any) -> Any:",
            "        check_mode(self)",
            f"        given = bind_arguments(Model.forward, FORWARD, args, kwargs, {count})",
            *(f"        {line}" for line in self._constants()),
            "        tensors = [",
        ]
        lines += [f"            {self._tensor(source)}," for source in binding.tensors]
        lines += ["        ]", "        params = ["]
        lines += [*(f"            {text}," for text in self._params()), "        ]"]
        returns = binding.description.returns
        kinds = (output.dtype.numpy_name for output in binding.description.outputs)
        outputs = ", ".join(f"torch.{kind}" for kind in kinds)
        lines += [
            f"        dtypes = [{outputs}]",
            f'        return run_kernel(_OPERATOR, tensors, params, dtypes, "{returns}")',
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
        """Statements that refuse other values of what reaches no param and no tensor."""
        task = self.binding.description
        values = {position: task.inputs[position] for position in sorted(self.binding.nothing)}
        return [
            f"require_constant({task.name_of(position)!r}, {self._given(position)}, "
            f"{value.text if isinstance(value, OtherSpec) else repr(value)})"
            for position, value in values.items()
        ]

    def _tensor(self, source: TensorSource) -> str:
        """The tuple (value, the kernel's dtype) of one tensor."""
        wanted = f"torch.{source.tensor.dtype.numpy_name}"
        own = f"torch.{source.specification.dtype.numpy_name}"
        dtypes = own if own == wanted else f"{own}, {wanted}"
        if source.state is not None:
            name, value = source.state, f'state(self, "{source.state}")'
        else:
            name, value = source.text, self._given(source.position)
        return f'(checked("{name}", {value}, [{dtypes}], DEVICES), {wanted})'

    def _params(self) -> list[str]:
        """The params: from forward's inputs, the model's attributes, or fixed."""
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
