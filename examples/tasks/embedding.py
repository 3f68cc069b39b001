"""Rows of a table, looked up by token."""

import torch
from torch import nn

batch_size = 16
length = 200
words = 5000
width = 300


class Model(nn.Module):
    """y[b, l] = weight[tokens[b, l]]."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        return [inputs[0] % self.table.num_embeddings]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(words, (batch_size, length))]


def get_init_inputs() -> list[int]:
    return [words, width]
