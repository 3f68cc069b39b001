"""On a real GPU: TileLang's kernels as cubins that `build_cubins.py` made on another machine. Needs
the driver alone. `SKETCHC_CUBINS` is the folder."""

from __future__ import annotations

import os
from pathlib import Path

import cubin_launches
import pytest
from cubin_folders import asked, compare, read

from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.cuda_driver import nvidia_gpu

FOLDER = Path(os.environ.get("SKETCHC_CUBINS", ""))
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/launches.json"))
if not nvidia_gpu():
    pytest.skip("no CUDA device", allow_module_level=True)
if "SKETCHC_CUBINS" not in os.environ:
    pytest.skip("SKETCHC_CUBINS names no folder of build_cubins.py", allow_module_level=True)


def test_there_are_kernels() -> None:
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_cubins_match_the_interpreter(name: str) -> None:
    folder = FOLDER.resolve() / name
    told, arrays = read(folder)
    for number, case in enumerate(told["cases"]):
        request, before = asked(folder, told, arrays, number)
        result = run_worker(
            f"{cubin_launches.__file__}:serve", request, before, readable=[folder], timeout=60.0
        )
        assert result.reply == {}, (case["symbols"], result.reply or result.describe())
        compare(told, arrays, number, result.arrays, ulps=256.0)
