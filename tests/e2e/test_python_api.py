"""`sketchc.kernel` and `sketchc.compile`, as a program uses them: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toolchains import require

from sketchc.cli.main import run

SKETCH = (Path(__file__).parents[2] / "examples" / "softmax.sketch").read_text("utf-8")


def ran(code: str, folder: Path, **surroundings: str) -> str:
    """What the code prints in a fresh process that stands in this folder, with these environment
    variables. Raises AssertionError where it fails."""
    (folder / "program.py").write_text(code, "utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1", **surroundings}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


KERNEL = '''
import numpy, torch, sketchc
from sketchc import CompileError

@sketchc.kernel(target={target!r}, T=16)
def twice(X, scale, out=None):
    """
    sketch twice {{
        symbols: M, N;
        params: scale: f32 = 2.0;
        tensors: X[M, N]: in f32; Y[M, N]: out f32;
        constexpr: T = 32 in [16, 32];

        @llm_hint("parallel", "grididx")
        for i in range(M):
            @llm_hint("parallel", "grididx")
            for j in range(ceil(N, T)):
                x = alloc([T])
                load(X[i, j*T:(j+1)*T] -> x)
                mul(x, scale, x)
                store(x -> Y[i, j*T:(j+1)*T])
    }}
    """

x = torch.randn(5, 37)
torch.testing.assert_close(twice(x), 2 * x)
torch.testing.assert_close(twice(x.T, scale=-0.5), -0.5 * x.T)
assert isinstance(twice(x.numpy()), numpy.ndarray)
out = torch.zeros(5, 37)
assert twice(x, out=out) is out and torch.equal(out, 2 * x)
assert twice.__name__ == "twice"

softmax = sketchc.kernel("softmax.sketch", target={target!r})
torch.testing.assert_close(softmax(x), torch.softmax(x, 1))
assert twice.code != sketchc.kernel(twice.__doc__, target={target!r}, T=32).code
again = sketchc.kernel(open("softmax.sketch").read(), target={target!r})
assert again.module is softmax.module, "the same sketch is compiled once"

def refused(words, *given, **named):
    try:
        sketchc.kernel(*given, target={target!r}, **named)
    except CompileError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)
def other(A): """sketch f {{ symbols: N; tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        store(x -> Y[i*T:(i+1)*T])
}}"""
def wrong(): """sketch f {{ symbols: N; tensors: X[N]: in f32; Y[N]: out f32;
    x = alloc([16])
    load(Z[0:16] -> x)
}}"""
refused(["takes A", "takes X"], other)
refused(["error[SK", "the docstring of wrong", "^"], wrong)
refused(["no docstring"], lambda: None)
refused(["cannot read", "nowhere.sketch"], "nowhere.sketch")
refused(["no constexpr or param 'Q'"], "softmax.sketch", Q=3)
print("done")
'''


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_a_sketch_is_a_function(target: str, tmp_path: Path) -> None:
    require(target)
    (tmp_path / "softmax.sketch").write_text(SKETCH, "utf-8")
    assert ran(KERNEL.format(target=target), tmp_path) == "done\n"


COMPILE = """
import logging, sys
import numpy, torch, sketchc
import layers

made = []
class Keep(logging.Handler):
    def emit(self, record):
        if "making a kernel" in record.getMessage():
            made.append(record)
logging.getLogger("sketchc").addHandler(Keep())
logging.getLogger("sketchc").setLevel(logging.INFO)
close = lambda a, b: torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-4, atol=1e-4)

fast = sketchc.compile(layers.scaled, target="cpp")
for rows, columns in ((5, 7), (64, 129), (1, 3)):
    x, b = torch.randn(rows, columns), torch.randn(columns)
    close(fast(x, b=b), layers.scaled(x, b))
found = fast(x.numpy(), b.numpy())
assert isinstance(found, numpy.ndarray)
close(found, layers.scaled(x, b))
assert len(made) <= 2, made  # (arrays are another kind of argument)
layers.SCALE = 3.0
close(fast(x, b), layers.scaled(x, b))
layers.SETTINGS.parts["half"] = 4
close(fast(x, b), layers.scaled(x, b))
assert fast.__name__ == "scaled"

net = layers.Net(37).eval()
faster = sketchc.compile(net, target="cpp", inputs=[torch.randn(4, 37)])
known = len(made)
with torch.no_grad():
    for rows in (3, 50):
        x = torch.randn(rows, 37)
        close(faster(x), net(x))
    net.linear.weight.mul_(2)
    net.shift += 1
    close(faster(x), net(x))
assert len(made) == known, "made ahead"
(build,) = next(iter(faster.compiled.builds.values()))
assert build.sketch.startswith("sketch net {"), build.sketch
print("made", len(made))
"""
LAYERS = """
import torch
from torch import nn
SCALE = 2.0
class Settings:
    parts = None
    def __init__(self):
        self.parts = {"half": 2}
SETTINGS = Settings()
def half(x):
    return x / SETTINGS.parts["half"]
def scaled(x, b, *, bias=True):
    y = half(x) * SCALE
    return y + b if bias else y
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, 2 * n)
        self.drop = nn.Dropout(0.5)
        self.shift = torch.randn(2 * n)
        self.factor = 0.5
    def forward(self, x):
        return self.drop(torch.relu(self.linear(x)) + self.shift) * self.factor
"""


@pytest.mark.sweep
def test_functions_and_modules_are_compiled(tmp_path: Path) -> None:
    """They follow what they refer to; what was made is found again by another process, and by
    another machine, which has but the rows of the store."""
    require("cpp")
    (tmp_path / "layers.py").write_text(LAYERS, "utf-8")
    store, cache = tmp_path / "store.sqlite", tmp_path / "cache"
    here = {"SKETCHC_STORE": str(store), "XDG_CACHE_HOME": str(cache)}
    first = ran(COMPILE, tmp_path, **here)
    assert int(first.removeprefix("made ")) > 0
    assert ran(COMPILE, tmp_path, **here) == "made 0\n"
    moved, elsewhere = str(tmp_path / "export.json"), str(tmp_path / "there.sqlite")
    assert run(["store", "export", "-o", moved, "--store", str(store)]) == 0
    assert run(["store", "import", moved, "--store", elsewhere]) == 0
    there = {"SKETCHC_STORE": elsewhere, "XDG_CACHE_HOME": f"{cache}2"}
    assert ran(COMPILE, tmp_path, **there) == "made 0\n"


REFUSED = """
import torch, sketchc
from torch import nn
w = torch.randn(3)
net = nn.Linear(3, 3)
def refused(words, function, *given):
    try:
        sketchc.compile(function, target="cpp")(*given)
    except sketchc.CompileError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
x = torch.randn(2, 3)
refused("a tensor of shape [3] that it finds around it", lambda x: x * w, x)
refused("a Linear that it finds around it", lambda x: net(x), x)
refused("x is a object; a kernel takes tensors", lambda x: x, object())
refused("does not say what it takes", torch.add, x, x)
refused("is no function", 3)
refused("has no form for: polygamma", lambda x: torch.special.polygamma(2, x), x)
try:
    sketchc.compile(lambda x: x, target="cpp")(x, x)
except TypeError as error:
    assert "too many positional arguments" in str(error)
print("done")
"""


@pytest.mark.sweep
def test_what_has_no_kernel_says_why(tmp_path: Path) -> None:
    require("cpp")
    assert ran(REFUSED, tmp_path) == "done\n"


def test_the_documents_sketch_is_a_function(tmp_path: Path) -> None:
    require("cpp")
    (tmp_path / "softmax.sketch").write_text(SKETCH, "utf-8")
    text = (Path(__file__).parents[2] / "docs" / "PYTHON.md").read_text("utf-8")
    block = text.split("```python\n")[2].split("```")[0]
    use = """
import torch
x = torch.randn(1000)
assert torch.equal(twice(x), 2 * x)
assert torch.equal(twice(x, scale=0.5, out=torch.zeros(1000)), x / 2)
torch.testing.assert_close(softmax(x.view(10, 100)), torch.softmax(x.view(10, 100), 1))
print("done")
"""
    assert ran(f"import sketchc\n{block}{use}", tmp_path) == "done\n"
