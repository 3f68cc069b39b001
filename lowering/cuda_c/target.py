"""The target `cuda_c`: CUDA-C for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sketchc.base.types import DType
from sketchc.lowering.hardware import architecture
from sketchc.lowering.language import CUDA
from sketchc.lowering.plan import Capabilities, LoopStyle
from sketchc.lowering.target import FailureRule, Target, out_of_resource
from sketchc.ops.table import PRECISIONS

#: Names of generated code beside those of the sketch.
RESERVED = (
    *("arena", "workspace", "program", "programs", "blocks", "thread", "threads"),
    *("block_memory", "scratch", "scratch_memory", "scratch_bytes", "shared"),
    *("first", "left", "part", "divisor", "divisor_2", "divisor_3"),
)
#: Bytes of shared memory for a program's tiles; chips from sm_80 on give a block 99 KB, of which
#: operands of products take what is left.
SHARED_BYTES = 80 * 1024
#: Bytes of shared memory that are left for operands of products, at least.
OPERAND_BYTES = 20 * 1024
#: Bytes of a program's scratch memory: as many blocks as run at a time have some, 8 GB together.
ARENA_BYTES = 8 * 1024 * 1024

CAPABILITIES = Capabilities(
    name="cuda_c",
    default_hardware="h200",
    dtypes=frozenset(dtype.value for dtype in DType),
    precisions=frozenset(PRECISIONS),
    power_of_two_extents=False,
    symbolic_extents=True,
    persistent_grid=False,
    maximum_elements=2**40,
    loops=LoopStyle(
        "shared",
        SHARED_BYTES,
        SHARED_BYTES,
        on_cores=False,
        names=RESERVED,
        near_at_bounds=True,
        sums_leave=OPERAND_BYTES,
        arena_bytes=ARENA_BYTES,
    ),
)

#: What nvcc is told of the language: functions of the standard library that are `constexpr` run on
#: the device, too.
LANGUAGE_FLAGS: tuple[str, ...] = ("-std=c++20", "-O3", "--expt-relaxed-constexpr")
#: What nvcc is told for a library that a GPU's machine runs.
SHARED_FLAGS: tuple[str, ...] = ("-shared", "-Xcompiler", "-fPIC")


def made_for(facts: Mapping[str, Any]) -> str:
    """What nvcc is told of the chip with these facts. With `-arch` alone, a library gets PTX as
    well, for chips that lack what only this one has."""
    chip = architecture(facts)
    return f"-gencode=arch={chip.replace('sm', 'compute')},code={chip}"


#: Headers that a CUDA-C kernel may include.
_HEADERS = (
    *("algorithm", "array", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstring"),
    *("initializer_list", "limits", "numeric", "tuple", "type_traits", "utility"),
    *("float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "string.h", "cuda_runtime.h"),
    *("cuda_fp16.h", "cuda_bf16.h", "mma.h", "cuda_pipeline.h"),
)
_MORE_HEADERS = frozenset({"cstdio", "stdio.h", "cassert", "assert.h", "stdlib.h", "cstdlib"})

#: What g++ and nvcc say of what their parsers and their look-up of names refuse.
_SYNTAX = (
    r"error: (expected |stray |missing terminating|unterminated|invalid preprocessing|extraneous|"
    r"'else' without|[^\n]*before '[^']*' token|[^\n]* at end of input)"
)
_MISUSE = (
    r"was not declared|has not been declared|is not a member of|has no member|is undefined|"
    r"does not name a type|no matching function|no instance of|too (many|few) arguments|"
    r"cannot convert|invalid conversion|could not convert|no match for|no operator|"
    r"invalid operands|not declared in this scope|No such file or directory|"
    r"undefined symbol|undefined reference|calling a __host__ function|invalid use of"
)
#: PTX that CUDA has no functions for, or whose functions cannot name the fragments' registers.
_ASSEMBLY = (
    *("cp.async", "ldmatrix.sync", "mma.sync", "max.NaN", "min.NaN", "wgmma.fence.sync"),
    *("wgmma.mma_async.sync", "wgmma.commit_group.sync", "wgmma.wait_group.sync"),
    *("fence.proxy.async.shared::cta", "cvt.rna.tf32", "mbarrier.init", "mbarrier.inval"),
    *("cvt.rn.f16", "cvt.rn.bf16", "cvt.f32.f16"),
    *("mbarrier.arrive", "{ .reg .pred %%done; mbarrier.try_wait.parity.shared::cta.b64"),
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
)
_TOO_LARGE = r"uses too much shared data|too many resources|bytes of shared memory"

TARGET = Target(
    CAPABILITIES,
    description="CUDA-C for NVIDIA GPUs (sm_80 and newer)",
    language=CUDA,
    coder="sketchc.lowering.cuda_c.emit",
    hints="sketchc.lowering.cuda_c.hints",
    abi="sketchc.lowering.c_source.abi",
    toolchain="sketchc.runtime.toolchains.cuda_c.toolchain",
    dsl="CUDA-C",
    device="cuda",
    devices_variable="CUDA_VISIBLE_DEVICES",
    device_files="nvidia",
    backend="cuda",
    documents="cuda_c",
    imports=_HEADERS,
    tolerated=_MORE_HEADERS,
    assembly=_ASSEMBLY,
    failures=(
        *out_of_resource(_TOO_LARGE),
        FailureRule("syntax", ("compile",), says=_SYNTAX),
        FailureRule("api_misuse", ("compile", "launch"), says=_MISUSE),
    ),
)
