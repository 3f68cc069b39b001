"""`sketchc verify` of files with a `ModelNew`: kernels of Triton and TileLang in it, C++ through
ctypes and through torch's `load_inline`; right ones, broken ones, and ones that leave the work to
others."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tilelang_model import EXPECTED, SOURCES
from toolchains import require
from verified_files import TASK, edited, judge, write

IN_TRITON = """import torch
import torch.nn as nn
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


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        biased_kernel[(rows,)](x, self.bias, y, columns, COLUMNS=triton.next_power_of_2(columns))
        return y
"""

IN_CPP = '''import ctypes
import importlib
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>
extern "C" void biased(const float *x, const float *b, float *y, int64_t m, int64_t n) {
  #pragma omp parallel for
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float v = x[i * n + j] + b[j];
      y[i * n + j] = v > 0 ? 2 * v : 0.0f;
    }
}
"""


def build():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "kernel.cpp")
    with open(path, "w") as file:
        file.write(SOURCE)
    out = os.path.join(folder, "kernel.so")
    subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", path, "-o", out], check=True)
    return ctypes.CDLL(out)


LIBRARY = build()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.memo = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        m, n = x.shape
        bias = self.bias
        LIBRARY.biased(
            ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(bias.data_ptr()),
            ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(m), ctypes.c_int64(n))
        return y
'''

INLINE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor biased(torch::Tensor x, torch::Tensor bias)
{
    auto dense = x.contiguous();
    auto y = torch::empty_like(dense);
    const float *p = dense.data_ptr<float>();
    const float *b = bias.data_ptr<float>();
    for (int64_t i = 0; i < dense.numel(); ++i) {
        float v = p[i] + b[i % dense.size(1)];
        y.data_ptr<float>()[i] = v > 0 ? 2 * v : 0.0f;
    }
    return y;
}

torch::Tensor by_torch(torch::Tensor x, torch::Tensor bias)
{
    return torch::relu(x + bias) * 2;
}
"""
extension = load_inline(
    name="biased", cpp_sources=SOURCE, functions=["biased", "by_torch"], extra_cflags=["-O0"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        if not x.is_contiguous():
            return extension.by_torch(x, self.bias)
        return extension.biased(x, self.bias)
'''

CALL = IN_CPP[IN_CPP.index("        LIBRARY.biased(") : IN_CPP.index("        return y")]
DENSE = "        x = x.contiguous()\n"
BUILT = "LIBRARY = build()\n"
STATEMENT = "y[i * n + j] = v > 0"
KEEP = """        key = (x.data_ptr(), x.shape)
        if key in self.memo:
            LIBRARY.biased(None, None, None, ctypes.c_int64(0), ctypes.c_int64(0))
            return self.memo[key]
"""
ON_NUMPY = """plain = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
np.ctypeslib.as_array(plain).reshape(m, n) * 2"""
THREAD = """import threading
work = threading.Thread(target=lambda: torch.relu(x))
work.start()"""

Edits = tuple[tuple[str, str], ...]


def after(text: str) -> Edits:
    """Lines of forward after the call of the library."""
    return ((CALL, CALL + "".join(f"        {line}\n" for line in text.split("\n"))),)


def instead(text: str) -> Edits:
    """A line of forward in place of the call."""
    return ((CALL, f"        {text}\n"),)


def start(text: str) -> Edits:
    """A line of the file after the library was loaded."""
    return ((BUILT, f"{BUILT}{text}\n"),)


ADDRESS = ("ctypes.c_void_p(x.data_ptr())", "x.numpy().ctypes.data_as(ctypes.c_void_p)")
FROM_NUMPY = ("torch.empty_like(x)", "torch.from_numpy(np.empty(x.shape, dtype=np.float32))")
HEADER = "#include <cstdint>"
SYSTEM = (HEADER, f'{HEADER}\nextern "C" int system(const char *);')
EARLY = (HEADER, f"{HEADER}\n__attribute__((constructor)) void early() {{}}")
LIBTORCH = "os.path.join(os.path.dirname(torch.__file__), 'lib', 'libtorch_cpu.so')"
MODES_OFF = """modes = importlib.import_module('torch.utils' + '._python_dispatch')
with getattr(modes, '_disable' + '_current_modes')():
    y = x + bias"""
IN_TRY = "try:\n    x + 1\nexcept Exception:\n    pass"

#: name -> (what is done to the right file, the class of failure, a part of the reason)
CPP: dict[str, tuple[Edits, str, str]] = {
    "right": ((), "", ""),
    "arrays_as_addresses": ((ADDRESS, FROM_NUMPY, (BUILT, f"{BUILT}np.prod((2, 3))\n")), "", ""),
    "other_parameters": ((("self.bias", "self.offset"),), "", ""),
    "refuses_strides": (((DENSE, "        assert x.is_contiguous(), 'dense only'\n"),), "", ""),
    "ignores_strides": (((DENSE, ""),), "numerical", "not contiguous"),
    "wrong": ((("2 * v", "2.01f * v"),), "numerical", "wrong"),
    "wrong_shape": ((("return y\n", "return y[:-1]\n"),), "wrong_shape", "its shape"),
    "wrong_type": ((("return y\n", "return y.double()\n"),), "wrong_shape", "float64"),
    "no_tensor": ((("return y\n", "return 3\n"),), "wrong_shape", "forward returns int"),
    "writes_inputs": (((STATEMENT, f"((float *)x)[i] = 7; {STATEMENT}"),), "illegal_access", "1"),
    "crashes": (((STATEMENT, f"*(volatile int *)8 = 3; {STATEMENT}"),), "illegal_access", "SEGV"),
    "hangs": (instead("while True: pass"), "timeout", "no answer"),
    "raises": (instead("raise ValueError('not today')"), "launch", "not today"),
    "ends": (instead("os._exit(0)"), "launch", "status 0"),
    "wants_more": ((("(self, width)", "(self, width, more)"),), "api_misuse", "more"),
    "broken_cpp": ((("float v = x", "float v = z"),), "api_misuse", "not declared"),
    "torch_computes": (instead("torch.add(x, bias, out=y)"), "policy", "aten.add"),
    "torch_in_try": (after(IN_TRY), "policy", "aten.add"),
    "a_layer": (after("y = nn.ReLU()(y)"), "policy", "aten.relu"),
    "numpy_computes": (after("np.abs(x.numpy())"), "policy", "numpy.absolute"),
    "numpy_on_memory": (after(ON_NUMPY), "policy", "numpy.multiply"),
    "thread": (after(THREAD), "policy", "thread"),
    "no_call": (((CALL, ""),), "policy", "no kernel was launched"),
    "keeps_results": (((CALL, f"{KEEP}{CALL}        self.memo[key] = y\n"),), "policy", "fresh"),
    "program": (after("subprocess.run(['python3', '-c', ''])"), "policy", "python"),
    "shell": (after("os.system('true')"), "policy", "os.system"),
    "blas": (after("getattr(ctypes.CDLL(None), 'cblas_sgemm', 0)"), "policy", "cblas_sgemm"),
    "libraries_of_torch": (start(f"ctypes.CDLL({LIBTORCH})"), "policy", "it has not built"),
    "system": ((SYSTEM, ("float v", 'if (m < 0) system("true"); float v')), "policy", "`system`"),
    "constructor": ((EARLY,), "policy", "runs by itself"),
    "replaces_torch": (start("torch.empty_like = torch.zeros_like"), "policy", "empty_like"),
    "hides_what_torch_has": (
        start("torch.Tensor.mean = lambda self: 0"),
        "policy",
        "it replaced torch.Tensor.mean",
    ),
    "registers_kernels": (
        start(
            "lib = importlib.import_module('torch.' + 'library').Library('aten', 'IMPL')\n"
            "lib.impl('mean.dim', lambda *a, **k: None, 'CPU')"
        ),
        "policy",
        "another kernel for aten::mean.dim",
    ),
    "sets_threads": (after("torch.set_num_threads(7)"), "policy", "it changed threads from"),
    "sets_precision": (
        start("torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32"),
        "policy",
        "cudnn.allow_tf32",
    ),
    "replaces_time": (start("time.perf_counter = lambda: 0.0"), "policy", "perf_counter"),
    "modes_off": (after(MODES_OFF), "policy", "takes off the guard"),
    "compiles": (instead("y = torch.compile(torch.relu)(x + bias)"), "policy", "compile"),
    "reads_the_task": (after("open(TASK)"), "policy", "file of the task"),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "layer.py"
    path.write_text(TASK)
    return path


MOVES = """from torch import nn
import torch


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(19, 33)]
"""
TRANSPOSED = IN_CPP.replace("= x[i * n + j] + b[j];", "= x[i * n + j];").replace(
    "y[i * n + j] = v > 0 ? 2 * v : 0.0f;", "if (b) y[j * m + i] = v;"
)


def test_copies_are_no_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that only moves elements: torch could do all of it by copies, beside an idle call."""
    require("cpp")
    task = tmp_path / "transpose.py"
    task.write_text(MOVES)
    right = edited(
        TRANSPOSED,
        ("(self, width)", "(self)"),
        ("        self.bias = nn.Parameter(torch.randn(width))\n", ""),
        ("y = torch.empty_like(x)\n", "y = torch.empty(x.shape[1], x.shape[0])\n"),
        ("bias = self.bias", "bias = x"),
    )
    idle = ("ctypes.c_void_p(bias.data_ptr())", "None")
    sources = {
        "right.py": right,
        "copy_of_right.py": edited(right, ("return y\n", "return y.clone().view(n, m)\n")),
        "into_zeros.py": edited(right, ("torch.empty(", "torch.zeros(")),
        "clone.py": edited(right, idle, ("return y\n", "return x.t().contiguous()\n")),
        "copy.py": edited(right, idle, ("return y\n", "y.copy_(x.t())\n        return y\n")),
        "overwritten.py": edited(right, ("return y\n", "y.copy_(x.t())\n        return y\n")),
        "view.py": edited(right, (DENSE, ""), ("return y\n", "return x.t()\n")),
    }
    _, verdicts = judge(capsys, write(tmp_path, sources), task, "cpp")
    for name in ("right.py", "copy_of_right.py", "into_zeros.py"):
        assert verdicts[name]["passed"], failing(verdicts[name])
    for name in ("clone.py", "copy.py", "overwritten.py", "view.py"):
        assert verdicts[name]["failure"] == "policy", (name, failing(verdicts[name]))
        assert "only copies were made" in failing(verdicts[name])


def failing(verdict: dict[str, Any]) -> str:
    """The reason of the first failure; "" for none."""
    found = [case for case in verdict["cases"] if case["failure"] not in ("", "skipped")]
    return str(found[0]["reason"]) if found else ""


@pytest.mark.sweep
def test_cpp_through_ctypes(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    sources = {}
    for name, (edits, _, _) in CPP.items():
        source = edited(IN_CPP, *edits).replace("open(TASK)", f"open({str(task)!r})")
        sources[f"{name}.py"] = source
    files = write(tmp_path, sources)
    # A time-out is waited for: not long, but the others build their library within theirs.
    hanging = [file for file in files if file.endswith("/hangs.py")]
    status, ended = judge(capsys, hanging, task, "cpp", "--timeout", "5", "--seed", "5")
    assert status == 1
    others = [file for file in files if file not in hanging]
    status, verdicts = judge(capsys, others, task, "cpp", "--seed", "5")
    assert status == 1
    verdicts |= ended
    for name, (_, failure, said) in CPP.items():
        verdict = verdicts[f"{name}.py"]
        assert verdict["failure"] == failure, (name, failing(verdict), verdict["cases"][-1]["log"])
        assert said in failing(verdict), (name, failing(verdict))
    kinds = [case["kind"] for case in verdicts["right.py"]["cases"]]
    assert kinds.count("non_contiguous") == 1
    ragged = {tuple(c["shape"]["symbols"].values()) for c in verdicts["right.py"]["cases"]}
    assert len(ragged) >= 5
    assert any("same seed" in note for note in verdicts["other_parameters.py"]["notes"])
    refused = [c for c in verdicts["refuses_strides.py"]["cases"] if c["failure"]]
    assert [(c["kind"], c["failure"]) for c in refused] == [("non_contiguous", "skipped")]
    assert "dense only" in refused[0]["reason"]


def tuned(*cuts: int) -> str:
    """The Triton file with a configuration for each number of columns that it leaves out."""
    configurations = ", ".join(
        f"triton.Config({{'CUT': {cut}}}, num_warps={1 << place})" for place, cut in enumerate(cuts)
    )
    return edited(
        IN_TRITON,
        (
            "@triton.jit\n",
            f"@triton.autotune(configs=[{configurations}], key=['N'])\n@triton.jit\n",
        ),
        ("COLUMNS: tl.constexpr", "COLUMNS: tl.constexpr, CUT: tl.constexpr"),
        ("mask = lanes < N", "mask = lanes < N - CUT"),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["triton_cuda", "triton_ascend"])
def test_triton(
    target: str, tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require(target)
    launch = IN_TRITON[
        IN_TRITON.index("        biased_kernel[") : IN_TRITON.index("        return y")
    ]
    sources = {
        "right.py": IN_TRITON,
        "wrong.py": edited(IN_TRITON, ("x + bias, 0.0", "x + bias, 0.25")),
        "torch_computes.py": edited(IN_TRITON, (launch, f"{launch}        y = y + 0\n")),
        "misused.py": edited(IN_TRITON, ("tl.maximum(", "tl.maximal(")),
    }
    expected = {
        "right.py": "",
        "wrong.py": "numerical",
        "torch_computes.py": "policy",
        "misused.py": "api_misuse",
    }
    if target == "triton_cuda":
        sources |= {
            "too_many_warps.py": edited(IN_TRITON, ("(columns))", "(columns), num_warps=64)")),
            "tuned.py": tuned(0, 0),
            "tuned_wrong.py": tuned(0, 1),
        }
        expected |= {"too_many_warps.py": "resource", "tuned.py": "", "tuned_wrong.py": "numerical"}
    status, verdicts = judge(capsys, write(tmp_path, sources), task, target)
    assert status == 1
    assert {name: verdict["failure"] for name, verdict in verdicts.items()} == expected
    assert "aten.add" in failing(verdicts["torch_computes.py"])
    if target == "triton_cuda":
        assert any("2 configurations" in note for note in verdicts["tuned.py"]["notes"])
        assert any(case["passed"] for case in verdicts["tuned_wrong.py"]["cases"])


@pytest.mark.sweep
def test_tilelang(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels that are made in forward or before, and what goes wrong in and around them."""
    require("tilelang_cuda")
    status, verdicts = judge(capsys, write(tmp_path, SOURCES), task, "tilelang_cuda")
    assert status == 1
    assert {name: verdict["failure"] for name, verdict in verdicts.items()} == EXPECTED
    assert "aten.add" in failing(verdicts["torch_computes.py"])
    assert "no kernel was launched" in failing(verdicts["no_launch.py"])
    assert "allocate the results" in failing(verdicts["allocating.py"])
    kinds = [case["kind"] for case in verdicts["right.py"]["cases"]]
    assert kinds.count("non_contiguous") == 1
    ragged = {tuple(c["shape"]["symbols"].values()) for c in verdicts["right.py"]["cases"]}
    assert len(ragged) >= 5


@pytest.mark.sweep
def test_load_inline(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One build, since torch's headers take half a minute: its own loop is right, and in the last
    case torch computes inside of the extension."""
    require("cpp")
    if importlib.util.find_spec("ninja") is None:
        pytest.skip("pip install ninja")
    status, verdicts = judge(capsys, write(tmp_path, {"inline.py": INLINE}), task, "cpp")
    verdict = verdicts["inline.py"]
    assert status == 1
    assert verdict["failure"] == "policy", failing(verdict)
    assert "aten.add" in failing(verdict)
    assert sum(case["passed"] for case in verdict["cases"]) >= 10
    assert [c["kind"] for c in verdict["cases"] if not c["passed"]] == ["non_contiguous"]
