"""Softmax of every row of a matrix, as a MindSpore cell."""

import mindspore
import numpy as np
from mindspore import nn, ops

rows = 512
columns = 1024


class Model(nn.Cell):
    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return ops.softmax(x, axis=-1)


def get_inputs() -> list[mindspore.Tensor]:
    return [mindspore.Tensor(np.random.randn(rows, columns), mindspore.float32)]
