"""The API documents of the Triton targets say what exists: every entry is compiled here, and what
they call missing is refused. Kernels in `docspec_claims`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docspec_claims import (
    AVAILABLE,
    COMPILED_ONLY,
    INTERPRETED_ONLY,
    MISSING,
    TYPES,
    UNCHECKED,
    kernel_name,
    module_of,
)
from toolchains import require

from sketchc.base.types import DType
from sketchc.docspec.loader import load
from sketchc.docspec.schema import Category
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.triton_ascend import frontend
from sketchc.runtime.toolchains.triton_ascend.environment import (
    FRONTEND,
    find_tools,
)
from sketchc.runtime.toolchains.triton_ascend.linalg import (
    BuildError,
    UnsupportedLinalgError,
    build,
)

BATCH = Path(__file__).with_name("docspec_batch.py")
Array = np.ndarray[Any, Any]
LIBDEVICE = "from triton.language.extra import libdevice"
#: Entries that are device functions of an example (which the examples' own test runs) or lists of
#: what is missing.
WITHOUT_KERNELS = {"Hyperbolic tangent", "What does not exist"}


@pytest.mark.parametrize("target", sorted(AVAILABLE))
def test_every_entry_has_a_kernel(target: str) -> None:
    titles = {section.title for section in load(target).of(Category.API) if section.signatures}
    claimed = set(AVAILABLE[target]) | set(UNCHECKED.get(target, {}))
    assert titles - claimed <= WITHOUT_KERNELS
    assert claimed <= titles


def of(target: str) -> tuple[str, ...]:
    """One kernel per entry: starting the compiler costs more than what is compiled."""
    return tuple("\n".join(claims) for claims in AVAILABLE[target].values())


def write(folder: Path, claims: tuple[str, ...], imports: str = "") -> dict[str, Any]:
    """The request of a worker that looks at every claim."""
    file = folder / "claims.py"
    file.write_text(module_of(claims, imports), "utf-8")
    kernels = [kernel_name(number) for number in range(len(claims))]
    return {"file": str(file), "kernels": kernels, "types": TYPES, "words": []}


def reply_of(handler: str, request: dict[str, Any], **options: Any) -> Any:
    folder = Path(request["file"]).parent
    result = run_worker(f"{BATCH}:{handler}", request, timeout=600, writable=[folder], **options)
    assert result.reply is not None, result.describe() + result.traceback + result.output
    return result.reply


def compiled(folder: Path, claims: tuple[str, ...], words: tuple[str, ...] = ()) -> Any:
    request = write(folder, claims, LIBDEVICE) | {"words": list(words)}
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")}
    return reply_of("compile_claims", request, environment=environment)


def interpreted(folder: Path, claims: tuple[str, ...]) -> list[str]:
    request = write(folder, claims, LIBDEVICE)
    return list(reply_of("run_claims", request, environment={"TRITON_INTERPRET": "1"})["replies"])


def wrong(claims: tuple[str, ...], replies: list[str], refused: bool) -> list[tuple[str, str]]:
    return [(c, r) for c, r in zip(claims, replies, strict=True) if bool(r) is not refused]


# ---------------------------------------------------------------- CUDA


@pytest.mark.sweep
def test_cuda_compiles_what_the_documents_offer(tmp_path: Path) -> None:
    require("triton_cuda")
    claims = of("triton_cuda") + COMPILED_ONLY
    assert wrong(claims, compiled(tmp_path, claims)["replies"], refused=False) == []


def test_cuda_refuses_what_the_documents_call_missing(tmp_path: Path) -> None:
    require("triton_cuda")
    claims = MISSING["triton_cuda"] + INTERPRETED_ONLY
    assert wrong(claims, compiled(tmp_path, claims)["replies"], refused=True) == []


def test_the_interpreter_runs_what_the_documents_offer(tmp_path: Path) -> None:
    require("triton_cuda")
    claims = of("triton_cuda") + INTERPRETED_ONLY
    assert wrong(claims, interpreted(tmp_path, claims), refused=False) == []


def test_the_interpreter_fails_where_the_documents_say_so(tmp_path: Path) -> None:
    require("triton_cuda")
    assert wrong(COMPILED_ONLY, interpreted(tmp_path, COMPILED_ONLY), refused=True) == []


def test_a_sum_of_products_becomes_tf32_without_the_added_zero(tmp_path: Path) -> None:
    require("triton_cuda")
    product = "x[:, :, None] * xb[None, :, :]"
    claims = tuple(
        f"tl.store(O + flat, tl.sum({text}, axis=1))" for text in (product, f"{product} + 0.0")
    )
    folded, kept = compiled(tmp_path, claims, ("mma",))["marks"]
    assert folded > 0
    assert kept == 0


# ---------------------------------------------------------------- Ascend


@pytest.fixture(scope="module")
def ascend() -> Any:
    return require("triton_ascend")


def lowered(folder: Path, claims: tuple[str, ...]) -> list[dict[str, str]]:
    request = write(folder, claims) | {"frontend": str(frontend.__file__)}
    request["python"] = str(FRONTEND.python())
    seen = [FRONTEND.folder(), Path(frontend.__file__)]
    return list(reply_of("lower_elsewhere", request, readable=seen)["replies"])


@pytest.mark.sweep
def test_ascend_compiles_what_the_documents_offer(ascend: Any, tmp_path: Path) -> None:
    tools = find_tools()
    assert tools is not None
    claims = of("triton_ascend")
    replies = lowered(tmp_path, claims)
    assert wrong(claims, [reply["refusal"] for reply in replies], refused=False) == []
    for reply in replies:
        build(reply["linalg"], tools)


def test_ascend_refuses_what_the_documents_call_missing(ascend: Any, tmp_path: Path) -> None:
    claims = MISSING["triton_ascend"]
    replies = [reply["refusal"] for reply in lowered(tmp_path, claims)]
    assert wrong(claims, replies, refused=True) == []


def test_ascend_cannot_check_some_of_what_it_accepts(ascend: Any, tmp_path: Path) -> None:
    tools = find_tools()
    assert tools is not None
    claims = tuple(itertools.chain.from_iterable(UNCHECKED["triton_ascend"].values()))
    replies = lowered(tmp_path, claims)
    assert wrong(claims, [reply["refusal"] for reply in replies], refused=False) == []
    for reply in replies:
        with pytest.raises((BuildError, UnsupportedLinalgError)):
            build(reply["linalg"], tools)


ROW = """
import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kernel(X, Y, n, N: tl.constexpr):
    lanes = tl.arange(0, N)
{body}


def by_hand(X, *, out):
    kernel[(1,)](X, out, X.shape[0], N=8)
    return out
"""


def run_row(ascend: Any, folder: Path, body: str, values: Array, kind: str = "f32") -> Array:
    """Run a body on `values` [n] with eight lanes; Y has eight elements of f32."""
    sizes = [ir.Ref(name, ir.NameKind.SYMBOL) for name in ("N", "P")]
    sketch = ir.Sketch(
        name="by_hand",
        symbols=(ir.Symbol("N"), ir.Symbol("P")),
        params=(),
        constants=(),
        lets=(),
        tensors=(
            ir.Tensor("X", (sizes[0],), DType(kind), ir.Role.IN),
            ir.Tensor("Y", (sizes[1],), DType.F32, ir.Role.OUT),
        ),
        views=(),
        requires=(),
        tiles=(),
        phases=(),
    )
    text = ROW.format(body="\n".join(f"    {line}" for line in body.split("\n")))
    kernel = Kernel("triton_ascend", "ascend910b4", "by_hand", "by_hand", "python", text, sketch)
    ascend.place(kernel, folder)
    tensors = {"X": values, "Y": np.full(8, np.nan, np.float32)}
    found = ascend.run(Artefact(kernel, folder), tensors, {"N": len(values), "P": 8}, {})
    result: Array = found["Y"]
    return result


LOAD = "tl.store(Y + lanes, tl.load(X + lanes, mask={}, other=-1.0))"
KNOWN_MASKS = (
    "lanes < n",
    "lanes <= n - 1",
    "(lanes >= 0) & (lanes < n)",
    "lanes < tl.minimum(n, 7)",
    "(tl.program_id(0) + lanes) < n",
)
UNKNOWN_MASKS = (
    "n > lanes",
    "lanes * 2 < n * 2",
    "~(lanes >= n)",
    "(lanes < n) | (lanes < 2)",
    "lanes != n",
    "tl.where(lanes < n, True, False)",
    "tl.cast(lanes, tl.float32) < tl.cast(n, tl.float32)",
)


@pytest.mark.sweep
@pytest.mark.parametrize("mask", KNOWN_MASKS)
def test_an_interval_is_a_mask(ascend: Any, tmp_path: Path, mask: str) -> None:
    values = np.arange(5, dtype=np.float32)
    found = run_row(ascend, tmp_path, LOAD.format(mask), values)
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 4, -1, -1, -1])


@pytest.mark.sweep
@pytest.mark.parametrize("mask", UNKNOWN_MASKS)
def test_any_other_mask_reads_the_whole_block(ascend: Any, tmp_path: Path, mask: str) -> None:
    with pytest.raises(ToolchainError, match="illegal access"):
        run_row(ascend, tmp_path, LOAD.format(mask), np.arange(5, dtype=np.float32))


def test_a_strided_load_reads_past_the_end(ascend: Any, tmp_path: Path) -> None:
    body = "q = tl.arange(0, 4)\ntl.store(Y + q, tl.load(X + q * 2))"
    with pytest.raises(ToolchainError, match="illegal access"):
        run_row(ascend, tmp_path, body, np.arange(7, dtype=np.float32))


@pytest.mark.parametrize("mask", UNKNOWN_MASKS[:3])
def test_a_safe_offset_replaces_such_a_mask(ascend: Any, tmp_path: Path, mask: str) -> None:
    body = (
        f"inside = {mask}\nx = tl.load(X + tl.where(inside, lanes, 0))\n"
        "tl.store(Y + lanes, tl.where(inside, x, -1.0))"
    )
    found = run_row(ascend, tmp_path, body, np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 4, -1, -1, -1])


def test_reductions_on_ascend(ascend: Any, tmp_path: Path) -> None:
    """NaN and narrow sums, as the pitfalls tell them."""
    body = "\n".join(
        (
            "x = tl.load(X + lanes)",
            "tl.store(Y, tl.max(x, axis=0))",
            "tl.store(Y + 1, tl.max(x, axis=0, propagate_nan=True))",
            "tl.store(Y + 2, tl.reduce(x, 0, nan_maximum))",
            "tl.store(Y + 3, tl.sum(x > 0, axis=0).to(tl.float32))",
            "tl.store(Y + 4, tl.sum((x > 0).to(tl.int32), axis=0).to(tl.float32))",
            "tl.store(Y + 5, tl.argmax(x, axis=0).to(tl.float32))",
        )
    )
    values = np.array([1, 2, np.nan, 4, 5, 6, 7, 3], np.float32)
    found = run_row(ascend, tmp_path, body, values)
    np.testing.assert_array_equal(found[:6], [7, np.nan, np.nan, 1, 7, 6])


def test_half_precision_sums_add_in_half_precision(ascend: Any, tmp_path: Path) -> None:
    body = (
        "x = tl.load(X + lanes)\ntl.store(Y, tl.sum(x, axis=0).to(tl.float32))\n"
        "tl.store(Y + 1, tl.sum(x.to(tl.float32), axis=0))"
    )
    found = run_row(ascend, tmp_path, body, np.full(8, 16384, np.float16), "f16")
    np.testing.assert_array_equal(found[:2], [np.inf, 131072])


# ---------------------------------------------------------------- formulas

#: Formulas of the API documents against NumPy, on eight numbers.
FORMULAS: Mapping[str, Callable[[Array], Array]] = {
    "1.0 / (1.0 + tl.exp(-x))": lambda x: 1 / (1 + np.exp(-x)),
    "x / (1.0 + tl.exp(-x))": lambda x: x / (1 + np.exp(-x)),
    "tl.sin(x) / tl.cos(x)": np.tan,
    "x / (1.0 + tl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "tl.where(x < 0, tl.ceil(x), tl.floor(x))": np.trunc,
    "tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))": np.sign,
}
NUMBERS = np.array([-7.5, -2.5, -0.5, -1e-3, 0.0, 0.25, 1.5, 8.0], np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_of_the_documents(ascend: Any, tmp_path: Path, text: str) -> None:
    """The formulas are the same on both targets; Ascend's path is the quicker one to run."""
    shown = [section.text for target in AVAILABLE for section in load(target).of(Category.API)]
    assert any(f"`{text}`" in " ".join(part.split()) for part in shown)
    body = f"x = tl.load(X + lanes)\ntl.store(Y + lanes, {text})"
    found = run_row(ascend, tmp_path, body, NUMBERS)
    expected = FORMULAS[text](NUMBERS.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
