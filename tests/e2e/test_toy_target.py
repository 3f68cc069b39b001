"""A new target is three folders and one line: shown by adding one to a copy of the project.

The copy is installed and asked by its command line, so that nothing of this process helps it.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "toy_target"
PARTS = ("sketchc", "grammar", "lowering", "agents", "docspec", "runtime")
#: Folder of the toy -> where it goes. The registry's line is all else that changes.
PLACES = {
    "lowering": "lowering/toy",
    "toolchain": "runtime/toolchains/toy",
    "documents": "docspec/toy",
}
LINE = '    "toy": "sketchc.lowering.toy.target",\n'
LAST = '    "cpp": "sketchc.lowering.cpp.target",\n'
#: Ten examples that the toy's operations do for.
EXAMPLES = (
    *("add", "relu", "bias_activation", "softmax", "rms", "layer_norm"),
    *("matmul", "batched_matmul", "gram", "sum_middle"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which the copy is installed."""
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for folder, place in PLACES.items():
        shutil.copytree(TOY / folder, source / place)
    registry = source / "lowering" / "registry.py"
    text = registry.read_text("utf-8")
    assert text.count(LAST) == 1
    registry.write_text(text.replace(LAST, LAST + LINE), "utf-8")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built", "--compile"]
    # Byte code also where the environment asks for none: each command would compile all modules.
    compiles = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, cwd=source, env=compiles, check=True, capture_output=True, timeout=300)
    environment = source / "environment"
    venv.create(environment)
    # The libraries are those of this environment; a folder in a .pth file is not asked for others.
    paths = "\n".join([str(source / "built"), *site.getsitepackages()])
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "copy.pth").write_text(paths + "\n", "utf-8")
    return environment / "bin" / "python"


def test_the_import_contract_holds_as_it_is(installed: Path) -> None:
    pytest.importorskip("importlinter")
    source = installed.parents[2]
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", source / "pyproject.toml"],
        cwd=source / "built",
        env={**os.environ, "PYTHONPATH": "."},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(installed), "-m", "sketchc", *arguments],
        cwd=installed.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


def sketch(name: str) -> str:
    return str(ROOT / "examples" / f"{name}.sketch")


def test_the_targets_are_listed_with_it(installed: Path) -> None:
    found = json.loads(run(installed, "targets", "--json").stdout)["targets"]
    toy = next(target for target in found if target["target"] == "toy")
    assert (toy["languages"], toy["can_run"]) == (["numpy"], True)
    assert "toy" in run(installed, "toolchain", "list").stdout
    assert "Nothing to install" in run(installed, "toolchain", "install", "toy").stdout


def test_it_lowers_by_its_own_emitter_also_by_the_paper_s_spelling(installed: Path) -> None:
    done = run(installed, "lower", sketch("rms"), "--target", "toy", "--verify-ir")
    assert done.returncode == 0, done.stderr
    assert "import numpy as np" in done.stdout
    by_backend = run(installed, "lower", sketch("rms"), "--backend", "toy")
    assert by_backend.stdout == done.stdout


@pytest.mark.parametrize(("name", "code"), [("gelu", "SK0703"), ("histogram", "SK0704")])
def test_what_it_cannot_do_is_a_coded_finding(installed: Path, name: str, code: str) -> None:
    done = run(installed, "lower", sketch(name), "--target", "toy")
    assert done.returncode == 1
    assert code in done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_verified_on_it(installed: Path, name: str) -> None:
    task = str(ROOT / "examples" / "tasks" / f"{name}.py")
    given = ("--task", task, "--target", "toy", "--seed", "7", "--json", "--no-store")
    done = run(installed, "verify", sketch(name), *given)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert json.loads(done.stdout)["verdict"] == "passed"


def test_its_documents_are_found_and_in_order(installed: Path) -> None:
    assert "NumPy, one program" in run(installed, "docspec", "list").stdout
    done = run(installed, "docspec", "check", "toy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "## Example" in run(installed, "docspec", "show", "toy").stdout


def test_a_run_of_the_agents_needs_nothing_else(installed: Path, tmp_path: Path) -> None:
    task = str(ROOT / "examples" / "tasks" / "softmax.py")
    output = tmp_path / "out"
    given = ("--target", "toy", "--workflow", "coder-only", "--sketch", sketch("softmax"))
    done = run(installed, "gen", task, *given, "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(output.glob("*_dropin.py"))
