"""In a worker: runs the text of a kernel on the CPU, under `standin`, through the C backend.

The text is imported with `standin` in the place of `tilelang.language`; each kernel that the
wrapper launches becomes C, which g++ compiles.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
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
#: TileLang's own function that launches a compiled kernel, "call".
_PLAIN: dict[str, Any] = {}


class CompilationError(Exception):
    """TileLang's compiler, or nvcc, refused a kernel."""


class Compiled:
    """A traced kernel as a function of the machine; called as TileLang's kernels are."""

    def __init__(self, function: Any, folder: Path, options: Mapping[str, Any]) -> None:
        import tilelang

        self._function = function = named_apart(function)
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
        values = values_of(self._function, arguments)
        passed = [
            ctypes.c_void_p(values[name].data_ptr())
            if kind.endswith("*")
            else _NUMBERS[kind](values[name])
            for kind, name in self._parameters
        ]
        with _launching():
            self._entry(*passed)


def values_of(function: Any, arguments: Iterable[Any]) -> dict[str, Any]:
    """What the names of a traced kernel stand for in a call: tensors, their extents, numbers."""
    values: dict[str, Any] = {}
    for parameter, argument in zip(function.params, arguments, strict=True):
        buffer = function.buffer_map.get(parameter)
        if buffer is None:
            values[parameter.name] = argument
            continue
        values[buffer.name] = argument
        for extent, size in zip(buffer.shape, argument.shape, strict=True):
            if hasattr(extent, "name"):
                values[extent.name] = size
    return values


def named_apart(function: Any) -> Any:
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


@contextmanager
def _launching() -> Iterator[None]:
    """A context around a launch, which `WATCHES` count."""
    with ExitStack() as stack:
        for watch in WATCHES:
            stack.enter_context(watch.launch())
        yield


def count_launches(watch: Any) -> None:
    """Report every launch from now on to `watch`, unless it is None, and to no other: of kernels on
    a GPU, and of those that `executing` makes."""
    from tilelang.jit.kernel import JITKernel

    WATCHES[:] = [] if watch is None else [watch]
    plain = _PLAIN.setdefault("call", JITKernel.__call__)

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with _launching():
            return plain(self, *arguments, **keywords)

    JITKernel.__call__ = call


@attrs.frozen
class Traced:
    """A traced kernel: its `name` (that of the function that made it, with a number behind it where
    that one has made others), TileLang's function, and the options to compile it with."""

    name: str
    function: Any
    options: Mapping[str, Any]


def recording(
    note: Callable[[Traced], None], launched: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """What stands in for `tilelang.jit`: `note` gets traced kernels, and their calls do nothing but
    call `launched` with the traced kernel and its arguments, where that is given."""

    def make_kernel(traced: Traced) -> Callable[..., None]:
        note(traced)
        return partial(launched, traced) if launched else lambda *passed: None

    return _standing_in(make_kernel)


def executing(folder: Path) -> Callable[..., Any]:
    """What stands in for `tilelang.jit`: kernels are compiled for this machine into `folder`."""
    import tilelang

    def make_kernel(traced: Traced) -> Compiled:
        return Compiled(traced.function, folder, traced.options)

    return _standing_in(make_kernel, lambda: tilelang.tvm.target.Target("c"))


@contextmanager
def _refusals() -> Iterator[None]:
    """A context in which what TVM raises becomes a `CompilationError`."""
    try:
        yield
    except Exception as error:
        if "tvm" not in type(error).__module__:
            raise
        message = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
        raise CompilationError(message) from error


def _standing_in(
    make_kernel: Callable[[Traced], Any],
    target: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Callable[..., Any]:
    """What stands in for `tilelang.jit`: `make_kernel` is called once for each combination of
    compile-time values, as long as torch says the same GPU, in the context `target()`."""

    def jit(
        *given: Any, pass_configs: Mapping[str, Any] | None = None, out_idx: Any = None, **_: Any
    ) -> Any:
        if out_idx is not None:
            msg = "kernels with out_idx are not served: allocate the results, and pass them"
            raise TypeError(msg)

        def decorate(trace: Callable[..., Any]) -> Callable[..., Any]:
            made: dict[tuple[Any, ...], Any] = {}

            def kernel(*values: Any, **named: Any) -> Any:
                chip = torch.cuda.get_device_capability()
                key = (chip, values, tuple(sorted(named.items())))
                if key not in made:
                    before = sum(known[0] == chip for known in made)
                    name = trace.__name__ + (f"_{before + 1}" if before else "")
                    with target(), _refusals():
                        function = trace(*values, **named)
                        made[key] = make_kernel(Traced(name, function, pass_configs or {}))
                return made[key]

            return kernel

        return decorate(given[0]) if given else decorate

    return jit


def resources(said: str) -> dict[str, int]:
    """Registers per thread and bytes of spilled ones, from what ptxas says of a kernel."""
    used = re.search(r"Used (\d+) registers", said)
    spilled = re.search(r"(\d+) bytes spill stores", said)
    found = {"registers": used, "spill_bytes": spilled}
    return {name: int(each[1]) for name, each in found.items() if each}


def replace(jit: Callable[..., Any], language: ModuleType | None = None) -> None:
    """From now on `tilelang.jit` is another function, and `tilelang.language` another module."""
    import tilelang
    import tilelang.language

    tilelang.jit = jit
    if language is not None:
        tilelang.language = sys.modules["tilelang.language"] = language


@contextmanager
def replaced(jit: Callable[..., Any], language: ModuleType | None = None) -> Iterator[None]:
    """Here `tilelang.jit` is another function, and `tilelang.language` another module."""
    import tilelang
    import tilelang.language

    before = tilelang.jit, tilelang.language
    replace(jit, language)
    try:
        yield
    finally:
        replace(*before)


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
