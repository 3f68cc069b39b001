"""Divisions in loops over lanes give what integers give, for all numbers of 64 bits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from toolchains import require

from sketchc.lowering.cpp.library.texts import LIBRARY, library_text
from sketchc.runtime.toolchains.cpp.toolchain import FLAGS

require("cpp")

#: Numbers around all powers of two, around zero, at both ends, and random ones of all sizes; with
#: each divisor they are divided themselves, as multiples of it, and next to multiples: a double
#: does not have all digits of a divisor beyond 2^53.
PROGRAM = """
int main()
{
    std::vector<int64_t> numbers;
    for (int64_t near = -3; near <= 3; ++near) {
        for (int bit = 0; bit < 63; ++bit) {
            numbers.push_back((int64_t{1} << bit) + near);
            numbers.push_back(near - (int64_t{1} << bit));
        }
        numbers.push_back(near < 0 ? INT64_MAX + near : INT64_MIN + near);
    }
    for (int64_t small = -40; small < 40; ++small) { numbers.push_back(small); }
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; ++i) {
        numbers.push_back(static_cast<int64_t>(random()) >> (random() % 64));
    }
    const size_t count = numbers.size();
    std::vector<int64_t> values(count), floors(count), rests(count), ceilings(count);
    int64_t wrong = 0;
    for (const int64_t divisor : numbers) {
        for (int next = -4; next <= 3; ++next) {
            for (size_t i = 0; i < count; ++i) {
                const int64_t multiple = divisor * static_cast<int64_t>(i % 64 - 32) + next;
                const int64_t near = i % 2 ? numbers[i] * divisor + next : multiple;
                values[i] = next == -4 ? numbers[i] : near;
            }
            #pragma omp simd
            for (size_t i = 0; i < count; ++i) {
                floors[i] = sketch::lane_floor_div(values[i], divisor);
                rests[i] = sketch::lane_floor_mod(values[i], divisor);
                ceilings[i] = sketch::lane_ceil_div(values[i], divisor);
            }
            for (size_t i = 0; i < count; ++i) {
                wrong += floors[i] != sketch::floor_div(values[i], divisor);
                wrong += rests[i] != sketch::floor_mod(values[i], divisor);
                // Both negate the number, and the least one has no negative.
                wrong += values[i] != INT64_MIN &&
                         ceilings[i] != sketch::ceil_div(values[i], divisor);
            }
        }
    }
    return wrong != 0;
}
"""


def test_divisions_of_lanes_equal_those_of_integers(tmp_path: Path) -> None:
    headers = "\n".join([*LIBRARY.includes, "#include <random>", "#include <vector>"])
    used = {"lane_floor_div", "lane_floor_mod", "lane_ceil_div", "ceil_div", "floor_mod"}
    source, program = tmp_path / "division.cpp", tmp_path / "division"
    source.write_text(f"{headers}\n{library_text(used)}\n{PROGRAM}", "utf-8")
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    for command in (["g++", *flags, str(source), "-o", str(program)], [str(program)]):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ)
        )
        assert (done.returncode, done.stderr) == (0, "")
