"""`targets` and `toolchain`: the truth about this machine, and no crash where nothing is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click.testing
import pytest

from sketchc.base.diagnostics import UsageError
from sketchc.cli.main import cli, run
from sketchc.lowering.registry import target_names
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.toolchains.triton_ascend import environment


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without compilers and without the Ascend environment."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SKETCHC_ASCEND_ENV", str(tmp_path / "ascend"))
    monkeypatch.delenv("CXX", raising=False)
    for function in (environment.find_tools, environment._llvm):
        function.cache_clear()
        monkeypatch.setattr(environment, function.__name__, function.__wrapped__)
    return tmp_path


def invoke(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, arguments, standalone_mode=False)


def test_every_target_is_described() -> None:
    result = invoke("targets", "--json")
    found = {target["target"]: target for target in json.loads(result.output)["targets"]}
    assert tuple(found) == target_names()
    for name, target in found.items():
        assert target["description"], name
        names = [chip["name"] for chip in target["hardware"]]
        assert target["default_hardware"] in names
        assert target["installed"] == (not target["missing"] and not target["never_built"])
        assert target["installed"] or target["advice"] or target["never_built"]
        assert not target["can_run"] or target["how_it_runs"]


def test_the_text_names_the_same_targets() -> None:
    output = invoke("targets").output
    assert all(name in output for name in target_names())


def test_the_ascend_path_says_what_a_pass_means() -> None:
    status = toolchain("triton_ascend").status()
    assert "bishengir-compile is not run" in status.how_it_runs
    assert status.interpreted


def test_a_bare_machine_gets_advice(bare: Path) -> None:
    result = invoke("targets", "--json")
    found = {target["target"]: target for target in json.loads(result.output)["targets"]}
    ascend = found["triton_ascend"]
    assert not ascend["can_compile"]
    assert environment.INSTALL_LINE in ascend["advice"]
    assert environment.APT_LINE in ascend["advice"]
    assert not found["cpp"]["can_compile"]
    assert invoke("targets").exit_code == 0
    listed = invoke("toolchain", "list").output
    assert [line.split()[0] for line in listed.splitlines()] == [*target_names(), "mindspore"]
    assert "missing" in listed
    refused = invoke("toolchain", "install", "mindspore", "--system")
    assert isinstance(refused.exception, UsageError)
    assert "mindspore needs no system packages" in str(refused.exception)


def test_without_torch_and_triton_nothing_crashes(tmp_path: Path) -> None:
    """In a process where neither can be imported."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['triton'] = sys.modules['nanobind'] = None\n"
        "from sketchc.cli.main import run\n"
        "sys.exit(run(['targets', '--json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["targets"]) == len(target_names())


def test_it_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys\n"
        "from sketchc.cli.main import run\n"
        "run(['targets'])\n"
        "assert not {'torch', 'triton'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_toolchain_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["toolchain", "install", "tilelang"]) == 2
    assert "triton_ascend" in capsys.readouterr().err


def test_system_packages_need_root_and_apt(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["toolchain", "install", "triton_ascend", "--system"]) == 1
    assert environment.APT_LINE in capsys.readouterr().err


def test_an_occupied_folder_is_left_alone(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bare / "ascend"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    assert run(["toolchain", "install", "triton_ascend"]) == 1
    assert "move it away" in capsys.readouterr().err
    assert (folder / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "version", "usable"),
    [
        ("-19", "19.1.7", True),
        ("", "20.1.0", True),
        ("", "18.1.8", False),
        ("", "22.1.0", False),
        ("-21", "21.1.0", True),
    ],
)
def test_llvm_versions(bare: Path, name: str, version: str, usable: bool) -> None:
    for program in ("mlir-opt", "mlir-translate", "opt", "llc"):
        path = bare / f"{program}{name}"
        path.write_text(f"#!/bin/sh\necho 'Debian LLVM version {version}'\n")
        path.chmod(0o755)
    gcc = bare / "gcc"
    gcc.write_text("#!/bin/sh\necho 12.2.0\n")
    gcc.chmod(0o755)
    tools = environment.find_tools()
    assert (tools is not None) == usable
    if tools is not None:
        assert tools.version == version
        assert tools.gcc_version == "12.2.0"


def test_what_holds_workers_is_tried_and_said() -> None:
    told = json.loads(invoke("targets", "--json").output)["workers"]
    assert told["mode"] in ("namespaces", "plain")
    assert told["text"] in " ".join(invoke("targets").output.split())


def test_a_probed_cpu_is_a_chip_to_plan_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    example = str(Path(__file__).resolve().parents[2] / "examples" / "rms.sketch")
    path = Path(invoke("targets", "--probe").output.strip())
    assert path.parent == tmp_path / "sketchc" / "hardware"
    facts = tomllib.loads(path.read_text("utf-8"))
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert 1e9 < facts["memory_bandwidth"] < 1e13
    assert facts["l1_bytes"] < facts["l2_bytes"] < facts["memory_bytes"]
    found = {t["target"]: t for t in json.loads(invoke("targets", "--json").output)["targets"]}
    assert path.stem in [chip["name"] for chip in found["cpp"]["hardware"]]
    result = invoke("lower", example, "--target", "cpp", "--hardware", path.stem)
    assert f"for {path.stem}" in result.output
    for name, said in (("H200", "no name of a chip"), ("h200", "ships with sketchc")):
        refused = invoke("targets", "--probe", name).exception
        assert isinstance(refused, UsageError)
        assert said in str(refused)
