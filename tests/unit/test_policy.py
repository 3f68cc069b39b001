"""What a foreign kernel's text may say, and what its wrapper may do while it runs."""

from __future__ import annotations

import contextlib
import re
from importlib.resources import files

import attrs
import pytest
from example_targets import EXAMPLES, LOWERED
from foreign_kernels import CPP, TRITON, candidate, edited

from sketchc.api.sketches import load_sketch
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.runtime.verify.kernel_file import explanation, inspect_kernel, refusal_of


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "target"), LOWERED)
def test_the_built_in_coder_breaks_no_rule(name: str, target: str) -> None:
    plan = build_plan(load_sketch(str(EXAMPLES / f"{name}.sketch"))[1], target).plan
    findings = inspect_kernel(load_target(target).emit(plan))
    assert findings == ()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("import os", "os"),
        ("import numpy as np", "numpy"),
        ("from ctypes import CDLL", "ctypes"),
        ("from torch.utils.cpp_extension import load_inline", "cpp_extension"),
        ("import torch._inductor", "_inductor"),
        ("from triton.runtime import driver", "runtime"),
        ("fast = torch.compile(torch.softmax)", "compile"),
        ("data = open('answers').read()", "open"),
        ("exec('1')", "exec"),
        ("frame = (lambda: 0).__globals__", "__globals__"),
        ("host = lambda t: t.numpy()", "numpy"),
        ("torch._C._jit_set_profiling_mode(False)", "_C"),
    ],
)
def test_ways_out_of_the_process_are_refused(line: str, word: str) -> None:
    source = edited("triton_cuda", ("import triton\n", f"import triton\n{line}\n"))
    refused = refusal_of(inspect_kernel(candidate("triton_cuda", source).kernel))
    assert word in refused
    assert "line " in refused


@pytest.mark.parametrize(
    "line",
    [
        "import math",
        "from typing import Any",
        "from triton.language.extra import libdevice",
        "import torch.nn.functional as F",
        "from functools import lru_cache",
    ],
)
def test_what_a_kernel_may_import(line: str) -> None:
    source = edited("triton_cuda", ("import triton\n", f"import triton\n{line}\n"))
    assert refusal_of(inspect_kernel(candidate("triton_cuda", source).kernel)) == ""


@pytest.mark.parametrize(
    "line",
    [
        "#include <fstream>",
        '#include "/etc/passwd"',
        "# include <unistd.h>",
        "%:include <sys/mman.h>",
        'asm volatile("nop");',
        'extern "C" int system(const char *);',
        '__asm__(".incbin \\"answers\\"");',
        "#include HEADER",
        "#inc\\\nlude <filesystem>",
        "#define CALL(a, b) a##b",
        "#define CALL(a, b) a%:%:b",
        'extern "C" int execveat();',
        'extern "C" int open64(const char *, int);',
    ],
)
def test_what_no_cpp_kernel_needs(line: str) -> None:
    kernel = candidate("cpp", f"{line}\n{CPP}").kernel
    assert refusal_of(inspect_kernel(kernel))


def test_all_assembly_of_the_library_is_accepted() -> None:
    for piece in files("sketchc.lowering.cuda_c").joinpath("library").iterdir():
        if piece.name.endswith(".hpp"):
            # The pieces are joined when a kernel is written.
            text = re.sub(r'#include "\w+\.hpp"', "", piece.read_text("utf-8"))
            assert refusal_of(inspect_kernel(candidate("cuda_c", text).kernel)) == "", piece.name


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ('asm volatile("cp.async.commit_group;" ::: "memory");', True),
        (
            'asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1}, {%2}, {%3}, {%4};"',
            True,
        ),
        (
            'asm volatile("ldmatrix.sync.aligned.m8n8.shared.b16 {%0}, [%1];" : "=r"(a));',
            True,
        ),
        # Labels, assignments, other instructions: what a host's assembler could take.
        ('asm volatile("cp.async.here: syscall");', False),
        ('asm volatile("cp.async.here = 5; syscall");', False),
        ('asm volatile("mov.u32 %0, %1;");', False),
        ('asm volatile("mma.synchronous;");', False),
        ('asm("mma.sync.x {%0};" : "=r"(a)); asm("syscall");', False),
    ],
)
def test_assembly_of_the_device_alone(line: str, accepted: bool) -> None:
    kernel = candidate("cuda_c", line).kernel
    assert (refusal_of(inspect_kernel(kernel)) == "") is accepted
    assert refusal_of(inspect_kernel(candidate("cpp", f"{line}\n{CPP}").kernel))


@pytest.mark.parametrize(
    "line", ['__as??/\nm__("syscall");', "#define P(a, b) a%:%:b", '%:include "/etc/passwd"']
)
def test_spellings_that_only_c99_reads(line: str) -> None:
    kernel = attrs.evolve(candidate("cpp", line).kernel, target="opencl", language="opencl")
    assert refusal_of(inspect_kernel(kernel))


def test_words_in_comments_mean_nothing() -> None:
    kernel = candidate("cpp", f"// system(1), asm\n/* #include <fstream>\n*/\n{CPP}").kernel
    assert inspect_kernel(kernel) == ()


def test_suspicious_code_is_explained_and_not_refused() -> None:
    launch = "    twice_kernel[(triton.cdiv(N, 64),)](X, Y, N, BLOCK=64)\n"
    caught = f"    try:\n    {launch}    except Exception:\n        Y = torch.add(X, X)\n"
    findings = inspect_kernel(
        candidate("triton_cuda", edited("triton_cuda", (launch, caught))).kernel
    )
    assert refusal_of(findings) == ""
    assert "a launch stands inside of try" in explanation(findings)
    assert "torch.add" in explanation(findings)


# ---------------------------------------------------------------- the watch


torch = pytest.importorskip("torch")


def watch() -> object:
    from sketchc.runtime.guards.wrapper_guard import Watch

    return Watch()


@pytest.mark.parametrize(
    "work",
    [
        lambda x: torch.empty_like(x),
        lambda x: torch.empty((3, 4), dtype=torch.float16, device=x.device),
        lambda x: x.contiguous(),
        lambda x: x.t().contiguous(),
        lambda x: x.view(-1),
        lambda x: x.reshape(2, 6),
        lambda x: x[1:, ::2],
        lambda x: x.unsqueeze(0).expand(2, 3, 4),
        lambda x: x.permute(1, 0).clone(),
        lambda x: x.to(torch.float64),
        lambda x: x.half().float(),
        lambda x: torch.zeros_like(x).fill_(1.0),
        lambda x: torch.full((2,), -1, dtype=torch.int64),
        lambda x: x.new_empty((2, 2)),
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: (x.numel(), x.stride(), x.data_ptr(), x.is_contiguous(), x.shape),
        lambda x: x.detach().flatten(),
    ],
)
def test_what_a_wrapper_is_for(work: object) -> None:
    seen = watch()
    x = torch.randn(3, 4)
    with seen.watching():
        work(x)
    assert seen.refused == []


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda x: torch.softmax(x, -1), "aten._softmax"),
        (lambda x: x + x, "aten.add"),
        (lambda x: x @ x.t(), "aten.mm"),
        (lambda x: torch.nn.functional.gelu(x), "aten.gelu"),
        (lambda x: x.sum(), "aten.sum"),
        (lambda x: x.mul_(2.0), "aten.mul_"),
        (lambda x: torch.where(x > 0, x, 0.0), "aten.gt"),
        (lambda x: x.max().item(), "aten.max"),
        (lambda x: x[0, 0].item(), "Tensor.item"),
        (lambda x: x.numpy(), "Tensor.numpy"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: torch.sort(x), "aten.sort"),
    ],
)
def test_what_a_kernel_must_do_itself(work: object, name: str) -> None:
    from sketchc.runtime.guards.wrapper_guard import PolicyError

    seen = watch()
    x = torch.randn(3, 4)
    with pytest.raises(PolicyError), seen.watching():
        work(x)
    assert seen.refused == [name]
    assert name in seen.verdict(1)


def test_a_refusal_that_is_swallowed_is_remembered() -> None:
    seen = watch()
    with seen.watching(), contextlib.suppress(Exception):
        torch.ones(3).exp()
    assert "aten.exp" in seen.verdict(1)


def test_memory_that_a_wrapper_allocates_is_poisoned() -> None:
    with watch().watching():
        floats, integers = torch.empty(4), torch.empty(4, dtype=torch.int32)
    assert floats.isnan().all()
    assert (integers == 2**31 - 22).all()


def test_launches_are_counted_and_may_compute() -> None:
    seen = watch()
    with seen.watching(), seen.launch():
        torch.ones(3).exp()
    assert seen.verdict(3) == ""
    assert watch().verdict(3) == "outputs were returned and no kernel was launched"
    assert watch().verdict(0) == "", "nothing to compute"


def test_a_grid_function_is_not_inside_of_the_launch() -> None:
    from sketchc.runtime.guards.wrapper_guard import PolicyError

    seen = watch()
    with pytest.raises(PolicyError), seen.watching(), seen.launch(), seen.outside():
        torch.ones(3).exp()


def test_the_good_kernel_is_clean() -> None:
    assert inspect_kernel(candidate("triton_cuda", TRITON).kernel) == ()
    assert inspect_kernel(candidate("cpp", CPP).kernel) == ()


MODULE = """import ctypes
import os
import subprocess
import numpy as np
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "x.so"))


class ModelNew(nn.Module):
    def forward(self, x):
        setattr(self, "last", x.shape)
        for module in self.modules():
            module.eval()
        y = torch.from_numpy(np.empty(x.shape, np.float32))
        LIBRARY.run(x.data_ptr(), x.numpy().ctypes.data)
        return y
"""


def module_findings(*edits: tuple[str, str]) -> tuple[str, str]:
    """(what is refused, what is explained) of a file with a ModelNew."""
    source = MODULE
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    kernel = attrs.evolve(candidate("triton_cuda", source).kernel, entry="ModelNew")
    findings = inspect_kernel(kernel)
    return refusal_of(findings), explanation(findings)


def test_honest_modules_are_let_through() -> None:
    refused, explained = module_findings()
    assert refused == ""
    assert "torch.from_numpy" in explained


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("import inspect", "inspect"),
        ("import scipy.linalg", "scipy"),
        ("import gc", "gc"),
        ("from torch.utils._python_dispatch import TorchDispatchMode", "_python_dispatch"),
        ("fast = torch.compile(nn.ReLU())", "compile"),
        ("fast = torch.jit.script(nn.ReLU())", "jit"),
        ("torch._C._len_torch_dispatch_stack()", "_C"),
        ("getattr(torch, 'compi' + 'le')", "looks up"),
        ("exec('1')", "exec"),
        ("os.sys.modules['torch']", "modules"),
        ("import sys; sys.modules['torch']", "modules"),
        ("import sys; sys.settrace(None)", "settrace"),
        ("ctypes.pythonapi", "pythonapi"),
        ("frame = (lambda: 0).__globals__", "__globals__"),
    ],
)
def test_what_a_module_must_not_say(line: str, word: str) -> None:
    refused, _ = module_findings(("LIBRARY = ", f"{line}\nLIBRARY = "))
    assert word in refused
    assert "line " in refused
