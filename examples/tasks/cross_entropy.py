"""Mean cross entropy of logits and class numbers."""

import torch
from torch import nn

rows = 512
classes = 10000


class Model(nn.Module):
    """mean over the rows of logsumexp(logits) - logits[target]."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, target)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        logits, target = inputs
        return [logits, target % logits.shape[1]]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, classes), torch.randint(classes, (rows,))]


def get_init_inputs() -> list[object]:
    return []
