"""`sketchc verify` of kernels that we did not write, through the command line: C++ and Triton.

Each command verifies many files: loading a task costs more than most kernels do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from toolchains import require
from verified_files import TASK, edited, judge, write

from sketchc.cli import main

CPP = """#include <cmath>
#include <cstdint>

static float twice(float v) { return 2.0f * v; }

extern "C" int64_t biased(const float *X, const float *BIAS, float *Y, int64_t M, int64_t N)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            Y[i * N + j] = twice(std::fmax(X[i * N + j] + BIAS[j], 0.0f));
        }
    }
    return 0;
}
"""

TRITON = '''import torch
import triton
import triton.language as tl


@triton.jit
def biased_kernel(X, BIAS, Y, N, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, COLUMNS)
    mask = lanes < N
    x = tl.load(X + row * N + lanes, mask=mask)
    bias = tl.load(BIAS + lanes, mask=mask)
    tl.store(Y + row * N + lanes, tl.maximum(x + bias, 0.0) * 2.0, mask=mask)


def biased(X, BIAS, *, out=None):
    """relu(X + BIAS) * 2."""
    Y = torch.empty_like(X) if out is None else out
    rows, columns = X.shape
    biased_kernel[(rows,)](X, BIAS, Y, columns, COLUMNS=triton.next_power_of_2(columns))
    return Y
'''


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "layer.py"
    path.write_text(TASK)
    return path


def test_cpp_kernels(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    late = "j < N; ++j"
    helper = 'extern "C" int64_t other(int64_t n) { return n; }\n'
    sources = {
        "right.cpp": CPP,
        "two_entries.cc": CPP + helper,
        "last_column.cpp": edited(CPP, (late, "j + (N > 16) < N; ++j")),
        "past_the_end.cpp": edited(CPP, ("i < M", "i <= M")),
        "double.cpp": edited(CPP, ("float *Y", "double *Y")),
        "too_many.cpp": edited(
            CPP, ("float *Y, ", "float *Y, const float *Z, "), ("+ BIAS[j]", "+ BIAS[j] + Z[j]")
        ),
        "swapped.cpp": edited(CPP, ("int64_t M, int64_t N", "int64_t N, int64_t M")),
    }
    # What the text does not show, the library does.
    shell = 'extern "C" int wordexp(const char *, void *, int);\n'
    sources["shell.cpp"] = edited(
        CPP, ("static", f"{shell}static"), ("return 0;", 'return wordexp("$(true)", nullptr, 0);')
    )
    table = "float filled();\nstatic float two = filled();\nfloat filled() { return twice(1); }\n"
    sources["early.cpp"] = edited(
        CPP, ('extern "C"', f'{table}extern "C"'), ("2.0f * v", "static_cast<volatile float &>(v)")
    )
    files = write(tmp_path, sources)
    status, verdicts = judge(capsys, files, task, "cpp", "--entry", "biased", "--seed", "3")
    failures = {name: verdict["failure"] for name, verdict in verdicts.items()}
    assert status == 1
    assert failures == {
        "right.cpp": "",
        "two_entries.cc": "",
        "last_column.cpp": "numerical",
        "past_the_end.cpp": "illegal_access",
        "double.cpp": "illegal_access",
        "too_many.cpp": "illegal_access",
        "swapped.cpp": failures["swapped.cpp"],
        "shell.cpp": "policy",
        "early.cpp": "policy",
    }
    assert "`wordexp`" in verdicts["shell.cpp"]["cases"][0]["reason"]
    assert "runs by itself" in verdicts["early.cpp"]["cases"][0]["reason"]
    assert failures["swapped.cpp"] in ("numerical", "illegal_access")
    right = verdicts["right.cpp"]
    assert right["passed"]
    assert right["kernel"] == {"path": files[0], "entry": "biased", "foreign": True}
    ragged = {tuple(case["shape"]["symbols"].values()) for case in right["cases"]}
    assert {(1, 1), (70, 33)} < ragged
    assert len(ragged) >= 5
    wrong = next(case for case in verdicts["last_column.cpp"]["cases"] if case["failure"])
    assert wrong["shape"]["symbols"]["N"] > 16


def test_entry_points(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    others = CPP + 'extern "C" int64_t other(int64_t n) { return n; }\n'
    files = write(tmp_path, {"two.cpp": others})
    common = ["--task", str(task), "--target", "cpp"]
    assert main.run(["verify", *files, *common]) == 2
    assert "biased, other" in capsys.readouterr().err
    status, verdicts = judge(capsys, files, task, "cpp", "--entry", "absent")
    assert (status, verdicts["two.cpp"]["failure"]) == (1, "api_misuse")
    assert "no function `absent`" in verdicts["two.cpp"]["cases"][0]["reason"]
    # The signature that is printed is one that compiles and is called right.
    assert main.run(["verify", *common, "--print-signature"]) == 0
    head = capsys.readouterr().out.split("\n")[0]
    assert "*X" in head
    body = CPP[CPP.index("{\n    #pragma") :]
    written = CPP[: CPP.index('extern "C"')] + head + "\n" + body
    status, verdicts = judge(capsys, write(tmp_path, {"made.cxx": written}), task, "cpp")
    assert status == 0
    assert verdicts["made.cxx"]["passed"]


def test_files_that_do_not_fit(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write(tmp_path, {"a.cpp": CPP, "b.py": TRITON})
    (tmp_path / "folder.cpp").mkdir()
    for arguments, said in (
        ([files[0], "--target", "triton_cuda"], "is C++"),
        ([files[1], "--target", "cpp"], "is Python"),
        ([str(tmp_path / "absent.cpp"), "--target", "cpp"], "cannot read the kernel"),
        ([str(tmp_path / "folder.cpp"), "--target", "cpp"], "cannot read the kernel"),
        ([files[0], "--target", "toaster"], "unknown target 'toaster'"),
        (["--target", "cpp"], "say which FILE"),
        (["x.sketch", "--entry", "biased", "--target", "cpp"], "is a sketch"),
        ([files[0], "--target", "cpp", "--sketch", "biased"], "--signature"),
    ):
        assert main.run(["verify", *arguments, "--task", str(task)]) == 2
        found = capsys.readouterr()
        assert said in found.err
        assert "Traceback" not in found.err + found.out


SIGNATURE = """sketch biased {
    symbols: M, N;
    tensors: X[M, N]: in f32; BIAS[N]: in f32; Y[M, N]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        bias = alloc([N])
        load(X[i, 0:N] -> x)
        load(BIAS[0:N] -> bias)
        add(x, bias, x)
        relu(x, x)
        mul(x, 2.0, x)
        store(x -> Y[i, 0:N])
}
"""


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_a_function_that_does_not_fit_the_signature_is_refused(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Before it is called: it would read and write anywhere."""
    require("cpp")
    signature = tmp_path / "x.sketch"
    signature.write_text(SIGNATURE)
    arguments = ["--task", str(task), "--target", "cpp", "--signature", str(signature)]
    for name, old, new, said in (
        ("less.cpp", ", int64_t N)", ")", "it takes 4 arguments and is called with 5"),
        ("double.cpp", "const float *BIAS", "const double *BIAS", "no place for BIAS"),
        ("const.cpp", "float *Y", "const float *Y", "no place for Y, which the kernel writes"),
    ):
        (file,) = write(tmp_path, {name: edited(CPP, (old, new))})
        assert main.run([command, file, *arguments, "--no-store"]) == 2
        assert said in capsys.readouterr().err
    if command == "verify":
        (file,) = write(tmp_path, {"right.cpp": CPP})
        assert main.run([command, file, *arguments, "--no-store"]) == 0


def test_what_is_no_kernel_gets_a_verdict(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Garbage, halves, and files without the function or the class: they fail, and are counted."""
    require("cpp")
    sources = {
        "right.cpp": CPP,
        "garbage.cpp": "this is not C++ {{{ ;\n",
        "half.cpp": CPP[: CPP.index("float *Y") + 5],
        "empty.cpp": "",
        "static.cpp": edited(CPP, ('extern "C" ', "static ")),
        "torn.py": "class ModelNew(\n",
        "prose.py": "Here is the kernel you asked for:\n",
        "empty.py": "",
        "other_class.py": "from torch import nn\n\n\nclass Model(nn.Module):\n    pass\n",
    }
    files = write(tmp_path, sources)
    for name in ("bytes.cpp", "bytes.py"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 4)
        files.append(str(tmp_path / name))
    store = ["--store", str(tmp_path / "store.sqlite")]
    status, verdicts = judge(capsys, files, task, "cpp", *store)
    syntax = ("garbage.cpp", "half.cpp", "torn.py", "prose.py", "bytes.cpp", "bytes.py")
    missing = ("empty.cpp", "static.cpp", "empty.py", "other_class.py")
    expected = {"right.cpp": ""} | dict.fromkeys(syntax, "syntax")
    assert status == 1
    assert {name: verdict["failure"] for name, verdict in verdicts.items()} == (
        expected | dict.fromkeys(missing, "api_misuse")
    )
    assert "ModelNew" in verdicts["other_class.py"]["cases"][0]["reason"]
    assert "not UTF-8" in verdicts["bytes.py"]["cases"][0]["reason"]
    assert main.run(["store", "list", "verdicts", "--json", *store]) == 0
    kept = [row["failure"] for row in json.loads(capsys.readouterr().out)]
    assert (kept.count("syntax"), kept.count("api_misuse")) == (len(syntax), len(missing))
    # One alone is a verdict as well, for people too.
    alone = ["verify", str(tmp_path / "garbage.cpp"), "--task", str(task), "--target", "cpp"]
    assert main.run(alone) == 1
    assert "failed (syntax: " in capsys.readouterr().out


def test_what_is_no_wrapper_gets_a_verdict(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("triton_cuda")
    sources = {"torn.py": "class ModelNew(\n", "empty.py": "", "constant.py": "biased = 3\n"}
    files = write(tmp_path, sources)
    status, verdicts = judge(capsys, files, task, "triton_cuda")
    failures = {name: verdict["failure"] for name, verdict in verdicts.items()}
    assert status == 1
    assert failures == {
        "torn.py": "syntax",
        "empty.py": "api_misuse",
        "constant.py": "api_misuse",
    }


def test_several_files_end_in_a_table(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    wrong = edited(CPP, ("return 2.0f * v", "return 2.1f * v"))
    files = write(tmp_path, {"a.cpp": CPP, "b.cpp": wrong, "c.cpp": "long nothing;"})
    assert main.run(["verify", *files, "--task", str(task), "--target", "cpp"]) == 1
    shown = capsys.readouterr()
    assert "1 of 3 passed" in shown.out
    summary = shown.out[shown.out.index("\nfile ") :]
    rows = {line.split()[0]: line.split()[2:] for line in summary.splitlines() if ".cpp " in line}
    assert rows[files[0]] == ["passed"]
    assert rows[files[1]][0] == "numerical:"
    assert "wrong" in rows[files[1]]
    assert rows[files[2]][0] == "api_misuse:"
    assert "no function `layer`" in shown.out


def test_kernels_are_not_taken_for_modules(tmp_path: Path, task: Path) -> None:
    """A kernel in the current folder that is called as a module of Python runs in workers alone."""
    require("cpp")
    spy = f"open({str(tmp_path / 'seen')!r}, 'w').close()\n\n\ndef wrapper(X):\n    return X\n"
    write(tmp_path, {"subprocess.py": spy, "torch.py": spy, "numpy.py": spy, "right.cpp": CPP})
    files = ["subprocess.py", "right.cpp", "--task", str(task), "--target", "cpp", "--no-store"]
    command = [sys.executable, "-P", "-m", "sketchc.cli.main", "verify", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "1 of 2 passed" in done.stdout
    assert "is Python" in done.stderr
    assert not (tmp_path / "seen").exists()


def test_triton_wrappers(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("triton_cuda")
    line = TRITON.index("    biased_kernel[")
    launch = TRITON[line : TRITON.index("    return Y")]
    sources = {
        "right.py": TRITON,
        "torch_does_it.py": edited(TRITON, (launch, "    torch.add(X, BIAS, out=Y)\n")),
        "half_the_columns.py": edited(TRITON, ("lanes < N", "lanes < (N + 1) // 2")),
        "wrong_type.py": edited(TRITON, ("return Y", "return Y.half()")),
    }
    status, verdicts = judge(capsys, write(tmp_path, sources), task, "triton_cuda")
    assert status == 1
    assert {name: verdict["failure"] for name, verdict in verdicts.items()} == {
        "right.py": "",
        "torch_does_it.py": "policy",
        "half_the_columns.py": "numerical",
        "wrong_type.py": "wrong_shape",
    }
