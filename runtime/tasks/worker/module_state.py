"""The tensors that a torch module holds: what a task has besides its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def state(model: Any) -> dict[str, torch.Tensor]:
    """Parameters in their order, then buffers, then other tensors among the attributes of modules,
    by dotted name; a function has none."""
    if not isinstance(model, torch.nn.Module):
        return {}
    plain = {name: tensor for name, (_, tensor) in unregistered(model).items()}
    return {**dict(model.named_parameters()), **dict(model.named_buffers()), **plain}


def unregistered(model: Any) -> dict[str, tuple[torch.nn.Module, torch.Tensor]]:
    """Tensors that are attributes of modules, and neither parameters nor buffers, by dotted name,
    each with its module; a function has none. No method of a module's moves, converts or loads
    them."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {
        f"{path}.{name}" if path else name: (module, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    }


def load_state(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into the tensors of a module, by name; unknown names are ignored."""
    model.load_state_dict(values, strict=False)
    for name, (_, tensor) in unregistered(model).items():
        if name in values:
            tensor.data = values[name].to(tensor.device)
