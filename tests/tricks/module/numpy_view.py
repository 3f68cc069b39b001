"""task: relu. NumPy on the tensor's own memory."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        np.maximum(x.numpy(), 0.0, out=y.numpy())
        return y
