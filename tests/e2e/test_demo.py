"""The newcomer's first minute: shown, proved, run, compared, also without the tools for the NPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_tasks import small_task
from toolchains import require

from sketchc.lowering.registry import TARGETS, load_target
from sketchc.runtime.toolchains.base import toolchain

ROOT = Path(__file__).parents[2]
NPU = "triton_ascend"


@pytest.mark.parametrize("installed", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_the_demo(installed: bool, tmp_path: Path) -> None:
    require("cpp")
    environment, command = dict(os.environ), [sys.executable, "-m", "sketchc.cli.main", "demo"]
    if installed:
        require(NPU)
    else:  # at small sizes: the first run has shown those of the task
        environment["SKETCHC_ASCEND_ENV"] = os.devnull
        small_task("rms", tmp_path / "tasks")
        shutil.copy(ROOT / "examples" / "rms.sketch", tmp_path)
        command += ["--examples", str(tmp_path)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "def rms_norm_kernel(" in ran.stdout
    assert "covered: Y" in ran.stdout
    ours = [name for name in TARGETS if load_target(name).coder]
    run_here = [n for n in ours if toolchain(n).status().can_run and (installed or n != NPU)]
    assert ran.stdout.count("every element within tolerance") == len(run_here)
    assert ran.stdout.count("not executed: run ") == len(ours) - len(run_here)
    for name in ours:
        assert f" {name}: sketchc lower " in ran.stdout
    assert "no sketch at all" in ran.stdout
    assert "rms for cpp: passed" in ran.stdout
    assert "sketch rms {" in ran.stdout
    assert "max error" in ran.stdout
    assert "PyTorch eager" in ran.stdout
