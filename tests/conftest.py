"""Options shared by all tests."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from shared_work import FOLDER
from sweeps import MARK, PARTS, choice_of, dealt

from sketchc.base import memo, verification
from sketchc.runtime.process.templates import SHARED

# Kernels and torch compute little here, beside other tests: threads that wait shall not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# What each stage of the compiler hands to the next is verified in every test, and by the processes
# that a test starts.
verification.enable()


def _forget_with(change: str) -> None:
    """What code made before a test replaces some of it is forgotten, and what it makes then."""
    made = getattr(pytest.MonkeyPatch, change)

    @functools.wraps(made)
    def changed(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        if arguments and arguments[0] is not os.environ:
            self.forgetful = True
        if getattr(self, "forgetful", False):
            memo.forget()

    setattr(pytest.MonkeyPatch, change, changed)


for _change in ("setattr", "setitem", "undo"):
    _forget_with(_change)

#: What commands draw where they are given no seed, and what hypothesis draws, is the same in each
#: run: a change breaks a test, or does not. Another number here tries other inputs.
os.environ.setdefault("SKETCHC_SEED", "20231")
settings.register_profile(
    "repeatable",
    derandomize="SKETCHC_FUZZ" not in os.environ,
    database=None,
    deadline=None,  # three workers share two cores
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: a run takes one of its parts (tests/sweeps.py).")
    # Shells let what they start in the background ignore Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if FOLDER not in os.environ:  # the workers of xdist have it from the process that starts them
        folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="sketchc-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # What commands record goes there and not into the user's store. (XDG_DATA_HOME stays as it is:
    # the Ascend front end is installed in it.)
    os.environ["SKETCHC_STORE"] = os.path.join(os.environ[FOLDER], "store.sqlite")
    # Hundreds of commands load tasks: what one has imported serves the others.
    os.environ[SHARED] = os.path.join(os.environ[FOLDER], "templates")
    os.makedirs(os.environ[SHARED], exist_ok=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    taken, left = dealt(items, choice_of(config))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = taken


def pytest_report_header(config: pytest.Config) -> str:
    choice = choice_of(config)
    return "sweeps: all" if choice == "all" else f"sweeps: part {choice} of 0 to {PARTS - 1}"


def pytest_collection_finish() -> None:
    """Twelve thousand tests are objects that stay: no collection of garbage need go through them,
    and few are worth it, since most of what tests make is gone when nothing refers to it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite the expected outputs of golden tests."
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def own_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that this test starts descend from it, and it shares none with other tests."""
    monkeypatch.delenv(SHARED)
