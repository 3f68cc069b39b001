"""The differences between Triton targets, as data: the emitter asks a `Dialect`, never a name. And
what all Triton targets share, with the rules for Triton kernels by others."""

from __future__ import annotations

import ast
import functools

import attrs

from sketchc.base.types import DType
from sketchc.lowering.language import PYTHON, parsed
from sketchc.lowering.precisions import SPLIT
from sketchc.lowering.target import FailureRule, Target, out_of_resource

#: Element types inside a kernel.
TL = {dtype: f"tl.{dtype.numpy_name}" for dtype in DType} | {DType.BOOL: "tl.int1"}


def carrier(dtype: DType) -> DType:
    """The type in which lanes of `dtype` are ordered and moved: f32, f64, i32 or i64 hold every
    value of the narrower types, and all targets move them."""
    if dtype.is_float:
        return dtype.compute
    return DType.I64 if dtype in (DType.I64, DType.U32) else DType.I32


@attrs.frozen
class Dialect:
    """One Triton target.

    `launch_options`: `num_warps` and `num_stages` mean something. `compiled_again`: the wrapper
    keeps what Triton compiled for a launch, and launches that again, on its tensors' device.
    `grouped_order`: programs of a matrix product run in blocks of rows, for the shared cache.
    `scalar_div_rn`: `tl.div_rn` takes scalars, not tiles only.
    `specialises`: kernels are compiled apart for integer arguments that are 1 or multiples of 16.
    `integer_products`: `tl.reduce` multiplies integers.
    `gathers_words`: `tl.gather` moves floats of up to 32 bits only.
    `interval_masks`: loads and stores respect only masks that are intervals along the axes of a
    block, and no mask of a scalar load; all other accesses need addresses that are inside the
    tensor on every lane. `byte_bools`: `tl.load` gives bools as bytes. `float_extrema`:
    `tl.atomic_max` and `tl.atomic_min` of floats compare their bits, as Triton's own do.
    `pads_products`: `tl.dot` pads few rows and columns itself.
    `approximates`: f32 uses the chip's own instructions. `tl.sqrt`, `tl.rsqrt`, `tl.floor` and
    `tl.ceil` treat numbers below the smallest normal one as zero, a quotient may be 2 ulp off, and
    `tl.exp` is off by as many ulp as its argument is large.
    """

    launch_options: bool = True
    compiled_again: bool = False
    grouped_order: bool = True
    scalar_div_rn: bool = True
    specialises: bool = True
    integer_products: bool = True
    interval_masks: bool = False
    byte_bools: bool = False
    float_extrema: bool = True
    gathers_words: bool = False
    pads_products: bool = True
    approximates: bool = False


DIALECTS = {
    "triton_cuda": Dialect(compiled_again=True, approximates=True),
    "triton_ascend": Dialect(
        launch_options=False,
        grouped_order=False,
        # The 3.2.0 adapter aborts on it; a plain division is exact there.
        scalar_div_rn=False,
        # The 3.2.0 adapter crashes on masks that a size of 1 makes constant.
        specialises=False,
        integer_products=False,
        interval_masks=True,
        byte_bools=True,
        float_extrema=False,
        gathers_words=True,
        pads_products=False,
    ),
}


#: The names that generated kernels and their launches use, beside those of every wrapper.
RESERVED = frozenset({"tl", "triton", "program", "index", "index_bound", "INDEX"})
#: What a kernel may import: the module or anything below it.
IMPORTS = (
    *("torch", "triton", "math", "typing", "__future__"),
    *("collections.abc", "dataclasses", "enum", "functools", "itertools", "operator"),
)
#: Parts of Triton that are no language: its compiler and its runtime.
EXITS = frozenset(
    {"runtime", "compiler", "backends", "tools", "testing", "knobs", "add_pre_run_hook"}
)

#: Extension modules that Triton builds for itself.
EXTENSIONS = frozenset({"cuda_utils", "__triton_launcher", "triton_launcher"})


#: The classes of Triton's precisions of `tl.dot`. Three products of bf16 are less exact than three
#: of tf32; for neither is a speedup over f32 quoted.
_CLASSES = {"tf32": "tf32", "tf32x3": "tf32x3", "bf16x3": "tf32x3", "bf16x6": SPLIT}


def precisions_in(source: str) -> dict[str, str]:
    """The classes of precision other than f32 that `tl.dot` calls in a kernel by others ask for,
    each with one line; a call that states none is in tf32."""
    tree = parsed(source)
    found = {}
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Call(ast.Attribute(_, "dot"), _, keywords):
                given = {k.arg: k.value for k in keywords}
                asked = given.get("input_precision")
                exact = given.get("allow_tf32")
                if isinstance(exact, ast.Constant) and exact.value is False:
                    continue
                name = str(asked.value) if isinstance(asked, ast.Constant) else "tf32"
                if name in _CLASSES:
                    found[_CLASSES[name]] = f"line {node.lineno}: tl.dot in {name}"
    return found


#: How Triton's compilers print an exception of their own at the end of a CompilationError.
_QUOTED_MISUSE = (
    r"^(\w+Error: )*(AttributeError|NameError|UnboundLocalError|TypeError|ImportError|"
    r"ModuleNotFoundError)(\(|: )|unsupported AST node type|"
    r"(did you forget to|must be) .{0,40}(@triton\.jit|constexpr)"
)
#: The message about a tool that was killed from outside: tools are given no limit of their own.
_TOOL_KILLED = r"\bended with status -9\b"
_TOO_LARGE = r"exceeds triton maximum tensor numel|TRITON_MAX_TENSOR_NUMEL"
FAILURES = (
    FailureRule("infrastructure", ("compile",), says=_TOOL_KILLED),
    FailureRule("api_misuse", ("compile",), says=_QUOTED_MISUSE),
    *out_of_resource(_TOO_LARGE),
)
#: Makes the record of a Triton target, with the fields that all of them share.
triton_target = functools.partial(
    Target,
    language=PYTHON,
    coder="sketchc.lowering.triton.emit",
    hints="sketchc.lowering.triton.hints",
    abi="sketchc.lowering.python_host.abi",
    dsl="Triton",
    kernel_mark="triton.jit",
    dsl_names=("triton", "tl"),
    reserved=RESERVED,
    interpreted_by="TRITON_INTERPRET",
    imports=IMPORTS,
    exits=EXITS,
    extensions=EXTENSIONS,
    precisions_in=precisions_in,
    failures=FAILURES,
)
