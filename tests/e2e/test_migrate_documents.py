"""`sketchc migrate` from and to targets of documents: their kernels are found again, run by their
runner and compared as those of other targets are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from llm_server import LlmServer, reply
from toolchains import require

from sketchc.cli.main import run
from sketchc.lowering.registry import load_target
from sketchc.runtime.store.origins import Origin, with_origin

SKETCH = """\
sketch scale {
    symbols: N;
    params: factor: f32 = 2.0;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, factor, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
TASK = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x, factor):
        return x * factor

def get_inputs():
    return [torch.randn(130), 2.0]
"""
KERNEL = """\
#include <stdint.h>

void scale(const float *X, float *Y, int64_t N, double factor)
{
    for (int64_t n = 0; n < N; ++n) {
        Y[n] = X[n] * (float)factor;
    }
}
"""
#: A runner's kernel may be called as its documents say; this one is right, and never built.
ASCEND = '#include "kernel_operator.h"\n\nextern "C" __global__ __aicore__ void scale() {}\n'


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a sketch, a task and a target `mine` that was just started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKETCHC_TARGETS", str(tmp_path / "targets"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SKETCHC_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert run(["docspec", "new", "mine"]) == 0
    require("mine"), require("cpp")
    Path("scale.sketch").write_text(SKETCH)
    Path("task.py").write_text(TASK)


def migrate(file: str, old: str, new: str, *more: str) -> int:
    return run(["migrate", file, "--from", old, "--to", new, "--seed", "7", "--no-bench", *more])


def asking(server: LlmServer) -> tuple[str, ...]:
    return ("--llm", "openai", "--base-url", server.base_url, "--model", "m")


def written(code: str, target: str = "mine") -> str:
    """The file of a kernel with the comment that says what sketch it was made of."""
    language = load_target(target).language
    file = f"mine{language.suffix}"
    origin = Origin(SKETCH, "scale", target, load_target(target).capabilities.default_hardware)
    Path(file).write_text(with_origin(code, language, origin))
    return file


def test_there_and_back_against_the_original_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lower", "scale.sketch", "-t", "cpp", "-q", "-o", "mine.cpp"]) == 0
    with LlmServer([reply(f"```c\n{KERNEL}```\n")]) as server:
        more = ("--coder", "llm", "-o", "there", "--no-store")
        assert migrate("mine.cpp", "cpp", "mine", *asking(server), *more) == 0
    assert "against the original alone: no task is known" in capsys.readouterr().out
    assert migrate("there/scale.c", "mine", "cpp", "-o", "back", "--no-store") == 0
    told = capsys.readouterr()
    assert "the sketch of there/scale.c is found in the comment at the kernel's end" in told.err
    alone = "no task is known: compared with the original alone, on the CPU, called by a runner"
    assert alone in told.err
    assert "against the original alone: no task is known" in told.out
    verdict = json.loads(Path("back/verdict.json").read_text())["verdict"]
    assert (verdict["verdict"], verdict["target"]) == ("passed", "cpp")
    assert verdict["task"].endswith("scale.c")


def test_what_a_run_made_names_its_task_and_the_store_knows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["gen", "task.py", "-t", "mine", "--workflow", "coder-only", "--coder", "llm", "-q"]
    with LlmServer([reply(f"```c\n{KERNEL}```\n")]) as server:
        asked += ["--sketch", "scale.sketch", "-o", "made", *asking(server)]
        assert run(asked) == 0
    assert migrate("made/scale.c", "mine", "cpp", "-o", "out", "--no-store") == 0
    told = capsys.readouterr()
    assert "the comment at the kernel's end names it" in told.err
    assert "original alone" not in told.out + told.err
    Path("task.py").unlink()
    Path("bare.c").write_text(re.split(r"\n\n// ---- made by", Path("made/scale.c").read_text())[0])
    assert migrate("bare.c", "mine", "cpp", "-o", "again") == 0
    told = capsys.readouterr()
    assert "the sketch of bare.c is found in the store" in told.err
    assert "the store names it for this kernel" in told.err


def test_a_changed_kernel_is_run_beside_its_sketch(capsys: pytest.CaptureFixture[str]) -> None:
    file = written(KERNEL)
    text = Path(file).read_text()
    Path(file).write_text(f"// Somebody's.\n{text}")
    assert migrate(file, "mine", "cpp", "-o", "out", "--no-store") == 0
    assert "it does what the sketch says, in " in capsys.readouterr().err
    Path(file).write_text(text.replace("(float)factor", "(float)factor + 1.0f"))
    assert migrate(file, "mine", "cpp", "-o", "not", "--no-store") == 1
    told = capsys.readouterr()
    assert "mine.c no longer does what the sketch in the comment" in told.err
    assert "numerical" in told.out
    assert not Path("not").exists()


def test_an_original_that_nobody_can_build_is_its_sketch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(ASCEND, "ascendc")
    assert migrate(file, "ascendc", "cpp", "-o", "out", "--no-store") == 0
    told = capsys.readouterr().err
    assert "no task is known, and ascendc cannot run here: compared with the sketch" in told


def test_an_original_that_does_something_else_refutes_the_new_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its comment fits, so that it is not run beside its sketch, and the comparison tells."""
    file = written(KERNEL.replace("(float)factor", "3.5f * (float)factor"))
    assert migrate(file, "mine", "cpp", "-o", "out", "--no-store") == 1
    assert "design" in capsys.readouterr().out


def test_a_kernel_by_others_is_called_by_its_runner_as_a_signature_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("theirs.c").write_text(KERNEL)
    wrong = SKETCH.replace("mul(x, factor, x)", "add(x, factor, x)")
    with LlmServer([reply(f"```sketch\n{text}```\n") for text in (wrong, SKETCH)]) as server:
        more = ("--signature", "scale.sketch", "-o", "out", "--no-store")
        assert migrate("theirs.c", "mine", "cpp", *asking(server), *more) == 0
        mended = str(server.requests[1].body["messages"][-1]["content"])
    assert "it does not compute what the task computes" in mended
    assert "against the original alone" in capsys.readouterr().out
