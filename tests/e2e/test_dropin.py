"""The drop-in module: imported from another folder, by a process that knows nothing of sketchc, it
computes what the task's Model computes, and refuses what its kernel was not made for."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest
from small_tasks import small_task
from toolchains import require

from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.cases.reach import find_freedom
from sketchc.runtime.dropin.torch_dropin import write_dropin
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.toolchains.triton_ascend.environment import FRONTEND

ROOT = Path(__file__).parents[2]
#: example -> init inputs and shapes of the inputs, at sizes that divide nothing.
OTHERS = {
    "add": ([], [(13, 517), (517,)]),
    "batched_matmul": ([], [(3, 17, 29), (3, 29, 41)]),
    "gelu": ([], [(13, 517)]),
    "layer_norm": ([37], [(7, 37)]),
    "matmul": ([], [(17, 67), (67, 41)]),
    "matmul_bias_gelu": ([29, 43], [(17, 29)]),
    "online_softmax": ([], [(5, 1031)]),
    "relu": ([], [(13, 517)]),
    "rms": ([1e-3], [(2, 5, 17, 33)]),
    "softmax": ([], [(7, 37)]),
    "sum_middle": ([], [(3, 19, 41)]),
}
USE = """
import importlib, sys, torch
sys.path.insert(0, {folder!r})
before = set(sys.modules)  # what serves this test needs a few modules itself
module = importlib.import_module({name!r})
assert not any(name.partition(".")[0] == "sketchc" for name in set(sys.modules) - before)
def same(init, inputs):
    torch.manual_seed(1)
    new = module.ModelNew(*init).eval()
    old = module.Model(*init).eval()
    old.load_state_dict(new.state_dict())
    kept = [x.clone() if torch.is_tensor(x) else x for x in inputs]
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), old(*inputs), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(x, y) for x, y in zip(inputs, kept) if torch.is_tensor(x))
"""


def make(sketch: Path, task: Path, target: str, folder: Path, bare: bool = False) -> Path:
    """The drop-in of a sketch and its task; `bare`: with the kernel alone, as a model writes it."""
    candidate = lower(VerifyRequest(str(sketch), target))
    kernel = attrs.evolve(candidate.kernel, extras=()) if bare else candidate.kernel
    with TorchTask(task) as loaded:
        binding = bind(candidate.plan.sketch, loaded.describe(0))
        freedom = find_freedom(binding, loaded)
    return write_dropin(folder, kernel, binding, task, freedom)


def example(name: str, target: str, folder: Path) -> Path:
    task = small_task(name, folder.parent / "task")
    return make(ROOT / "examples" / f"{name}.sketch", task, target, folder)


def run(code: str, folder: Path, *used: Path) -> tuple[str, str]:
    """What the code prints in a process that has imported torch alone, and the traceback if it
    raises. It sees `folder`, where it stands, and the folders `used`."""
    handler = f"{Path(__file__).with_name('torch_process.py')}:execute"
    request = {"code": code, "folder": str(folder)}
    result = run_worker(
        handler,
        request,
        preload=("torch",),
        timeout=300,
        readable=[FRONTEND.folder()],
        writable=[folder, *used],
    )
    assert result.reply is not None, result.describe() + result.output
    return result.reply["printed"], result.reply["raised"] + result.output


def use(dropin: Path, code: str, elsewhere: Path) -> None:
    """Run code that sees the drop-in as `module`, from another folder."""
    start = USE.format(folder=str(dropin.parent), name=dropin.stem)
    printed, wrong = run(f"{start}\n{code}\nprint('done')", elsewhere, dropin.parent)
    assert printed.endswith("done\n"), wrong[-2000:]


@pytest.fixture(scope="module")
def layer_norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LayerNorm in C++: it has parameters, a size among its init inputs, and an eps that the
    kernel cannot see."""
    require("cpp")
    return example("layer_norm", "cpp", tmp_path_factory.mktemp("layer_norm"))


@pytest.mark.sweep
@pytest.mark.parametrize("name", OTHERS)
def test_every_example_in_cpp(name: str, tmp_path: Path) -> None:
    require("cpp")
    dropin = example(name, "cpp", tmp_path / "made")
    init, shapes = OTHERS[name]
    code = f"""
same(module.get_init_inputs(), module.get_inputs())
same({init!r}, [3 * torch.randn(*shape) for shape in {shapes!r}])
def turned(shape):
    return torch.randn(*shape[::-1]).permute(*range(len(shape))[::-1])
same({init!r}, [turned(shape) for shape in {shapes!r}])
"""
    use(dropin, code, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["add", "layer_norm", "softmax"])
def test_triton_in_its_interpreter(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("triton_cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    dropin = example(name, "triton_cuda", tmp_path / "made")
    init, shapes = OTHERS[name]
    use(dropin, f"same({init!r}, [3 * torch.randn(*shape) for shape in {shapes!r}])", tmp_path)


STANDIN = """
import sys
from pathlib import Path
from sketchc.runtime.toolchains.triton_ascend import environment, standin
from sketchc.runtime.toolchains.triton_ascend.execute import Machine
kernel = Path({folder!r}, "softmax.py")
machine = Machine(kernel, str(environment.FRONTEND.python()), "Ascend910B4", "shuffled", False)
standin.install(machine.launch)
sys.path.insert(0, {folder!r})
import softmax_dropin as module, torch
x = 3 * torch.randn(7, 37)
with torch.no_grad():
    torch.testing.assert_close(module.ModelNew()(x), module.Model()(x), rtol=1e-4, atol=1e-4)
assert machine.launches
print("done")
"""


def test_ascend_through_its_front_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("triton_ascend")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that the CPU's tensors are taken
    dropin = example("softmax", "triton_ascend", tmp_path / "made")
    printed, wrong = run(STANDIN.format(folder=str(dropin.parent)), tmp_path, dropin.parent)
    assert printed.endswith("done\n"), wrong[-2000:]


def test_a_kernel_for_a_device_says_where_it_runs(tmp_path: Path) -> None:
    require("triton_cuda")
    dropin = example("softmax", "triton_cuda", tmp_path / "made")
    code = """
try:
    module.ModelNew()(torch.randn(3, 4))
except ValueError as error:
    assert str(error) == "input 1 is on cpu; this kernel runs on cuda", error
else:
    raise AssertionError
"""
    use(dropin, code, tmp_path)


def test_the_folder_can_be_moved(layer_norm: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(layer_norm.parent, moved)
    use(moved / layer_norm.name, "same([37], [torch.randn(7, 37)])", tmp_path)
    texts = [path.read_text() for path in moved.iterdir() if path.suffix in (".py", ".cpp")]
    assert not any(str(layer_norm.parent) in text or str(ROOT) in text for text in texts)


@pytest.mark.sweep
def test_without_its_module_it_is_built(layer_norm: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(layer_norm.parent, moved, ignore=shutil.ignore_patterns("*.so*"))
    use(moved / layer_norm.name, "same([37], [torch.randn(7, 37)])", tmp_path)
    assert list(moved.glob("*.so"))
    assert list(moved.glob("*.so.cpu"))
    assert not list(moved.glob("build-*"))


@pytest.mark.sweep
def test_a_module_for_another_cpu_is_built_again(layer_norm: Path, tmp_path: Path) -> None:
    """What it was built for says so; that a file is no module shows that it was not loaded."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(layer_norm.parent, moved)
    (library,) = moved.glob("*.so")
    library.write_bytes(b"for another CPU")
    record = library.with_name(f"{library.name}.cpu")
    record.write_text(f"{record.read_text().strip()} avx1024\n")
    use(moved / layer_norm.name, "same([37], [torch.randn(7, 37)])", tmp_path)
    assert "avx1024" not in record.read_text()


@pytest.mark.sweep
def test_a_module_that_cannot_be_built_says_why(layer_norm: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(layer_norm.parent, moved, ignore=shutil.ignore_patterns("*.so*"))
    (moved / "layer_norm.cpp").write_text("#error no kernel\n")
    with pytest.raises(
        AssertionError, match=r"_module\S* is missing, and cannot be built: .*#error"
    ):
        use(moved / layer_norm.name, "", tmp_path)


REFUSALS = {
    "another dtype": ("new(x.double())", "TypeError", "input 1 is torch.float64"),
    "another device": ("new(x.to('meta'))", "ValueError", "tensors are on meta and on cpu"),
    "too many": ("new(x, x)", "TypeError", "too many positional arguments"),
    "another name": ("new(y=x)", "TypeError", "unexpected keyword argument 'y'"),
    "twice": ("new(x, x=x)", "TypeError", "multiple values for argument 'x'"),
    "no tensor": ("new([1.0])", "TypeError", "input 1 must be a tensor, not list"),
    "another layout": ("new(x.to_sparse())", "TypeError", "the kernel takes dense tensors"),
    "another rank": ("new(x[0])", "ValueError", "X must have 2 dimensions, not 1"),
    "another size": ("new(x[:, :36])", "ValueError", "has extent"),
    "too few": ("new()", "TypeError", "missing a required argument: 'x'"),
    "an eps it cannot see": ("module.ModelNew(37, 1e-3)", "ValueError", "eps is 0.001; this"),
    "half the model": ("new.half()(x)", "TypeError", "norm.weight is torch.float16"),
    "a gradient": ("new(x.requires_grad_())", "RuntimeError", "no backward pass"),
    "a gradient of what was computed": (
        "new(2 * x.requires_grad_()).sum().backward()", "RuntimeError", "no backward pass"
    ),
    "a parameter's gradient": ("new(x).sum().backward()", "RuntimeError", "no backward pass"),
}  # fmt: skip


def test_what_the_kernel_was_not_made_for_is_refused(layer_norm: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    for what, (call, kind, words) in REFUSALS.items():
        lines += [
            "x, new = torch.randn(7, 37), module.ModelNew(37)",
            "try:",
            f"    {call}",
            f"except {kind} as error:",
            f"    assert {words!r} in str(error), ({what!r}, error)",
            "else:",
            f"    raise AssertionError({what!r})",
        ]
    use(layer_norm, "\n".join(lines), tmp_path)


def test_what_it_takes(layer_norm: Path, tmp_path: Path) -> None:
    code = """
new, old = module.ModelNew(37), module.Model(37)
assert isinstance(new, torch.nn.Module) and list(new.state_dict()) == list(old.state_dict())
x = torch.randn(7, 37)
for make in (lambda: new(x), lambda: new(x=x), lambda: new(torch.cat([x, x], 1)[:, :37])):
    result = make()
    assert result.requires_grad  # as the task's own: the parameters do
    torch.testing.assert_close(result, old(x), rtol=1e-5, atol=1e-5)
with torch.no_grad():
    assert not new(x).requires_grad and not new(x.clone().requires_grad_()).requires_grad
new.norm.weight.data.fill_(3.0)
torch.testing.assert_close(new(x), 3 * old(x), rtol=1e-4, atol=1e-4)
import numpy
array = new(x.T.contiguous().T.numpy())
assert isinstance(array, numpy.ndarray)
torch.testing.assert_close(torch.from_numpy(array), new(x))
with torch.no_grad():
    for out in (torch.zeros(7, 37), torch.zeros(37, 7).T, numpy.zeros((7, 37), "float32")):
        assert new(x, out=out) is out
        torch.testing.assert_close(torch.as_tensor(out), new(x))
own = module.layer_norm(x, new.norm.weight.detach(), new.norm.bias.detach(), eps=1e-5)
torch.testing.assert_close(own, new(x))
"""
    use(layer_norm, code, tmp_path)


TWO_TASK = """
import torch
from torch import nn
from two_factor import FACTOR

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x, factor, mode="plain"):
        return [FACTOR * x + 0 * factor, self.drop(x) * factor]

def get_inputs():
    return [torch.randn(6, 40), 2.5]
"""
TWO_SKETCH = """
sketch two {
    symbols: M, N;
    tensors: X[M, N]: inout f32; Y[M, N]: out f32;
    params: factor: f32;
    constexpr: T = 16 in [8, 16];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T])
            y = alloc([T], f32)
            load(X[i, j*T:(j+1)*T] -> x)
            mul(x, 2.0, y)
            store(y -> X[i, j*T:(j+1)*T])
            mul(x, factor, y)
            store(y -> Y[i, j*T:(j+1)*T])
}
"""


COMPILED = """
from torch import export, library
def inputs(n, m):
    return [2 * torch.randn(n, m)]
new, old = module.ModelNew(37).eval(), module.Model(37).eval()
new.load_state_dict(old.state_dict())
torch.testing.assert_close(new(torch.ones(2, 37)), old(torch.ones(2, 37)))
assert "torch._dynamo" not in sys.modules, "what does not compile should not load a compiler"
with torch.no_grad():
    held = torch.compile(new, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (7, 1, 16):
        x = torch.randn(37, rows).T
        torch.testing.assert_close(held(x), old(x), rtol=1e-5, atol=1e-5)
    rows = export.Dim("rows", min=2, max=1024)
    program = export.export(new, (torch.randn(5, 37),), dynamic_shapes=({0: rows},))
    x = torch.randn(64, 37)
    torch.testing.assert_close(program.module()(x), old(x), rtol=1e-5, atol=1e-5)
    shapes = module.ModelNew(37).to("meta")(torch.randn(5, 37, device="meta"))
    assert shapes.shape == (5, 37) and shapes.device.type == "meta"
library.opcheck(module.KERNEL.operator, (x, new.norm.weight.detach(), new.norm.bias.detach(), 1e-5))
trained = torch.compile(new, fullgraph=True, backend="aot_eager")(x)
torch.testing.assert_close(trained, old(x), rtol=1e-5, atol=1e-5)
try:
    trained.sum().backward()
except NotImplementedError as error:
    assert "no backward pass" in str(error)
else:
    raise AssertionError
"""


IN_ITS_INTERPRETER = """
new = module.ModelNew().eval()
held = torch.compile(new, fullgraph=True, backend="aot_eager", dynamic=True)
for rows in (7, 16):
    x = torch.randn(rows, 37)
    torch.testing.assert_close(held(x), module.Model()(x), rtol=1e-5, atol=1e-5)
"""


def test_torch_compiles_what_triton_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("triton_cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    use(example("softmax", "triton_cuda", tmp_path / "made"), IN_ITS_INTERPRETER, tmp_path)


def test_torch_compiles_and_exports_it(layer_norm: Path, tmp_path: Path) -> None:
    use(layer_norm, COMPILED, tmp_path)


def test_several_outputs_numbers_and_files_beside_the_task(tmp_path: Path) -> None:
    require("cpp")
    (tmp_path / "two.sketch").write_text(TWO_SKETCH)
    (tmp_path / "task.py").write_text(TWO_TASK)
    (tmp_path / "two_factor.py").write_text("FACTOR = 2.0\n")
    folder = tmp_path / "made"
    dropin = make(tmp_path / "two.sketch", tmp_path / "task.py", "cpp", folder, bare=True)
    (tmp_path / "two_factor.py").write_text("raise ImportError\n")
    code = """
same([], module.get_inputs())
same([], [torch.randn(3, 7), -1.5])
new = module.ModelNew().eval()
assert type(new(torch.randn(3, 7), 1.0)) is list
x = torch.randn(7, 3).T
given = x.clone()
found = torch.compile(new, fullgraph=True, backend="aot_eager")(x, 0.5)
for one, other in zip(found, module.Model().eval()(given, 0.5), strict=True):
    torch.testing.assert_close(one, other)
assert torch.equal(x, given)
torch.library.opcheck(module.KERNEL.operator, (x, 0.5))
for call, words in (
    (lambda: new(torch.randn(3, 7), 1.0, mode="fancy"), "made for mode = 'plain'"),
    (lambda: new.train()(torch.randn(3, 7), 1.0), "Dropout acts differently in training"),
):
    try:
        call()
    except (TypeError, RuntimeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
"""
    use(dropin, code, folder)


WITHOUT_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, b, w):
        return x * w

def get_inputs():
    return [torch.randn(6, 40), None, torch.randn(6, 40)]
"""
WITHOUT_SKETCH = """
sketch scaled {
    symbols: M, N;
    tensors: X[M, N]: in f32; B[M, N]: in f32?; W[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 16;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T])
            y = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            load(W[i, j*T:(j+1)*T] -> y)
            mul(x, y, x)
            if present(B):
                load(B[i, j*T:(j+1)*T] -> y)
                add(x, y, x)
            store(x -> Y[i, j*T:(j+1)*T])
}
"""


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_a_tensor_that_the_task_never_gives(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands between two that are given."""
    require(target)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "scaled.sketch").write_text(WITHOUT_SKETCH)
    (tmp_path / "task.py").write_text(WITHOUT_TASK)
    dropin = make(tmp_path / "scaled.sketch", tmp_path / "task.py", target, tmp_path / "made")
    use(dropin, "same([], [torch.randn(3, 7), None, torch.randn(3, 7)])", tmp_path)


NESTED_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, xs, mode="sum", factor=2.0, bias=None, axis=1):
        a, (b,) = xs["both"]
        assert (mode, bias, axis) == ("sum", None, 1)
        return [2.0 * (a + 0 * b), b * factor]

def get_inputs():
    return [{"both": [torch.randn(6, 40), (torch.randn(6, 40),)]}, "sum", 2.5, None, 1]
"""
NESTED_SKETCH = TWO_SKETCH.replace("X[M, N]: inout f32;", "A[M, N]: in f32; X[M, N]: in f32;")
NESTED_SKETCH = NESTED_SKETCH.replace("Y[M, N]: out f32", "Z[M, N]: out f32; Y[M, N]: out f32")
NESTED_SKETCH = NESTED_SKETCH.replace("load(X[", "load(A[", 1).replace("y -> X[", "y -> Z[")
NESTED_SKETCH = NESTED_SKETCH.replace(
    "            mul(x, factor, y)\n",
    "            load(X[i, j*T:(j+1)*T] -> x)\n            mul(x, factor, y)\n",
)


def test_inputs_that_hold_tensors_and_constants(tmp_path: Path) -> None:
    require("cpp")
    (tmp_path / "two.sketch").write_text(NESTED_SKETCH)
    (tmp_path / "task.py").write_text(NESTED_TASK)
    dropin = make(tmp_path / "two.sketch", tmp_path / "task.py", "cpp", tmp_path / "made")
    code = """
same([], module.get_inputs())
new = module.ModelNew().eval()
xs = {"both": [torch.randn(3, 7), (torch.randn(3, 7),)]}
assert torch.equal(new(xs, "sum", 1.0)[1], xs["both"][1][0])
for arguments, words in (
    (("mean", 1.0), "input 3 (`mode`) is 'mean'; this kernel was made for 'sum'"),
    (("sum", 1.0, torch.ones(7)), "is Tensor; this kernel was made for None"),
    (("sum", 1.0, None, 0), "is 0; this kernel was made for 1"),
):
    try:
        new(xs, *arguments)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
"""
    use(dropin, code, tmp_path / "made")
