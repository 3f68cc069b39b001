"""From the front end's Linalg to a shared library that runs the kernel over a grid.

The text uses dialects of the NPU's own compiler for hints (dropped), for a few library functions
(given a body in MLIR) and for float remainders (rewritten). Then mlir-opt, mlir-translate, opt, llc
and gcc build it, one after another; builds are kept in the user's cache folder under a key of the
text, the launcher, the passes, the tools' versions and the processor.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

import attrs

from sketchc.runtime.process.peer import run_compiler
from sketchc.runtime.process.venvs import processor_says
from sketchc.runtime.toolchains.triton_ascend.environment import Tools, cache_folder

#: `__hmf_<name>f` on f32 and `__hmf_<name>Dh` on f16 -> one operation of MLIR's math dialect.
_MATH = {
    "tanh": "math.tanh",
    "tan": "math.tan",
    "atan": "math.atan",
    "log1p": "math.log1p",
    "round": "math.round",
    "pow": "math.powf",
}
_SCANS = {
    "cumsum": ("arith.addf", "arith.addi", "0"),
    "cumprod": ("arith.mulf", "arith.muli", "1"),
}


class UnsupportedLinalgError(Exception):
    """The Linalg text uses an operation or function of the NPU's compiler that is not supported."""


def _library_body(declaration: re.Match[str], text: str) -> str:
    """The definition that replaces a private `declaration`; `text` holds the function's call sites.

    Raises `UnsupportedLinalgError` for a function that is not known.
    """
    name, given, returned = declaration.groups()
    types = [part.strip() for part in re.split(r",(?![^<]*>)", given) if part.strip()]
    result = (returned or "").strip()
    if name.startswith("__hmf_") and (body := _math_body(name, types, result)):
        return body
    if scan := re.fullmatch(r"triton_(cumsum|cumprod)_\d+", name):
        return _scan_body(name, scan.group(1), types, _constant_operand(name, text))
    if re.fullmatch(r"triton_flip(_\d+)?", name):
        return _flip_body(name, types, _constant_operand(name, text))
    if re.fullmatch(r"triton_gather(_\d+)?", name):
        return _gather_body(name, types, result, _constant_operand(name, text, position=2))
    if re.fullmatch(r"triton_(print|assert)_\d+", name):
        return _define(name, types, "", ["return"])
    raise UnsupportedLinalgError(f"the Linalg calls {name}, a function of the NPU's own library")


def _define(name: str, types: list[str], result: str, lines: list[str]) -> str:
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(types))
    arrow = f" -> {result}" if result else ""
    body = "\n".join(f"    {line}" for line in lines)
    return f"  func.func private @{name}({arguments}){arrow} {{\n{body}\n  }}"


def _math_body(name: str, types: list[str], result: str) -> str | None:
    stem = re.sub(r"(?:f|Dh)$", "", name.removeprefix("__hmf_"))
    kind = types[0]
    if operation := _MATH.get(stem):
        operands = ", ".join(f"%a{i}" for i in range(len(types)))
        lines = [f"%r = {operation} {operands} : {kind}", f"return %r : {result}"]
        return _define(name, types, result, lines)
    constant = f"%c = arith.constant {'0.0' if stem == 'relu' else '1.0'} : {kind}"
    match name.removeprefix("__hmf_"):
        case "isnan":
            lines = [f"%r = arith.cmpf uno, %a0, %a0 : {kind}"]
        case "isinf":
            infinity = {"f32": "0x7F800000", "f16": "0x7C00", "bf16": "0x7F80"}[kind]
            lines = [
                f"%c = arith.constant {infinity} : {kind}",
                f"%s = math.absf %a0 : {kind}",
                f"%r = arith.cmpf oeq, %s, %c : {kind}",
            ]
        case "reluf" | "reluDh":
            lines = [constant, f"%r = arith.maximumf %a0, %c : {kind}"]
        case "recipf" | "recipDh":
            lines = [constant, f"%r = arith.divf %c, %a0 : {kind}"]
        case _:
            return None
    return _define(name, types, result, [*lines, f"return %r : {result}"])


def _constant_operand(name: str, text: str, position: int = 1) -> int:
    """The value of the constant operand `position` (an axis) of the first call of `name` in `text`;
    0 where none is found."""
    before = r"%[\w#]+, " * position
    call = re.search(rf"call @{name}\({before}(%[\w#]+)[,)]", text)
    value = call and re.search(rf"{call.group(1)} = arith\.constant (-?\d+) :", text)
    return int(value.group(1)) if value else 0


def _shape(tensor: str) -> tuple[list[int], str]:
    *extents, element = tensor.removeprefix("tensor<").removesuffix(">").split("x")
    return [int(extent) for extent in extents], element


def _scan_body(name: str, kind: str, types: list[str], axis: int) -> str:
    """The definition of a scan: loops over every axis, of which the scanned one is innermost and
    carries the running value."""
    tensor = types[0]
    extents, element = _shape(tensor)
    axis %= len(extents)
    floating, integral, identity = _SCANS[kind]
    is_float = element[0] in "fb"
    operation = floating if is_float else integral
    start = f"{identity}.0" if is_float else identity
    outer = [i for i in range(len(extents)) if i != axis]
    indices = ", ".join("%p" if i == axis else f"%i{i}" for i in range(len(extents)))
    lines = [
        "%zero = arith.constant 0 : index",
        "%one = arith.constant 1 : index",
        *(f"%d{i} = arith.constant {extent} : index" for i, extent in enumerate(extents)),
        f"%last = arith.constant {extents[axis] - 1} : index",
        f"%start = arith.constant {start} : {element}",
        f"%t = tensor.empty() : {tensor}",
    ]
    carried = "%t"
    for i in outer:
        lines.append(
            f"%r{i} = scf.for %i{i} = %zero to %d{i} step %one "
            f"iter_args(%t{i} = {carried}) -> ({tensor}) {{"
        )
        carried = f"%t{i}"
    both = f"{element}, {tensor}"
    lines += [
        f"%inner:2 = scf.for %k = %zero to %d{axis} step %one "
        f"iter_args(%sum = %start, %u = {carried}) -> ({both}) {{",
        "%back = arith.subi %last, %k : index",
        "%p = arith.select %a2, %back, %k : index",
        f"%v = tensor.extract %a0[{indices}] : {tensor}",
        f"%next = {operation} %sum, %v : {element}",
        f"%w = tensor.insert %next into %u[{indices}] : {tensor}",
        f"scf.yield %next, %w : {both}",
        "}",
    ]
    inner = "%inner#1"
    for i in reversed(outer):
        lines += [f"scf.yield {inner} : {tensor}", "}"]
        inner = f"%r{i}"
    return _define(name, types, tensor, [*lines, f"return {inner} : {tensor}"])


def _flip_body(name: str, types: list[str], axis: int) -> str:
    extents, _ = _shape(types[0])
    last = f"%last = arith.constant {extents[axis] - 1} : index"
    mirrored = f"%p = arith.subi %last, %i{axis % len(extents)} : index"
    return _taken(name, types, types[0], axis, [last], [mirrored])


def _gather_body(name: str, types: list[str], result: str, axis: int) -> str:
    """The definition of a gather; along axis 1, `result[i, j] = a0[i, a1[i, j]]`."""
    index = types[1]
    places = ", ".join(f"%i{i}" for i in range(len(_shape(result)[0])))
    place = [
        f"%n = tensor.extract %a1[{places}] : {index}",
        f"%p = arith.index_cast %n : {_shape(index)[1]} to index",
    ]
    return _taken(name, types, result, axis, [], place)


def _taken(
    name: str, types: list[str], result: str, axis: int, before: list[str], place: list[str]
) -> str:
    """The definition of a function that moves elements of its first argument along one axis: the
    lines `place` compute the index to read on that axis, as %p."""
    extents, element = _shape(result)
    axis %= len(extents)
    indices = ", ".join("%p" if i == axis else f"%i{i}" for i in range(len(extents)))
    lines = [
        *before,
        "%r = tensor.generate {",
        f"^bb0({', '.join(f'%i{i}: index' for i in range(len(extents)))}):",
        *place,
        f"%v = tensor.extract %a0[{indices}] : {types[0]}",
        f"tensor.yield %v : {element}",
        f"}} : {result}",
        f"return %r : {result}",
    ]
    return _define(name, types, result, lines)


_HINT_LINES = re.compile(
    r"^\s*(?:annotation\.mark|gpu\.barrier|\"?llvm\.intr\.assume\"?)\b.*\n", re.MULTILINE
)
_HINT_ATTRIBUTES = re.compile(r" \{hivm\.[^{}]*\}")
_FUNCTION = re.compile(r"func\.func @(\w+)\((.*?)\) attributes", re.DOTALL)
_ARGUMENT = re.compile(r"%\w+: (memref<\?x(\w+)>|\w+)")
_PRIVATE = re.compile(r"^\s*func\.func private @(\w+)\((.*)\)(?: -> ([^{]*?))?(?: attributes .*)?$")
_REMAINDER = re.compile(
    r"hfusion\.elemwise_binary \{fun = #hfusion\.binary_fn<mod>\} "
    r"ins\((%\w+), (%\w+) : (tensor<[^>]*>), tensor<[^>]*>\) outs\(%\w+ : tensor<[^>]*>\) "
    r"-> tensor<[^>]*>"
)

#: Arguments before the user's (lock, workspace) and after them (grid and position).
LEADING, TRAILING = 2, 6

#: The kernel's symbol in the library: its own name may be that of a C function.
KERNEL = "sketchc_kernel"


@attrs.frozen
class Argument:
    """One user argument: a buffer with elements of type `element`, or a scalar of that type."""

    element: str  # "f32", "bf16", "i1", ...
    buffer: bool


@attrs.frozen
class Function:
    """The kernel: its name and the user's arguments in order."""

    name: str
    arguments: tuple[Argument, ...]


def read_function(linalg: str) -> Function:
    """The kernel's signature. Raises `UnsupportedLinalgError` where there is none."""
    found = _FUNCTION.search(linalg)
    if found is None:
        raise UnsupportedLinalgError("the front end's output has no kernel function")
    every = [
        Argument(buffer or scalar, bool(buffer))
        for scalar, buffer in _ARGUMENT.findall(found.group(2))
    ]
    return Function(found.group(1), tuple(every[LEADING:-TRAILING]))


def normalise(linalg: str) -> str:
    """The front end's text as upstream `mlir-opt` parses it, with a definition for every function.

    Raises `UnsupportedLinalgError` for a function or an operation that is not supported.
    """
    name = read_function(linalg).name
    text = re.sub(rf"@{name}\b", f"@{KERNEL}", linalg)
    text = _HINT_LINES.sub("", text)
    text = _HINT_ATTRIBUTES.sub("", text)
    text = _REMAINDER.sub(r"arith.remf \1, \2 : \3", text)
    lines = []
    for line in text.split("\n"):
        found = _PRIVATE.match(line)
        lines.append(_library_body(found, text) if found else line)
    text = "\n".join(lines)
    odd = sorted(set(re.findall(r"(?<![#\w.\"])((?:hivm|hfusion)\.[\w.]+)", text)))
    if odd:
        message = f"the Linalg uses {', '.join(odd)}, which cannot be executed on the CPU"
        raise UnsupportedLinalgError(message)
    return text


#: Order matters: element-wise tensor operations become linalg before bufferization (it has no rule
#: for them), and bf16 arithmetic is expanded before it reaches LLVM.
PASSES = (
    "-inline",
    "-convert-elementwise-to-linalg",
    "-linalg-fuse-elementwise-ops",
    "-one-shot-bufferize=allow-return-allocs-from-loops",
    "-buffer-loop-hoisting",
    "-canonicalize",
    "-convert-linalg-to-loops",
    "-inline",
    "-expand-strided-metadata",
    "-memref-expand",
    "-lower-affine",
    "-convert-scf-to-cf",
    "-arith-expand=include-bf16=true",
    "-convert-math-to-llvm",
    "-convert-math-to-libm",
    "-convert-arith-to-llvm",
    "-convert-index-to-llvm",
    "-finalize-memref-to-llvm=use-generic-functions",
    "-convert-func-to-llvm",
    "-convert-cf-to-llvm",
    "-convert-arith-to-llvm",
    "-reconcile-unrealized-casts",
)

_C_TYPES = {"i1": "_Bool", "f32": "float", "f64": "double"} | {
    f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)
}
#: A memref<?xT> argument: base, aligned, offset, size, stride.
_MEMREF = "void *, void *, int64_t, int64_t, int64_t"
TIMEOUT = 120.0


class BuildError(Exception):
    """A build tool refused its input, or took too long; `log` is what the tool printed."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


def build(linalg: str, tools: Tools) -> tuple[Path, Function]:
    """Build the shared library for a kernel's Linalg; returns its path and the kernel's signature.

    Raises `BuildError` and `UnsupportedLinalgError`.
    """
    text = normalise(linalg)
    function = read_function(linalg)
    source = glue_source(function)
    launcher = Path(__file__).with_name("launcher.c").read_text()
    # Code for `-mcpu=native` may not run on another machine that shares this cache.
    processor = processor_says("flags") or processor_says("Features")
    parts = (text, source, launcher, " ".join(PASSES), tools.fingerprint, processor)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    library = cache_folder() / key[:2] / f"{key}.so"
    if library.exists():
        return library, function
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as name:
        folder = Path(name)
        (folder / "kernel.mlir").write_text(text)
        (folder / "launcher.c").write_text(launcher + source)
        _build_in(folder, tools)
        # Atomic: another process may build the same kernel at the same time.
        os.replace(folder / "kernel.so", library)
    return library, function


def _build_in(folder: Path, tools: Tools) -> None:
    commands = (
        ("mlir-opt", "--allow-unregistered-dialect", "kernel.mlir", *PASSES, "-o", "low.mlir"),
        ("mlir-translate", "--mlir-to-llvmir", "low.mlir", "-o", "kernel.ll"),
        ("opt", "-O2", "kernel.ll", "-o", "kernel.bc"),
        (
            *("llc", "-O2", "-mcpu=native", "-filetype=obj", "-relocation-model=pic"),
            *("kernel.bc", "-o", "kernel.o"),
        ),
        (
            *("gcc", "-std=c11", "-O2", "-shared", "-fPIC", "-D_GNU_SOURCE"),
            *("launcher.c", "kernel.o", "-o", "kernel.so", "-lm"),
        ),
    )
    for name, *arguments in commands:
        path = tools.programs[name]
        program = Path(path).name
        status, printed = run_compiler([path, *arguments], TIMEOUT, folder)
        if status is None:
            raise BuildError(f"{program} took more than {TIMEOUT:.0f} s", "")
        if status:
            killed = f"{program} ended with status {status}"
            refused = f"{program} cannot translate the front end's Linalg"
            raise BuildError(killed if status < 0 else refused, printed[-8000:])


def glue_source(function: Function) -> str:
    """C code that calls the kernel for one program of the grid."""
    parameters, values = [_MEMREF, _MEMREF], ["NULL, NULL, 0, 0, 1"] * 2
    for i, argument in enumerate(function.arguments):
        if argument.buffer:
            parameters.append(_MEMREF)
            values.append(f"arguments[{i}], arguments[{i}], 0, lengths[{i}], 1")
        else:
            kind = _C_TYPES[argument.element]
            parameters.append(kind)
            values.append(f"*({kind} *)arguments[{i}]")
    for name in ("programs", "position"):
        parameters += ["int32_t"] * 3
        values += [f"place->{name}[{axis}]" for axis in range(3)]
    return (
        f"\nvoid {KERNEL}({', '.join(parameters)});\n\n"
        "static void sketchc_program(void *const *arguments, const int64_t *lengths,\n"
        "                            const sketchc_place *place) {\n"
        "    (void)arguments;\n    (void)lengths;\n"
        f"    {KERNEL}({', '.join(values)});\n}}\n"
    )
