"""What a file may not change of torch is seen, by whatever way; what it adds of its own is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toolchains import require

LOOK = """
import torch, types
from sketchc.runtime.guards.torch_state import TorchState
state = TorchState()
{change}
print("; ".join(state.changes()))
print("; ".join(state.changes() if {again} else []))
"""
CHANGES = {
    "method": ("torch.Tensor.mean = lambda self: 0", "it replaced torch.Tensor.mean"),
    "method of its own": (
        "torch.Tensor.__matmul__ = lambda self, other: self",
        "it replaced torch.Tensor.__matmul__",
    ),
    "function": ("torch.softmax = max", "it replaced torch.softmax"),
    "functional": (
        "torch.nn.functional.linear = max",
        "it replaced torch.nn.functional.linear",
    ),
    "removed": ("del torch.nn.functional.gelu", "it replaced torch.nn.functional.gelu"),
    "code": (
        "torch.nn.functional.softmax.__code__ = (lambda *a, **k: 0).__code__",
        "it replaced torch.nn.functional.softmax",
    ),
    "defaults": (
        "torch.nn.functional.dropout.__defaults__ = (0.1, False, False)",
        "it replaced torch.nn.functional.dropout",
    ),
    "layer": ("torch.nn.Linear.forward = lambda self, x: x", "it replaced torch.nn.Linear.forward"),
    "built-in": ("torch.nn.functional.len = max", "it replaced torch.nn.functional.len"),
    "special": ("torch.special.erf = max", "it replaced torch.special.erf"),
    "synchronise": ("torch.cuda.synchronize = print", "it replaced torch.cuda.synchronize"),
    "kernel": (
        "lib = torch.library.Library('aten', 'IMPL')\n"
        "lib.impl('mean.dim', lambda *a, **k: None, 'CPU')",
        "it registered another kernel for aten::mean.dim",
    ),
    "threads": ("torch.set_num_threads(torch.get_num_threads() + 1)", "it changed threads from"),
    "type": ("torch.set_default_dtype(torch.float64)", "it changed default type from"),
    "precision": (
        "torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32",
        "it changed cuda.matmul.allow_tf32 from",
    ),
    "gradients": ("torch.set_grad_enabled(False)", "it changed gradients from True to False"),
    "hooks": (
        "torch.nn.modules.module.register_module_forward_hook(lambda *a: None)",
        "it changed hooks of all modules from 0 to 1",
    ),
    "mode": (
        "from torch.overrides import TorchFunctionMode\nTorchFunctionMode().__enter__()",
        "it changed modes of functions from 0 to 1",
    ),
}
OWN = {
    "nothing": "",
    "an operation": (
        "lib = torch.library.Library('mine', 'DEF')\n"
        "lib.define('twice(Tensor x) -> Tensor')\n"
        "lib.impl('twice', lambda x: 2 * x, 'CPU')\n"
        "torch.ops.mine.twice(torch.ones(2))"
    ),
    "a layer": (
        "class Own(torch.nn.Module):\n    def forward(self, x):\n        return x.mean()\n"
        "Own()(torch.ones(3))"
    ),
    "imports": "import torch.utils.cpp_extension, torch.utils.data, torch.fft, torch.linalg",
    "work": (
        "torch.manual_seed(3)\nx = torch.randn(9, 9, requires_grad=True)\n"
        "(x @ x).softmax(-1).sum().backward()\n"
        "with torch.no_grad():\n    torch.nn.functional.conv1d(x[None], x[None])\n"
        "torch.save(x, __import__('io').BytesIO())"
    ),
}


def told(change: str, *, again: bool = False) -> list[str]:
    """What is seen of a change in a process of its own."""
    code = LOOK.format(change=change, again=again)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_every_change_is_seen() -> None:
    """All in one process, which takes seconds to start."""
    found = told("\n".join(change for change, _ in CHANGES.values()))[0]
    missing = [name for name, (_, words) in CHANGES.items() if words not in found]
    assert missing == []


def test_what_is_registered_in_a_process_is_told_each_time() -> None:
    first, second, *_ = told(CHANGES["kernel"][0], again=True)
    assert CHANGES["kernel"][1] in first
    assert CHANGES["kernel"][1] in second


@pytest.mark.parametrize("change", [" \n".join(OWN.values())], ids=["all"])
def test_what_a_file_adds_of_its_own_is_its_own_affair(change: str) -> None:
    assert told(change)[0] == ""


#: Registers past everything that counts, as a library's own code does; then code is loaded.
PAST_EVERYTHING = """import ctypes
core = torch._C._dispatch_library('IMPL', 'aten', '')
core.impl('mean.dim', 'CPU', lambda *a, **k: None)
ctypes.CDLL({library!r})"""


def test_what_a_library_registers_is_seen_wherever_it_lies_by_a_name_or_none(
    tmp_path: Path,
) -> None:
    """What a process has written counts, whatever its name, and also where it is gone."""
    require("cpp")
    (tmp_path / "empty.cpp").write_text("int nothing() { return 0; }")
    library = tmp_path / "plain.data"
    source = str(tmp_path / "empty.cpp")
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", str(library)], check=True)
    load = PAST_EVERYTHING.format(library=str(library))
    for change in (load, f"{load}\n__import__('os').unlink({str(library)!r})"):
        assert CHANGES["kernel"][1] in told(change)[0]
