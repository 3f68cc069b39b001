"""task: relu. The interpreter works through the addresses, element by element; nothing is launched."""

import ctypes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        read = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
        write = (ctypes.c_float * x.numel()).from_address(y.data_ptr())
        for place, value in enumerate(read):
            write[place] = max(value, 0.0)
        return y
