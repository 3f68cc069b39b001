"""Run inside the triton-ascend environment: compiles one kernel specialisation to Linalg text.

A worker handler (see `runtime.sandbox.worker`), loaded by path: the environment has triton-ascend
and numpy, neither sketchc nor torch. A generated file imports torch for its host wrapper alone, so
a stand-in takes torch's place here.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

#: How often a conversion is tried where triton-adapter-opt ends with a signal.
_CONVERSIONS = 4


class _Anything(types.ModuleType):
    """A module whose attributes are modules of this class: enough to define a host wrapper."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        # As a decorator (`torch.no_grad()`), it returns the function unchanged.
        if len(arguments) == 1 and isinstance(arguments[0], types.FunctionType):
            return arguments[0]
        return self


class FrontEndError(Exception):
    """The front end refuses the kernel; the message is what the front end reported."""


class _Pointer:
    """A buffer whose address specialises like torch's allocations: a multiple of 16 bytes."""

    def data_ptr(self) -> int:
        return 0


def compile_kernel(
    request: dict[str, Any], _arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile one specialisation of a kernel to Linalg.

    `request`: "file" and "kernel" name the jitted function, "chip" is for instance "Ascend910B4",
    "options" are the launch's compile options, "arguments" lists (name, type, value) of the
    arguments that are no constexprs, in the kernel's order, with a value that specialises as the
    real one does (1, a multiple of 16, neither), "constants" maps the constexprs ({"tl": "float32"}
    stands for `tl.float32`). The reply has "linalg", "arguments" (the names of the arguments that
    the compiled function takes) and "rewritten" (see `_rewritten`).
    """
    from triton.backends.ascend.compiler import AscendBackend
    from triton.backends.compiler import GPUTarget

    function = _load(request["file"], request["kernel"])
    backend = AscendBackend(GPUTarget("npu", request["chip"], 0))
    options = backend.parse_options(request["options"])
    values = {
        name: _Pointer() if kind.startswith("*") else value
        for name, kind, value in request["arguments"]
    }
    constants = {name: _constant(value) for name, value in request["constants"].items()}
    values.update(constants)
    unknown = [p.name for p in function.params if p.name not in values]
    if unknown:
        raise FrontEndError(f"the launch gives no value for {', '.join(unknown)}")
    ordered = tuple(values[p.name] for p in function.params)
    attributes = backend.get_attrs_descriptor(function.params, ordered)
    for parameter, value in zip(function.params, ordered, strict=True):
        if parameter.num in attributes.get_constants() or value is None:
            constants[parameter.name] = value
    signature = {name: kind for name, kind, _ in request["arguments"]}
    linalg = _lower(backend, options, function, signature, constants, attributes)
    taken = [name for name in signature if name not in constants]
    rewritten = _rewritten(linalg, taken, function.src)
    return {"linalg": linalg, "arguments": taken, "rewritten": rewritten}, {}


def _rewritten(linalg: str, taken: list[str], source: str) -> list[str]:
    """Arguments that the kernel only stores to, but that the front end's code also reads.

    Where the mask of a store is no interval along each axis, the front end reads the whole block,
    selects, and writes the whole block back: out of bounds at the edge of a tensor, and a race
    where another program writes elements of the same block.
    """
    kinds = re.findall(r"%arg(\d+): memref<[^>]*> \{[^}]*tt\.tensor_kind = (\d)", linalg)
    # Lock and workspace come before the user's arguments; kind 2 is read and written.
    both = {taken[int(number) - 2] for number, kind in kinds if kind == "2"}
    aliases = {name: {name} for name in both}
    read: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for name in both:
            if isinstance(node, (ast.Assign, ast.AugAssign)) and names & aliases[name]:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                aliases[name] |= {t.id for t in targets if isinstance(t, ast.Name)}
            if isinstance(node, ast.Call) and names & aliases[name]:
                stores = isinstance(node.func, ast.Attribute) and node.func.attr == "store"
                if not stores:
                    read.add(name)
    return sorted(both - read)


def _constant(value: Any) -> Any:
    """The constexpr that `value`, as sent in JSON, stands for."""
    if isinstance(value, dict):
        import triton.language

        return getattr(triton.language, value["tl"])
    return value


def _load(path: str, name: str) -> Any:
    """The jitted function `name` of the file at `path`."""
    if importlib.util.find_spec("torch") is None:
        sys.modules["torch"] = _Anything("torch")
    specification = importlib.util.spec_from_file_location("generated", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["generated"] = module
    specification.loader.exec_module(module)
    sys.modules.pop("torch", None)
    return getattr(module, name)


def _steadily(convert: Callable[[], str]) -> str:
    """What `convert` returns or raises, tried again after a crash, `_CONVERSIONS` times in all.
    triton-adapter-opt depends on addresses: for some kernels, one conversion in a hundred crashes
    (none with a fixed memory layout), and all others give equal text."""
    for _ in range(_CONVERSIONS - 1):
        try:
            return convert()
        except subprocess.CalledProcessError as error:
            if error.returncode >= 0:
                raise
    return convert()


def _lower(
    backend: Any,
    options: Any,
    function: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    attributes: Any,
) -> str:
    from triton._C.libtriton import ir
    from triton.backends.ascend.compiler import make_ttir, ttir_to_linalg
    from triton.compiler.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    source = ASTSource(function, signature, constants, attributes)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    code_generation = backend.get_codegen_implementation()
    metadata = dict(options.__dict__)
    try:
        module = source.make_ir(options, code_generation, backend.get_module_map(), context)
        module = make_ttir(module, metadata, options)
        return _steadily(lambda: str(ttir_to_linalg(module, metadata, options, named_ops=True)))
    except CompilationError as error:
        raise FrontEndError(str(error)) from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr or b"").decode("utf-8", "replace")
        message = f"triton-adapter-opt ended with status {error.returncode}:\n{words}"
        raise FrontEndError(message) from error
    except RuntimeError as error:  # a pass failed; its diagnostics are in the worker's output
        raise FrontEndError(str(error)) from error
