"""The ATen operations that a PyTorch task runs, at given sizes.

The task is traced on tensors without data (`FakeTensorMode`), after writes in place and views were
turned into values (`functionalize`) and composite operations into smaller ones. A loop of the task
is unrolled and its branches are taken as at these sizes; what differs from size to size shows when
several traces are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from sketchc.runtime.tasks.worker import formulas
from sketchc.runtime.tasks.worker.functions import Formulas, table
from sketchc.runtime.tasks.worker.task_file import refuse

#: Elements up to which a tensor that the task makes for itself is told with its values.
_MOST_VALUES = 4096
#: Not taken apart: the designer has one form for each, or its parts are too many.
_WHOLE = (
    *("convolution", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"),
    *("gru", "lstm", "rnn_tanh", "rnn_relu"),
    *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "argmax", "argmin"),
    *("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"),
    *("relu", "clamp", "clamp_min", "clamp_max", "leaky_relu", "elu", "hardsigmoid", "hardswish"),
    *("gelu", "erf", "sigmoid", "silu", "softplus", "hardtanh"),
    *("constant_pad_nd", "embedding", "gather", "index_select"),
    *("linalg_vector_norm", "native_group_norm", "slice_scatter", "select_scatter"),
)
#: Not taken apart for integers, on which each is one operation.
_WHOLE_OF_INTEGERS = ("floor_divide",)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions, without those of `_WHOLE`, and the formulas of `formulas`."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    table = {**dict(core_aten_decompositions()), **decomposition_table}
    found: dict[Any, Callable[..., Any]] = {}
    for operation, rule in table.items():
        if isinstance(operation, torch._ops.OpOverload):
            name = operation._schema.name.removeprefix("aten::")
            if name not in _WHOLE:
                found[operation] = _of_floats(rule) if name in _WHOLE_OF_INTEGERS else rule
    return found | formulas.table()


def _of_floats(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition `rule` for floats; for integers the operation is left whole."""

    def applied(*arguments: Any, **named: Any) -> Any:
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        if any(each.is_floating_point() for each in tensors):
            return rule(*arguments, **named)
        return NotImplemented

    return applied


def trace(
    run: Callable[[Mapping[str, torch.Tensor], Sequence[Any]], Sequence[torch.Tensor]],
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
) -> dict[str, Any]:
    """The graph of `run(state, inputs)` as plain data: `nodes`, in order, and what is `returned`;
    nodes that nothing needs are among them, as at the end of a loop.

    A node is {"operation", "arguments": name -> value, "tensors": those it gives}; a value is
    {"node": number, "of": which of its tensors}, {"input": position}, {"state": name}, {"dtype":
    spelling}, {"made": tensor with its values}, a list of values, a number, a text or None. Raises
    `TaskError` where the task looks at values.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Nobody runs the graph: that its code is written at once is what takes most of a long trace.
    with mode, torch.no_grad(), _use_lazy_graph_module(True):
        known = {name: torch.empty(v.shape, dtype=v.dtype) for name, v in state.items()}
        given = [
            torch.empty(v.shape, dtype=v.dtype) if isinstance(v, torch.Tensor) else v
            for v in inputs
        ]
        tensors = [v for v in given if isinstance(v, torch.Tensor)]

        def flat(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            state_now = dict(zip(known, values[: len(known)], strict=True))
            rest = iter(values[len(known) :])
            now = [next(rest) if isinstance(v, torch.Tensor) else v for v in given]
            with Formulas(table()):
                return tuple(run(state_now, now))

        traced = make_fx(
            torch.func.functionalize(flat, remove="mutations_and_views"),
            decomposition_table=_decompositions(),
        )(*known.values(), *tensors)
    names: list[dict[str, Any]] = [{"state": name} for name in known]
    names += [{"input": n} for n, v in enumerate(given) if isinstance(v, torch.Tensor)]
    return _Written(traced, names).graph()


def _needed(graph: torch.fx.Graph) -> set[Node]:
    """The nodes that the returned values depend on, and the output itself."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or not found.isdisjoint(node.users):
            found.add(node)
    return found


class _Written:
    """A traced graph, written as plain data."""

    def __init__(self, traced: torch.fx.GraphModule, names: list[dict[str, Any]]) -> None:
        self.traced = traced
        self.needed = _needed(traced.graph)
        self.names = iter(names)
        self.values: dict[Node, Any] = {}
        self.nodes: list[dict[str, Any]] = []

    def graph(self) -> dict[str, Any]:
        returned: list[Any] = []
        for node in self.traced.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node] = next(self.names)
                case "get_attr":
                    made = getattr(self.traced, node.target)
                    # Values that nothing needs are left out, however many there are.
                    told = made if node in self.needed else made.new_empty(0)
                    self.values[node] = self.made(told)
                case "output":
                    returned = self.value(list(node.args[0]))
                case _:
                    self.called(node)
        return {"nodes": self.nodes, "returned": returned}

    def called(self, node: Node) -> None:
        if node.target.__name__ == "getitem":  # type: ignore[union-attr]
            self.values[node] = {**self.values[node.args[0]], "of": node.args[1]}  # type: ignore[index]
            return
        schema = node.target._schema  # type: ignore[union-attr]
        arguments = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        arguments |= {a.name: v for a, v in zip(schema.arguments, node.args, strict=False)}
        arguments |= node.kwargs
        for name in ("layout", "device", "memory_format", "pin_memory", "non_blocking"):
            arguments.pop(name, None)
        if schema.name.endswith("::as_strided"):
            # Strides and offset count in the memory of the source, which may be a view of another;
            # the offset is told from where the source begins.
            source = node.args[0].meta["val"]  # type: ignore[union-attr]
            begin, given = source.storage_offset(), arguments["storage_offset"]
            arguments["storage_offset"] = 0 if given is None else given - begin
            arguments["source_stride"] = list(source.stride())
        found = node.meta.get("val")
        tensors = found if isinstance(found, list | tuple) else [found]
        self.values[node] = {"node": len(self.nodes), "of": 0}
        self.nodes.append(
            {
                "operation": schema.name.removeprefix("aten::"),
                "arguments": {name: self.value(value) for name, value in arguments.items()},
                "tensors": [_specification(tensor) for tensor in tensors],
            }
        )

    def value(self, value: Any) -> Any:
        match value:
            case Node():
                return self.values[value]
            case list() | tuple():
                return [self.value(item) for item in value]
            case torch.dtype():
                return {"dtype": str(value).removeprefix("torch.")}
            case torch.Tensor():
                return self.made(value)
            case bool() | int() | float() | str() | None:
                return value
            case _:
                return {"text": str(value)}

    def made(self, tensor: torch.Tensor) -> dict[str, Any]:
        if tensor.numel() > _MOST_VALUES:
            refuse(f"a tensor of {tensor.numel():,} elements that the task makes for itself")
        return {"made": {**_specification(tensor), "values": tensor.reshape(-1).tolist()}}


def _specification(tensor: Any) -> dict[str, Any]:
    if not isinstance(tensor, torch.Tensor):
        return {"dtype": type(tensor).__name__, "shape": []}
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
