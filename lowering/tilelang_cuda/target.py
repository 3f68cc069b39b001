"""The target `tilelang_cuda`: TileLang for NVIDIA GPUs."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.lowering.language import PYTHON
from sketchc.lowering.plan import Capabilities, LoopStyle
from sketchc.lowering.target import FailureRule, Target, out_of_resource

#: The names that generated kernels and their launches use, beside those of every wrapper.
RESERVED = frozenset({"T", "tilelang", "half"})  # `half` is a type of its C++
#: Bytes of shared memory of a program; chips from sm_80 on give a block as much.
SHARED_BYTES = 96 * 1024
#: Bytes of a program's scratch memory: as many blocks as run at a time have some, 8 GB together.
ARENA_BYTES = 8 * 1024 * 1024

CAPABILITIES = Capabilities(
    name="tilelang_cuda",
    default_hardware="h200",
    dtypes=frozenset(dtype.value for dtype in DType),
    precisions=frozenset({"ieee", "tf32", "tf32x3"}),
    power_of_two_extents=False,
    symbolic_extents=True,
    persistent_grid=False,
    maximum_elements=2**40,
    program_bits=31,
    loops=LoopStyle(
        "shared",
        SHARED_BYTES,
        SHARED_BYTES,
        on_cores=False,
        names=tuple(RESERVED),
        arena_bytes=ARENA_BYTES,
    ),
    atomics={
        "add": frozenset({"f64", "f32", "bf16", "f16", "i64", "i32", "u32"}),
        "max": frozenset({"f32", "i32", "u32"}),
        "min": frozenset({"f32", "i32", "u32"}),
    },
)

#: What a kernel may import: the module or anything below it.
_IMPORTS = (
    *("torch", "tilelang", "math", "typing", "__future__"),
    *("collections.abc", "dataclasses", "enum", "functools", "itertools", "operator"),
)
#: Parts of TileLang that are no language: its compiler, its runtime and its tools.
_EXITS = frozenset(
    {"engine", "contrib", "tools", "testing", "autotuner", "profiler", "cache", "env", "tvm"}
)
_MISUSE = (
    r"^(\w+Error: )*(AttributeError|NameError|UnboundLocalError|TypeError|ImportError|"
    r"ModuleNotFoundError)(\(|: )|no attribute"
)
_TOO_LARGE = r"uses too much shared data|too many resources|Failed to set the allowed dynamic"

TARGET = Target(
    CAPABILITIES,
    description="TileLang 0.1.15 for NVIDIA GPUs (sm_80 and newer)",
    language=PYTHON,
    coder="sketchc.lowering.tilelang_cuda.emit",
    hints="sketchc.lowering.tilelang_cuda.hints",
    abi="sketchc.lowering.python_host.abi",
    toolchain="sketchc.runtime.toolchains.tilelang_cuda.toolchain",
    dsl="TileLang",
    device="cuda",
    devices_variable="CUDA_VISIBLE_DEVICES",
    device_files="nvidia",
    backend="cuda",
    packages="torch tilelang==0.1.15",
    extras=(("tilelang", "tilelang"),),
    distributions=("tilelang",),
    documents="tilelang_cuda",
    kernel_mark="tilelang.jit",
    dsl_names=("tilelang", "T"),
    reserved=RESERVED,
    imports=_IMPORTS,
    exits=_EXITS,
    failures=(
        *out_of_resource(_TOO_LARGE),
        FailureRule("api_misuse", ("compile",), says=_MISUSE),
    ),
)
