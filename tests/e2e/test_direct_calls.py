"""A drop-in's function calls its kernel at once where nobody follows what torch does, and else
through the kernel's operator of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_cases import example, load_module, lower
from toolchains import require
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sketchc.runtime.dropin.kernel_module import write_module

require("cpp")

F = torch.nn.functional


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    _, kernel = lower(example("layer_norm"))
    path = write_module(tmp_path_factory.mktemp("dropin"), kernel)
    return load_module(path, "layer_norm_dropin")


@pytest.fixture
def operated(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has one element for each call of the operator."""
    calls: list[int] = []
    own = module.KERNEL.operator

    def counted(*values: Any) -> Any:
        calls.append(1)
        return own(*values)

    monkeypatch.setattr(module.KERNEL, "operator", counted)
    return calls


def given() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 37), torch.randn(37), torch.randn(37)


def wanted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (37,), weight, bias)


def test_plain_tensors_go_to_the_kernel_at_once(module: Any, operated: list[int]) -> None:
    x, weight, bias = given()
    torch.testing.assert_close(module.layer_norm(x, weight, bias), wanted(x, weight, bias))
    out = torch.empty_like(x)
    assert module.layer_norm(x, weight, bias, out=out) is out
    torch.testing.assert_close(out, wanted(x, weight, bias))
    parameter = torch.nn.Parameter(weight)
    with torch.no_grad():
        found = module.layer_norm(x, parameter, bias)
    torch.testing.assert_close(found, wanted(x, weight, bias))
    with torch.inference_mode():
        found = module.layer_norm(x, weight, bias)
    torch.testing.assert_close(found, wanted(x, weight, bias))
    assert not operated


def test_views_of_any_kind_are_computed(module: Any) -> None:
    _, weight, bias = given()
    strided, complex_ = torch.randn(37, 5).T, torch.randn(1, 37, dtype=torch.complex64)
    for x in (strided, complex_.conj().imag, torch._neg_view(torch.randn(3, 37))):
        torch.testing.assert_close(module.layer_norm(x, weight, bias), wanted(x, weight, bias))


def test_a_wanted_gradient_is_refused_when_it_is_asked_for(
    module: Any, operated: list[int]
) -> None:
    x, weight, bias = given()
    found = module.layer_norm(x, torch.nn.Parameter(weight), bias)
    assert operated
    with pytest.raises(NotImplementedError, match="no backward pass"):
        found.sum().backward()
    with pytest.raises(RuntimeError, match="X requires a gradient"):
        module.layer_norm(x.requires_grad_(), weight, bias)


def traced(function: Callable[..., Any], values: tuple[torch.Tensor, ...]) -> str:
    from torch.fx.experimental.proxy_tensor import make_fx

    return str(make_fx(function)(*values).graph)


def scripted(function: Callable[..., Any], values: tuple[torch.Tensor, ...]) -> str:
    return str(torch.jit.trace(function, values, check_trace=False).inlined_graph)


@pytest.mark.parametrize("trace", [traced, scripted])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_whoever_traces_sees_the_operator(
    module: Any, trace: Callable[[Callable[..., Any], tuple[torch.Tensor, ...]], str]
) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return module.layer_norm(x, weight, bias)

    assert "layer_norm_" in trace(function, given())


def test_modes_see_the_operator(module: Any) -> None:
    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    for mode in (Functions, Dispatched):
        seen.clear()
        values = given()
        with mode():
            found = module.layer_norm(*values)
        assert any(name.startswith("sketchc.layer_norm_") for name in seen), mode
        torch.testing.assert_close(found, wanted(*values))


def test_transformations_of_functions_see_the_operator(module: Any, operated: list[int]) -> None:
    x, weight, bias = given()
    several = torch.stack([x, 2 * x, -x])
    found = torch.func.vmap(lambda one: module.layer_norm(one, weight, bias))(several)
    torch.testing.assert_close(found, wanted(several, weight, bias))
    assert operated


def test_who_kept_a_tensor_for_a_gradient_hears_that_a_kernel_wrote_to_it(module: Any) -> None:
    x, weight, bias = given()
    out = torch.randn(5, 37)
    factor = torch.randn(5, 37, requires_grad=True)
    kept = (factor * out).sum()
    module.layer_norm(x, weight, bias, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    with torch.inference_mode():
        module.layer_norm(x, weight, bias, out=torch.empty(5, 37))


def operators_compiled(function: Callable[..., Any], values: tuple[torch.Tensor, ...]) -> list[str]:
    """The names of the operators of sketchc in what torch compiles of a call."""
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*values), wanted(*values))
    return [name for name in seen if name.startswith("sketchc.")]


def test_compiled_calls_ask_for_gradients_only_where_they_are_on(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return module.layer_norm(x, weight, bias)

    values = given()
    (own,) = operators_compiled(function, values)
    assert not own.endswith("_in_graph.default")
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            (name,) = operators_compiled(function, values)
        assert name == own.replace(".default", "_in_graph.default")
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*values), wanted(*values))
    x, weight, bias = values
    found = compiled(x, torch.nn.Parameter(weight), bias)
    with pytest.raises(NotImplementedError, match="no backward pass"):
        found.sum().backward()


def test_what_is_exported_without_gradients_refuses_them_later(module: Any) -> None:
    class Norm(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
            return module.layer_norm(x, weight, bias)

    x, weight, bias = given()
    with torch.no_grad():
        program = torch.export.export(Norm(), (x, weight, bias))
    found = program.module()(x, torch.nn.Parameter(weight), bias)
    with pytest.raises(NotImplementedError, match="no backward pass"):
        found.sum().backward()
