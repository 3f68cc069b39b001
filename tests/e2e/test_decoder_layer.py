"""The sketches of `benchmarks/decoder_layer.py`, on the CPU: a layer whose operators they are is no
farther from the layer in float64 than the layer of PyTorch's own operations, also as
`torch.compile` takes it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toolchains import require

require("cpp")
torch = pytest.importorskip("torch")
BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
#: Features, inner features, heads of queries and of keys, and a head's elements: with parts of
#: tiles left over.
EXTENTS = {"FEATURES": 96, "INNER": 136, "HEADS": 6, "KEY_HEADS": 2, "DEPTH": 24}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module, with a small layer on the CPU."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("decoder_layer")
    for name, extent in EXTENTS.items():
        monkeypatch.setattr(module, name, extent)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    return module


@pytest.mark.parametrize(("batch", "tokens", "length"), [(1, 1, 131), (5, 1, 257), (1, 67, 67)])
def test_a_layer_of_sketches_is_as_exact_as_the_original(
    batch: int,
    tokens: int,
    length: int,
    benchmark: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    setting = f"test_{batch}_{tokens}"
    monkeypatch.setitem(benchmark.SETTINGS, setting, (batch, tokens, length))
    kernels = {}
    for name in benchmark.sketches_of(setting):
        command = [sys.executable, "-m", "sketchc", "lower", "--target", "cpp"]
        command += [str(BENCHMARKS / "decoder" / f"{name}.sketch"), "--module", str(tmp_path)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ)
        sys.modules.pop(f"{name}_dropin", None)
        monkeypatch.syspath_prepend(str(tmp_path))
        kernels[name] = benchmark.loaded(tmp_path, name)
    torch.manual_seed(1)
    plain = benchmark.layer(setting, {}).bfloat16()
    arguments = benchmark.given(setting)
    with torch.no_grad():
        rounded = plain(*(each.clone() for each in arguments))
        own = benchmark.layer(setting, kernels).bfloat16()
        own.load_state_dict(plain.state_dict())
        exact = plain.double()(*(each.double() for each in arguments))
        compiled = torch.compile(own, dynamic=False, backend="aot_eager", fullgraph=True)
        for layer in (own, compiled):
            found = layer(*(each.clone() for each in arguments))
            assert (found - exact).norm() <= (rounded - exact).norm()
