"""What `sketchc targets` says where parts of TileLang's toolchain are missing, and what
`sketchc toolchain install` does about it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from sketchc.cli.main import run
from sketchc.runtime.toolchains.tilelang_cuda import toolchain


def test_a_missing_compiler_is_said_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    assert run(["targets"]) == 0
    _, _, told = capsys.readouterr().out.partition("tilelang_cuda ")
    told, _, _ = told.partition("\n\n")
    assert "compiles here: no" in told
    assert "missing:       " in told
    assert "nvcc" in told.partition("missing:")[2].splitlines()[0]
    assert "sketchc toolchain install tilelang_cuda" in told


def test_another_version_of_tilelang_is_missing_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "installed", lambda *_: {"torch": "2", "tilelang": "0.1.3"})
    assert run(["targets", "--json"]) == 0
    (found,) = (
        each
        for each in json.loads(capsys.readouterr().out)["targets"]
        if each["target"] == "tilelang_cuda"
    )
    assert "tilelang 0.1.15" in json.dumps(found)


def test_installing_brings_the_version_and_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[Any] = []
    monkeypatch.setattr(toolchain, "installed", lambda *_: {"torch": "2.13.0"})
    monkeypatch.setattr(toolchain, "run_installer", commands.append)
    monkeypatch.setattr(toolchain, "install_nvcc", lambda: "nvcc 13.0.88 is here")
    assert run(["toolchain", "install", "tilelang_cuda"]) in (0, 1)
    said = capsys.readouterr()
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-1] == "tilelang==0.1.15"
    assert "nvcc 13.0.88 is here" in said.out + said.err
    assert "still missing: tilelang" in said.out + said.err
