"""Tuning points: where a sketch is proved again, beside its default constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check, check_sketch
from sketchc.checker.claims.proofs import proved_for_all, same_but_for_tiles
from sketchc.checker.elaboration.elaborate import elaborate, tuning_points
from sketchc.parsing.parser import parse


def tree(constants: str, tail: str = "", width: str = "T"):
    text = f"""sketch s {{
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: {constants};
    @llm_hint("parallel")
    for i in range(ceil(M, {width})):
        x = alloc([{width}])
        load(X[i*{width}:(i+1)*{width}] -> x)
        store(x -> Y[i*{width}:(i+1)*{width}])
}}
{tail}
"""
    parsed, found = parse(Source("s", text))
    assert parsed is not None, found
    return parsed.sketches[0]


def test_fixed_constants_do_not_vary():
    assert tuning_points(tree("T = 64"), {}) == []


def test_each_choice_but_the_default():
    assert tuning_points(tree("T = 64 in [32, 64, 128]"), {}) == [{"T": 32}, {"T": 128}]


def test_open_tile_sizes_are_tried_small_and_large():
    assert tuning_points(tree("T"), {}) == [{"T": 16}, {"T": 256}]


def test_bound_constants_do_not_vary():
    assert tuning_points(tree("T = 64 in [32, 64]"), {"T": 7}) == []
    assert tuning_points(tree("T"), {"T": 7}) == []
    points = tuning_points(tree("T = 8 in [8, 16], U = 1 in [1, 2]"), {"T": 7})
    assert points == [{"U": 2}]


def test_small_products_are_complete():
    points = tuning_points(tree("T = 8 in [8, 16], U = 1 in [1, 2]"), {})
    default = {"T": 8, "U": 1}
    assert {tuple(sorted({**default, **point}.items())) for point in points} == {
        (("T", 16), ("U", 1)),
        (("T", 8), ("U", 2)),
        (("T", 16), ("U", 2)),
    }


def test_large_products_vary_one_constant_at_a_time():
    names = ("T", "U", "V")
    choices = ", ".join(f"{name} = 1 in [1, 2, 4, 8]" for name in names)
    points = tuning_points(tree(choices), {})
    assert len(points) == 9
    assert all(len(point) == 1 for point in points)


def test_a_tiling_block_wins():
    sketch = tree("T = 8 in [8, 16]", "available_tiling:\n    T = 32\n    T = 64\n")
    assert tuning_points(sketch, {}) == [{"T": 32}, {"T": 64}]


def test_a_tiling_block_gives_a_value_to_an_open_constant():
    sketch = tree("T", "available_tiling:\n    T = 32\n    T = 64\n")
    elaborated, found = elaborate(sketch, {})
    assert elaborated is not None, found
    assert elaborated.constants[0].value == 32
    assert tuning_points(sketch, {}) == [{"T": 64}]


def test_reserved_names_are_bound_by_their_own_name():
    sketch = tree("int = 8 in [8, 16]", width="int")
    (point,) = tuning_points(sketch, {})
    assert point == {"int": 16}
    elaborated, _ = elaborate(sketch, point)
    assert elaborated is not None
    assert [(c.name, c.value) for c in elaborated.constants] == [("int_", 16)]


def test_errors_in_declarations_give_no_points():
    assert tuning_points(tree("T = 1 // 0, U"), {}) == []


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_elaborate_at_every_point(path):
    parsed, found = parse(Source(path.name, path.read_text("utf-8")))
    assert parsed is not None, found
    (sketch,) = parsed.sketches
    default, _ = elaborate(sketch, {})
    assert default is not None
    for point in tuning_points(sketch, {}):
        elaborated, found = elaborate(sketch, point)
        assert elaborated is not None, (point, found)
        assert found == ()
        values = {constant.name: constant.value for constant in elaborated.constants}
        assert values.items() >= point.items()
        # only values of constants differ: names, shapes and statements are those of the sketch
        assert elaborated.phases == default.phases
        assert elaborated.tiles == default.tiles


#: Examples that need a proof at each tuning point: products of an unknown tile size with a loop
#: variable inside a minimum, or below a quotient, are beyond the proof for all. What a sketch
#: promises about its data (`rank_rows`) is assumed at each point, and not proved for all.
POINT_BY_POINT = (
    "concat_columns",
    "masked_select",
    "rank_rows",
    "unpack_int4",
)


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_one_proof_covers_every_tile_size_of_an_example(path: Path):
    parsed, _ = parse(Source(path.name, path.read_text("utf-8")))
    assert parsed is not None
    sketch, _ = elaborate(parsed.sketches[0], {})
    assert sketch is not None
    tunable = [constant for constant in sketch.constants if constant.tunable]
    assert proved_for_all(sketch) == bool(tunable and path.stem not in POINT_BY_POINT)
    for point in tuning_points(parsed.sketches[0], {}):
        other, _ = elaborate(parsed.sketches[0], point)
        assert other is not None
        assert same_but_for_tiles(sketch, other)


def test_a_sketch_that_is_right_at_some_tile_sizes_only_is_refuted_at_the_others():
    """Loops that count in 64s are right for T = 64, and leave gaps for T = 32."""
    text = """sketch s {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 64 in [32, 64];
    @llm_hint("parallel")
    for i in range(ceil(M, 64)):
        x = alloc([T])
        load(X[i*64:i*64+T] -> x)
        store(x -> Y[i*64:i*64+T])
}
"""
    parsed, _ = parse(Source("s", text))
    assert parsed is not None
    sketch, _ = elaborate(parsed.sketches[0], {})
    assert sketch is not None
    assert not proved_for_all(sketch)
    assert check_sketch(parsed.sketches[0], {"T": 64})[0] is not None
    assert {d.code for d in check(Source("s", text)).diagnostics} == {"SK0510"}
    assert check(Source("s", text.replace("[32, 64]", "[64]"))).ok
