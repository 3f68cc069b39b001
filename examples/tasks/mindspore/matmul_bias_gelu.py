"""A dense layer and gelu, as MindSpore cells: gelu(x @ weight.T + bias)."""

import mindspore
import numpy as np
from mindspore import nn, ops

rows, inner, outer = 128, 96, 160


class Model(nn.Cell):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.dense = nn.Dense(inner, outer)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return ops.gelu(self.dense(x), approximate="none")


def get_inputs() -> list[mindspore.Tensor]:
    return [mindspore.Tensor(np.random.randn(rows, inner), mindspore.float32)]


def get_init_inputs() -> list[int]:
    return [inner, outer]
