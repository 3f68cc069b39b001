"""Seeded scratch overflows: each is refused with an account that adds up, tile by tile."""

from __future__ import annotations

import re

import pytest
from example_targets import EXAMPLES, LOWERED

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.c_source.expressions import identifier
from sketchc.lowering.hardware import load_hardware
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.passes.place_tiles import next_power_of_two
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse

TILES = "TM in [32, 64, 128], TN in [32, 64, 128], TK in [16, 32, 64, 128, 256]"

#: (example, text to replace, its replacement, target, memory that overflows)
SEEDED = [
    ("softmax", "N <= 8192", "N <= 65536", "triton_ascend", "unified buffer"),
    ("layer_norm", "N <= 8192", "N <= 16384", "triton_ascend", "unified buffer"),
    ("matmul", TILES, "TM = 512, TN = 128, TK = 16", "triton_ascend", "l0c"),
    ("matmul_bias_gelu", TILES, "TM = 128, TN = 64, TK = 256", "triton_ascend", "l0a"),
    ("batched_matmul", TILES, "TM = 128, TN = 1024, TK = 16", "triton_cuda", "registers"),
    ("relu", "TILE in [1024, 2048, 4096, 8192]", "TILE = 65536", "triton_cuda", "registers"),
    ("add", "TM in [1, 4, 8, 16]", "TM = 128", "triton_ascend", "unified buffer"),
    (
        "online_softmax",
        "TILE in [1024, 2048, 4096]",
        "TILE = 32768",
        "triton_ascend",
        "unified buffer",
    ),
    ("cumsum", "T in [256, 512, 1024, 2048]", "T = 65536", "triton_ascend", "unified buffer"),
    ("argmax_rows", "T in [512, 1024, 2048]", "T = 131072", "triton_cuda", "registers"),
]


@pytest.mark.parametrize(
    ("example", "old", "new", "target", "memory"), SEEDED, ids=[f"{s[0]}-{s[3]}" for s in SEEDED]
)
def test_overflow_is_refused_with_its_account(
    example: str, old: str, new: str, target: str, memory: str
) -> None:
    text = (EXAMPLES / f"{example}.sketch").read_text("utf-8")
    assert old in text
    tree, found = parse(Source(example, text.replace(old, new)))
    assert tree is not None, found
    with pytest.raises(DiagnosticError) as refused:
        build_plan(tree.sketches[0], target)
    overflow = [d for d in refused.value.diagnostics if d.code == "SK0701"]
    assert overflow, refused.value.diagnostics
    named = [d for d in overflow if memory in d.message]
    assert named, [d.message for d in overflow]
    for diagnostic in overflow:
        needed, capacity = (int(n.replace(",", "")) for n in _figures(diagnostic.message))
        sizes = [_figure(note) for note in diagnostic.notes if " bytes" in note]
        assert sum(sizes) == needed > capacity


def _figures(message: str) -> tuple[str, str]:
    found = re.fullmatch(r".*need ([\d,]+) bytes of .*; \S+ has ([\d,]+)", message)
    assert found is not None, message
    return found[1], found[2]


def _figure(note: str) -> int:
    found = re.fullmatch(r"\S+: \[.*\] \w+ = ([\d,]+) bytes", note)
    assert found is not None, note
    return int(found[1].replace(",", ""))


@pytest.mark.sweep
@pytest.mark.parametrize(("example", "target"), LOWERED)
def test_every_example_fits_and_the_account_is_right(example: str, target: str) -> None:
    """The plan's sizes equal a count made here from the tiles' physical extents."""
    tree, _ = parse(Source(example, (EXAMPLES / f"{example}.sketch").read_text("utf-8")))
    assert tree is not None
    plan = build_plan(tree.sketches[0], target).plan
    bounds = {s.name: s.upper_bound or 1024 for s in plan.sketch.symbols}
    values = {**bounds, **{c.name: c.value for c in plan.sketch.constants}}
    padded = plan.capabilities.power_of_two_extents
    for phase in plan.phases:
        for use in phase.memory_use:
            assert use.bytes == sum(size for _, size in use.parts) <= use.capacity
            memories = plan.capabilities.memories(load_hardware(plan.hardware.name).facts)
            assert use.capacity == memories[use.memory]["bytes"]
            for name, size in use.parts if not load_target(target).fuses else ():
                tile = plan.sketch.tile(name)
                count = tile.dtype.bytes
                for extent in tile.extents:
                    logical = int(evaluate(extent, values))
                    count *= next_power_of_two(logical) if padded else logical
                assert size == count, name
    if target == "cpp":
        code = load_target(target).emit(plan).source
        reserved = re.findall(r"(\w+)_place = arena\.add", code)
        parts = [name for p in plan.phases for use in p.memory_use for name, _ in use.parts]
        assert [identifier(name) for name in parts] == reserved
