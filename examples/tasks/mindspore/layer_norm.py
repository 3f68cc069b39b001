"""Layer normalisation of every row of a matrix, with the gamma and beta of a MindSpore cell."""

import mindspore
import numpy as np
from mindspore import nn

rows = 256
columns = 512


class Model(nn.Cell):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm((columns,), epsilon=1e-5)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return self.norm(x)


def get_inputs() -> list[mindspore.Tensor]:
    return [mindspore.Tensor(np.random.randn(rows, columns), mindspore.float32)]


def get_init_inputs() -> list[int]:
    return [columns]
