"""The devices of `sketchc.toml` are those that workers see."""

from __future__ import annotations

import pytest

from sketchc.cli.gen_run import visible_devices
from sketchc.runtime.process.peer import clean_environment


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("triton_cuda", "CUDA_VISIBLE_DEVICES"),
        ("triton_ascend", "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)
def test_workers_see_the_devices_that_are_named(
    target: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in visible_devices(target, (1, 3)).items():
        monkeypatch.setenv(variable, value)
    assert clean_environment({})[name] == "1,3"


@pytest.mark.parametrize(("target", "devices"), [("cpp", (1,)), ("triton_cuda", ())])
def test_otherwise_they_see_all(target: str, devices: tuple[int, ...]) -> None:
    assert visible_devices(target, devices) == {}
