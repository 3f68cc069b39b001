"""Drop-ins of CUDA-C, and cubins of TileLang, in a process that compute-sanitizer watches.

compute-sanitizer --tool memcheck --error-exitcode 3 python tests/device/sanitized.py NAME...

NAME is an example, a product as `DTYPE:ROWS:COLUMNS`, its tiles, where operands lie in all ways, or
a folder that `build_cubins.py` made of a kernel. Each is called at a few sizes, whole and ragged,
and compared with the interpreter.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cubin_launches
import numpy as np
from cpp_cases import PARAMS, TILES, assert_equal, example, inputs, reference, sizes
from cubin_folders import asked, compare, read
from cuda_c_products import product
from example_sizes import params_for
from test_loop_targets import dropin, dropped_in
from triton_cases import lower

from sketchc.runtime.process.messages import raw_of

TURNED = [(a, b) for a in (False, True) for b in (False, True)]


def run(text: str, tiles: dict[str, int], extents: list[dict[str, int]]) -> int:
    """Compare a sketch's drop-in with the interpreter; returns at how many sizes."""
    kernel = lower(text, "cuda_c", tiles)[1]
    name = kernel.sketch.name
    params = PARAMS.get(name) or params_for(kernel.sketch)
    with tempfile.TemporaryDirectory() as made:
        function = dropin(text, name, tiles, Path(made), "cuda_c")
        chosen = extents or sizes(kernel, params)[-2:]
        for seed, symbols in enumerate(chosen):
            tensors = inputs(kernel.sketch, symbols, params, seed)
            expected = reference(kernel.sketch, tensors, symbols, params)
            found = dropped_in(function, kernel.sketch, tensors, params)
            assert_equal(kernel.sketch, found, expected, 256.0)
    return len(chosen)


def run_cubins(folder: Path) -> int:
    """Compare the kernels of a folder with the interpreter; returns at how many sizes."""
    told, arrays = read(folder)
    for number, case in enumerate(told["cases"]):
        request, before = asked(folder, told, arrays, number)
        raws = {name: raw_of(array) for name, array in before.items()}
        reply, outputs = cubin_launches.serve(request, raws)
        assert reply == {}, (case["symbols"], reply)
        found = {name: np.frombuffer(raw.data, np.uint8) for name, raw in outputs.items()}
        compare(told, arrays, number, found, 256.0)
    return len(told["cases"])


def main() -> int:
    """Run what the command line names; returns 0."""
    for name in sys.argv[1:]:
        if Path(name).is_dir():
            print(name, run_cubins(Path(name).resolve()))
            continue
        if ":" not in name:
            print(name, run(example(name), TILES.get(name, {}), []))
            continue
        dtype, rows, columns = name.split(":")
        high, wide = int(rows), int(columns)
        more = {"precision": "tf32x3"} if dtype == "f32" else {}
        whole = {"M": 2 * high, "N": 2 * wide, "K": 256}
        ragged = {"M": high + 1, "N": wide - 1, "K": 131}
        for turned in TURNED:
            text = product(high, wide, turned, dtype=dtype, **more)
            print(name, turned, run(text, {}, [whole, ragged]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
