"""The shapes of what a kernel returns, as a function of Python: those that the sketch declares."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from example_sizes import params_for, sizes_for

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.ir import nodes as ir
from sketchc.lowering.python_host.abi import results
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.python_host.shapes import shape_function
from sketchc.runtime.cases.sizes import tensor_shapes

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))
#: Symbols by way of extents, `let`s and constants; an extent 1 that stands for all; a bias that may
#: be missing; names that Python or torch has.
OTHERS = """
sketch derived {
    symbols: N, K;
    params: scale: f32;
    constexpr: WIDE = 4;
    let: HALF = ceil(N, 2)*WIDE;
    tensors: range[N, 2*K + 1]: in f32; B[K|1]: in f32?; torch[HALF, K + N]: out f32;
             Z[N, min(K, WIDE)]: inout f32;

    for i in range(N):
        x = alloc([1])
        load(range[i, 0:1] -> x)
        mul(x, scale, x)
        for k in range(min(K, WIDE)):
            store(x -> Z[i, k:k+1])
}
"""


def shapes_of(sketch: ir.Sketch, sizes: dict[str, int], without: set[str]) -> list[tuple[int, ...]]:
    """What the function gives for tensors of these sizes, given by their names."""
    params = params_for(sketch)
    extents = tensor_shapes(sketch, sizes, params)
    given = {name: SimpleNamespace(shape=shape) for name, shape in extents.items()}
    taken = [
        t.name
        for t in sketch.tensors
        if t.role in (ir.Role.IN, ir.Role.INOUT) and t.name not in without
    ]
    names = Names(sketch)
    space = {"ceil_div": lambda a, b: -(-a // b)}
    exec(shape_function(sketch, "shapes", taken, "ceil_div"), space)
    arguments = {names[name]: given[name] for name in taken}
    found = space["shapes"](**arguments, **{names[name]: value for name, value in params.items()})
    assert found == [tuple(extents[tensor.name]) for tensor in results(sketch)]
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    for checked in check(Source(path.name, path.read_text())).sketches:
        for wanted in ([7, 13, 19, 17, 3, 5], [1], [4]):
            shapes_of(checked.sketch, sizes_for(checked.sketch, wanted), set())


def test_solved_symbols_and_missing_tensors() -> None:
    judged = check(Source("derived.sketch", OTHERS)).judged
    sketch = judged[0].sketch
    for sizes in ({"N": 7, "K": 3}, {"N": 1, "K": 9}, {"N": 2, "K": 1}):
        for without in (set(), {"B"}):
            wide, plain = shapes_of(sketch, sizes, without)
            n, k = sizes["N"], sizes["K"]
            assert wide == ((n + 1) // 2 * 4, k + n)
            assert plain == (n, min(k, 4))
