"""Handlers of the worker processes of `triton_cuda`: compile a generated file, or run it.

Generated code is only ever imported here, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sketchc.runtime.worker_child import BFLOAT16, Arrays

_TORCH = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u32": "uint32",
    "bool": "bool",
}
INDEX_WIDTHS = ("int32", "int64")
_LAUNCH_OPTIONS = ("num_warps", "num_stages")
_ALIGNMENT = 16


def run_kernel(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper on the arrays; returns all out and inout tensors by name."""
    import torch

    gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"
    module = _load(request["source"])
    if not gpu:
        _reduce_whole_rows()
        _multiply_bfloat16()
        _round_to_bfloat16()
        _take_bools()
    device = "cuda" if gpu else "cpu"
    given = {name: _to_torch(array).to(device) for name, array in arrays.items()}
    tensors = request["tensors"]
    inputs = [given[t["name"]] for t in tensors if t["role"] != "out"]
    outs = [t["name"] for t in tensors if t["role"] == "out"]
    keywords = dict(request["params"])
    if outs and all(name in given for name in outs):
        filled = tuple(given[name] for name in outs)
        keywords["out"] = filled if len(filled) > 1 else filled[0]
    result = getattr(module, request["entry"])(*inputs, **keywords)
    results = result if isinstance(result, tuple) else (result,)
    names = [t["name"] for t in tensors if t["role"] in ("out", "inout")]
    found = {n: _to_numpy(t) for n, t in zip(names, results, strict=True)}
    return {"device": device}, found


def _load(path: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location("generated_kernel", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["generated_kernel"] = module
    specification.loader.exec_module(module)
    return module


def _to_torch(array: Any) -> Any:
    import numpy as np
    import torch

    if array.dtype.name == BFLOAT16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_numpy(tensor: Any) -> Any:
    import torch

    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        import ml_dtypes

        return plain.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def _reduce_whole_rows() -> None:
    """Let Triton's interpreter reduce with a combine function over whole slices.

    It calls the function once per element, which takes a second per row of a softmax; the function
    is element-wise, so halves of the axis (a power of two long) can be combined at once.
    """
    from triton.runtime import interpreter

    def generic_reduce(self: Any, inputs: Any) -> Any:
        values, axis = self.unravel(inputs, self.axis)
        parts = [value.handle.data for value in values]
        kinds = [value.dtype for value in values]
        while parts[0].shape[axis] > 1:
            half = parts[0].shape[axis] // 2
            first = [part.take(range(half), axis) for part in parts]
            second = [part.take(range(half, 2 * half), axis) for part in parts]
            arguments = [
                self.to_tensor(part, kind)
                for side in (first, second)
                for part, kind in zip(side, kinds, strict=True)
            ]
            result = self.combine_fn.fn(*arguments)
            results = result if isinstance(result, tuple) else (result,)
            parts = [tensor.handle.data for tensor in results]
        if not self.keep_dims:
            parts = [part.squeeze(axis) for part in parts]
        return [self.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    interpreter.ReduceOps.generic_reduce = generic_reduce


def _multiply_bfloat16() -> None:
    """Let Triton's interpreter multiply bf16 matrices: it keeps their bits in integers, and its
    `tl.dot` multiplies those."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.view(np.uint16).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def _round_to_bfloat16() -> None:
    """Let Triton's interpreter round to bf16 as compiled kernels do, to the nearest: it truncates
    f32, and writes the whole part of anything else as if it were the bits."""
    import ml_dtypes
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if target.scalar != tl.bfloat16 or source.dtype.scalar == tl.bfloat16:
            return original(self, source, target)
        with np.errstate(invalid="ignore", over="ignore"):
            rounded = source.data.astype(ml_dtypes.bfloat16)
        return interpreter.TensorHandle(rounded.view(np.uint16), target.scalar)

    interpreter.InterpreterBuilder.cast_impl = cast_impl


def _take_bools() -> None:
    """Let Triton's interpreter take Python's bools as arguments: it makes 32-bit numbers of them
    and then finds that they are no bools."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter._implicit_cvt

    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, bool):
            return original(argument)
        handle = interpreter.TensorHandle(np.array([argument], np.bool_), tl.int1)
        return tl.tensor(handle, tl.int1)

    interpreter._implicit_cvt = implicit_cvt


# ---------------------------------------------------------------- compile


def compile_kernels(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Build every launch of the wrapper for every architecture; no GPU is touched."""
    del arrays
    import torch

    module = _load(request["source"])
    wrapper = getattr(module, request["entry"])
    examples = {
        t["name"]: torch.empty(t["extents"], dtype=getattr(torch, _TORCH[t["dtype"]]))
        for t in request["tensors"]
    }
    inputs = [examples[t["name"]] for t in request["tensors"] if t["role"] != "out"]
    keywords = dict(request["params"])
    parameters = inspect.signature(wrapper).parameters
    if "out" in parameters and parameters["out"].default is inspect.Parameter.empty:
        outs = tuple(examples[t["name"]] for t in request["tensors"] if t["role"] == "out")
        keywords["out"] = outs if len(outs) > 1 else outs[0]
    launches = record_launches(module, lambda: wrapper(*inputs, **keywords))
    kernels = []
    for launch in launches:
        for wide in launch.index_widths(request.get("index_widths", INDEX_WIDTHS)):
            for architecture in request["architectures"]:
                kernels.append(_build(launch, wide, architecture, Path(request["folder"])))
    return {"kernels": kernels}, {}


class Launch:
    """One recorded launch: the kernel and its bound arguments."""

    def __init__(self, function: Any, arguments: dict[str, Any], options: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options

    def index_widths(self, wanted: Sequence[str]) -> Sequence[str | None]:
        """The index types to build: those wanted where the wrapper chooses, else the kernel's."""
        return wanted if "INDEX" in self.arguments else (None,)


class _Recorder:
    """Stands in for a kernel: `kernel[grid](...)` is noted, not run."""

    def __init__(self, function: Any, launches: list[Launch]) -> None:
        self.function = function
        self.launches = launches

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            options = {k: kwargs.pop(k) for k in _LAUNCH_OPTIONS if k in kwargs}
            arguments = dict(zip(self.function.arg_names, args, strict=False)) | kwargs
            self.launches.append(Launch(self.function, arguments, options))

        return launch


def record_launches(module: ModuleType, call: Callable[[], object]) -> list[Launch]:
    """The launches that `call` makes of the module's kernels, none of them executed."""
    launches: list[Launch] = []
    with _recording(module, launches):
        call()
    return launches


@contextmanager
def _recording(module: ModuleType, launches: list[Launch]) -> Iterator[None]:
    from triton.runtime.jit import JITFunction

    kernels = {
        name: value for name, value in vars(module).items() if isinstance(value, JITFunction)
    }
    try:
        for name, function in kernels.items():
            setattr(module, name, _Recorder(function, launches))
        yield
    finally:
        # Kernels find the device functions that they call in the module.
        for name, function in kernels.items():
            setattr(module, name, function)


def _build(launch: Launch, wide: str | None, architecture: int, folder: Path) -> dict[str, Any]:
    """Compile one variant; returns what people want to know about the cubin."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {
        parameter.name: launch.arguments[parameter.name]
        for parameter in launch.function.params
        if parameter.is_constexpr
    }
    if wide is not None:
        constants["INDEX"] = getattr(tl, wide)
    signature: dict[str, str] = {}
    aligned: dict[tuple[int], list[list[Any]]] = {}
    for position, name in enumerate(launch.function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name], is_aligned = _argument_type(launch.arguments[name])
        if is_aligned:
            aligned[(position,)] = [["tt.divisibility", _ALIGNMENT]]
    source = ASTSource(launch.function, signature, constants, aligned)
    target = GPUTarget("cuda", architecture, 32)
    compiled = triton.compile(source, target=target, options=launch.options)
    name = f"{launch.function.__name__}.{wide or 'fixed'}.sm_{architecture}"
    cubin, ptx = folder / f"{name}.cubin", folder / f"{name}.ptx"
    cubin.write_bytes(compiled.asm["cubin"])
    ptx.write_text(compiled.asm["ptx"])
    return {
        "kernel": launch.function.__name__,
        "architecture": f"sm_{architecture}",
        "index": wide or "int32",
        "num_warps": compiled.metadata.num_warps,
        "num_stages": compiled.metadata.num_stages,
        "shared_bytes": compiled.metadata.shared,
        "cubin": str(cubin),
        "ptx": str(ptx),
        **_resources(cubin),
    }


def _argument_type(value: Any) -> tuple[str, bool]:
    """Triton's name of a run-time argument's type, and whether it is a multiple of 16."""
    match value:
        case bool():
            return "i1", False
        case int():
            narrow = -(2**31) <= value < 2**31
            return "i32" if narrow else "i64", value % _ALIGNMENT == 0
        case float():
            return "fp32", False
        case _:
            from triton.runtime.jit import type_canonicalisation_dict

            name = str(value.dtype).removeprefix("torch.")
            return f"*{type_canonicalisation_dict[name]}", True


def _resources(cubin: Path) -> dict[str, int]:
    """Registers per thread and bytes of local memory (spills), as the driver will see them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    command = [str(tool), "--dump-resource-usage", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "spill_bytes": int(found[2])}
