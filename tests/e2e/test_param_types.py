"""Values of the wrong type for params: a number of any kind is taken as what it is, a bool as 0 or
1, and all else is refused by the Python entry of every target before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_cases import TOOLCHAIN, load_module
from toolchains import require
from triton_cases import lower

from sketchc.lowering.registry import TARGETS

TEXT = """sketch typed {
    symbols: N;
    params: k: i64 = 1; m: i8 = 1; a: f32 = 1.0; h: f64 = 1.0; b: bool = True;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, k, x)
        mul(x, m, x)
        mul(x, a, x)
        mul(x, h, x)
        if b:
            mul(x, 5, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
#: A param, a Python expression for its value, and the factor of the result.
TAKEN = (
    *(("k", value, 5 * 1) for value in ("True", "1", "np.int32(1)", "np.uint8(1)", "np.int64(1)")),
    *(("m", value, 5 * 1) for value in ("True", "np.int16(1)")),
    ("k", "False", 0),
    ("m", "-128", -640),
    *(("a", value, 5 * 1) for value in ("True", "1", "np.float64(1)", "np.float16(1)")),
    *(("h", value, 5 * 2) for value in ("2", "np.float32(2)", "np.int8(2)")),
    *(("b", value, 1) for value in ("False", "0")),
    ("b", "np.bool_(True)", 5),
)
REFUSED = (
    *(("k", value) for value in ("1.5", "1.0", "'1'", "None", "np.float32(1)", "2**63", "[1]")),
    *(("m", value) for value in ("0.0", "'x'", "None", "128", "1j", "np.ones(2)")),
    *(("a", value) for value in ("'1.0'", "None", "[1.0]", "np.ones(2)", "1j")),
    *(("h", value) for value in ("'nan'", "10**400", "None")),
    *(("b", value) for value in ("'True'", "None", "0.5")),
)
SCRIPT = """
import contextlib, importlib.util, sys
import numpy as np, torch
sys.path.insert(0, FOLDER)
torch.cuda.device_of = lambda tensor: contextlib.nullcontext()
import kernel
for param, value, factor in TAKEN:
    found = kernel.typed(torch.ones(3), **{param: eval(value)})
    assert found.tolist() == [factor] * 3, (param, value, found)
for param, value in REFUSED:
    try:
        kernel.typed(torch.ones(3), **{param: eval(value)})
    except kernel.LaunchError as error:
        assert param in str(error), (param, value, error)
    else:
        raise AssertionError((param, value))
"""


@pytest.mark.parametrize("target", [name for name in TARGETS if name.startswith("triton")])
def test_the_wrappers(target: str, tmp_path: Path) -> None:
    """The wrapper's checks are those of the target; kernels run in Triton's interpreter."""
    require("triton_cuda")
    (tmp_path / "kernel.py").write_text(lower(TEXT, target)[1].source, "utf-8")
    script = SCRIPT.replace("FOLDER", repr(str(tmp_path)))
    script = script.replace("TAKEN", repr(TAKEN)).replace("REFUSED", repr(REFUSED))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_module(tmp_path: Path) -> None:
    require("cpp")
    module = load_module(TOOLCHAIN.build_module(lower(TEXT, "cpp")[1], tmp_path), "typed_module")

    def run(param: str, value: str) -> Any:
        return module.typed(np.ones(3, np.float32), **{param: eval(value)})

    for param, value, factor in TAKEN:
        assert run(param, value).tolist() == [factor] * 3, (param, value)
    for param, value in REFUSED:
        with pytest.raises(ValueError, match=param):
            run(param, value)
