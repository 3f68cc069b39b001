"""Chips: each figure has a source, aims follow from the figures, and plans from the aims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from sketchc.base.diagnostics import Source, UsageError
from sketchc.lowering.aims import aims_of
from sketchc.lowering.hardware import HARDWARE, chips_like, load_hardware, user_chips
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.parsing.parser import parse

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
GPUS = [chip.name for chip in chips_like("h200")]
#: Chips that differ in bandwidth per core and in shared memory.
THREE = ("l40s", "a100", "h200")


def _figures(facts: dict[str, Any]) -> Iterator[str]:
    """The names under which the sources of a chip's figures stand; those of `matrix_cores` are with
    the cores."""
    for name, value in facts.items():
        if type(value) in (int, float) and name != "matrix_cores":
            yield name.removesuffix("_bytes")
    yield from facts["memory"]
    yield from {"flops"} & facts.keys()


@pytest.mark.parametrize("name", HARDWARE)
def test_each_figure_has_a_source(name: str) -> None:
    facts = dict(load_hardware(name).facts)
    assert set(_figures(facts)) == facts["sources"].keys()
    assert all(facts["sources"].values())
    assert "tuning" not in facts


def test_the_papers_machines_and_those_of_each_target_are_there() -> None:
    for target in TARGETS:
        capabilities = load_target(target).capabilities
        assert capabilities.default_hardware in HARDWARE
    assert load_hardware("Ascend910B4").name == "ascend910b4"
    assert load_hardware("ampere").name == "a100"
    # A name or an alias means one chip.
    known = [n.lower() for c in map(load_hardware, HARDWARE) for n in (c.name, *c.facts["aliases"])]
    assert len({*known}) == len({(n, load_hardware(n).name) for n in known})


@pytest.mark.parametrize("name", HARDWARE)
def test_aims_are_powers_of_two_that_fit_the_chip(name: str) -> None:
    facts = load_hardware(name).facts
    aims, memory, place = aims_of(facts), facts["memory"], facts["placement"]
    sizes = [value for value in attrs.astuple(aims)[:6] if value]
    assert all(math.log2(size).is_integer() for size in sizes)
    assert aims.inner_elements <= aims.tile_elements <= aims.loop_elements
    assert 4 * aims.loop_elements <= memory[place["default"]]["bytes"]
    accumulator = 4 * aims.matrix_rows * aims.matrix_columns
    assert accumulator <= memory[place["matrix_accumulator"]]["bytes"]
    for rows, role in ((aims.matrix_rows, "matrix_left"), (aims.matrix_columns, "matrix_right")):
        assert 2 * 4 * rows * aims.matrix_depth <= memory[place[role]]["bytes"]


def test_a_gpu_with_more_to_hide_gets_larger_tiles() -> None:
    """By bandwidth per core; with less shared memory, no deeper products."""
    chips = [load_hardware(name) for name in GPUS]
    for one, other in itertools.permutations(chips, 2):
        rates = [chip.memory_bandwidth / chip.cores for chip in (one, other)]
        if rates[0] <= rates[1]:
            assert one.aims.loop_elements <= other.aims.loop_elements
            assert one.aims.tile_elements <= other.aims.tile_elements
        shared = [chip.facts["memory"]["shared"]["bytes"] for chip in (one, other)]
        if shared[0] <= shared[1]:
            assert one.aims.matrix_depth <= other.aims.matrix_depth


def _plan(path: Path, chip: str) -> Plan:
    tree, found = parse(Source(path.name, path.read_text("utf-8")))
    assert tree is not None, found
    return build_plan(tree.sketches[0], "triton_cuda", chip).plan


def _kernel(plan: Plan) -> str:
    """The kernel's text without the chip's name, in which nothing but decisions can differ."""
    return load_target("triton_cuda").emit(plan).source.replace(plan.hardware.name, "CHIP")


@pytest.mark.sweep
def test_another_chip_gets_another_kernel() -> None:
    """At least twenty examples have three kernels for three chips, and the plan of each says what
    was picked for its chip."""
    different = []
    for path in EXAMPLES:
        if "constexpr" not in path.read_text("utf-8"):
            continue
        plans = {chip: _plan(path, chip) for chip in THREE}
        if len({_kernel(plan) for plan in plans.values()}) < len(THREE):
            continue
        different.append(path.stem)
        for chip, plan in plans.items():
            assert any(f"picked for {chip}" in note for note in plan.notes), path.stem
    assert len(different) >= 20, different


STREAM = """sketch stream {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, T):
        x = alloc([T])
        load(X[i:i+T] -> x)
        store(x -> Y[i:i+T])
}
"""
PRODUCT = """sketch product {
    symbols: M, N, K;
    tensors: A[M, K]: in f32; B[K, N]: in f32; C[M, N]: out f32;
    constexpr: TM, TN, TK;

    @llm_hint("parallel", "grididx")
    for i in range(0, M, TM):
        @llm_hint("parallel", "grididx")
        for j in range(0, N, TN):
            c = alloc([TM, TN], init=0)
            for k in range(0, K, TK):
                a = alloc([TM, TK])
                b = alloc([TK, TN])
                load(A[i:i+TM, k:k+TK] -> a)
                load(B[k:k+TK, j:j+TN] -> b)
                gemm(a, b, c)
            store(c -> C[i:i+TM, j:j+TN])
}
"""


@pytest.mark.parametrize("chip", GPUS)
def test_open_sizes_are_what_the_chip_aims_at(chip: str, tmp_path: Path) -> None:
    """This is why kernels differ: nothing but the chip's aims decides on sizes left open."""
    aims = load_hardware(chip).aims
    for text, wanted in (
        (STREAM, {"T": aims.tile_elements}),
        (PRODUCT, {"TM": aims.matrix_rows, "TN": aims.matrix_columns, "TK": aims.matrix_depth}),
    ):
        path = tmp_path / "one.sketch"
        path.write_text(text)
        found = {c.name: c.value for c in _plan(path, chip).sketch.constants}
        assert found == wanted


def test_a_chip_of_the_user_is_one_of_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shipped = (ROOT / "lowering" / "hardware" / "a100.toml").read_text("utf-8")
    user_chips().mkdir(parents=True)
    place = user_chips() / "halved.toml"
    place.write_text(shipped.replace('"a100"', '"halved"').replace("cores = 108", "cores = 54"))
    assert load_hardware("Halved").cores == 54
    assert (
        load_hardware("halved").aims.loop_elements == 2 * load_hardware("a100").aims.loop_elements
    )
    assert "halved" in [chip.name for chip in chips_like("h200")]
    assert load_hardware("sm_80").name == "a100"  # what ships comes first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("cores = 108\n", ""), "lacks cores"),
        (('matrix_left = "shared"', 'matrix_left = "tensor"'), "lacks tensor"),
        (("[sources]", "[origins]"), "lacks sources"),
        (('name = "mine"', 'name = "yours"'), "another chip, yours"),
        (("cores = 108", "cores = 0"), "division"),
        (("cores = 108", "cores ="), "cannot read"),
    ],
)
def test_a_file_without_a_chip_is_named(
    change: tuple[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shipped = (ROOT / "lowering" / "hardware" / "a100.toml").read_text("utf-8")
    user_chips().mkdir(parents=True)
    place = user_chips() / "mine.toml"
    place.write_text(shipped.replace('name = "a100"', 'name = "mine"').replace(*change))
    with pytest.raises(UsageError, match=said) as error:
        load_hardware("mine")
    assert "mine.toml" in str(error.value)
