"""`require(target)`: a toolchain for a test, or a visible skip where it is not installed."""

from __future__ import annotations

import os

import pytest

from sketchc.runtime.toolchains.base import Toolchain, toolchain


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


def require_mindspore() -> None:
    """MindSpore's environment for a test, or a visible skip; a failure where all are required."""
    from sketchc.runtime.tasks.mindspore_environment import INSTALL_LINE, MINDSPORE

    if MINDSPORE.python() is not None:
        return
    reason = f"MindSpore is not installed: {INSTALL_LINE}"
    if os.environ.get("SKETCHC_REQUIRE_TOOLCHAINS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
