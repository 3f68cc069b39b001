"""Files with kernels by others, written into a folder and judged by `sketchc verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sketchc.cli import main

TASK = '''import torch
from torch import nn


class Model(nn.Module):
    """relu(x + bias) * 2"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.bias) * 2.0


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(70, 33)]


def get_init_inputs() -> list[int]:
    return [33]
'''


def edited(source: str, *edits: tuple[str, str]) -> str:
    """The source with texts replaced; each must be there."""
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return source


def write(folder: Path, sources: Mapping[str, str]) -> list[str]:
    """The sources as files; their paths in order."""
    paths = [folder / name for name in sources]
    for path, source in zip(paths, sources.values(), strict=True):
        path.write_text(source)
    return [str(path) for path in paths]


def judge(
    capsys: pytest.CaptureFixture[str], files: list[str], task: Path, target: str, *more: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and the verdicts by the files' names."""
    arguments = ["verify", *files, "--task", str(task), "--target", target, "--json", *more]
    status = main.run(arguments)
    reply = json.loads(capsys.readouterr().out)
    verdicts = reply["verdicts"] if len(files) > 1 else [reply]
    return status, {Path(v["kernel"]["path"]).name: v for v in verdicts}
