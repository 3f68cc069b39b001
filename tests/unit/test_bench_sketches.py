"""What a measurement reads off a sketch: the class of precision, and the work that is certain."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.lowering.plan import Plan
from sketchc.runtime.bench.roofline import Work, precision_of, work_of
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.verify.verify import Candidate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def candidate(path: Path, target: str) -> Candidate:
    return lower(VerifyRequest(str(path), target))


def work(plan: Plan, **symbols: int) -> Work:
    """The work at these sizes; every input is given."""
    inputs = [t for t in plan.sketch.tensors if t.role.value in ("in", "inout")]
    outputs = tuple(t for t in plan.sketch.tensors if t.role.value in ("out", "inout"))
    sources = tuple(TensorSource(t, TensorSpec("", t.dtype, ()), position=0) for t in inputs)
    task = TaskDescription(Path("t.py"), (), (), (), {}, ())
    params = {param.name: param.default or 1 for param in plan.sketch.params}
    binding = Binding(plan.sketch, task, sources, outputs, symbols, params, {})
    return work_of(plan, binding, symbols)


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("rms", "cpp", "ieee f32"),
        ("matmul", "triton_cuda", "ieee f32"),
        ("matmul_half", "triton_cuda", "f16"),
        ("integers", "cpp", "integer"),
    ],
)
def test_the_class_is_that_of_the_coarsest_floats(name: str, target: str, expected: str) -> None:
    found = candidate(EXAMPLES / f"{name}.sketch", target)
    assert precision_of(found.plan, found.kernel).name == expected


@pytest.mark.parametrize("asked", ["tf32", "tf32x3", "f32_split"])
def test_a_product_says_its_class(asked: str, tmp_path: Path) -> None:
    path = tmp_path / "matmul.sketch"
    text = (EXAMPLES / "matmul.sketch").read_text()
    changed = text.replace("gemm(a, b, c)", f'gemm(a, b, c, precision="{asked}")')
    path.write_text(changed)
    assert changed != text
    on_gpu, on_cpu = candidate(path, "triton_cuda"), candidate(path, "cpp")
    found = precision_of(on_gpu.plan, on_gpu.kernel)
    assert found.name == asked
    assert found.comparable == (asked != "tf32x3"), "PyTorch has none, nor anything as exact"
    assert found.of_baseline == ("tf32" if asked == "tf32" else "ieee f32")
    assert precision_of(on_cpu.plan, on_cpu.kernel).name == "ieee f32", "there it computes exactly"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("tl.dot(a, b)", "tf32"),
        ('tl.dot(a, b, input_precision="tf32x3")', "tf32x3"),
        ('tl.dot(a, b, input_precision="bf16x3")', "tf32x3"),
        ('tl.dot(a, b, input_precision="bf16x6")', "f32_split"),
        ('tl.dot(a, b, input_precision="ieee")', "ieee f32"),
        ("tl.dot(a, b, allow_tf32=False)", "ieee f32"),
        ("tl.sum(a * b, 0)", "ieee f32"),
    ],
)
def test_somebody_elses_triton_is_read(call: str, expected: str) -> None:
    found = candidate(EXAMPLES / "matmul.sketch", "triton_cuda")
    kernel = attrs.evolve(found.kernel, foreign=True, source=f"def f(a, b):\n    return {call}\n")
    assert precision_of(attrs.evolve(found.plan, phases=()), kernel).name == expected


def test_everything_is_certain_of_a_plain_product() -> None:
    plan = candidate(EXAMPLES / "matmul.sketch", "cpp").plan
    found = work(plan, M=512, N=512, K=512)
    assert found.moved == found.read + found.written == 3 * 512 * 512 * 4
    assert found.certain == pytest.approx(2 * 512**3, rel=0.02)


def test_tiles_that_stick_out_are_not_held_against_a_kernel() -> None:
    """One row of a product is not the work of a tile of rows."""
    plan = candidate(EXAMPLES / "matmul.sketch", "cpp").plan
    found = work(plan, M=1, N=1000, K=1000)
    assert found.certain <= 2 * 1000 * 1000 * 1.02
    assert found.operations > 8 * found.certain


def test_a_table_that_is_read_by_index_may_be_read_in_part() -> None:
    plan = candidate(EXAMPLES / "embedding.sketch", "cpp").plan
    sizes = {symbol.name: 64 for symbol in plan.sketch.symbols}
    found = work(plan, **sizes)
    table = max(
        (t for t in plan.sketch.tensors if t.dtype.is_float and t.role.value == "in"),
        key=lambda t: len(t.extents),
    )
    assert found.moved - found.read - found.written >= 64 * 64 * table.dtype.bytes


def test_a_triangular_loop_is_certain_of_nothing() -> None:
    plan = candidate(EXAMPLES / "triangular_matmul.sketch", "cpp").plan
    found = work(plan, **{symbol.name: 256 for symbol in plan.sketch.symbols})
    assert found.certain == 0
    assert found.operations > 0
