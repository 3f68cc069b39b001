"""On a real GPU: `sketchc verify` of kernels by others in TileLang, in a `ModelNew` and in a
function."""

from __future__ import annotations

from pathlib import Path

import pytest
from tilelang_model import EXPECTED, IN_TILELANG, SOURCES
from verified_files import TASK, edited, judge, write

torch = pytest.importorskip("torch")
pytest.importorskip("tilelang")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

#: TileLang itself allocates results on a GPU; the file is refused where there is none.
_OF_CPUS = "allocating.py"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "layer.py"
    path.write_text(TASK)
    return path


def test_models(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = {name: text for name, text in SOURCES.items() if name != _OF_CPUS}
    _, verdicts = judge(capsys, write(tmp_path, sources), task, "tilelang_cuda")
    found = {name: verdict["failure"] for name, verdict in verdicts.items()}
    assert found == {name: EXPECTED[name] for name in sources}


def test_functions(tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Launches of a function are counted on a GPU, too."""
    start = IN_TILELANG.index("class ModelNew")
    launch = "    biased_kernel(width)(x, bias, y)\n"
    right = f"""{IN_TILELANG[:start]}def biased(x, bias):
    y = torch.empty_like(x)
    width = max(128, 1 << (x.shape[1] - 1).bit_length())
{launch}    return y
"""
    sources = {"right.py": right, "idle.py": edited(right, (launch, ""))}
    _, verdicts = judge(capsys, write(tmp_path, sources), task, "tilelang_cuda")
    assert {name: verdict["failure"] for name, verdict in verdicts.items()} == {
        "right.py": "",
        "idle.py": "policy",
    }
