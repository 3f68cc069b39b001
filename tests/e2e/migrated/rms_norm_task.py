"""The task of `rms_norm.py`."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def get_inputs():
    return [torch.randn(48, 300), torch.rand(300)]
