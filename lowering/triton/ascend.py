"""The target `triton_ascend`: Triton-Ascend for Huawei NPUs."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.lowering.plan import Capabilities
from sketchc.lowering.target import out_of_resource
from sketchc.lowering.triton.dialect import FAILURES, triton_target

CAPABILITIES = Capabilities(
    name="triton_ascend",
    default_hardware="ascend910b4",
    dtypes=frozenset(dtype.value for dtype in DType if dtype is not DType.F64),
    precisions=frozenset({"ieee"}),
    # The front end takes other extents too, but its interpreter twin and its vendor's examples keep
    # to powers of two.
    power_of_two_extents=True,
    symbolic_extents=False,
    persistent_grid=True,
    maximum_elements=2**20,
    program_bits=31,
    atomics={
        "add": frozenset({"f32", "bf16", "f16", "i64", "i32", "u32"}),
        "max": frozenset({"f32", "i64", "i32", "u32"}),
        "min": frozenset({"f32", "i64", "i32", "u32"}),
    },
    matrix_minimum={"f16": 16, "bf16": 16, "f32": 16, "i8": 32},
)

#: What its compiler says of a buffer of the chip that is too small.
_OVERFLOW = r"(ub|cbuf|l0[abc]|cc) overflow|overflows? (the )?unified buffer"

TARGET = triton_target(
    CAPABILITIES,
    description="Triton-Ascend 3.2 for Huawei Ascend NPUs",
    toolchain="sketchc.runtime.toolchains.triton_ascend.toolchain",
    device="npu",
    untried="Drop-ins like this were imported and traced with meta tensors, and never run on an "
    "NPU: there was no torch_npu to be had.",
    devices_variable="ASCEND_RT_VISIBLE_DEVICES",
    device_files="davinci",
    backend="ascend",
    packages="torch",
    distributions=("triton-ascend",),
    documents="triton_ascend",
    failures=(*FAILURES, *out_of_resource(_OVERFLOW)),
)
