"""Kernels in TileLang that a file makes are compiled into files of their own."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
worker = importlib.import_module("sketchc.runtime.toolchains.tilelang_cuda.worker")
execution = importlib.import_module("sketchc.runtime.toolchains.tilelang_cuda.execution")


def test_kernels_of_one_name_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two functions called `kernel`, of which one has made two kernels."""

    def compiled(name: str, source: str, architecture: str, folder: Path) -> dict[str, Any]:
        return {"kernel": name, "source": source}

    def lowered(kernel: Any, architecture: str) -> Any:
        return SimpleNamespace(kernel_source=kernel.function)

    monkeypatch.setattr(worker, "lowered", lowered)
    monkeypatch.setattr(worker, "built_cubin", compiled)
    names = ("kernel", "kernel_2", "kernel", "other", "kernel")
    made = [execution.Traced(name, str(number), {}) for number, name in enumerate(names)]
    with ThreadPoolExecutor(2) as others:
        found = [each.result() for each in worker.begun(made, "sm_90a", tmp_path, others)]
    assert [each["source"] for each in found] == ["0", "1", "2", "3", "4"]
    assert [each["kernel"] for each in found] == [
        *("kernel", "kernel_2", "kernel_3", "other", "kernel_4")
    ]
