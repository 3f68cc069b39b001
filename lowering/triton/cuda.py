"""The target `triton_cuda`: Triton for NVIDIA GPUs."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.lowering.plan import Capabilities, LaunchOption
from sketchc.lowering.triton.dialect import triton_target
from sketchc.ops.table import PRECISIONS

CAPABILITIES = Capabilities(
    name="triton_cuda",
    default_hardware="h200",
    dtypes=frozenset(dtype.value for dtype in DType),
    precisions=frozenset(PRECISIONS),
    power_of_two_extents=True,
    symbolic_extents=False,
    persistent_grid=False,
    maximum_elements=2**20,
    program_bits=31,
    atomics={
        "add": frozenset({"f64", "f32", "bf16", "f16", "i64", "i32", "u32"}),
        "max": frozenset({"f64", "f32", "i64", "i32", "u32"}),
        "min": frozenset({"f64", "f32", "i64", "i32", "u32"}),
    },
    # Triton pads small M and N itself; K is the contraction of one tensor-core instruction.
    matrix_minimum={"f16": 16, "bf16": 16, "f32": 16, "i8": 32, "f64": 16},
    launch_options=(
        LaunchOption("num_warps", (1, 2, 4, 8, 16)),
        LaunchOption("num_stages", (1, 2, 3, 4, 5, 6), of_loops=True),
    ),
    trusted_below=0.92,
)

TARGET = triton_target(
    CAPABILITIES,
    description="Triton 3.6 for NVIDIA GPUs (sm_80 and newer)",
    toolchain="sketchc.runtime.toolchains.triton_cuda.toolchain",
    device="cuda",
    devices_variable="CUDA_VISIBLE_DEVICES",
    device_files="nvidia",
    backend="cuda",
    packages="torch triton==3.6.0",
    extras=(("triton", "triton"),),
    distributions=("triton",),
    documents="triton_cuda",
)
