"""The bytes of a torch tensor, whatever its strides are. Needs torch."""

from __future__ import annotations

import torch


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, row-major, as bytes.

    A tensor with axes of extent 1 is contiguous whatever the strides of these axes are, and
    `reshape(-1)` keeps them; `view` takes a stride of 1 only.
    """
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    plain = tensor.detach().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)
