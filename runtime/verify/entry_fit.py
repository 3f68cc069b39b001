"""Whether the C function of a kernel by others can be called as a signature says: read off its
parameters before anything runs, for a call that does not fit reads and writes anywhere.

Only what is certain is refused: their number, pointers for numbers, elements of another type, an
output behind a `const`, a float where a size or an integer is passed. A name that somebody gave to
a type is taken for the right one.
"""

from __future__ import annotations

import re

from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.abi import passed
from sketchc.lowering.c_source import abi
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language
from sketchc.runtime.verify.kernel_file import without_comments

#: C's words for elements -> the types that they may hold.
_ELEMENTS = {
    **dict.fromkeys(("float",), (DType.F32,)),
    **dict.fromkeys(("double",), (DType.F64,)),
    **dict.fromkeys(("int64_t", "long", "long long", "long int", "long long int"), (DType.I64,)),
    **dict.fromkeys(("int32_t", "int", "signed int"), (DType.I32,)),
    **dict.fromkeys(("int16_t", "short", "short int"), (DType.I16,)),
    **dict.fromkeys(("int8_t", "signed char"), (DType.I8,)),
    **dict.fromkeys(("uint32_t", "unsigned int", "unsigned"), (DType.U32,)),
    **dict.fromkeys(("uint8_t", "unsigned char", "bool", "_Bool"), (DType.U8, DType.BOOL)),
    **dict.fromkeys(("uint16_t", "unsigned short"), (DType.F16, DType.BF16)),
    **dict.fromkeys(("half", "__half", "_Float16"), (DType.F16,)),
    **dict.fromkeys(("__nv_bfloat16", "__bf16"), (DType.BF16,)),
}
_FLOATS = ("float", "double", "long double", "half", "__half", "_Float16")
#: What says nothing of a type.
_QUALIFIERS = re.compile(r"\b(const|volatile|restrict|__restrict__|__restrict|struct)\b|\bstd::")


def require_fit(kernel: Kernel, file: str, signature: str) -> None:
    """Raises `UsageError` where the C function of a `kernel` of `file` takes other arguments than
    the sketch in the file `signature` says."""
    language = load_language(kernel.language)
    if language.syntax != "c" or language.by_runner:
        return
    if why := misfit(kernel.source, kernel.entry, kernel.sketch):
        refuse(
            f"{file}: {kernel.entry} is no kernel of the signature in {signature}: {why}; "
            "list tensors, symbols and params in the order of the kernel's arguments"
        )


def misfit(source: str, entry: str, sketch: ir.Sketch) -> str:
    """Why the C function `entry` of a `source` cannot be called as the `sketch` says, in one
    sentence; "" where it can, or where its parameters cannot be read (templates, macros)."""
    parameters = _parameters(source, entry)
    if parameters is None:
        return ""
    tensors, scalars = passed(sketch), abi.scalars(sketch)
    wanted = len(tensors) + len(scalars)
    called = " ".join(abi.declaration(sketch, entry, frozenset()).split())
    if len(parameters) != wanted:
        return f"it takes {len(parameters)} arguments and is called with {wanted}: {called}"
    for tensor, parameter in zip(tensors, parameters, strict=False):
        if why := _no_tensor(tensor, parameter):
            return f"`{parameter}` is no place for {tensor.name}, {why}: {called}"
    for (kind, name), parameter in zip(scalars, parameters[len(tensors) :], strict=True):
        if why := _no_scalar(kind, parameter):
            return f"`{parameter}` is no place for {name}, {why}: {called}"
    return ""


def _parameters(source: str, entry: str) -> list[str] | None:
    """The parameters of the one definition of a function; None where that is not to be read."""
    text = without_comments(source)
    found = re.findall(rf"\b{re.escape(entry)}\s*\(([^;{{}}()]*)\)\s*\{{", text)
    if len(found) != 1 or re.search(r"[<>#]|\.\.\.", found[0]):
        return None
    listed = " ".join(found[0].split())
    return [] if listed in ("", "void") else [one.strip() for one in listed.split(",")]


def _no_tensor(tensor: ir.Tensor, parameter: str) -> str:
    """Why a parameter cannot take a tensor's memory; "" where it can."""
    element, star, _ = parameter.partition("*")
    if not star and "[" not in parameter:
        known = _type(parameter) in _ELEMENTS
        return f"a tensor of {tensor.dtype.value}" if known else ""
    if not star:
        element = parameter.partition("[")[0].rpartition(" ")[0]
    if tensor.role is not ir.Role.IN and re.search(r"\bconst\b", element):
        return "which the kernel writes"
    fits = _ELEMENTS.get(_words(element), (tensor.dtype,))
    return "" if tensor.dtype in fits else f"a tensor of {tensor.dtype.value}"


def _no_scalar(kind: str, parameter: str) -> str:
    """Why a parameter cannot take a number that is passed as `kind`, "int64_t" or "double"; ""
    where it can."""
    if "*" in parameter or "[" in parameter:
        return f"a number that is passed as {kind}"
    given = _type(parameter)
    wrong = given in _FLOATS if kind == "int64_t" else given in _ELEMENTS and given != kind
    return f"which is passed as {kind}" if wrong else ""


def _type(parameter: str) -> str:
    """The type of a parameter that is no pointer: without its name, where it has one."""
    words = _words(parameter)
    return words if words in _ELEMENTS else words.rpartition(" ")[0]


def _words(text: str) -> str:
    return " ".join(_QUALIFIERS.sub(" ", text).split())
