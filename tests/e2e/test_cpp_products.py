"""The library's matrix product packs operands however they lie in memory, for every vector width
that a CPU may have, and reads and writes nothing beyond what it is given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from toolchains import require

from sketchc.lowering.cpp.library.texts import LIBRARY, library_text

require("cpp")

#: Whole numbers, so that sums are exact in any order. Operands and panels end where their memory
#: does, which the sanitizer watches.
PROGRAM = """
template <class T, class S> int wrong(int64_t rows, int64_t columns, int64_t depth, int way)
{
    const auto number = [](int64_t i) { return static_cast<S>((i * 37 + 11) % 17 - 8); };
    std::vector<S> a(static_cast<size_t>(rows * depth)), b(static_cast<size_t>(depth * columns));
    for (size_t i = 0; i < a.size(); ++i) { a[i] = number(static_cast<int64_t>(i)); }
    for (size_t i = 0; i < b.size(); ++i) { b[i] = number(static_cast<int64_t>(i) + 5); }
    const bool left = way & 1, right = way & 2;
    const sketch::matrix<const S> x{a.data(), left ? 1 : depth, left ? rows : 1};
    const sketch::matrix<const S> w{b.data(), right ? 1 : columns, right ? depth : 1};
    std::vector<T> y(static_cast<size_t>(rows * columns), T{3});
    const int64_t deep = std::min<int64_t>(depth, 256);
    std::vector<T> p(static_cast<size_t>(deep * (rows + 16)));
    std::vector<T> q(static_cast<size_t>(deep * (columns + 64)));
    sketch::multiply(rows, columns, depth, x, w, sketch::matrix<T>{y.data(), columns, 1}, p.data(),
                     q.data());
    int found = 0;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
            double sum = 3;
            for (int64_t k = 0; k < depth; ++k) {
                sum += static_cast<double>(x.data[r * x.row + k * x.column]) *
                       static_cast<double>(w.data[k * w.row + c * w.column]);
            }
            found += static_cast<double>(y[static_cast<size_t>(r * columns + c)]) != sum;
        }
    }
    return found;
}

int main()
{
    int found = 0;
    for (int64_t rows : {1, 5, 12, 13, 25}) {
        for (int64_t columns : {1, 7, 16, 31, 33}) {
            for (int64_t depth : {1, 3, 4, 8, 15, 16, 17, 37, 257}) {
                for (int way = 0; way < 4; ++way) {
                    found += wrong<float, float>(rows, columns, depth, way);
                    found += wrong<double, double>(rows, columns, depth, way);
                    found += wrong<double, float>(rows, columns, depth, way);
                    found += wrong<float, int8_t>(rows, columns, depth, way);
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
    source.write_text(f"{headers}\n{library_text({'multiply'})}\n{PROGRAM}", "utf-8")
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
