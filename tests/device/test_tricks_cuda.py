"""The tricks that only a GPU shows: streams, races, tensor cores, CUDA's clock. See
tests/tricks/tricks.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from tricks.table import Group, grouped, misjudged, name_of

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

#: The kernels for GPUs alone, and those of Triton that the CPU's interpreter has judged before.
GROUPS = grouped("gpu")
AGAIN = {group: tricks for group, tricks in grouped("cpu").items() if group[1] == "triton_cuda"}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.parametrize("group", GROUPS, ids=name_of)
def test_tricks_of_gpus(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    assert misjudged(group, GROUPS[group], capsys) == {}


@pytest.mark.parametrize("group", AGAIN, ids=name_of)
def test_tricks_of_the_interpreter_on_the_gpu(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert misjudged(group, AGAIN[group], capsys) == {}
