"""`sketchc migrate` of kernels by others: three Triton kernels and one in C++, without a sketch.

The model is a real HTTP server with a script: first a sketch that computes something else, which is
refuted before anything is lowered, then the right one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from llm_server import LlmServer, reply, unauthorized
from toolchains import require

from sketchc.cli.main import run

KERNELS = Path(__file__).with_name("migrated")

#: kernel -> (to target, further options, the right sketch, a part of it, what is wrong instead,
#: what the model is told of that).
SOFTMAX = """\
sketch scaled_softmax {
    symbols: M, N <= 1024;
    params: temperature: f32 = 2.0;
    let: inverse = 1/temperature;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        largest = alloc([1])
        total = alloc([1])
        load(X[i, 0:N] -> x)
        mul(x, inverse, x)
        reduce_max(x, 0, largest)
        sub(x, largest, x)
        exp(x, x)
        reduce_sum(x, 0, total)
        div(x, total, x)
        store(x -> Y[i, 0:N])
}
"""
RMS_NORM = """\
sketch rms_norm {
    symbols: M, N <= 1024;
    tensors: X[M, N]: in f32; W[N]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        w = alloc([N])
        square = alloc([N])
        scale = alloc([1])
        load(X[i, 0:N] -> x)
        load(W[0:N] -> w)
        mul(x, x, square)
        reduce_sum(square, 0, scale)
        div(scale, N, scale)
        add(scale, 1e-5, scale)
        rsqrt(scale, scale)
        mul(x, scale, x)
        mul(x, w, x)
        store(x -> Y[i, 0:N])
}
"""
LINEAR = """\
sketch linear_leaky {
    symbols: M, N, K;
    tensors: A[M, K]: in f32; B[K, N]: in f32; BIAS[N]: in f32; C[M, N]: out f32;
    constexpr: T in [16, 32], TK in [16, 32];

    @llm_hint("parallel", "grididx")
    for i in range(0, M, T):
        @llm_hint("parallel", "grididx")
        for j in range(0, N, T):
            c = alloc([T, T], f32, init=0)
            bias = alloc([T])
            for k in range(0, K, TK):
                a = alloc([T, TK])
                b = alloc([TK, T])
                load(A[i:i+T, k:k+TK] -> a)
                load(B[k:k+TK, j:j+T] -> b)
                gemm(a, b, c)
            load(BIAS[j:j+T] -> bias)
            add(c, bias, c)
            where(c >= 0, c, 0.01*c, c)
            store(c -> C[i:i+T, j:j+T])
}
"""
#: Somebody's C++, and what it is called with.
CLAMPED = """\
#include <cstdint>

extern "C" int64_t clamped(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        const float twice = 2.0f * x[i];
        y[i] = twice < 0.0f ? 0.0f : (twice > 6.0f ? 6.0f : twice);
    }
    return 0;
}
"""
CLAMP_SKETCH = """\
sketch clamped {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, T):
        x = alloc([T])
        load(X[i:i+T] -> x)
        mul(x, 2, x)
        clamp(x, x, low=0, high=6)
        store(x -> Y[i:i+T])
}
"""


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the kernels, a key for the server, and no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # what the command sets is set back
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    for file in KERNELS.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)


def migrate(server: LlmServer | None, file: str, old: str, new: str, *more: str) -> int:
    where = []
    if server is not None:
        where = ["--llm", "openai", "--base-url", server.base_url, "--model", "m"]
    always = ("--seed", "7", "-o", "out", "--no-store", "--no-bench")
    return run(["migrate", file, "--from", old, "--to", new, *where, *always, *more])


def said(sketch: str) -> str:
    return f"As I read it:\n\n```sketch\n{sketch}```\n"


def prompt(server: LlmServer, number: int) -> str:
    return str(server.requests[number].body["messages"][-1]["content"])


@pytest.mark.parametrize(
    ("file", "new", "more", "right", "part", "wrong", "alone"),
    [
        (
            "scaled_softmax.py", "triton_ascend", (),
            SOFTMAX, "1/temperature", "1*temperature", True,
        ),
        (
            "rms_norm.py", "cpp", ("--task", "rms_norm_task.py"),
            RMS_NORM, "div(scale, N, scale)\n", "sqrt(scale, scale)\n", False,
        ),
        (
            "linear_leaky.py", "cpp", ("--signature", "linear_leaky_signature.sketch"),
            LINEAR, "0.01*c", "0.1*c", True,
        ),
    ],
    ids=["softmax", "rms_norm", "linear"],
)  # fmt: skip
def test_a_wrong_reading_of_a_triton_kernel_is_refuted_and_mended(
    file: str, new: str, more: tuple[str, ...], right: str, part: str, wrong: str, alone: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    require("triton_cuda"), require(new)
    assert right.count(part) == 1
    script = [reply(said(right.replace(part, wrong))), reply(said(right))]
    with LlmServer(script) as server:
        status = migrate(server, file, "triton_cuda", new, *more)
    told = capsys.readouterr()
    assert status == 0, told.err
    assert "a model reads it" in told.err
    assert ("against the original alone: no task is known" in told.out) == alone
    # The model was shown the kernel, and then what its first sketch computes wrongly.
    asked, mended = prompt(server, 0), prompt(server, 1)
    assert Path(file).read_text() in asked
    assert "# The kernel that is migrated" in asked
    assert ("There is no other task" in asked) == alone
    assert "it does not compute what the task computes" in mended
    (designed, *_) = json.loads(Path("out/trace.json").read_text())["steps"]
    stages = [attempt["stage"] for attempt in designed["details"]["attempts"]]
    assert stages == ["meaning", "accepted"]
    stem = Path(file).stem
    assert Path(f"out/{stem}.sketch").read_text() == right
    verdict = json.loads(Path("out/verdict.json").read_text())["verdict"]
    assert (verdict["verdict"], verdict["target"]) == ("passed", new)


def test_a_reading_that_stays_wrong_passes_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    require("triton_cuda")
    wrong = LINEAR.replace("add(c, bias, c)", "sub(c, bias, c)")
    more = ("--signature", "linear_leaky_signature.sketch", "--max-attempts", "1")
    with LlmServer([reply(said(wrong))] * 3) as server:
        file = "linear_leaky.py"
        assert migrate(server, file, "triton_cuda", "cpp", *more, "--max-repairs", "1") == 1
        assert len(server.requests) == 2
        # The sizes tell the axes of a signature apart.
        assert "1. f32 tensor of shape [37, 11]\n2. f32 tensor of shape [11, 19]" in prompt(
            server, 0
        )
    assert "exhausted" in capsys.readouterr().out
    assert not list(Path("out").glob("*.cpp"))


def test_a_kernel_in_cpp_is_called_as_its_signature_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp"), require("cuda_c")
    Path("clamped.cpp").write_text(CLAMPED)
    Path("signature.sketch").write_text(
        CLAMP_SKETCH.replace("clamp(x, x, low=0, high=6)", "neg(x, x)")
    )
    wrong = CLAMP_SKETCH.replace("high=6", "high=5")
    with LlmServer([reply(said(wrong)), reply(said(CLAMP_SKETCH))]) as server:
        more = ("--signature", "signature.sketch")
        assert migrate(server, "clamped.cpp", "cpp", "cuda_c", *more) == 0
    assert "it does not compute what the task computes" in prompt(server, 1)
    assert "against the original alone" in capsys.readouterr().out
    # From now on the kernel holds its sketch, and nobody has to be asked.
    made = "out/clamped.cu"
    back = ["migrate", made, "--from", "cuda_c", "--to", "cpp", "-o", "back", "-q", "--no-store"]
    assert run(back) == 0


HEAD = "clamped(const float *x, float *y, int64_t n)"


@pytest.mark.parametrize(
    ("head", "tensors", "said"),
    [
        (HEAD, "X[N]: in f32; W[N]: in f32; Y[N]: out f32", "takes 3 arguments and is called with"),
        (HEAD, "X[N]: in f64; Y[N]: out f32", "float *x` is no place for X, a tensor of f64"),
        (HEAD, "Y[N]: out f32; X[N]: in f32", "no place for Y, which the kernel writes"),
        (HEAD.replace("int64_t n", "double n"), "X[N]: in f32; Y[N]: out f32", "passed as int64_t"),
        (
            "clamped(int64_t n, const float *x, float *y)", "X[N]: in f32; Y[N]: out f32",
            "`int64_t n` is no place for X, a tensor of f32",
        ),
    ],
)  # fmt: skip
def test_a_signature_that_the_function_does_not_have_is_refused_before_it_is_called(
    head: str, tensors: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    Path("clamped.cpp").write_text(CLAMPED.replace(HEAD, head))
    own = "X[N]: in f32; Y[N]: out f32"
    text = CLAMP_SKETCH.replace(own, tensors)
    if "W" in tensors:  # what is declared is to be read
        text = text.replace("load(X", "w = alloc([T])\n        load(W[i:i+T] -> w)\n        load(X")
    Path("signature.sketch").write_text(text)
    more = ("--signature", "signature.sketch", "--llm", "mailbox:box")
    assert migrate(None, "clamped.cpp", "cpp", "cuda_c", *more) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "in the order of the kernel's arguments" in told
    assert not Path("box").exists()


@pytest.mark.parametrize(
    "head",
    [
        "clamped(float x[], float *__restrict__ y, long n /* its length, in floats */)",
        "clamped(const real *x, real *y, int n)",
    ],
)
def test_a_function_that_spells_its_arguments_otherwise_is_called(head: str) -> None:
    require("cpp"), require("cuda_c")
    text = CLAMPED.replace(HEAD, head).replace('extern "C"', 'using real = float;\nextern "C"', 1)
    Path("clamped.cpp").write_text(text)
    Path("signature.sketch").write_text(CLAMP_SKETCH)
    with LlmServer([reply(said(CLAMP_SKETCH))]) as server:
        more = ("--signature", "signature.sketch")
        assert migrate(server, "clamped.cpp", "cpp", "cuda_c", *more) == 0


def test_a_run_that_the_endpoint_stopped_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp"), require("cuda_c")
    Path("clamped.cpp").write_text(CLAMPED)
    Path("signature.sketch").write_text(CLAMP_SKETCH)
    more = ("--signature", "signature.sketch")
    with LlmServer([unauthorized()]) as server:
        assert migrate(server, "clamped.cpp", "cpp", "cuda_c", *more) == 3
    with LlmServer([reply(said(CLAMP_SKETCH))]) as server:
        assert migrate(server, "clamped.cpp", "cpp", "cuda_c", *more, "--resume") == 0
    Path("clamped.cpp").write_text(CLAMPED.replace("6.0f", "7.0f"))
    with LlmServer([]) as server:
        assert migrate(server, "clamped.cpp", "cpp", "cuda_c", *more, "--resume") == 2
    told = capsys.readouterr().err
    assert "the task file is not the one that the run in out was started with" in told


@pytest.mark.parametrize(
    ("file", "text", "more", "hint"),
    [
        ("bare.py", "", (), "nothing says what the argument `x` of linear_leaky is"),
        ("bare.cpp", CLAMPED, (), "add --task TASK.py, or --signature X.sketch"),
    ],
)
def test_without_a_task_something_must_say_what_it_is_called_with(
    file: str, text: str, more: tuple[str, ...], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(text or Path("linear_leaky.py").read_text().replace("a, b, bias)", "x)"))
    old = "cpp" if file.endswith("cpp") else "triton_cuda"
    assert migrate(None, file, old, "cuda_c", "--llm", "mailbox:box", *more) == 2
    told = capsys.readouterr().err
    assert f"nothing says what the kernel is called with: {'add --task'}" in told
    assert hint in told


def test_an_original_that_breaks_is_a_broken_task(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    Path("clamped.cpp").write_text(CLAMPED.replace("6.0f : twice", "6.0f : once"))
    Path("signature.sketch").write_text(CLAMP_SKETCH)
    more = ("--signature", "signature.sketch", "--llm", "mailbox:box", "--json")
    assert migrate(None, "clamped.cpp", "cpp", "cuda_c", *more) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["error"]["class"] == "task"
    assert "clamped.cpp does not compile" in told.err
