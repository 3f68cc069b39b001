"""On a real GPU: cubins launched by a process that holds nothing else, and what it reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from triton_cases import example, lower

from sketchc.runtime.sandbox.worker import Worker
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.triton_cuda import toolchain

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

SIZES = {"M": 3, "N": 5}
X = np.arange(15, dtype=np.float32).reshape(3, 5) - 7
STORE = "tl.store(Y_ptr + "


def opened(folder: Path, old: str = "", new: str = "") -> Any:
    """A session of the kernel of `relu`, with one piece of its text replaced."""
    kernel = lower(example("relu"))[1]
    assert old in kernel.source
    kernel = attrs.evolve(kernel, source=kernel.source.replace(old, new))
    return toolchain.TOOLCHAIN.open(Artefact(kernel, folder))


def test_runs_of_one_session(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        assert isinstance(session, toolchain.LaunchedSession)
        for rows in (3, 1, 3, 2):
            found = session.run({"X": X[:rows]}, {"M": rows, "N": 5}, {})
            np.testing.assert_array_equal(found["Y"], np.maximum(X[:rows], 0))


def test_an_element_that_is_not_written_is_nan(tmp_path: Path) -> None:
    with opened(tmp_path, STORE, "if tl.program_id(0) < 0:\n        tl.store(Y_ptr + ") as session:
        assert np.isnan(session.run({"X": X}, SIZES, {})["Y"]).all()


def test_a_store_past_the_end_is_found(tmp_path: Path) -> None:
    with (
        opened(tmp_path, STORE, "tl.store(Y_ptr + 20 + ") as session,
        pytest.raises(ToolchainError, match="memory after Y was overwritten") as raised,
    ):
        session.run({"X": X}, SIZES, {})
    assert raised.value.stage == "illegal_access"


def test_a_store_into_the_input_is_found(tmp_path: Path) -> None:
    with (
        opened(tmp_path, STORE, "tl.store(X_ptr + ") as session,
        pytest.raises(ToolchainError, match="the input X was changed") as raised,
    ):
        session.run({"X": X}, SIZES, {})
    assert raised.value.stage == "illegal_access"


def test_after_a_fault_the_session_goes_on(tmp_path: Path) -> None:
    """The context is lost; the next run gets another process."""
    far = f"tl.store(Y_ptr + tl.where(N > 5, {1 << 40}, 0).to(tl.int64) + "
    wide = np.ones((2, 7), np.float32)
    with opened(tmp_path, STORE, far) as session:
        with pytest.raises(ToolchainError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as raised:
            session.run({"X": wide}, {"M": 2, "N": 7}, {})
        assert raised.value.stage == "illegal_access"
        np.testing.assert_array_equal(session.run({"X": X}, SIZES, {})["Y"], np.maximum(X, 0))


#: A handler that says what its process has mapped.
LOOK = "def look(request, arrays):\n    return {'maps': open('/proc/self/maps').read()}, {}\n"


def test_the_launcher_has_loaded_no_framework(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.run({"X": X}, SIZES, {})
        handler = tmp_path / "built" / "look.py"  # where it may read
        handler.write_text(LOOK)
        worker: Worker = session._launcher._worker
        result = worker.call(f"{handler}:look", {})
    assert result.reply is not None, result.describe()
    maps = str(result.reply["maps"])
    assert "libcuda.so" in maps
    for word in ("torch", "triton", "numpy", "openblas", "cublas"):
        assert word not in maps, word
