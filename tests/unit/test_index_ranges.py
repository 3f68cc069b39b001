"""Random integers that serve as indices stay in the range of what they index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from example_sizes import inputs_for, params_for, sizes_for

from sketchc.base.diagnostics import Source
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.inputs import into_range, random_inputs
from sketchc.ir import nodes as ir
from sketchc.launch.inputs import MOST_TRIPS, index_ranges
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.sizes import nearest, refusal, tensor_shapes

EXAMPLES = Path(__file__).parents[2] / "examples"


def elaborated(text: str) -> ir.Sketch:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    return sketch


def example(name: str) -> ir.Sketch:
    return elaborated((EXAMPLES / f"{name}.sketch").read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("gather", {"M": 3, "N": 7, "K": 5}, {"INDEX": (0, 7)}),
        ("embedding", {"B": 2, "L": 3, "V": 11, "D": 4}, {"TOKENS": (0, 11)}),
        ("scatter_add", {"R": 6, "N": 9, "D": 2}, {"INDEX": (0, 6)}),
        ("histogram", {"N": 9}, {"X": (0, 256)}),
        ("cross_entropy", {"M": 4, "N": 5}, {"TARGET": (0, 5)}),
        ("power_iteration", {"N": 4}, {"STEPS": (0, MOST_TRIPS + 1)}),
        ("add", {"M": 4, "N": 5}, {}),
        ("unpack_int4", {"M": 4, "N": 5}, {}),
    ],
)
def test_ranges_of_the_examples(
    name: str, sizes: dict[str, int], expected: dict[str, tuple[int, int]]
) -> None:
    sketch = example(name)
    assert index_ranges(sketch, sizes, params_for(sketch)) == expected


def test_conversions_and_offsets_are_followed_and_the_narrowest_axis_decides() -> None:
    sketch = elaborated("""sketch shifted {
    symbols: N, K, J;
    tensors: X[N]: in f32; Z[J]: in f32; INDEX[K]: in i32; Y[K]: out f32;
    for i in range(ceil(K, 8)):
        index = alloc([8])
        wide = alloc([8], i64)
        x = alloc([8])
        load(INDEX[i*8:(i+1)*8] -> index)
        cast(index, wide)
        load(X[wide - 2] -> x)
        load(Z[index + 1] -> x)
        store(x -> Y[i*8:(i+1)*8])
}
""")
    assert index_ranges(sketch, {"N": 50, "K": 3, "J": 20}, {}) == {"INDEX": (2, 19)}


def test_values_that_were_computed_with_are_nobodys_indices() -> None:
    sketch = elaborated("""sketch halved {
    symbols: N, K;
    tensors: X[N]: in f32; INDEX[K]: in i64; Y[K]: out f32;
    for i in range(ceil(K, 8)):
        index = alloc([8])
        x = alloc([8])
        load(INDEX[i*8:(i+1)*8] -> index)
        floordiv(index, 2, index)
        load(X[index] -> x)
        store(x -> Y[i*8:(i+1)*8])
}
""")
    assert index_ranges(sketch, {"N": 50, "K": 3}, {}) == {}


@pytest.mark.parametrize("name", ["gather", "scatter_add", "segment_max", "cross_entropy"])
def test_random_inputs_are_in_range_and_use_it(name: str) -> None:
    sketch = example(name)
    params = params_for(sketch)
    sizes = sizes_for(sketch, (5, 300, 7), params)
    shapes = tensor_shapes(sketch, sizes, params)
    found = random_inputs(sketch, shapes, np.random.default_rng(1))
    for tensor, (lower, upper) in index_ranges(sketch, sizes, params).items():
        for arrays in (found, inputs_for(sketch, sizes, params)):
            assert arrays[tensor].min() >= lower
            assert arrays[tensor].max() < upper
            assert len(np.unique(arrays[tensor])) > 1


def test_moving_into_a_range_keeps_what_is_there() -> None:
    array = np.array([-7, 0, 3, 9, 127], np.int8)
    moved = into_range(array, 0, 5)
    assert moved.dtype == np.int8
    assert moved.tolist() == [3, 0, 3, 4, 2]
    assert into_range(array, 0, 0).tolist() == array.tolist()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sketch")), ids=lambda path: path.stem)
def test_sizes_are_found_for_every_example(path: Path) -> None:
    sketch = example(path.stem)
    params = params_for(sketch)
    for wanted in ((1,), (5, 7, 9, 11), (33, 17, 65)):
        sizes = sizes_for(sketch, wanted, params)
        assert not refusal(sketch, sizes, params)
        assert all(
            extent >= 1 for s in tensor_shapes(sketch, sizes, params).values() for extent in s
        )


def test_only_movable_symbols_move_and_as_little_as_possible() -> None:
    sketch = example("conv2d")
    params = {**params_for(sketch), "groups": 2}
    wishes = {"N": 1, "C": 6, "H": 4, "W": 4, "O": 5, "CG": 4, "KH": 3, "KW": 3}
    found = nearest(sketch, wishes, params)
    assert found is not None
    assert found["C"] == 2 * found["CG"]
    assert found["O"] % 2 == 0
    assert abs(found["C"] - 6) + abs(found["CG"] - 4) == 1
    assert nearest(sketch, wishes, params, movable={"H"}) is None
    kept = nearest(sketch, wishes, params, movable={"C", "O"})
    assert kept is not None
    assert kept["CG"] == 4
    assert kept["C"] == 8
