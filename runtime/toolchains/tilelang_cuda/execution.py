"""In a worker: runs the text of a kernel on the CPU, under `standin`, through the C backend.

The text is imported with `standin` in the place of `tilelang.language`; each kernel that the
wrapper launches becomes C, which g++ compiles.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.runtime.sandbox.confine import import_file

_FLAGS = ("-std=c++17", "-O1", "-fwrapv", "-ffp-contract=off", "-fPIC", "-shared", "-w")
#: What the C backend lacks (see `standin`): literals with more digits than it prints, and the bits
#: of a bfloat16.
_LACKING = """#include <cmath>
#include <cstdint>
#include <cstring>
extern "C" inline double exact_number(int64_t digits, int32_t exponent)
{
    return std::ldexp(static_cast<double>(digits), exponent);
}
extern "C" inline uint16_t bfloat16_bits(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t upper = bits >> 16;
    return value != value ? upper | 0x40 : (bits + 0x7fff + (upper & 1)) >> 16;
}
"""
#: TileLang's header, which g++ reads longer than a kernel, what the backend writes of it, and what
#: takes its place elsewhere.
_HEADER = "#include <tl_templates/cpp/common.h>"
_OF_HEADER = re.compile(r"\bhalf\b|\btl::|\b(?:float|double|u?int\d+_t)(?:2|4|8|16)\b")
_SHORT = "#include <math.h>\n#include <string.h>"
_SIGNATURE = re.compile(r"^int32_t (\w+)\(([^)]*)\) \{", re.MULTILINE)
_NUMBERS: dict[str, Any] = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "int8_t": ctypes.c_int8,
    "float": ctypes.c_float,
}


#: What watches the calls of a kernel by others: at most one `wrapper_guard.Watch`.
WATCHES: list[Any] = []


class Compiled:
    """A traced kernel as a function of the machine; called as TileLang's kernels are."""

    def __init__(self, function: Any, folder: Path, options: Mapping[str, Any]) -> None:
        import tilelang

        self._function = function = _named_apart(function)
        plain = {**options, "tirx.disable_vectorize": True}
        with tilelang.tvm.transform.PassContext(config=plain):
            source = tilelang.lower(function, target="c").kernel_source
        found = _SIGNATURE.search(source)
        if found is None:
            raise RuntimeError("the C backend made no function")
        self._parameters = [part.rsplit(" ", 1) for part in found[2].split(", ")]
        self._entry = getattr(ctypes.CDLL(str(_built(source, folder))), found[1])

    def __call__(self, *arguments: Any) -> None:
        """Run the kernel once."""
        values: dict[str, Any] = {}
        for parameter, argument in zip(self._function.params, arguments, strict=True):
            buffer = self._function.buffer_map.get(parameter)
            if buffer is None:
                values[parameter.name] = argument
                continue
            values[buffer.name] = argument.data_ptr()
            for extent, size in zip(buffer.shape, argument.shape, strict=True):
                if hasattr(extent, "name"):
                    values[extent.name] = size
        passed = [
            ctypes.c_void_p(values[name]) if kind.endswith("*") else _NUMBERS[kind](values[name])
            for kind, name in self._parameters
        ]
        with ExitStack() as stack:
            for watch in WATCHES:
                stack.enter_context(watch.launch())
            self._entry(*passed)


def _named_apart(function: Any) -> Any:
    """A traced kernel with a name of its own for each scalar parameter: the tracer names variables
    after what they are bound to last."""
    import tilelang

    tirx = tilelang.tvm.tirx

    renamed = {
        old: tirx.Var(f"scalar_{number}", old.dtype)
        for number, old in enumerate(function.params)
        if old not in function.buffer_map
    }
    return tirx.PrimFunc(
        [renamed.get(parameter, parameter) for parameter in function.params],
        tirx.stmt_functor.substitute(function.body, renamed),
        function.ret_type,
        function.buffer_map,
        function.attrs,
    )


def _built(source: str, folder: Path) -> Path:
    """The library of a C source, compiled once."""
    import tilelang

    if _OF_HEADER.search(source) is None:
        source = source.replace(_HEADER, _SHORT)
    key = hashlib.sha256((_LACKING + source).encode()).hexdigest()[:24]
    library, text = folder / f"{key}.so", folder / f"{key}.cpp"
    if not library.exists():
        text.write_text(_LACKING + source, "utf-8")
        headers = Path(tilelang.__file__).with_name("src")
        command = ["g++", *_FLAGS, f"-I{headers}", "-o", str(library), str(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"g++ refused the kernel: {done.stderr[-2000:]}")
    return library


def recording(note: Callable[[Any, Mapping[str, Any], str], None]) -> Callable[..., Any]:
    """What stands in for `tilelang.jit`: traced kernels go to `note`, with the options and the name
    of each, and calls of them do nothing."""

    def jit(*given: Any, pass_configs: Mapping[str, Any] | None = None, **_: Any) -> Any:
        def decorate(make: Callable[..., Any]) -> Callable[..., Any]:
            def kernel(*arguments: Any) -> Callable[..., None]:
                note(make(*arguments), pass_configs or {}, make.__name__)
                return lambda *passed: None

            return kernel

        return decorate(given[0]) if given else decorate

    return jit


def resources(said: str) -> dict[str, int]:
    """Registers per thread and bytes of spilled ones, from what ptxas says of a kernel."""
    used = re.search(r"Used (\d+) registers", said)
    spilled = re.search(r"(\d+) bytes spill stores", said)
    found = {"registers": used, "spill_bytes": spilled}
    return {name: int(each[1]) for name, each in found.items() if each}


def executing(folder: Path) -> Callable[..., Any]:
    """What stands in for `tilelang.jit`: kernels are compiled for this machine into `folder`."""
    import tilelang

    def jit(*given: Any, pass_configs: Mapping[str, Any] | None = None, **_: Any) -> Any:
        def decorate(make: Callable[..., Any]) -> Callable[..., Compiled]:
            made: dict[tuple[Any, ...], Compiled] = {}

            def kernel(*arguments: Any) -> Compiled:
                if arguments not in made:
                    with tilelang.tvm.target.Target("c"):
                        made[arguments] = Compiled(make(*arguments), folder, pass_configs or {})
                return made[arguments]

            return kernel

        return decorate(given[0]) if given else decorate

    return jit


@contextmanager
def replaced(jit: Callable[..., Any], language: ModuleType | None = None) -> Iterator[None]:
    """Here `tilelang.jit` is another function, and `tilelang.language` another module."""
    import sys

    import tilelang
    import tilelang.language

    before = tilelang.jit, tilelang.language
    tilelang.jit = jit
    if language is not None:
        tilelang.language = sys.modules["tilelang.language"] = language
    try:
        yield
    finally:
        tilelang.jit, tilelang.language = before
        sys.modules["tilelang.language"] = before[1]


def executable(path: str, name: str, folder: Path) -> ModuleType:
    """The generated file at `path` as a module whose kernels run on this machine."""
    from sketchc.runtime.toolchains.tilelang_cuda import standin

    with replaced(executing(folder), standin):
        return import_file(path, name)


@cache
def _saying(capability: tuple[int, int]) -> Callable[..., tuple[int, int]]:
    return lambda device=None: capability


def pretend(capability: tuple[int, int]) -> None:
    """Have torch say this compute capability of a GPU that is not there."""
    torch.cuda.get_device_capability = _saying(capability)
