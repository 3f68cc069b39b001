"""The cost model: what it counts, against what the plan, the interpreter's language and recorded
times say."""

from __future__ import annotations

import statistics

import attrs
import numpy as np
import pytest
from benchmark_scripts import benchmark
from example_targets import EXAMPLES, LOWERED

from sketchc.api.sketches import load_sketch
from sketchc.lowering.cost.predict import predict, sized_values
from sketchc.lowering.cost.reuse import traffic
from sketchc.lowering.cost.work import LaunchWork, work_of
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan


def plan_of(name: str, target: str = "cpp", **constants: int) -> Plan:
    tree = load_sketch(str(EXAMPLES / f"{name}.sketch"))[1]
    return build_plan(tree, target, constants=constants).plan


def works(plan: Plan, **sizes: int) -> tuple[LaunchWork, ...]:
    return work_of(plan, sized_values(plan.sketch, sizes))


# ---------------------------------------------------------------- what is counted


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (63, 257), (64, 256), (65, 1031)])
def test_a_kernel_that_streams_moves_each_byte_once(target: str, rows: int, columns: int) -> None:
    plan = plan_of("relu", target)
    (work,) = works(plan, M=rows, N=columns)
    # A cache that holds a program's tile and nothing more.
    moved = traffic(work, 1 << 17, tiles=False)
    size = rows * columns * 4
    assert moved.read["X"] == pytest.approx(size, rel=0.15)
    assert moved.written["Y"] == pytest.approx(size, rel=0.15)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (100, 37, 129), (1, 513, 31)])
def test_products_count_two_for_each_multiply_add(m: int, n: int, k: int) -> None:
    plan = plan_of("matmul", "triton_cuda", TM=32, TN=32, TK=32)
    (launch,) = predict(plan, sized_values(plan.sketch, {"M": m, "N": n, "K": k})).launches
    # Seven points stand for all tiles: those that stick out are few or many by chance.
    assert launch.operations["ieee f32"] == pytest.approx(2 * m * n * k, rel=0.35)


def test_a_triangular_loop_counts_with_its_mean() -> None:
    plan = plan_of("triangular_matmul", "cpp", T=16)
    (work,) = works(plan, N=512)
    counted = sum(
        times * operation.lanes * 2 * operation.depth for operation, times in work.operations()
    )
    # Rows up to the diagonal, and of each the columns between: N * N * N / 6 multiply-adds.
    assert counted == pytest.approx(512**3 / 3, rel=0.1)


def test_tiles_that_stick_out_count_by_their_valid_lanes() -> None:
    plan = plan_of("add", "cpp", TM=4, TN=1024)
    (work,) = works(plan, M=4, N=1025)
    lanes = sum(times * operation.lanes for operation, times in work.operations())
    assert lanes == pytest.approx(4 * 1025, rel=0.3)
    assert work.programs == 2


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "target"), LOWERED)
def test_every_example_has_a_prediction(name: str, target: str) -> None:
    plan = plan_of(name, target)
    values = sized_values(plan.sketch, {})
    found = predict(plan, values)
    assert len(found.launches) == len(plan.phases)
    for launch in found.launches:
        assert np.isfinite(launch.seconds)
        assert launch.seconds > 0
        assert launch.bound in launch.parts
    for work in work_of(plan, values):
        # A larger cache never leaves more to move.
        sizes = [traffic(work, capacity, tiles=True).bytes for capacity in (0, 1 << 15, 1 << 40)]
        assert sizes[0] * (1 + 1e-9) >= sizes[1] >= sizes[2] * (1 - 1e-9)


def test_programs_at_the_same_time_share_a_cache() -> None:
    plan = plan_of("rms", "triton_cuda", TILE_SIZE=4)
    (work,) = works(plan, B=16, F=64, D1=256, D2=256)
    alone = traffic(work, 1 << 24, tiles=False).read["X"]
    together = traffic(work, 1 << 24, tiles=False, at_once=512).read["X"]
    assert together == pytest.approx(2 * alone)


# ---------------------------------------------------------------- against recorded times


def test_predictions_rank_the_recorded_points() -> None:
    module = benchmark("cost_model")
    recorded = module.load(module.DATA)
    fitted, held_out = [], []
    for name, rows in recorded["spaces"].items():
        guesses = module.predictions(name, rows, recorded["facts"])
        times = np.array([row["seconds"] for row in rows])
        found = held_out if name in module.HELD_OUT else fitted
        found.append(module.correlation(guesses, times))
        assert len(rows) >= 30
    assert len(fitted) == 12
    assert statistics.median(fitted) >= 0.8
    assert min(fitted) >= 0.5
    # Without these, the cycles could fit twelve spaces and say nothing of others.
    assert len(held_out) == 3
    assert statistics.median(held_out) >= 0.7
    assert min(held_out) >= 0.4


def test_predictions_rank_the_points_recorded_on_a_gpu() -> None:
    module = benchmark("gpu_spaces")
    fitted, held_out = [], []
    for name, space in module.load(module.DATA)["spaces"].items():
        rows = [row for row in space["points"] if row["samples"]]
        guesses = module.predictions(name, rows)
        times = np.array([statistics.median(row["samples"]) for row in rows])
        found = held_out if name in module.HELD_OUT else fitted
        found.append(module.correlation(guesses, times))
        assert len(rows) >= 30
    assert len(fitted) == 12
    assert statistics.median(fitted) >= 0.8
    assert min(fitted) >= 0.5
    # Of `activations`, the last one recorded, 25 of 40 points lie within 1.5 % of each other.
    assert len(held_out) == 3
    assert sorted(held_out)[1] >= 0.7
    assert min(held_out) >= 0.5


# ---------------------------------------------------------------- what it chooses


def test_sizes_decide_what_the_sketch_leaves_open() -> None:
    tree = load_sketch(str(EXAMPLES / "matmul.sketch"))[1]
    chosen = set()
    for sizes in ({"M": 1024, "N": 1024, "K": 1024}, {"M": 8, "N": 4096, "K": 16}):
        plan = build_plan(tree, "cpp", sizes=sizes).plan
        chosen.add(tuple(constant.value for constant in plan.sketch.constants))
        assert "at these sizes" in plan.notes[0]
    assert len(chosen) == 2


def test_a_choice_is_never_predicted_to_be_worse_than_the_aims() -> None:
    for name in ("sum_middle", "causal_attention", "conv2d"):
        tree = load_sketch(str(EXAMPLES / f"{name}.sketch"))[1]
        sizes = benchmark("cost_model").CASES[name][0]
        times = []
        for given in (sizes, None):
            plan = build_plan(tree, "cpp", sizes=given).plan
            times.append(predict(plan, sized_values(plan.sketch, sizes)).seconds)
        assert times[0] <= times[1] * 1.001


def test_threads_without_programs_do_not_help() -> None:
    plan = plan_of("relu", "cpp", TILE=8192)
    chip = attrs.evolve(plan.hardware, cores=8)
    plan = attrs.evolve(plan, hardware=chip)
    values = sized_values(plan.sketch, {"M": 64, "N": 8192})
    one, two, many = (predict(plan, values, threads).seconds for threads in (1, 2, 8))
    assert one > two > many
    single = sized_values(plan.sketch, {"M": 1, "N": 100})
    assert predict(plan, single, 1).seconds == predict(plan, single, 8).seconds
