"""Triton-Ascend without an NPU: the real front end, its Linalg executed on this CPU.

`environment` finds the tools, `frontend` runs inside the front end's own virtual environment,
`linalg` turns its text into text for upstream MLIR and builds a shared library from that, `launch`
runs the library over a grid, and `execute` runs a wrapper whose launches go through all of these.
"""

#: Shown with every result of this toolchain.
MEANING = (
    "the triton-ascend 3.2.0 front end accepts the kernel and its Linalg, executed on this CPU, "
    "computes the result; the NPU's own compiler (bishengir-compile) was not run, so overflow of "
    "on-chip memory is judged by the plan's accounting alone"
)

#: `MEANING` in a few words, to follow "run through".
HOW_IT_RUNS = (
    "the triton-ascend 3.2.0 front end and, for its Linalg, MLIR on this CPU (bishengir-compile is "
    "not run: overflow of on-chip memory is judged by the plan alone)"
)
