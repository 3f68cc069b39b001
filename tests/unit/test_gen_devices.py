"""The devices of `sketchc.toml` are those that workers see."""

from __future__ import annotations

import pytest

from sketchc.cli.gen_run import visible_devices
from sketchc.runtime.process.peer import clean_environment


@pytest.mark.parametrize(
    ("hardware", "name"),
    [("h200", "CUDA_VISIBLE_DEVICES"), ("ascend910b4", "ASCEND_RT_VISIBLE_DEVICES")],
)
def test_workers_see_the_devices_that_are_named(
    hardware: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in visible_devices(hardware, (1, 3)).items():
        monkeypatch.setenv(variable, value)
    assert clean_environment({})[name] == "1,3"


@pytest.mark.parametrize(("hardware", "devices"), [("cpu", (1,)), ("h200", ())])
def test_otherwise_they_see_all(hardware: str, devices: tuple[int, ...]) -> None:
    assert visible_devices(hardware, devices) == {}
