"""Targets that exist only as documents: a folder under another name, anywhere, is a target; ten
operators are generated, built and verified with it, and what is wrong in a kernel is found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from llm_server import LlmServer, reply
from opencl_cases import OPERATORS, Operator
from toolchains import require

from sketchc.cli.main import run
from sketchc.docspec.loader import folder_of

NAME = "mycl"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of the user's in a place of this test's, and no settings from outside."""
    monkeypatch.setenv("SKETCHC_TARGETS", str(tmp_path / "targets"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The folder of the documents of opencl under another name, in a place of the user's."""
    require("opencl")
    folder = tmp_path / "targets" / NAME
    shutil.copytree(folder_of("opencl"), folder)
    change(folder / "docspec.toml", 'target = "opencl"', f'target = "{NAME}"')
    return folder


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def asked_of(server: LlmServer, task: Path, target: str) -> list[str]:
    """The command that has a scripted model write the kernel of a task."""
    arguments = ["gen", str(task), "-t", target, "--workflow", "coder-only", "--coder", "llm"]
    return [*arguments, "--llm", "openai", "--model", "m", "--base-url", server.base_url, "-q"]


def kernel_file(operator: Operator, text: str, folder: Path) -> str:
    path = folder / f"{operator.name}.cl"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.sweep
@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_scripted_model_makes_ten_operators(operator: Operator, tmp_path: Path) -> None:
    task = operator.write_task(tmp_path)
    with LlmServer([reply(f"```opencl\n{operator.source}```\n")]) as server:
        assert run([*asked_of(server, task, NAME), "-o", "out"]) == 0
        (asked,) = server.requests
    prompt = "\n".join(message["content"] for message in asked.body["messages"])
    assert "/* plan" in prompt
    assert f"for the target {NAME}" in prompt
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))["verdict"]
    assert verdict["target"] == NAME
    assert verdict["passed"] is True
    assert len({json.dumps(case["shape"]["symbols"]) for case in verdict["cases"]}) > 5
    assert (tmp_path / "out" / f"{operator.name}.cl").read_text("utf-8").strip() == (
        operator.source.strip()
    )


@pytest.mark.sweep
@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_mistake_is_found(operator: Operator, tmp_path: Path) -> None:
    task, file = operator.write_task(tmp_path), kernel_file(operator, operator.mistaken, tmp_path)
    assert run(["verify", file, "--task", str(task), "-t", NAME, "--seed", "7"]) == 1


# ---------------------------------------------------------------- targets that are never built

RELU = OPERATORS[0]
ASCEND = """#include "kernel_operator.h"

extern "C" __global__ __aicore__ void relu(GM_ADDR X, GM_ADDR Y, int64_t M, int64_t N) {}
"""


def test_what_nobody_can_build_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = RELU.write_task(tmp_path)
    with LlmServer([reply(f"```ascendc\n{ASCEND}```\n")]) as server:
        assert run([*asked_of(server, task, "ascendc"), "-o", "out"]) == 1
        (asked,) = server.requests
    prompt = "\n".join(message["content"] for message in asked.body["messages"])
    assert "Nobody can compile the file here" in prompt
    assert "accepts it only if its results are right" not in prompt
    trace = json.loads((tmp_path / "out" / "trace.json").read_text("utf-8"))
    found = trace["verdict"]
    assert (trace["outcome"], found["verdict"]) == ("incomplete", "generated, not built")
    assert found["passed"] is False
    assert "NOT BUILT" in (tmp_path / "out" / "SUMMARY.md").read_text("utf-8")
    kernel = tmp_path / "out" / "relu.asc"
    assert kernel.read_text("utf-8") == ASCEND
    capsys.readouterr()
    assert run(["verify", str(kernel), "--task", str(task), "-t", "ascendc", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["passed"]) == ("generated, not built", False)
    assert found["cases"] == []
    assert run(["store", "list", "kernels", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["target"] == "ascendc"]
    assert rows
    assert all(row["passed"] == 0 and row["incomplete"] > 0 for row in rows)


def test_what_nobody_can_build_is_counted_as_no_pass_by_suites(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    RELU.write_task(tmp_path / "tasks")
    with LlmServer(lambda received: reply(f"```ascendc\n{ASCEND}```\n")) as server:
        arguments = ["suite", "run", "--tasks", "tasks", "-t", "ascendc", "-o", "suite"]
        arguments += ["--workflow", "coder-only", "--coder", "llm"]
        arguments += ["--llm", "openai", "--model", "m", "--base-url", server.base_url]
        assert run(arguments) == 1
    results = json.loads((tmp_path / "suite" / "results.json").read_text("utf-8"))
    (task,) = results["tasks"]
    assert task["word"] == "incomplete"
    assert all((row["passed"], row["incomplete"]) == (0, 1) for row in results["totals"])


@pytest.mark.parametrize(
    ("old", "new"),
    [("kernel_operator.h", "aclrtlaunch.h"), ("{}", '{ asm("nop"); }')],
)
def test_the_text_of_what_nobody_can_build_is_looked_at(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, kernel = RELU.write_task(tmp_path), tmp_path / "relu.asc"
    kernel.write_text(ASCEND.replace(old, new), "utf-8")
    assert run(["verify", str(kernel), "--task", str(task), "-t", "ascendc"]) == 1
    assert "failed (policy" in capsys.readouterr().out


def test_without_a_coder_nothing_is_lowered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sketch = str(folder_of("ascendc") / "examples" / "swish.sketch")
    for target in ("opencl", "ascendc"):
        assert run(["lower", sketch, "-t", target]) == 2
        assert "no built-in Coder" in capsys.readouterr().err
        assert run(["lower", sketch, "-t", target, "--emit", "plan"]) == 0
        assert "swish" in capsys.readouterr().out


# ---------------------------------------------------------------- a target of one's own

SCALE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.5


def get_inputs():
    return [torch.randn(130)]


def get_init_inputs():
    return []
"""
KERNEL = """#include <stdint.h>

void scale(const float *X, float *Y, int64_t M)
{
    for (int64_t m = 0; m < M; ++m) {
        Y[m] = X[m] * 2.5f;
    }
}
"""


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The folder of a target that `docspec new` has started."""
    assert run(["docspec", "new", "mine"]) == 0
    return tmp_path / "targets" / "mine"


@pytest.fixture
def verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A function that verifies a kernel of the target: the exit status, and what is printed."""

    def verify(kernel: str = KERNEL, *options: str) -> tuple[int, str]:
        (tmp_path / "scale.py").write_text(SCALE, "utf-8")
        (tmp_path / "scale.c").write_text(kernel, "utf-8")
        status = run(["verify", "scale.c", "--task", "scale.py", "-t", "mine", *options])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return verify


Verified = Callable[..., tuple[int, str]]


@pytest.mark.usefixtures("started")
def test_a_started_folder_is_a_target(
    verified: Verified, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["docspec", "check", "mine", "--run", "--seed", "3"]) == 0
    assert "scale: passed" in capsys.readouterr().out
    assert run(["targets", "--json"]) == 0
    names = [target["target"] for target in json.loads(capsys.readouterr().out)["targets"]]
    assert names[-1] == "mine"
    assert verified()[0] == 0


AGAIN = """    extern void exit(int);
    static int runs;
    if (runs++) {
        exit(0);
    }
    for ("""
MISTAKES = [
    ("2.5f", "2.6f", "failed (numerical"),
    ("m < M", "m <= M", "memory behind Y was overwritten"),
    ("Y[m] = X", "Y[m] = ((float *)X)[m] = X", "the input X was changed"),
    ("2.5f;", "2.5f", "failed (syntax"),
    ("void scale", "void other", "defines no function scale"),
    ("Y[m] =", "*(volatile float *)8 =", "the runner was ended by SIGSEGV"),
    ("Y[m] =", "for (volatile int a = 1; a;) {} Y[m] =", "no answer within 3 s"),
    ("<stdint.h>", "<stdio.h>", "failed (policy"),
    # A process that computes once: it is not started again for a run that it took.
    ("    for (", AGAIN, "ended with status 0 and no answer"),
]


@pytest.mark.sweep
@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_wrong_kernel_of_a_started_folder(
    old: str, new: str, said: str, verified: Verified
) -> None:
    assert old in KERNEL
    status, printed = verified(KERNEL.replace(old, new), "--timeout", "3")
    assert (status, said in printed) == (1, True), printed


ANSWERS = [
    ('print("no answer", flush=True); sys.exit(3)', "ended with status 3 and no answer"),
    ('print(json.dumps({"status": "failed", "message": "not today"}), flush=True)', "not today"),
    (
        'open(told["tensors"][1]["file"], "wb").close(); print(\'{"status": "done"}\', flush=True)',
        "another size",
    ),
    ('print(\'{"status": "done"}\', flush=True)', "numerical"),
    (
        'print(json.dumps({"status": "failed", "stage": [], "message":"odd \\ud800"}), flush=True)',
        "odd ?",
    ),
    ('print("[" * 100_000, flush=True); sys.exit(3)', "ended with status 3 and no answer"),
]


@pytest.mark.parametrize(("line", "said"), ANSWERS)
def test_what_a_runner_does_wrong_is_told(
    line: str, said: str, started: Path, verified: Verified
) -> None:
    change(started / "runner.py", "print(json.dumps(run(told)), flush=True)", line)
    status, printed = verified(KERNEL, "--timeout", "20")
    assert (status, said in printed) == (1, True), printed


def test_a_compiler_that_counts_errors_first_is_understood(
    started: Path, verified: Verified
) -> None:
    count = "print('1 error generated.'); print('k.c:1: error: expected an end'); exit(1)"
    manifest = (started / "docspec.toml").read_text("utf-8")
    build = json.dumps(["{python}", "-c", count, "{source}", "{artefact}"])
    (started / "docspec.toml").write_text(
        re.sub(r"(?m)^build = .*$", lambda _: f"build = {build}", manifest), "utf-8"
    )
    status, printed = verified()
    assert (status, "failed (syntax" in printed) == (1, True), printed


def test_a_runner_without_a_build_reads_the_kernel(started: Path, verified: Verified) -> None:
    manifest = (started / "docspec.toml").read_text("utf-8")
    (started / "docspec.toml").write_text(re.sub(r"(?m)^build = .*\n", "", manifest), "utf-8")
    told = 'print(json.dumps({"status": "failed", "message": open(told["kernel"]).read()[:18]}), '
    told += "flush=True)"
    change(started / "runner.py", "print(json.dumps(run(told)), flush=True)", told)
    status, printed = verified(KERNEL, "--timeout", "20")
    assert (status, "#include <stdint.h" in printed) == (1, True), printed


def test_a_runner_that_ends_after_each_answer_is_started_again(
    started: Path, verified: Verified
) -> None:
    change(started / "runner.py", "run(told)), flush=True)", "run(told)), flush=True); break")
    assert verified()[0] == 0


def test_a_runner_sees_inputs_and_no_results(started: Path, verified: Verified) -> None:
    """Neither the task nor anything of the user's is there to be found."""
    look = (
        "import os; print(sorted(os.listdir('/')), os.environ, told, file=sys.stderr); sys.exit(1)"
    )
    change(started / "runner.py", "print(json.dumps(run(told)), flush=True)", look)
    printed = verified()[1]
    assert "X.bin" in printed
    assert "sk-test" not in printed
    assert "scale.py" not in printed.partition("ended with status 1")[2]


def test_a_program_that_is_missing_is_told(
    started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(started / "docspec.toml", 'programs = ["cc"]', 'programs = ["no-such-compiler"]')
    (started.parent.parent / "scale.c").write_text(KERNEL, "utf-8")
    (started.parent.parent / "scale.py").write_text(SCALE, "utf-8")
    assert run(["verify", "scale.c", "--task", "scale.py", "-t", "mine"]) == 2
    said = capsys.readouterr().err
    assert "missing: no-such-compiler" in said
    assert "install a C compiler" in said


def test_a_folder_that_is_broken_stands_in_nobodys_way(
    started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(started / "docspec.toml", 'dtypes = ["f32"', 'dtypes = ["f31"')
    assert run(["toolchain", "list"]) == 0
    assert "mine" not in [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert run(["verify", "x.c", "--task", "x.py", "-t", "mine"]) == 2
    assert "unknown 'f31'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [("cpp", "there is a target cpp already"), ("My-Own", "is no name of a target")],
)
def test_a_name_that_will_not_do(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docspec", "new", name]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_exists_is_kept(started: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docspec", "new", "mine", "-o", str(started)]) == 2
    assert "already" in capsys.readouterr().err
