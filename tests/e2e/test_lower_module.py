"""`sketchc lower --module`: what it leaves behind imports and computes, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toolchains import require

from sketchc.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "softmax.sketch"
USE = """
import sys
import numpy, torch
from softmax_dropin import KERNEL, softmax
torch.manual_seed(0)
x = 3 * torch.randn(7, 37)
wanted = torch.softmax(x, -1)
def same(found, wanted=wanted):
    torch.testing.assert_close(torch.as_tensor(found), wanted)
same(softmax(x))
same(softmax(X=x.T.contiguous().T))
for given in (x.numpy(), numpy.asfortranarray(x.numpy()), x.numpy()[::-1].copy()[::-1]):
    found = softmax(given)
    assert isinstance(found, numpy.ndarray)
    same(found)
frozen = x.numpy().copy()
frozen.flags.writeable = False
same(softmax(frozen))
for out in (torch.zeros(7, 37), torch.zeros(37, 7).T, numpy.zeros((7, 37), "float32"),
            numpy.zeros((14, 37), "float32")[::-2]):
    assert softmax(x, out=out) is out
    same(out.copy() if isinstance(out, numpy.ndarray) else out)
meta = softmax(x.to("meta"))
assert meta.shape == (7, 37) and meta.device.type == "meta"
held = torch.compile(softmax, fullgraph=True, backend="aot_eager", dynamic=True)
for rows in (7, 16):
    y = torch.randn(rows, 37)
    same(held(y), torch.softmax(y, -1))
    into = torch.zeros(rows, 37)
    same(held(y, out=into), torch.softmax(y, -1))
    same(into, torch.softmax(y, -1))
torch.library.opcheck(KERNEL.operator, (x,))
def refused(words, *given, **named):
    try:
        softmax(*given, **named)
    except (TypeError, ValueError) as error:
        assert words in str(error) and "\\n" not in str(error), error
    else:
        raise AssertionError(words)
refused("X must be a tensor, not list", [1.0])
refused("X is torch.float64", x.double())
refused("X is torch.float64", x.double().numpy())
refused("X is of type <U1", numpy.array(["a"]))
refused("out for Y is torch.float64", x, out=torch.zeros(7, 37).double())
refused("Y", x, out=torch.zeros(7, 36))
refused("out must be a tensor", x, out=(x, x))
refused("overlap", x, out=x)
for asking in (lambda: softmax(x), lambda: softmax(2 * x).sum().backward()):
    try:
        x.requires_grad_()
        asking()
    except RuntimeError as error:
        assert "no backward pass" in str(error) and "\\n" not in str(error)
    else:
        raise AssertionError("a gradient")
assert "sketchc" not in sys.modules
print("equal")
"""


def in_a_process(code: str, folder: Path) -> None:
    """Raise AssertionError unless the code, beside the module in this folder, prints `equal`."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout == "equal\n", ran.stderr


def module_of(sketch: Path, target: str, folder: Path) -> Path:
    """The folder, once `lower` has put a module there."""
    options = ["-t", target, "-q", "-o", str(folder.with_suffix(".code")), "--module", str(folder)]
    assert run(["lower", str(sketch), *options]) == 0
    return folder


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_the_module_is_a_function_with_one_interface(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(target)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    in_a_process(USE, module_of(EXAMPLE, target, tmp_path / "made"))


USE_GRAPHS = """
import importlib.util, sys
import torch
# The kernel's own file has the name of a standard module: its folder is not on the path.
specification = importlib.util.spec_from_file_location("made", "made/NAME_dropin.py")
made = importlib.util.module_from_spec(specification)
specification.loader.exec_module(made)
x = torch.randn(7, 37)
for on in (True, False):
    made.use_graphs(on)
    assert isinstance(made.KERNEL.graphs, made.Graphs) == on
    for _ in range(3):
        out = torch.empty_like(x)
        assert made.NAME_(x, out=out) is out
        torch.testing.assert_close(out, torch.softmax(x, -1))
print("equal")
"""


@pytest.mark.parametrize("name", ["threading", "index"])
def test_sketches_may_have_names_of_what_their_module_imports(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("triton_cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    sketch = tmp_path / "named.sketch"
    sketch.write_text(EXAMPLE.read_text().replace("sketch softmax", f"sketch {name}"))
    module_of(sketch, "triton_cuda", tmp_path / "made")
    in_a_process(USE_GRAPHS.replace("NAME", name), tmp_path)


SEVERAL = """sketch number {
    symbols: M, N;
    params: scale: f32 = 2.0; count: i64; flag: bool = False;
    tensors: X[M, N]: inout bf16; S[N]: in f32?; Y[M, N]: out bf16; Z[M]: out f32;
    constexpr: T = 16;
    require: count > 0;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        z = alloc([1], f32, init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            w = alloc([T], f32)
            load(X[i, j*T:(j+1)*T] -> x)
            store(x -> Y[i, j*T:(j+1)*T])
            mul(x, scale, w)
            if present(S):
                s = alloc([T])
                load(S[j*T:(j+1)*T] -> s)
                add(w, s, w)
            if flag:
                neg(w, w)
            part = alloc([1], f32)
            reduce_sum(w, 0, part)
            add(z, part, z)
            store(w -> X[i, j*T:(j+1)*T])
        store(z -> Z[i:i+1])
}
"""
USE_SEVERAL = """
import ml_dtypes, numpy, torch
from number_dropin import KERNEL, number_ as number
torch.manual_seed(0)
start = torch.randn(5, 37).bfloat16()
s = torch.randn(37)
def wanted(scale=2.0, s=None, sign=1):
    full = sign * (start.float() * scale + (0 if s is None else s))
    return full.bfloat16(), start.clone(), full.sum(1)
def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        if isinstance(one, numpy.ndarray):
            one = torch.from_numpy(one.astype("float32"))
        # (Triton's interpreter rounds to bf16 towards 0.)
        near = 1e-2 if other.dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(one.float(), other.float(), rtol=near, atol=1e-4)
for x in (start.clone(), start.clone().T.contiguous().T):
    found = number(x, count=1)
    assert found[0] is x
    same(found, wanted())
x = start.clone()
same(number(x, s, scale=torch.tensor(3.0), count=numpy.int64(2), flag=True), wanted(3.0, s, -1))
x = start.clone()
outs = (torch.zeros(5, 37).bfloat16(), torch.zeros(10)[::2])
found = number(x, s, count=1, out=outs)
assert all(one is other for one, other in zip(found, (x, *outs)))
same(found, wanted(s=s))
array = start.float().numpy().astype(ml_dtypes.bfloat16)
for x in (array.copy(), array[:, ::-1].copy()[:, ::-1]):
    found = number(x, s.numpy(), count=1)
    assert found[0] is x and found[1].dtype == array.dtype
    same(found, wanted(s=s))
held = torch.compile(number, fullgraph=True, backend="aot_eager")
x = start.clone()
same(held(x, s, count=1), wanted(s=s))
same((x,), wanted(s=s)[:1])
with torch.no_grad():
    assert KERNEL.operator(start, None, 2.0, 1, False)[2].shape == (5,)
torch.library.opcheck(KERNEL.operator, (start, None, 2.0, 1, False))
def refused(words, *given, **named):
    try:
        number(*given, **named)
    except (TypeError, ValueError) as error:
        assert words in str(error) and "\\n" not in str(error), error
    else:
        raise AssertionError(words)
refused("count", start.clone())
refused("count > 0", start.clone(), count=0)
refused("scale must be float, not Tensor", start.clone(), count=1, scale=torch.randn(9, 9))
refused("out must be a tuple of 2", start.clone(), count=1, out=start)
frozen = array.copy()
frozen.flags.writeable = False
refused("X is read-only", frozen, count=1)
print("equal")
"""


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_updates_options_numbers_and_several_results(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sketch has a name that the module needs for itself."""
    require(target)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    sketch = tmp_path / "several.sketch"
    sketch.write_text(SEVERAL, "utf-8")
    in_a_process(USE_SEVERAL, module_of(sketch, target, tmp_path / "made"))


META = """
import torch
from softmax_dropin import softmax
assert softmax(torch.empty(7, 37, device="meta")).shape == (7, 37)
shape = torch.compile(softmax, fullgraph=True, backend="aot_eager")
assert shape(torch.empty(3, 5, device="meta")).shape == (3, 5)
try:
    softmax(torch.ones(3, 5))
except ValueError as error:
    assert str(error) == "X is on cpu; this kernel runs on npu", error
print("equal")
"""


@pytest.mark.sweep
def test_ascend_is_traced(tmp_path: Path) -> None:
    """Nothing of Ascend's is here: shapes need nothing of it."""
    require("triton_cuda")  # whose package has the names that the kernel's file imports
    in_a_process(META, module_of(EXAMPLE, "triton_ascend", tmp_path / "made"))


FLAGS = """sketch flags {
    symbols: N;
    params: flag: bool = True; other: bool = False;
    tensors: X[N]: in f32; G[1]: in bool; Y[N]: out f32;
    constexpr: T = 16;
    given = fetch(G[0])

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if flag and not other or given:
            neg(x, x)
        where(other, 1.0, x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
USE_FLAGS = """
import itertools, torch, flags
torch.manual_seed(0)
x = torch.randn(37)
for flag, other, given in itertools.product((True, False), repeat=3):
    expected = -x if flag and not other or given else x
    expected = torch.ones_like(x) if other else expected
    found = flags.flags(x, torch.tensor([given]), flag=flag, other=other)
    torch.testing.assert_close(found, expected)
print("equal")
"""


def test_bools_reach_a_kernel_in_tritons_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module runs where nothing of ours mends the interpreter."""
    require("triton_cuda")
    sketch = tmp_path / "flags.sketch"
    sketch.write_text(FLAGS, "utf-8")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    in_a_process(USE_FLAGS, module_of(sketch, "triton_cuda", tmp_path / "made"))


def test_a_folder_that_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "below")
    status = run(
        ["lower", str(EXAMPLE), "-t", "triton_cuda", "-o", "/dev/null", "--module", folder]
    )
    assert status == 2
    assert "cannot write to" in capsys.readouterr().err
