"""Convolutions of a reference that are run in parts give what they give at once."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sketchc.runtime.tasks.worker import convolutions  # noqa: E402


@pytest.mark.parametrize("most", [1, 700, 5000])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "name", [f"Conv{kind}{n}d" for kind in ("", "Transpose") for n in (1, 2, 3)]
)
def test_parts_are_the_whole(
    name: str, groups: int, bias: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolutions, "_WINDOWS", most)
    dimensions = int(name[-2])
    layer = getattr(torch.nn, name)(4, 6, 3, stride=2, padding=1, groups=groups, bias=bias).double()
    images = torch.randn(5, 4, *(7, 6, 5)[:dimensions], dtype=torch.float64)
    with torch.no_grad():
        whole = layer(images)
        with convolutions.InParts():
            assert torch.allclose(layer(images), whole, rtol=1e-13, atol=1e-13)
            assert torch.allclose(layer(images[0]), whole[0], rtol=1e-13, atol=1e-13)
            assert layer(images[:0]).shape == (0, *whole.shape[1:])


@pytest.mark.parametrize("name", ["Conv2d", "Conv3d"])
def test_without_data_windows_must_fit_too(name: str) -> None:
    """Some releases of PyTorch give a result without elements."""
    dimensions = int(name[-2])
    layer = getattr(torch.nn, name)(4, 6, 3, device="meta")
    for size in (2, 3):
        image = torch.empty(5, 4, *[7] * (dimensions - 1), size, device="meta")
        with convolutions.AsWithData():
            if size == 3:
                assert layer(image).shape == (5, 6, *[5] * (dimensions - 1), 1)
            else:
                with pytest.raises(RuntimeError):
                    layer(image)
