"""Designs of windows that lie along planes, and of transposed convolutions phase by phase, are
proved and mean what PyTorch computes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from test_autosketch import TASKS, Task, proved_and_right, written

from sketchc.agents.autosketch import taps
from sketchc.agents.autosketch.designer import design
from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.runtime.tasks.task import load_task

CHANNELS = (
    "F.conv2d(x, (torch.arange(27.0).reshape(3, 1, 3, 3) / 13.0 - 1.0).to(x), padding=1, groups=3)",
    ((2, 3, 10, 11),),
)
#: Windows, by what they are of.
PLANES = {
    "channels": CHANNELS,
    **{name: TASKS[name] for name in ("largest_of_windows", "means_of_windows", "pooled_filter")},
}
#: Transposed convolutions: as many taps in each phase, two or one, and along one axis in groups
#: with gaps between phases along the other.
PHASES = {
    "alike": (
        "F.conv_transpose2d(x, (torch.arange(192.0).reshape(3, 4, 4, 4) / 96.0 - 1.0).to(x), "
        "stride=2, padding=1)",
        ((2, 3, 10, 11),),
    ),
    "ragged": (
        "F.conv_transpose2d(x, (torch.arange(108.0).reshape(3, 4, 3, 3) / 54.0 - 1.0).to(x), "
        "stride=2, padding=1)",
        ((2, 3, 10, 11),),
    ),
    "groups": (
        "F.conv_transpose2d(x, (torch.arange(72.0).reshape(4, 2, 3, 3) / 36.0 - 1.0).to(x), "
        "stride=(4, 2), padding=(0, 1), dilation=(3, 1), groups=2)",
        ((2, 4, 6, 7),),
    ),
    # Lanes are phases of a place, which no subscript of the image has.
    "depthwise": (
        "F.conv_transpose2d(x, (torch.arange(36.0).reshape(4, 1, 3, 3) / 18.0 - 1.0).to(x), "
        "stride=2, groups=4)",
        ((2, 4, 5, 6),),
    ),
    # A tap is left out in phases of each axis, for whichever of them lies in an operand's rows.
    "volumes": (
        "F.conv_transpose3d(x, (torch.arange(840.0).reshape(4, 2, 3, 5, 7) / 420.0 - 1.0).to(x), "
        "stride=2, padding=(1, 2, 3), output_padding=1, groups=2)",
        ((2, 4, 3, 4, 5),),
    ),
}


@pytest.mark.parametrize("name", PLANES)
def test_windows_along_planes_mean_the_task(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, PLANES[name])
    with load_task(str(path)) as task:
        text = design(task, planes=True)
        assert text != design(task)
    assert re.search(r"l = \w+ % ", text)  # a lane's column
    proved_and_right(name, text, path)


@pytest.mark.parametrize("name", PHASES)
def test_transposed_convolutions_by_phase_mean_the_task(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, PHASES[name])
    with load_task(str(path)) as task:
        text = design(task)
    assert "% 2 == 0" not in text  # no lanes between the strides
    proved_and_right(name, text, path)


def test_transposed_windows_of_any_extent_have_a_sketch_for_all_sizes(tmp_path: Path) -> None:
    task = ("F.conv_transpose2d(x, w, stride=2, padding=1)", ((2, 7, 9, 10), (7, 6, 4, 4)))
    path = written(tmp_path, "any_extent", task)
    with load_task(str(path)) as loaded:
        text = design(loaded)
    assert check(Source("t.sketch", text)).ok
    assert re.search(r"symbols: M, N, K, P, Q, R;", text)


def convolution(call: str, weight: tuple[int, ...], image: tuple[int, ...], end: str = "") -> Task:
    """The task of a convolution with a weight of these extents; `end` comes behind the call."""
    numbers = f"torch.arange({float(math.prod(weight))}).reshape({weight})"
    signed = f"(({numbers} * 7.0) % 19.0 / 9.0 - 1.0).to(x)"
    name, _, arguments = call.partition("(")
    return f"F.{name}(x, {signed}, {arguments}{end}", (image,)


#: Convolutions whose blocks are of channels, at one place of the window after the other: with all
#: that moves a place, and transposed with phases that have as many taps, fewer, one and none.
TAPS = {
    "line": convolution("conv1d(stride=3, dilation=4)", (3, 16, 3), (2, 16, 31)),
    "plane": convolution(
        "conv2d(stride=(1, 2), padding=(2, 1), dilation=(2, 1))", (5, 16, 3, 4), (2, 16, 9, 10)
    ),
    "volume": convolution("conv3d(padding=1)", (3, 16, 2, 3, 1), (2, 16, 4, 5, 3)),
    "groups": convolution("conv2d(padding=1, groups=2)", (6, 16, 3, 3), (2, 32, 5, 6)),
    "ending": convolution("conv2d(padding=1)", (4, 16, 3, 3), (2, 16, 6, 7), " * 2.0 - 0.5"),
    "turned": convolution("conv_transpose2d(padding=(1, 3))", (16, 3, 3, 7), (2, 16, 6, 7)),
    "alike": convolution("conv_transpose2d(stride=2, padding=1)", (16, 3, 4, 4), (2, 16, 5, 6)),
    "apart": convolution("conv_transpose2d(stride=2)", (16, 5, 2, 2), (2, 16, 5, 6)),
    "fewer": convolution("conv_transpose2d(stride=2, padding=1)", (16, 3, 3, 3), (2, 16, 5, 6)),
    "single": convolution(
        "conv_transpose2d(stride=5, padding=1, dilation=2)", (16, 3, 3, 3), (2, 16, 4, 5)
    ),
    "none": convolution(
        "conv_transpose1d(stride=2, padding=1, dilation=2)", (16, 3, 3), (2, 16, 9)
    ),
    "common": convolution(
        "conv_transpose2d(stride=(4, 6), padding=(1, 2), dilation=(6, 4))",
        (16, 3, 3, 5),
        (2, 16, 4, 5),
    ),
    # Padding takes whole rounds: a phase has fewer places than the image.
    "padded": convolution(
        "conv_transpose2d(stride=3, padding=3, output_padding=1)", (16, 3, 5, 5), (2, 16, 6, 7)
    ),
    "less": convolution("conv_transpose2d(stride=4, padding=3)", (16, 3, 6, 6), (2, 16, 5, 6)),
    "beyond": convolution(
        "conv_transpose3d(stride=2, padding=1, output_padding=(1, 0, 1))",
        (16, 2, 3, 3, 3),
        (2, 16, 2, 3, 4),
    ),
    "in_groups": convolution(
        "conv_transpose2d(stride=(2, 3), dilation=(2, 1), groups=2)", (32, 3, 3, 5), (2, 32, 4, 5)
    ),
    "few_channels": convolution(
        "conv_transpose2d(stride=(2, 3), dilation=(2, 1), groups=2)", (6, 3, 3, 5), (2, 6, 4, 5)
    ),
}


@pytest.mark.parametrize("name", TAPS)
def test_convolutions_tap_by_tap_mean_the_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taps, "_FEWEST_PIXELS", 1)
    path = written(tmp_path, name, TAPS[name])
    with load_task(str(path)) as task:
        text = design(task, planes=True)
    assert ("INTERIM_2" in text) == (
        name not in ("few_channels", "apart")
    )  # the weight, place by place
    proved_and_right(name, text, path)


@pytest.mark.parametrize("name", ["alike", "ragged", "groups", "volumes"])
def test_phases_of_few_channels_are_stored_where_they_belong(name: str, tmp_path: Path) -> None:
    """Lanes run along planes: no workspace between, and branches where a phase has no taps."""
    path = written(tmp_path, name, PHASES[name])
    with load_task(str(path)) as task:
        text = design(task, planes=True)
    assert "PARTIAL" not in text
    proved_and_right(name, text, path)
