"""Ten operators for the target `opencl`, as a model might write their kernels: a task, the kernel,
and what to change so that it is wrong."""

from __future__ import annotations

from pathlib import Path

import attrs

_TASK = """import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

_ONE_LAUNCH = """/* plan
{{"launches": [{{"kernel": "{name}", "global": [{size}], {local}"arguments": [{arguments}]}}]}}
*/
"""


@attrs.frozen
class Operator:
    """`source` is the kernel; in it `right` stands once, and `wrong` in its place is a mistake."""

    name: str
    arguments: str
    result: str
    inputs: str
    source: str
    right: str
    wrong: str

    def write_task(self, folder: Path) -> Path:
        """The task's file in a folder."""
        path = folder / f"{self.name}.py"
        words = {"arguments": self.arguments, "result": self.result, "inputs": self.inputs}
        path.write_text(_TASK.format(**words), "utf-8")
        return path

    @property
    def mistaken(self) -> str:
        """The kernel with the mistake."""
        assert self.source.count(self.right) == 1, self.name
        return self.source.replace(self.right, self.wrong)


def _plan(name: str, size: str, arguments: str, local: str = "") -> str:
    words = ", ".join(f'"{word}"' for word in arguments.split(", "))
    sizes = ", ".join(f'"{each}"' for each in size.split("; "))
    group = f'"local": [{local}], ' if local else ""
    return _ONE_LAUNCH.format(name=name, size=sizes, local=group, arguments=words)


_ROWS = "torch.randn(37, 130)"
_RELU = (
    _plan("rectify", "M * N", "X, Y, M * N", "128")
    + """
__kernel void rectify(__global const float *x, __global float *y, long total)
{
    const long n = get_global_id(0);
    if (n < total) {
        y[n] = x[n] < 0.0f ? 0.0f : x[n];
    }
}
"""
)
_ADD = (
    _plan("added", "N; M", "X, X2, Y, N")
    + """
__kernel void added(__global const float *x, __global const float *bias, __global float *y, long N)
{
    const long n = get_global_id(0), m = get_global_id(1);
    y[m * N + n] = x[m * N + n] + bias[n];
}
"""
)
_SOFTMAX = (
    _plan("softmax_rows", "M", "X, Y, M, N", "32")
    + """
__kernel void softmax_rows(__global const float *X, __global float *Y, long M, long N)
{
    const long m = get_global_id(0);
    if (m >= M) return;
    __global const float *x = X + m * N;
    __global float *y = Y + m * N;
    float largest = -INFINITY;
    for (long n = 0; n < N; ++n) largest = fmax(largest, x[n]);
    double total = 0.0;
    for (long n = 0; n < N; ++n) total += exp(x[n] - largest);
    for (long n = 0; n < N; ++n) y[n] = exp(x[n] - largest) / (float)total;
}
"""
)
_LAYER_NORM = """/* plan
{"launches": [
  {"kernel": "normalised", "global": ["M * 32"], "local": [32],
   "arguments": ["X", "X2", "X3", "Y", "N", {"local": "32 * 8"}]}
]}
*/
double sum_of(double own, __local double *parts)
{
    parts[get_local_id(0)] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    double sum = 0.0;
    for (int i = 0; i < 32; ++i) sum += parts[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

__kernel void normalised(__global const float *X, __global const float *weight,
                         __global const float *bias, __global float *Y, long N,
                         __local double *parts)
{
    __global const float *x = X + get_group_id(0) * N;
    __global float *y = Y + get_group_id(0) * N;
    double part = 0.0;
    for (long n = get_local_id(0); n < N; n += 32) part += x[n];
    const double mean = sum_of(part, parts) / N;
    part = 0.0;
    for (long n = get_local_id(0); n < N; n += 32) part += (x[n] - mean) * (x[n] - mean);
    const double scale = 1.0 / sqrt(sum_of(part, parts) / N + 1e-5);
    for (long n = get_local_id(0); n < N; n += 32) {
        y[n] = (float)((x[n] - mean) * scale * weight[n] + bias[n]);
    }
}
"""
_MATMUL = (
    _plan("product", "K; M", "X, X2, Y, M, N, K", "8, 8")
    + """
__kernel void product(__global const float *A, __global const float *B, __global float *C, int M,
                      int N, int K)
{
    __local float a[8][8], b[8][8];
    const int i = get_local_id(1), j = get_local_id(0);
    const long m = get_global_id(1), k = get_global_id(0);
    float sum = 0.0f;
    for (int n = 0; n < N; n += 8) {
        a[i][j] = m < M && n + j < N ? A[m * N + n + j] : 0.0f;
        b[i][j] = n + i < N && k < K ? B[(long)(n + i) * K + k] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int t = 0; t < 8; ++t) sum += a[i][t] * b[t][j];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (m < M && k < K) C[m * K + k] = sum;
}
"""
)
_SUM = """/* plan
{
  "workspaces": {"parts": {"type": "double", "elements": "M * cdiv(N, 16) * K"}},
  "launches": [
    {"kernel": "part_sums", "global": ["K", "cdiv(N, 16)", "M"],
     "arguments": ["X", "parts", "N", "K"]},
    {"kernel": "whole_sums", "global": ["K", "M"],
     "arguments": ["parts", "Y", "cdiv(N, 16)", "K"]}
  ]
}
*/
__kernel void part_sums(__global const float *X, __global double *parts, long N, long K)
{
    const long k = get_global_id(0), part = get_global_id(1), m = get_global_id(2);
    double sum = 0.0;
    for (long n = part * 16; n < min(part * 16 + 16, N); ++n) sum += X[(m * N + n) * K + k];
    parts[(m * get_global_size(1) + part) * K + k] = sum;
}

__kernel void whole_sums(__global const double *parts, __global float *Y, long count, long K)
{
    const long k = get_global_id(0), m = get_global_id(1);
    double sum = 0.0;
    for (long part = 0; part < count; ++part) sum += parts[(m * count + part) * K + k];
    Y[m * K + k] = (float)sum;
}
"""
_TRANSPOSE = (
    _plan("turned", "N; M", "X, Y, M, N", "8, 8")
    + """
__kernel void turned(__global const float *X, __global float *Y, long M, long N)
{
    __local float tile[8][9];
    const int i = get_local_id(1), j = get_local_id(0);
    const long m0 = get_group_id(1) * 8, n0 = get_group_id(0) * 8;
    if (m0 + i < M && n0 + j < N) tile[i][j] = X[(m0 + i) * N + n0 + j];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (n0 + i < N && m0 + j < M) Y[(n0 + i) * M + m0 + j] = tile[j][i];
}
"""
)
_CUMSUM = (
    _plan("running", "M", "X, Y, N")
    + """
__kernel void running(__global const float *X, __global float *Y, long N)
{
    const long m = get_global_id(0);
    double total = 0.0;
    for (long n = 0; n < N; ++n) {
        total += X[m * N + n];
        Y[m * N + n] = (float)total;
    }
}
"""
)
_POOL = (
    _plan("pooled", "(P - 1)//2 + 1; (K - 1)//2 + 1; M * N", "X, Y, K, P")
    + """
__kernel void pooled(__global const float *X, __global float *Y, long H, long W)
{
    const long j = get_global_id(0), i = get_global_id(1), plane = get_global_id(2);
    float largest = -INFINITY;
    for (long r = max(2 * i - 1, 0L); r < min(2 * i + 2, H); ++r) {
        for (long c = max(2 * j - 1, 0L); c < min(2 * j + 2, W); ++c) {
            const float x = X[(plane * H + r) * W + c];
            largest = isnan(x) || x > largest ? x : largest;
        }
    }
    Y[(plane * get_global_size(1) + i) * get_global_size(0) + j] = largest;
}
"""
)
_GELU = (
    _plan("gelu", "M * N", "X, Y, M * N", "64")
    + """
__kernel void gelu(__global const float *X, __global float *Y, long total)
{
    const long n = get_global_id(0);
    if (n < total) {
        const float x = X[n];
        Y[n] = 0.5f * x * erfc(x * -0.70710678f);
    }
}
"""
)

OPERATORS = (
    Operator("relu", "x", "torch.relu(x)", _ROWS, _RELU, "n < total", "n <= total"),
    Operator(
        *("add", "x, bias", "x + bias", f"{_ROWS}, torch.randn(130)"),
        *(_ADD, "+ bias[n]", "+ bias[m]"),
    ),
    Operator("softmax", "x", "torch.softmax(x, 1)", _ROWS, _SOFTMAX, "largest) /", "largest) *"),
    Operator(
        "layer_norm",
        "x, weight, bias",
        "F.layer_norm(x, weight.shape, weight, bias)",
        f"{_ROWS}, torch.randn(130), torch.randn(130)",
        *(_LAYER_NORM, "/ N + 1e-5", "/ N + 1e-2"),
    ),
    Operator(
        *("matmul", "a, b", "a @ b", "torch.randn(37, 67), torch.randn(67, 41)"),
        *(_MATMUL, "n + i < N && k < K ?", "k < K ?"),
    ),
    Operator(
        *("sum_middle", "x", "x.sum(1)", "torch.randn(7, 37, 41)"),
        *(_SUM, "part * 16 + 16, N)", "part * 16 + 15, N)"),
    ),
    Operator(
        *("transpose", "x", "x.t().contiguous()", _ROWS),
        *(_TRANSPOSE, "= tile[j][i]", "= tile[i][j]"),
    ),
    Operator("cumsum", "x", "torch.cumsum(x, 1)", _ROWS, _CUMSUM, "n = 0;", "n = 1;"),
    Operator(
        *("max_pool2d", "x", "F.max_pool2d(x, 3, 2, 1)", "torch.randn(2, 3, 29, 34)"),
        *(_POOL, "largest = -INFINITY", "largest = 0.0f"),
    ),
    Operator("gelu", "x", "F.gelu(x)", _ROWS, _GELU, "-0.70710678f", "-0.7071f * 1.001f"),
)
