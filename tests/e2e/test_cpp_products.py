"""The library's matrix product packs operands however they lie in memory, for every vector width
that a CPU may have, and reads and writes nothing beyond what it is given; panels that are kept are
packed again where another matrix follows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import attrs
import numpy as np
import pytest
from cpp_cases import assert_equal, example, inputs, lower, reference
from native_kernel import NativeKernel
from toolchains import ready, require

from sketchc.lowering.cpp.library.texts import LIBRARY, library_text

require("cpp")

#: Whole numbers, so that sums are exact in any order. Operands and panels end where their memory
#: does, which the sanitizer watches.
PROGRAM = """
template <class T, class S> int wrong(int64_t rows, int64_t columns, int64_t depth, int way,
                                      int64_t slots)
{
    const auto number = [](int64_t i) { return static_cast<S>((i * 37 + 11) % 17 - 8); };
    std::vector<S> a(static_cast<size_t>(rows * depth)), b(static_cast<size_t>(depth * columns));
    for (size_t i = 0; i < a.size(); ++i) { a[i] = number(static_cast<int64_t>(i)); }
    for (size_t i = 0; i < b.size(); ++i) { b[i] = number(static_cast<int64_t>(i) + 5); }
    const bool left = way & 1, right = way & 2;
    const sketch::matrix<const S> x{a.data(), left ? 1 : depth, left ? rows : 1};
    const sketch::matrix<const S> w{b.data(), right ? 1 : columns, right ? depth : 1};
    std::vector<T> y(static_cast<size_t>(rows * columns), T{3});
    const sketch::keeping rest(slots > 0, sizeof(T), slots, depth, rows + 16);
    const sketch::keeping held(slots > 0, sizeof(T), slots, depth, columns + 64);
    std::vector<T> p(static_cast<size_t>(rest.elements())), z(y.size());
    std::vector<T> q(static_cast<size_t>(held.elements()));
    const sketch::kept_panels<T> lefts(p.data(), rest), rights(q.data(), held);
    const sketch::matrix<T> to{y.data(), columns, 1}, other{z.data(), columns, 1};
    // Twice the same, with a shorter one between them in the same slot, or in the last one.
    for (int64_t slot : {slots, int64_t{0}}) {
        const int64_t less = (depth + 1) / 2;
        sketch::multiply(rows, columns, less, x, w, other, lefts.at(1), rights.at(0));
        sketch::multiply(rows, columns, depth, x, w, to, lefts.at(slot), rights.at(slot));
        sketch::multiply(rows, columns, depth, x, w, to, lefts.at(slot), rights.at(slot));
    }
    int found = 0;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
            double sum = 0;
            for (int64_t k = 0; k < depth; ++k) {
                sum += static_cast<double>(x.data[r * x.row + k * x.column]) *
                       static_cast<double>(w.data[k * w.row + c * w.column]);
            }
            found += static_cast<double>(y[static_cast<size_t>(r * columns + c)]) != 4 * sum + 3;
        }
    }
    return found;
}

int main()
{
    int found = 0;
    for (int64_t rows : {1, 4, 5, 12, 13, 20, 25}) {
        for (int64_t columns : {1, 7, 16, 31, 33}) {
            for (int64_t depth : {1, 3, 4, 8, 15, 16, 17, 37, 257}) {
                for (int way = 0; way < 12; ++way) {
                    const int64_t slots = way / 4;
                    found += wrong<float, float>(rows, columns, depth, way, slots);
                    found += wrong<double, double>(rows, columns, depth, way, slots);
                    found += wrong<double, float>(rows, columns, depth, way, slots);
                    found += wrong<float, int8_t>(rows, columns, depth, way, slots);
                }
            }
        }
    }
    return found != 0;
}
"""
WIDTHS = {
    "as the CPU": ("-march=native",),
    "AVX2": ("-march=haswell",),
    "SSE": ("-march=nehalem",),
}


@pytest.mark.parametrize("width", WIDTHS)
def test_products_of_all_layouts(width: str, tmp_path: Path) -> None:
    headers = "\n".join([*LIBRARY.includes, "#include <vector>"])
    source = tmp_path / "products.cpp"
    source.write_text(f"{headers}\n{library_text({'multiply', 'kept_panels'})}\n{PROGRAM}", "utf-8")
    program = tmp_path / "products"
    flags = ("-std=c++17", "-O2", "-fsanitize=address,undefined", *WIDTHS[width])
    command = ["g++", *flags, str(source), "-o", str(program)]
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ)
    )
    if "bad value" in built.stderr:
        pytest.skip(f"no CPU with {width} is known to this compiler")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["matmul", "batched_matmul"])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 131])
def test_kept_panels_change_no_bit(name: str, size: int, tmp_path: Path) -> None:
    """Where all panels are kept, a few, or none, each thread computes the same."""
    plan, kernel = lower(example(name), {"TM": 32, "TN": 32, "TK": 16})
    assert "_kept.at(" in kernel.source
    symbols = {each.name: size for each in plan.sketch.symbols} | {"K": 67, "N": 97}
    given = inputs(plan.sketch, symbols, {})
    found = []
    for most in (8388608, 20000, 0):
        text, changes = re.subn(r"(kept_bytes = )\d+;", rf"\g<1>{most};", kernel.source)
        assert changes == 1
        folder = tmp_path / str(most)
        folder.mkdir()
        tensors = {key: array.copy() for key, array in given.items()}
        native = NativeKernel(ready(attrs.evolve(kernel, source=text), folder))
        assert native(tensors, symbols, {}) == 0
        found.append(tensors)
    assert_equal(plan.sketch, found[0], reference(plan.sketch, given, symbols, {}), 64.0)
    for output in found[0]:
        np.testing.assert_array_equal(found[0][output], found[1][output])
        np.testing.assert_array_equal(found[0][output], found[2][output])


def test_panels_of_what_a_launch_writes_are_not_kept() -> None:
    text = """sketch powers {
    symbols: M;
    tensors: A[M, 32, 32]: in f32; X[M, 32, 32]: inout f32;
    @llm_hint("parallel", "grididx")
    for i in range(M):
        for step in range(3):
            a = alloc([32, 32])
            x = alloc([32, 32])
            y = alloc([32, 32], f32, init=0)
            load(A[i, 0:32, 0:32] -> a)
            load(X[i, 0:32, 0:32] -> x)
            gemm(a, x, y)
            store(y -> X[i, 0:32, 0:32])
}"""
    _, kernel = lower(text)
    assert "a_panels_kept.at(0)" in kernel.source
    assert "x_panels_kept" not in kernel.source
