"""A task's files from a live function or module of PyTorch, and one call of it.

The object itself is pickled by value, with everything of the user's that it refers to, into a
module beside the task. Weights are replaced by random tensors of like values: the kernel reads the
tensors of the live object at each call. Tensors that a function finds around it are refused, since
a kernel could not follow their changes.
"""

from __future__ import annotations

import base64
import inspect
import io
import keyword
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import attrs
import torch
from torch import nn

from sketchc.api.kernels import CompileError
from sketchc.api.surroundings import fingerprint, is_own
from sketchc.runtime.store.writing import TaskText

#: The attribute of the task's model that holds the object.
INNER = "inner"


@attrs.frozen
class Subject:
    """What is compiled: a function, or a method of a module."""

    object: Any
    method: str
    name: str
    signature: inspect.Signature

    @classmethod
    def of(cls, function: Any) -> Subject:
        """The subject for a function, a module, or a method of one. Raises `CompileError` for
        anything that cannot be called or has no signature."""
        if isinstance(function, nn.Module):
            return cls(
                function,
                "forward",
                type(function).__name__,
                inspect.signature(function.forward),
            )
        owner = getattr(function, "__self__", None)
        if isinstance(function, MethodType) and isinstance(owner, nn.Module):
            return cls(owner, function.__name__, function.__name__, inspect.signature(function))
        if not callable(function):
            raise CompileError(f"a {type(function).__name__} is no function and no module")
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            msg = f"{function!r} does not say what it takes: wrap it in a function of Python"
            raise CompileError(msg) from None
        name = getattr(function, "__name__", type(function).__name__)
        return cls(function, "", "function" if name == "<lambda>" else name, signature)

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """The arguments of one call, each with a name. Raises TypeError where they do not fit."""
        names: list[str] = []
        values: list[Any] = []
        passed: list[str] = []
        gap = False
        bound = self.signature.bind(*args, **kwargs)
        for parameter in self.signature.parameters.values():
            if parameter.name not in bound.arguments:
                gap = True
                continue
            value = bound.arguments[parameter.name]
            match parameter.kind:
                case parameter.VAR_POSITIONAL:
                    several = {f"{parameter.name}_{i}": one for i, one in enumerate(value)}
                    ways = list(several)
                case parameter.VAR_KEYWORD:
                    several = value
                    ways = [f"{name}={name}" for name in several]
                case _:
                    by_name = gap or parameter.kind is parameter.KEYWORD_ONLY
                    several = {parameter.name: value}
                    ways = [f"{parameter.name}={parameter.name}" if by_name else parameter.name]
            names += several
            values += several.values()
            passed += ways
        return Call(tuple(names), tuple(values), tuple(passed))


@attrs.frozen
class Call:
    """The arguments of a call; `passed` has the text by which the task passes each one on."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    passed: tuple[str, ...]


def key_of(call: Call) -> Any:
    """The key by which kernels fit a call: names, dtypes, ranks and constants. The values of
    numbers are left to the kernels, which refuse those that they were not made for."""
    return call.passed, tuple(map(_kind, call.values))


def _kind(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.dtype, value.dim(), value.device.type
        case bool() | str() | None | torch.dtype():
            return value
        case int() | float():
            return type(value)
        case list() | tuple():
            return type(value), tuple(map(_kind, value))
        case Mapping():
            return dict, tuple((key, _kind(one)) for key, one in value.items())
        case _ if type(value).__name__ == "ndarray":
            return "array", value.dtype.str, value.ndim
    return type(value)


# ---------------------------------------------------------------- the files


@attrs.frozen
class TaskFiles:
    """The texts of a task and of the module beside it, and the `identity` that tells the task from
    others: the same module with other weights is the same task."""

    name: str
    texts: tuple[str, str]
    identity: tuple[str, str]

    @property
    def kept(self) -> TaskText:
        """The task as the store keeps it."""
        return TaskText(f"{self.name}.py", self.texts[0], {f"{self.name}_object.py": self.texts[1]})

    def write(self, folder: Path) -> Path:
        """Write both files to `folder`; returns the path of the task's file."""
        path = folder / f"{self.name}.py"
        path.write_text(self.texts[0], "utf-8")
        (folder / f"{self.name}_object.py").write_text(self.texts[1], "utf-8")
        return path


_TASK = '''"""The task of `{title}`, as sketchc.compile met it."""

import torch
from torch import nn

from {name}_object import load


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.{inner} = load()

    def forward({arguments}):
        return self.{inner}{method}({passed})


def get_inputs():
    return [
{inputs}
    ]
'''
_OBJECT = '''"""The object that the task calls, by value."""

import base64
import io
import pickle

import torch
from torch import nn

DATA = """
{data}
"""


def drawn(shape, dtype, mean, deviation, positive):
    generator = torch.Generator().manual_seed(len(shape))
    value = torch.randn(shape, generator=generator) * deviation + mean
    return (value.abs() if positive else value).to(dtype)


def kept(shape, dtype, data):
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


class Unpickler(pickle.Unpickler):
    """Makes the tensors of the object's state, each once."""

    def __init__(self, file):
        super().__init__(file)
        self.made = {{}}

    def persistent_load(self, told):
        number, trained, *how = told
        if number not in self.made:
            value = drawn(*how) if len(how) == 5 else kept(*how)
            self.made[number] = nn.Parameter(value, trained) if trained is not None else value
        return self.made[number]


def load():
    return Unpickler(io.BytesIO(base64.b64decode(DATA))).load()
'''


def task_of(subject: Subject, call: Call) -> TaskFiles:
    """The task of one call. Raises `CompileError` for arguments and objects that it cannot hold."""
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in subject.name).lower()
    name = f"f_{name}" if not name[:1].isalpha() or keyword.iskeyword(name) else name
    inputs = [
        f"        {_recipe(value, what)},"
        for what, value in zip(call.names, call.values, strict=True)
    ]
    task = _TASK.format(
        title=subject.name,
        name=name,
        inner=INNER,
        arguments=", ".join(["self", *call.names]),
        method=f".{subject.method}" if subject.method not in ("", "forward") else "",
        passed=", ".join(call.passed),
        inputs="\n".join(inputs),
    )
    data = base64.b64encode(_pickled(subject.object)).decode()
    told = [_told(tensor, n, alike=True) for n, tensor in enumerate(_state(_whole(subject.object)))]
    identity = task, repr((fingerprint(subject.object), told))
    lines = "\n".join(data[start : start + 100] for start in range(0, len(data), 100))
    return TaskFiles(name, (task, _OBJECT.format(data=lines)), identity)


def _recipe(value: Any, what: str) -> str:
    """A Python expression for a value like `value`; `what` names it in a `CompileError`."""
    if type(value).__name__ == "ndarray":
        try:
            value = torch.from_numpy(value.copy())
        except TypeError as error:
            raise CompileError(f"{what}: {error}") from None
    match value:
        case torch.Tensor():
            return _tensor_recipe(value, what)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        case bool() | int() | float() | str() | None | torch.dtype():
            return repr(value)
        case list() | tuple():
            parts = ", ".join(_recipe(one, what) for one in value)
            single = "," * (isinstance(value, tuple) and len(value) == 1)
            return f"({parts}{single})" if isinstance(value, tuple) else f"[{parts}]"
        case Mapping() if all(isinstance(key, str) for key in value):
            return f"{{{', '.join(f'{key!r}: {_recipe(v, what)}' for key, v in value.items())}}}"
    raise CompileError(f"{what} is a {type(value).__name__}; a kernel takes tensors and numbers")


def _tensor_recipe(tensor: torch.Tensor, what: str) -> str:
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.layout is not torch.strided or dtype.is_complex or tensor.is_quantized:
        raise CompileError(f"{what} is a tensor of {dtype} with the layout {tensor.layout}")
    if dtype is torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if dtype.is_floating_point:
        return f"torch.randn({shape})" + (f".to({dtype})" if dtype is not torch.float32 else "")
    if tensor.is_meta:
        raise CompileError(f"{what} has no values, which say what its integers may be")
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype})"


# ---------------------------------------------------------------- the object


def _whole(value: Any) -> nn.Module:
    """The module whose state the pickled object may hold: an empty one for a function."""
    return value if isinstance(value, nn.Module) else nn.Module()


def _pickled(value: Any) -> bytes:
    """The object, pickled by value. Raises `CompileError` for one that holds tensors or modules
    from around it, or cannot be pickled."""
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise CompileError("cloudpickle is missing: pip install cloudpickle") from None

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        """Pickles each tensor of the state as the recipe that `_told` gives."""

        def persistent_id(self, one: Any) -> Any:
            if isinstance(one, torch.Tensor):
                if id(one) not in numbers:
                    raise CompileError(
                        f"a tensor of shape {list(one.shape)} that it finds around it cannot be "
                        "followed: pass it as an argument, or make it an attribute of a module"
                    )
                return _told(one, numbers[id(one)])
            if isinstance(one, nn.Module) and id(one) not in modules:
                raise CompileError(
                    f"a {type(one).__name__} that it finds around it cannot be followed: compile "
                    "the module, or make it an attribute of one"
                )
            return None

    whole = _whole(value)
    modules = {id(module) for module in whole.modules()}
    numbers = {id(tensor): number for number, tensor in enumerate(_state(whole))}
    file = io.BytesIO()
    with _by_value(cloudpickle):
        try:
            Pickler(file).dump(value)
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(f"it cannot be taken along: {error}") from error
    return file.getvalue()


def _state(module: nn.Module) -> Iterator[torch.Tensor]:
    """The parameters and buffers of a module, and its tensors that are plain attributes."""
    yield from module.parameters()
    yield from module.buffers()
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, torch.Tensor))


def _told(tensor: torch.Tensor, number: int, *, alike: bool = False) -> tuple[Any, ...]:
    """A recipe for a tensor of the state: the parameters of a random one like it, or its own bytes
    where its values matter, such as indices, zeros and filters (no floats, or few distinct ones).
    `alike`: the recipe leaves out the random parameters, so that other weights give the same."""
    trained = tensor.requires_grad if isinstance(tensor, nn.Parameter) else None
    values = tensor.detach().cpu()
    told = (number, trained, tuple(values.shape), values.dtype)
    sample = values.flatten()[:4096]
    few = len(set(sample.tolist())) * 2 < sample.numel()
    if few or not values.numel() or not values.dtype.is_floating_point:
        plain = values.contiguous().flatten()
        return (*told, plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    if alike:
        return told
    deviation, mean = torch.std_mean(sample.double(), correction=0)
    return (*told, float(mean), float(deviation) or 1.0, bool((sample > 0).all()))


@contextmanager
def _by_value(cloudpickle: ModuleType) -> Iterator[None]:
    """Has cloudpickle pickle the user's own modules by value inside: another process may not find
    them."""
    own = [module for module in list(sys.modules.values()) if is_own(module)]
    known = set(cloudpickle.list_registry_pickle_by_value())
    own = [module for module in own if module.__name__ not in known]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
