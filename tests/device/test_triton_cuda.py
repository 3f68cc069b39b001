"""The Triton target on a real GPU: every example, every operation, and indices beyond 2^31."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_sizes import inputs_for, params_for, sizes_for
from triton_cases import EXAMPLES, assert_close, example, lower, make_case
from triton_sketches import SKETCHES

from sketchc.runtime.toolchains.base import Artefact
from sketchc.runtime.toolchains.triton_cuda.toolchain import TOOLCHAIN

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


NAMES = sorted(path.stem for path in EXAMPLES.glob("*.sketch"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 31, 100, 257])
def test_examples_match_the_interpreter(name: str, size: int, tmp_path: Path) -> None:
    kernel = lower(example(name))[1]
    params = params_for(kernel.sketch)
    wanted = [size if i > 1 else 3 for i in range(len(kernel.sketch.symbols))]
    symbols = sizes_for(kernel.sketch, wanted, params)
    case = make_case(kernel, symbols, params, inputs_for(kernel.sketch, symbols, params))
    found = TOOLCHAIN.run(Artefact(kernel, tmp_path), case.tensors, symbols, params)
    for tensor, expected in case.expected.items():
        assert_close(found[tensor], expected, terms=256)


@pytest.mark.parametrize("name", SKETCHES)
def test_features_match_the_interpreter(name: str, tmp_path: Path) -> None:
    text, assignments, params = SKETCHES[name]
    kernel = lower(text)[1]
    for symbols in assignments:
        case = make_case(kernel, symbols, params)
        found = TOOLCHAIN.run(Artefact(kernel, tmp_path), case.tensors, symbols, params)
        for tensor, expected in case.expected.items():
            assert_close(found[tensor], expected, terms=256)


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    import importlib.util

    text = example("relu").replace("f32", "f16")
    path = tmp_path / "relu_half.py"
    path.write_text(lower(text)[1].source)
    specification = importlib.util.spec_from_file_location("relu_half", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    x = torch.full((65_537, 32_771), -1.0, dtype=torch.float16, device="cuda")
    x[-1, -5:] = 3.0
    y = module.relu(x)
    assert int((y != 0).sum()) == 5
    assert bool((y[-1, -5:] == 3.0).all())
