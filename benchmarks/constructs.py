"""Which construct of the language works on which target, from real runs of the examples.

    python benchmarks/constructs.py [--target T]... [NAME]...    run, and write docs/constructs.json
    python benchmarks/constructs.py --render                     only write docs/CONSTRUCTS.md again

Each example is verified against its PyTorch task at sizes of one, at ragged sizes, and at the
task's own, scaled down. What was not run keeps its last result. `CONSTRUCTS` says which example
shows which construct; `tests/unit/test_constructs.py` holds it against the examples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
RESULTS = ROOT / "docs" / "constructs.json"
PAGE = ROOT / "docs" / "CONSTRUCTS.md"

#: What is run, by its name in constructs.json, and the heading of its column.
COLUMNS = {
    "interpreter": "interpreter",
    "cpp": "C++",
    "triton_cuda": "Triton, interpreted",
    "cubin": "Triton, cubin",
    "triton_ascend": "Ascend path",
}
#: Section -> (construct, the example that shows it).
CONSTRUCTS: dict[str, tuple[tuple[str, str], ...]] = {
    "Accesses": (
        ("slices, ragged at the edge", "add"),
        ("strided slice, on one axis", "downsample"),
        ("strided slices on two axes, with `pad=`", "max_pool2d"),
        ("reversed slice", "flip"),
        ("strided store", "upsample_zeros"),
        ("two strided stores that cover together", "unpack_int4"),
        ("lane form: computed indices, load and store", "conv2d"),
        ("lane form: loaded indices", "gather"),
        ("`a if c else b` of indices", "roll"),
        ("mixed: an index tile and a slice", "embedding"),
        ("`pad=` around the edges", "heat"),
        ("`where=` on a load that does not separate by axis", "conv_transpose2d"),
        ("`where=` on a store", "triangular_matmul"),
        ("scatter with `unique=True`", "masked_select"),
        ("scatter with `covers=True`", "rank_rows"),
        ("a tensor that may be broadcast, `[M\\|1]`", "unscale_gradients"),
        ("views", "group_norm"),
    ),
    "Control": (
        ("`if` on loop variables", "depthwise_conv2d"),
        ("`if` on a run-time flag", "avg_pool1d"),
        ("`if` on a compile-time constant", "bias_activation"),
        ("`if` that leaves out slices of a volume", "max_pool3d"),
        ("`pass`", "bias_activation"),
        ("loop bounds over outer variables", "avg_pool3d"),
        ("a triangular grid", "triangular_matmul"),
        ("a loop that counts down", "cumsum_reverse"),
        ("causal loop bounds", "causal_attention"),
        ("several phases and a workspace", "cumsum_two_phase"),
        ("a host loop around phases", "heat"),
        ("`fetch` on the host", "power_iteration"),
        ("`fetch` in a program", "cross_entropy"),
    ),
    "Memory": (
        ("`atomic_add` on floats", "split_k_matmul"),
        ("`atomic_add` on integers", "histogram"),
        ("`atomic_max`", "segment_max"),
        ("`atomic_min`", "first_seen"),
        ("atomics through loaded indices", "scatter_add"),
        ("`where=` on an atomic", "histogram_range"),
        ("optional tensor, `present()`", "causal_attention"),
        ("tensor without axes", "triplet_loss"),
        ("`inout` tensor", "scatter_add"),
        ("initial values", "upsample_zeros"),
        ("several outputs", "sort_rows"),
    ),
    "Operations": (
        ("element-wise", "gelu"),
        ("activations, `alpha=`, `slope=`, `approximate=`", "activations"),
        ("elementary functions, `pow`", "elementary"),
        ("rounding, `sign`", "rounding"),
        ("integers divided and compared, `min`, `bitwise_not`", "integers"),
        ("reductions", "softmax"),
        ("`reduce_prod`, `reduce_any`, `isinf`", "row_products"),
        ("matrix product, accumulated", "matmul"),
        ("matrix product, f16 summed in f32", "matmul_half"),
        ('matrix product, transposed, `precision="tf32x3"`', "gram"),
        ("`matmul` that overwrites, transposed, `precision=`", "retention"),
        ("`dot`, both operands transposed", "pointwise_conv"),
        ("batched matrix product", "batched_matmul"),
        ("transposed operand, epilogue", "matmul_bias_gelu"),
        ("online softmax", "online_softmax"),
        ("`cumsum`, with a carry", "cumsum"),
        ("`cumprod`, with a carry", "cumprod"),
        ("`cumprod` from the end, `reverse=`", "composite_layers"),
        ("`topk`, merged over tiles", "topk"),
        ("`topk` of the smallest, `largest=`", "smallest_k"),
        ("`sort`, `descending=`", "sort_rows"),
        ("`rank`: a sort of rows longer than a tile", "rank_rows"),
        ("`argmax`", "argmax_rows"),
        ("`argmin`", "nearest_code"),
        ("`rand`", "dropout"),
        ("`randn`", "add_noise"),
        ("`permute`", "pixel_shuffle"),
        ("`reshape`", "block_scale"),
        ("`concat`", "rope"),
        ("`transpose`", "pcm_planes"),
        ("`broadcast`", "repeat_heads"),
        ("`reduce_all`", "unscale_gradients"),
        ("bitwise operations and shifts", "unpack_int4"),
        ("arithmetic that wraps", "murmur_hash"),
        ("`cast` with rounding and saturation", "int8_dynamic_quantise"),
        ("`softmax`, `layer_norm`, `rms_norm` in one call", "normalise_rows"),
    ),
    "Hints and tuning": (
        ('`"async"`, `"tensor_core"`, `stages=`', "matmul_half"),
        ('`"grididx.x"`, `"threadidx.x"` and the like', "max_pool3d"),
        ('`"threadidx"`', "nearest_code"),
        ('`"warp"`', "smallest_k"),
        ('`"unroll"`', "depthwise_conv2d"),
        ('`"vectorize"`', "int8_dynamic_quantise"),
        ('`"simd"`', "unscale_gradients"),
        ('`"medium"`', "power_iteration"),
        ('`"slow"`', "channel_shuffle"),
        ('`"no_init"`', "add_noise"),
        ("`available_tiling`", "matmul_half"),
    ),
    "Element types": (
        ("f64", "great_circle"),
        ("f16", "matmul_half"),
        ("bf16", "unscale_gradients"),
        ("i16", "pcm_planes"),
        ("i8", "int8_dynamic_quantise"),
        ("u8", "histogram"),
        ("u32", "murmur_hash"),
        ("i32 as an index", "segment_max"),
        ("i64 as an index", "gather"),
        ("bool", "masked_select"),
    ),
    "Kernels": (
        ("convolution, implicit GEMM", "conv2d"),
        ("transposed convolution", "conv_transpose2d"),
        ("depthwise convolution", "depthwise_conv2d"),
        ("element-wise on a flat view", "relu"),
        ("RMSNorm, two passes", "rms"),
        ("LayerNorm", "layer_norm"),
        ("sum over a middle axis", "sum_middle"),
        ("max pooling, 1-D", "max_pool1d"),
        ("max pooling, 2-D", "max_pool2d"),
        ("max pooling, 3-D", "max_pool3d"),
        ("mean pooling, 1-D", "avg_pool1d"),
        ("mean pooling, 3-D", "avg_pool3d"),
        ("mean pooling, 2-D, padding not counted", "avg_pool2d"),
        ("channel shuffle", "channel_shuffle"),
        ("concatenation of matrices", "concat_columns"),
    ),
}

Results: TypeAlias = "dict[str, dict[str, str]]"


def main() -> None:
    """Run what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", help="interpreter, cpp, triton_cuda, ...")
    parser.add_argument("--render", action="store_true", help="only write the page")
    parser.add_argument("names", nargs="*", help="examples; default: all")
    given = parser.parse_args()
    results: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.render:
        targets = given.target or ["interpreter", "cpp", "triton_cuda", "triton_ascend"]
        for name in given.names or sorted(path.stem for path in EXAMPLES.glob("*.sketch")):
            for target in targets:
                found = run(name, target)
                # Runs may go on side by side: take what others wrote.
                results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                results.setdefault(name, {}).update(found)
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                print(name, found, flush=True)
    PAGE.write_text(render(results))


def run(name: str, target: str) -> dict[str, str]:
    """Column -> "yes", or what stands against it, in a few words."""
    from sketchc.api.sketches import SketchError
    from sketchc.base.diagnostics import UsageError
    from sketchc.cli.verify_files import VerifyRequest, lower
    from sketchc.runtime.tasks.task import TorchTask
    from sketchc.runtime.toolchains import interpreter
    from sketchc.runtime.verify.verify import Candidate, verify

    columns = ("triton_cuda", "cubin") if target == "triton_cuda" else (target,)
    lowered = "cpp" if target == "interpreter" else target
    try:
        candidate = lower(VerifyRequest(str(EXAMPLES / f"{name}.sketch"), lowered))
    except SketchError as error:
        return dict.fromkeys(columns, error.diagnostics[0].code)
    task = TorchTask(EXAMPLES / "tasks" / f"{name}.py")
    with task, tempfile.TemporaryDirectory() as folder:
        try:
            if target == "interpreter":
                candidate = Candidate(candidate.plan, candidate.kernel, interpreter.TOOLCHAIN)
            verdict = verify(candidate, task, Path(folder), 1234, select=few_cases, small=True)
        except UsageError as error:
            return dict.fromkeys(columns, str(error)[:80])
    if verdict.passed:
        return dict.fromkeys(columns, "yes")
    if not verdict.failures:
        return dict.fromkeys(columns, "nothing ran")
    failure, reason = verdict.failures[0].failure, verdict.failures[0].reason
    found = dict.fromkeys(columns, f"{failure}: {reason}"[:160])
    if failure not in ("compile", "syntax", "api_misuse", "resource") and "cubin" in found:
        found["cubin"] = "yes"
    return found


def few_cases(cases: list) -> list:  # type: ignore[type-arg]
    """All ones, the largest ragged case, and the task's own sizes, a kind of input for each; with
    optional tensors, also the last case without them."""
    ragged = [case for case, _ in cases if case.name.startswith("ragged")] or [cases[0][0]]
    found = [(cases[0][0], "structured"), (ragged[-1], "mixed_scale"), (cases[-1][0], "normal")]
    if cases[-1][0].absent:
        found.append((cases[-2][0], "normal"))
    return found


def render(results: Mapping[str, Mapping[str, str]]) -> str:
    """The page."""
    lines = [
        "# Constructs and targets",
        "",
        "Written by `benchmarks/constructs.py` from runs of the examples against their PyTorch",
        "tasks, at ragged sizes among others. *yes*: all outputs are right. A code is a refusal:",
        "`sketchc explain CODE` says why. *Triton, cubin*: Triton's compiler makes machine code of",
        "the kernel. The Ascend path runs what the vendor's front end makes of it, on this CPU.",
        "",
    ]
    for section, rows in CONSTRUCTS.items():
        lines += [f"## {section}", "", f"| construct | example | {' | '.join(COLUMNS.values())} |"]
        lines.append("|" + "---|" * (2 + len(COLUMNS)))
        for construct, example in rows:
            cells = (_cell(results.get(example, {}).get(column, "")) for column in COLUMNS)
            link = f"[{example}](../examples/{example}.sketch)"
            lines.append(f"| {construct} | {link} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines + _failures(results))


def _cell(result: str) -> str:
    if result in ("yes", ""):
        return result or "not run"
    return result if result.startswith("SK") else "**no**"


def _failures(results: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    """What stands behind every **no**."""
    found = [
        f"- {name}, {COLUMNS[column]}: {result}"
        for name, columns in sorted(results.items())
        for column, result in columns.items()
        if _cell(result) == "**no**"
    ]
    return ["## What fails", "", *found, ""] if found else []


if __name__ == "__main__":
    main()
