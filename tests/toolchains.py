"""`require(target)`: a toolchain for a test, or a visible skip where it is not installed; `ready`:
a kernel that can be run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language
from sketchc.runtime.toolchains.base import Artefact, Toolchain, toolchain


def require(target: str) -> Toolchain:
    """The toolchain of `target`, able to compile and run.

    Call it in a fixture or at the top of a module. Where something is missing the tests are
    skipped with the advice as the reason; with SKETCHC_REQUIRE_TOOLCHAINS=1 (as in CI) they fail.
    """
    found = toolchain(target)
    status = found.status()
    if status.can_compile and status.can_run:
        return found
    reason = f"{target}: missing {', '.join(status.missing)}; {status.advice}"
    if os.environ.get("SKETCHC_REQUIRE_TOOLCHAINS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def ready(kernel: Kernel, folder: Path) -> Artefact:
    """A kernel that can be run, compiled where a run needs that; without warnings."""
    found: Any = require(kernel.target)
    if not load_language(kernel.language).hosted:
        artefact: Artefact = found.compile(kernel, folder)
        assert artefact.details["warnings"] == ""
        return artefact
    if kernel.target == "triton_ascend":
        found.place(kernel, folder)
    return Artefact(kernel, folder)


def require_mindspore() -> None:
    """MindSpore's environment for a test, or a visible skip; a failure where all are required."""
    from sketchc.runtime.tasks.mindspore_environment import INSTALL_LINE, MINDSPORE

    if MINDSPORE.python() is not None:
        return
    reason = f"MindSpore is not installed: {INSTALL_LINE}"
    if os.environ.get("SKETCHC_REQUIRE_TOOLCHAINS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
