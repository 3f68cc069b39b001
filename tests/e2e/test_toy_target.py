"""A new target is three folders and one line: shown by adding one to a copy of the project.

The copy is installed by pip into an environment of its own and asked by its command line, so that
nothing of this process helps it.
"""

from __future__ import annotations

import ensurepip
import importlib.util
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
    environment = source / "environment"
    venv.create(environment)
    # The libraries are those of this environment; a folder in a .pth file is not asked for others.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n", "utf-8")
    python = environment / "bin" / "python"
    variables = dict(os.environ)
    if importlib.util.find_spec("pip") is None:
        bundled = Path(ensurepip.__file__).with_name("_bundled").glob("pip-*.whl")
        variables["PYTHONPATH"] = str(next(bundled))
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    done = subprocess.run(
        [*pip, "install", "--quiet", *offline, "."],
        cwd=source,
        env=variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return python


@pytest.mark.sweep
def test_the_import_contract_holds_as_it_is(installed: Path) -> None:
    pytest.importorskip("importlinter")
    environment = installed.parents[1]
    (packages,) = environment.glob("lib/python*/site-packages")
    contract = environment.parent / "pyproject.toml"
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", contract],
        cwd=packages,
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


#: Commands one after the other in one process, which starts torch once: a line of arguments each,
#: answered by a line of status and output.
_IN_TURN = """
import contextlib, io, json, sys
from sketchc.cli.main import run
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = run(json.loads(line))
    print(json.dumps([status, output.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def verified(installed: Path) -> dict[str, tuple[int, str]]:
    """Example -> status and output of `sketchc verify`."""
    tasks = ROOT / "examples" / "tasks"
    given = ("--target", "toy", "--seed", "7", "--json", "--no-store")
    commands = [
        ["verify", sketch(name), "--task", str(tasks / f"{name}.py"), *given] for name in EXAMPLES
    ]
    done = subprocess.run(
        [str(installed), "-c", _IN_TURN],
        input="".join(f"{json.dumps(command)}\n" for command in commands),
        cwd=installed.parent,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=800,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (status, text) for name, (status, text) in zip(EXAMPLES, answers, strict=True)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_verified_on_it(verified: dict[str, tuple[int, str]], name: str) -> None:
    status, text = verified[name]
    assert status == 0, text[-3000:]
    assert json.loads(text)["verdict"] == "passed"


def test_its_documents_are_found_and_in_order(installed: Path) -> None:
    assert "NumPy, one program" in run(installed, "docspec", "list").stdout
    done = run(installed, "docspec", "check", "toy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "## Example" in run(installed, "docspec", "show", "toy").stdout


@pytest.mark.sweep
def test_a_run_of_the_agents_needs_nothing_else(installed: Path, tmp_path: Path) -> None:
    task = str(ROOT / "examples" / "tasks" / "softmax.py")
    output = tmp_path / "out"
    given = ("--target", "toy", "--workflow", "coder-only", "--sketch", sketch("softmax"))
    done = run(installed, "gen", task, *given, "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(output.glob("*_dropin.py"))
