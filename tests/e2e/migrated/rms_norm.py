"""RMS norm of rows with weights, in blocks of columns: rows may be long."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(X, W, Y, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += x * x
    rstd = 1.0 / tl.sqrt(tl.sum(acc, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, x * rstd * w, mask=mask)


def rms_norm(x, weight, eps=1e-5):
    y = torch.empty_like(x)
    rows = x.reshape(-1, x.shape[-1])
    rms_norm_kernel[(rows.shape[0],)](rows, weight, y, rows.stride(0), x.shape[-1], eps, BLOCK=256)
    return y
