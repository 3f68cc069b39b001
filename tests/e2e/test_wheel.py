"""What a wheel brings along: the parse tables, so that a home that takes no files costs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).resolve().parents[2]
PARTS = ("sketchc", "grammar", "lowering", "agents", "docspec", "runtime")
CODE = """
import sys
from sketchc.cli.main import run
assert run(["check", "-q", "--static", sys.argv[1]]) == 0
print("lark" in sys.modules, sys.modules["sketchc"].__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel is made of."""
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return source / "built"


def test_checking_from_a_wheel_needs_no_lark_and_no_cache(built: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    environment = {**os.environ, "XDG_CACHE_HOME": str(nowhere), "PYTHONPATH": str(built)}
    command = [sys.executable, "-c", CODE, str(ROOT / "examples" / "rms.sketch")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", str(built / "sketchc" / "__init__.py")]


def test_every_package_and_every_page_is_in_it(built: Path) -> None:
    for part in PARTS:
        inside = built / ("sketchc" if part == "sketchc" else f"sketchc/{part}")
        for path in (ROOT / part).rglob("*"):
            if "__pycache__" in path.parts or path.is_dir() or path.name.startswith("."):
                continue
            assert (inside / path.relative_to(ROOT / part)).exists(), path
