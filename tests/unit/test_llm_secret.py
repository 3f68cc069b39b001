"""A key is read once and then nowhere to be found: not in /proc, not in workers, not in what
compilers see, not in text that is redacted."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from toolchains import require

from sketchc.agents.llm.secret import REDACTED, redact, take_key
from sketchc.runtime.process import templates
from sketchc.runtime.process.peer import answer_of, clean_environment
from sketchc.runtime.sandbox.worker import run_worker

ROOT = Path(__file__).resolve().parents[2]
NAME = "SKETCHC_TEST_API_KEY"
MARKER = "marker-5f0c1d7e-not-a-real-key"

#: Runs with the key in its environment; prints what it and a child of its own can see afterwards.
TAKES_THE_KEY = f"""
import json, os, subprocess, sys
from sketchc.agents.llm.secret import take_key

LOOK = '''
import json, os
mine = open("/proc/self/environ", "rb").read()
parent = open(f"/proc/{{os.getppid()}}/environ", "rb").read()
print(json.dumps([b"{MARKER}" in mine, b"{MARKER}" in parent, b"KEPT=yes" in parent]))
'''
look = lambda: json.loads(subprocess.check_output([sys.executable, "-c", LOOK]))
before = look()
first = take_key("{NAME}")
second = take_key("{NAME}")
import posix
print(json.dumps({{
    "before": before,
    "after": look(),
    "keys": [first, second],
    "in_os": "{NAME}" in os.environ,
    "in_posix": b"{NAME}" in posix.environ,
    "putenv": subprocess.check_output(["env"]).decode().count("{MARKER}"),
}}))
"""


def run_python(code: str, environment: dict[str, str]) -> Any:
    """The JSON that a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="this system has no /proc"
)


@needs_proc
def test_a_taken_key_is_gone_from_the_process_and_its_children() -> None:
    found = run_python(TAKES_THE_KEY, {NAME: MARKER, "KEPT": "yes"})
    assert found["before"] == [True, True, True]  # the trick works where nothing is done about it
    assert found["after"] == [False, False, True]
    assert found["keys"] == [MARKER, MARKER]
    assert not found["in_os"]
    assert not found["in_posix"]
    assert found["putenv"] == 0


@needs_proc
def test_a_key_that_was_set_again_is_wiped_in_both_places() -> None:
    code = f"""
    import json, os
    from sketchc.agents.llm.secret import take_key
    os.environ["{NAME}"] = "a later value"
    key = take_key("{NAME}")
    block = open("/proc/self/environ", "rb").read()
    print(json.dumps([key, b"{MARKER}" in block, os.environ.get("{NAME}")]))
    """
    assert run_python(dedent(code), {NAME: MARKER}) == ["a later value", False, None]


def test_a_key_that_is_not_set_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert take_key(f"{NAME}_UNSET") == ""


def test_redaction_replaces_a_key_everywhere_and_leaves_short_words() -> None:
    text = f"bad key {MARKER}; also {MARKER}."
    assert redact(text, MARKER) == f"bad key {REDACTED}; also {REDACTED}."
    assert redact(text, "") == redact(text, "a") == text


# ---------------------------------------------------------------- processes


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    """Secrets under names of three kinds: not passed on, of a kind that is, and hidden in one."""
    for name in (NAME, "NVIDIA_API_KEY", "TRITON_HUB_TOKEN", "TORCH_SECRET", "http_proxy"):
        monkeypatch.setenv(name, MARKER)
    return MARKER


@pytest.fixture
def started(
    own_templates: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """(command, environment) of every process that is started while the test runs."""
    templates.close_templates()  # one that was there already would serve the tasks
    found: list[tuple[str, dict[str, str]]] = []
    original = subprocess.Popen.__init__

    def record(self: Any, args: Any, *rest: Any, **named: Any) -> None:
        environment = named.get("env")
        found.append((str(args), dict(os.environ if environment is None else environment)))
        original(self, args, *rest, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    yield found
    assert found, "nothing was started"
    for command, environment in found:
        assert MARKER not in environment.values(), command


HANDLER = """
import os
def look(request, arrays):
    block = open("/proc/self/environ", "rb").read() if os.path.exists("/proc/self") else b""
    return {"block": block.decode(), "values": list(os.environ.values())}, {}
"""


@pytest.mark.parametrize("preload", [(), ("json",)], ids=["fresh", "kept"])
def test_workers_do_not_see_it(
    marker: str, started: list[Any], preload: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    result = run_worker(f"{tmp_path}/handler.py:look", {}, preload=preload, timeout=60)
    assert result.reply is not None, result.describe()
    assert marker not in json.dumps(result.reply)


TASK = """
import os
import torch
for path in ("/proc/self/environ",):
    if os.path.exists(path):
        assert MARKER not in open(path).read(), "the block holds it"
assert MARKER not in os.environ.values(), "os.environ holds it"
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(3)]
def get_init_inputs():
    return []
"""


def test_a_task_does_not_see_it(marker: str, started: list[Any], tmp_path: Path) -> None:
    from sketchc.runtime.tasks.task import TorchTask

    path = tmp_path / "task.py"
    path.write_text(f"MARKER = {marker!r}\n{TASK}")
    with TorchTask(path) as task:
        assert len(task.describe().outputs) == 1


def test_a_measured_process_does_not_see_it(marker: str) -> None:
    from sketchc.runtime.bench.driver import environment

    assert marker not in environment(2).values()


@pytest.mark.parametrize("directive", [".incbin", ".include"])
def test_a_source_that_embeds_the_environment_gets_none_of_it(
    marker: str, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directive: str
) -> None:
    """These put a file into the object while it is assembled: here, the assembler's environment.

    Some assemblers refuse files of /proc; what they then print must not hold the secret either.
    """
    from sketchc.runtime.toolchains.base import ToolchainError
    from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
    from sketchc.runtime.toolchains.native import compiler

    require("cpp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "steal.cpp"
    source.write_text(
        f'asm(".data\\n{directive} \\"/proc/self/environ\\"\\n.text\\n");\nint dummy;\n'
    )
    library = tmp_path / "steal.so"
    try:
        log, _ = compiler.build([source], FLAGS, library)
    except ToolchainError as error:
        log = error.log
    made = library.read_bytes() if library.exists() else b""
    assert made or "/proc/self/environ" in log  # it was tried
    assert marker.encode() not in made + log.encode()


def test_the_compiler_does_not_see_it(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that notes its whole environment, in front of the real one."""
    from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
    from sketchc.runtime.toolchains.native import compiler

    require("cpp")
    real, noting = compiler.find_compiler(), tmp_path / "noting-g++"
    noting.write_text(f'#!/bin/sh\nenv >> "{tmp_path}/seen.txt"\nexec "{real}" "$@"\n')
    noting.chmod(0o755)
    monkeypatch.setenv("CXX", str(noting))
    source = tmp_path / "empty.cpp"
    source.write_text("int dummy;\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler.build([source], FLAGS, tmp_path / "empty.so")
    assert answer_of(str(noting), "--version")
    seen = (tmp_path / "seen.txt").read_text()
    assert seen.count("PATH=") >= 2
    assert marker not in seen


def test_the_ascend_tools_do_not_see_it(
    marker: str, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchc.runtime.toolchains.triton_ascend import environment, linalg

    require("triton_ascend")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tools = environment.find_tools()
    assert tools is not None
    (tmp_path / "kernel.mlir").write_text("this is no MLIR")
    (tmp_path / "launcher.c").write_text("")
    with pytest.raises(linalg.BuildError):
        linalg._build_in(tmp_path, tools)
    assert environment._version(tools.programs["gcc"], "--version", r"(\d+)")


def test_names_that_say_secret_never_pass(marker: str) -> None:
    extra = {"GIVEN": "1"}
    assert marker not in clean_environment(extra, frozenset(os.environ)).get("NVIDIA_API_KEY", "")
    assert clean_environment(extra)["GIVEN"] == "1"
    assert "PATH" in clean_environment({})


# ---------------------------------------------------------------- every place


#: Calls that may inherit the environment: (file, function).
INHERITING = {
    # pip and apt-get, asked for by the user, need proxies and package indexes; no generated code.
    ("runtime/process/venvs.py", "run_installer"),
    # A worker's own process: its environment is cleared already.
    ("runtime/toolchains/triton_cuda/worker.py", "_resources"),
    ("runtime/toolchains/tilelang_cuda/execution.py", "_built"),
    ("runtime/toolchains/tilelang_cuda/worker.py", "built_cubin"),
    ("runtime/toolchains/documents/worker.py", "build"),
    ("runtime/toolchains/documents/worker.py", "__init__"),
}
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
OS_STARTERS = {"system", "popen", "execv", "execvp", "execl", "execlp", "spawnv", "spawnl"}
CLEAN = {"clean_environment", "compiler_environment", "python_environment"}


def _starts(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """(function, call) of every call in a file that starts another program."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if owner == "subprocess" and node.func.attr in STARTERS:
                yield function, node
            if owner == "os" and node.func.attr in OS_STARTERS:
                yield function, node
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(ast.parse(path.read_text()), "")


def test_every_place_that_starts_a_process_names_its_environment() -> None:
    seen = set()
    for part in ("runtime", "agents", "docspec", "lowering", "sketchc"):
        for path in sorted((ROOT / part).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            for function, call in _starts(path):
                named = [word.value for word in call.keywords if word.arg == "env"]
                if (place, function) in INHERITING:
                    seen.add((place, function))
                    continue
                where = f"{place}:{call.lineno}"
                assert named, f"{where} starts a process with the whole environment: pass env="
                text = ast.unparse(named[0])
                assert any(name in text for name in CLEAN) or "environ" not in text.replace(
                    "environment", ""
                ), f"{where} passes os.environ on"
    assert seen == INHERITING, "an exception that is not needed any more"


def test_compiled_kernels_still_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler finds its headers and libraries in the cleared environment."""
    from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
    from sketchc.runtime.toolchains.native import compiler

    require("cpp")
    source = tmp_path / "add.cpp"
    source.write_text(
        '#include <cmath>\n#include <omp.h>\nextern "C" double twice(double x) '
        "{ return std::fma(x, 2.0, 0.0) * (omp_get_max_threads() > 0); }\n"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler.build([source], FLAGS, tmp_path / "a.so")
    import ctypes

    twice = ctypes.CDLL(str(tmp_path / "a.so")).twice
    twice.restype, twice.argtypes = ctypes.c_double, (ctypes.c_double,)
    assert np.isclose(twice(1.25), 2.5)
