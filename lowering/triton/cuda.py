"""The target `triton_cuda`: Triton for NVIDIA GPUs."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.language import PYTHON
from sketchc.lowering.plan import Capabilities, HintAnswer, Plan
from sketchc.lowering.target import Target
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.foreign import EXITS, FAILURES, IMPORTS

CAPABILITIES = Capabilities(
    name="triton_cuda",
    default_hardware="h200",
    dtypes=frozenset(dtype.value for dtype in DType),
    precisions=frozenset({"ieee", "tf32", "tf32x3"}),
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
)

DIALECT = Dialect(
    CAPABILITIES,
    launch_options=True,
    device_guard="torch.cuda.device_of",
    grouped_order=True,
    scalar_div_rn=True,
    dot_dtypes=frozenset({DType.F32, DType.F16, DType.BF16, DType.I8}),
)

TARGET = Target(
    CAPABILITIES,
    description="Triton 3.6 for NVIDIA GPUs (sm_80 and newer)",
    language=PYTHON,
    coder=__name__,
    abi="sketchc.lowering.python_host.abi",
    toolchain="sketchc.runtime.toolchains.triton_cuda.toolchain",
    dsl="Triton",
    device="cuda",
    backend="cuda",
    packages="torch triton==3.6.0",
    documents="triton_cuda",
    kernel_mark="triton.jit",
    dsl_names=("triton", "tl"),
    imports=IMPORTS,
    exits=EXITS,
    failures=FAILURES,
)


def emit(plan: Plan) -> Kernel:
    """The kernels and the wrapper of a finished plan, as one Python file."""
    from sketchc.lowering.triton.emit import emit_kernel

    return emit_kernel(plan, DIALECT)


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """What the hints became that only this target can answer."""
    from sketchc.lowering.triton.answers import answers as triton_answers

    return triton_answers(plan, DIALECT)
