"""The rule that decides, held against right kernels of many phases and against faults in them.

    python benchmarks/tolerance.py [--seeds 50] [NAME]...    run, and write docs/data/tolerance.json

Each kernel computes what a PyTorch module computes in float32 and in another order: sums in blocks
of 32, an exponential sum that is corrected as it grows, scales folded into factors. It is judged as
`sketchc verify` does it, on every kind of input, with parameters at the scale of the module's own
initialisation. None may fail; with a fault in it, each must fail on one kind of input at least:

- the last block of each sum left out,
- one element of the output off by 1 % of its root mean square,
- the output scaled by 1.002,
- sums accumulated in f16.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sketchc.base.types import DType
from sketchc.runtime.tasks.description import NamedPlaces, Readings
from sketchc.runtime.tasks.inputs import KINDS, generate
from sketchc.runtime.tasks.worker.operations import explored
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.references import EXTREME_KINDS, References, nudged

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "data" / "tolerance.json"
Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]
F32 = np.float32
BLOCK = 32
#: Right kernels are tried at all of these, faults where every sum has a tail that counts.
SIZES = (1, 2, 3, 7, 16, 31, 33, 64, 65, 97)
LARGE_SIZES = (31, 33, 64, 65, 97)
FAULTS = ("dropped tail", "one element", "scale", "f16 sums")


@attrs.define
class Sums:
    """Sums in blocks, in another order than torch's; with a fault where one is asked for."""

    fault: str = ""

    def blocks(self, extent: int) -> list[slice]:
        """The blocks of an axis; the fault "dropped tail" leaves its last element out."""
        found = [slice(k, min(k + BLOCK, extent)) for k in range(0, extent, BLOCK)]
        if self.fault == "dropped tail" and extent > 1:
            last = found.pop()
            found += [slice(last.start, last.stop - 1)] if last.stop - last.start > 1 else []
        return found

    def matmul(self, a: Array, b: Array) -> Array:
        """a @ b over the last axis of a, in float32."""
        narrow = np.float16 if self.fault == "f16 sums" else F32
        outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        total = np.zeros((*outer, a.shape[-2], b.shape[-1]), narrow)
        with np.errstate(all="ignore"):
            for k in self.blocks(a.shape[-1]):
                total += (a[..., k] @ b[..., k, :]).astype(narrow)
        return total.astype(F32)

    def total(self, x: Array, axis: int = -1) -> Array:
        """The sum along an axis, which stays with extent 1."""
        moved = np.moveaxis(x, axis, -1)
        narrow = np.float16 if self.fault == "f16 sums" else F32
        found = np.zeros((*moved.shape[:-1], 1), narrow)
        with np.errstate(all="ignore"):
            for k in self.blocks(moved.shape[-1]):
                found += moved[..., k].sum(-1, keepdims=True, dtype=F32).astype(narrow)
        return np.moveaxis(found.astype(F32), -1, axis)

    def mean(self, x: Array, axis: int = -1) -> Array:
        """The mean along an axis, which stays with extent 1."""
        return self.total(x, axis) * F32(1 / x.shape[axis])

    def softmax(self, x: Array) -> Array:
        """softmax over the last axis, with a sum that is corrected as the maximum grows."""
        top = np.full((*x.shape[:-1], 1), -np.inf, F32)
        total = np.zeros_like(top)
        for k in self.blocks(x.shape[-1]) or [slice(0, 1)]:
            new = np.maximum(top, x[..., k].max(-1, keepdims=True))
            total = total * np.exp(top - new) + np.exp(x[..., k] - new).sum(-1, keepdims=True)
            top = new
        return np.exp(x - top) * (F32(1) / total)

    def layer_norm(self, x: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        """layer_norm over the last axis, with weight and bias where they are given."""
        mean = self.mean(x)
        centred = x - mean
        scale = F32(1) / np.sqrt(self.mean(centred * centred) + F32(1e-5))
        found = centred * scale
        return found if weight is None or bias is None else found * weight + bias


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        found: Array = F32(1) / (F32(1) + np.exp(-x))
    return found


def gelu(x: Array) -> Array:
    """gelu in its erf form."""
    erf = torch.erf(torch.from_numpy(np.ascontiguousarray(x * F32(math.sqrt(0.5))))).numpy()
    found: Array = x * F32(0.5) * (F32(1) + erf)
    return found


# ---------------------------------------------------------------- modules and kernels

#: A module's parameters by name, and inputs -> the output.
Run = Callable[[Sums, dict[str, Array], Arrays], Array]
#: Sizes -> the module, the shapes of its inputs, and the terms that phases add up.
Build = Callable[[int, int, int], tuple[nn.Module, list[tuple[int, ...]], int]]
KERNELS: dict[str, tuple[Build, Run]] = {}


class Apply(nn.Module):
    """Linear maps by name, and what is made of them."""

    def __init__(self, body: Callable[..., torch.Tensor], **maps: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, one in maps.items():
            self.add_module(name, one)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """What the body makes of the maps and the inputs."""
        return self.body(self, *inputs)


def kernel(build: Build) -> Callable[[Run], Run]:
    """Add a kernel under the name of the function that computes it."""

    def add(run: Run) -> Run:
        KERNELS[run.__name__] = build, run
        return run

    return add


def linear(sums: Sums, p: dict[str, Array], name: str, x: Array) -> Array:
    """The linear map `name` of the parameters, applied to x."""
    found = sums.matmul(x, p[f"{name}.weight"].T)
    return found + p[f"{name}.bias"] if f"{name}.bias" in p else found


def _attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = m.q(x), m.k(x), m.v(x)
    p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    out: torch.Tensor = m.o(p @ v)
    return out


@kernel(
    lambda m, n, d: (
        Apply(_attention, **{c: nn.Linear(d, d) for c in "qkvo"}),
        [(2, m, d)],
        m + 4 * d,
    )
)
def attention_with_projections(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Self-attention between projections."""
    q, k, v = (linear(s, p, c, given[0]) for c in "qkv")
    scaled = q * F32(1 / math.sqrt(q.shape[-1]))
    weights = s.softmax(s.matmul(scaled, np.swapaxes(k, -1, -2)))
    return linear(s, p, "o", s.matmul(weights, v))


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: functional.layer_norm(x + _attention(o, x), x.shape[-1:]),
            **{c: nn.Linear(d, d) for c in "qkvo"},
        ),
        [(m, d)],
        m + 6 * d,
    )
)
def attention_block(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Self-attention, the residual added, and layer_norm."""
    return s.layer_norm(given[0] + attention_with_projections(s, p, given))


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x, y: torch.softmax(o.q(x) @ o.k(y).T / math.sqrt(d), -1) @ y,
            q=nn.Linear(d, d, bias=False),
            k=nn.Linear(d, d, bias=False),
        ),
        [(m, d), (n, d)],
        n + 3 * d,
    )
)
def cross_attention(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Attention of one input to another."""
    x, y = given
    scores = s.matmul(linear(s, p, "q", x), linear(s, p, "k", y).T)
    return s.matmul(s.softmax(scores * F32(1 / math.sqrt(x.shape[1]))), y)


def _causal(o: Any, x: torch.Tensor) -> torch.Tensor:
    scores = o.q(x) @ o.k(x).T
    mask = torch.ones(scores.shape, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ x


@kernel(
    lambda m, n, d: (
        Apply(_causal, q=nn.Linear(d, d), k=nn.Linear(d, d)),
        [(m, d)],
        m + 3 * d,
    )
)
def causal_attention(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Self-attention in which no row sees a later one."""
    x = given[0]
    scores = s.matmul(linear(s, p, "q", x), linear(s, p, "k", x).T)
    mask = np.tril(np.ones(scores.shape, np.bool_))
    return s.matmul(s.softmax(np.where(mask, scores, F32(-3e38))), x)


@kernel(
    lambda m, n, d: (
        Apply(lambda o, x: o.b(functional.gelu(o.a(x))), a=nn.Linear(d, n), b=nn.Linear(n, d)),
        [(m, d)],
        n + d,
    )
)
def mlp_gelu(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Two linear maps with gelu between them."""
    return linear(s, p, "b", gelu(linear(s, p, "a", given[0])))


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: o.c(functional.silu(o.a(x)) * o.b(x)),
            a=nn.Linear(d, n),
            b=nn.Linear(d, n),
            c=nn.Linear(n, d),
        ),
        [(m, d)],
        n + d,
    )
)
def swiglu(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """silu of one map times another map, and a third map of both."""
    a = linear(s, p, "a", given[0])
    return linear(s, p, "c", a * sigmoid(a) * linear(s, p, "b", given[0]))


@kernel(
    lambda m, n, d: (
        Apply(lambda o, x: torch.sigmoid(o.a(x)) * o.b(x), a=nn.Linear(d, n), b=nn.Linear(d, n)),
        [(m, d)],
        d,
    )
)
def gate(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """sigmoid of one map times another map."""
    return sigmoid(linear(s, p, "a", given[0])) * linear(s, p, "b", given[0])


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: x + o.b(functional.gelu(o.a(o.n(x)))),
            n=nn.LayerNorm(d),
            a=nn.Linear(d, n),
            b=nn.Linear(n, d),
        ),
        [(m, d)],
        n + 3 * d,
    )
)
def residual_block(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """layer_norm, two maps with gelu between them, and the residual added."""
    normed = s.layer_norm(given[0], p["n.weight"], p["n.bias"])
    return given[0] + linear(s, p, "b", gelu(linear(s, p, "a", normed)))


def _recurrent(kind: type[nn.Module], gates: int) -> Build:
    def build(m: int, n: int, d: int) -> tuple[nn.Module, list[tuple[int, ...]], int]:
        steps = min(m, 24)
        net = kind(d, n, batch_first=True)
        return Apply(lambda o, x: o.r(x)[0], r=net), [(2, steps, d)], steps * n + d

    del gates
    return build


def _gates(s: Sums, p: dict[str, Array], x: Array, h: Array) -> tuple[Array, Array]:
    return (
        s.matmul(x, p["r.weight_ih_l0"].T) + p["r.bias_ih_l0"],
        s.matmul(h, p["r.weight_hh_l0"].T) + p["r.bias_hh_l0"],
    )


@kernel(_recurrent(nn.LSTM, 4))
def lstm(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """An LSTM over the rows."""
    x = given[0]
    size = p["r.weight_hh_l0"].shape[1]
    h = c = np.zeros((x.shape[0], size), F32)
    found = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(sum(_gates(s, p, x[:, t], h)), 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.stack(found, 1)


@kernel(_recurrent(nn.GRU, 3))
def gru(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """A GRU over the rows."""
    x = given[0]
    h = np.zeros((x.shape[0], p["r.weight_hh_l0"].shape[1]), F32)
    found = []
    for t in range(x.shape[1]):
        a, b = _gates(s, p, x[:, t], h)
        (ar, az, an), (br, bz, bn) = np.split(a, 3, axis=-1), np.split(b, 3, axis=-1)
        z = sigmoid(az + bz)
        h = (F32(1) - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        found.append(h)
    return np.stack(found, 1)


@kernel(_recurrent(nn.RNN, 1))
def rnn(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """A plain recurrent network over the rows."""
    x = given[0]
    h = np.zeros((x.shape[0], p["r.weight_hh_l0"].shape[1]), F32)
    found = []
    for t in range(x.shape[1]):
        h = np.tanh(sum(_gates(s, p, x[:, t], h)))
        found.append(h)
    return np.stack(found, 1)


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: torch.logsumexp(
                functional.max_pool1d(o.a(x)[:, None], 2, ceil_mode=True)[:, 0], 1
            ),
            a=nn.Linear(d, n),
        ),
        [(m, d)],
        n + d,
    )
)
def matmul_max_pool_logsumexp(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """A linear map, the larger of each two columns, and logsumexp."""
    y = linear(s, p, "a", given[0])
    y = np.pad(y, ((0, 0), (0, y.shape[1] % 2)), constant_values=-np.inf)
    pooled = y.reshape(y.shape[0], -1, 2).max(-1)
    top = pooled.max(1, keepdims=True)
    return (top + np.log(s.total(np.exp(pooled - top))))[:, 0]


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: functional.cross_entropy(o.a(x), torch.arange(x.shape[0]) % n),
            a=nn.Linear(d, n),
        ),
        [(m, d)],
        m + n + d,
    )
)
def classifier_loss(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """The cross entropy behind a linear map."""
    y = linear(s, p, "a", given[0])
    rows = np.arange(y.shape[0])
    top = y.max(1, keepdims=True)
    losses = np.log(s.total(np.exp(y - top))) + top - y[rows, rows % y.shape[1]][:, None]
    return s.mean(losses, 0).reshape(())


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x, y: functional.kl_div(
                torch.log_softmax(o.a(x), 1), torch.softmax(o.a(y), 1), reduction="batchmean"
            ),
            a=nn.Linear(d, n),
        ),
        [(m, d), (m, d)],
        m + 3 * n + d,
    )
)
def distillation(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """The divergence of two distributions behind one linear map."""
    x, y = (linear(s, p, "a", one) for one in given)
    top, other = x.max(1, keepdims=True), y.max(1, keepdims=True)
    log_q = x - top - np.log(s.total(np.exp(x - top)))
    log_p = y - other - np.log(s.total(np.exp(y - other)))
    return (s.total(s.total(np.exp(log_p) * (log_p - log_q)), 0) * F32(1 / len(x))).reshape(())


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x, y: torch.softmax(
                functional.normalize(o.a(x)) @ functional.normalize(o.a(y)).T / 0.1, -1
            ),
            a=nn.Linear(d, n),
        ),
        [(m, d), (m, d)],
        m + 2 * n + d,
    )
)
def contrastive(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """softmax of the cosines between the rows of two inputs."""
    x, y = (linear(s, p, "a", one) for one in given)
    x, y = (v / np.maximum(np.sqrt(s.total(v * v)), F32(1e-12)) for v in (x, y))
    return s.softmax(s.matmul(x, y.T) * F32(10))


@kernel(
    lambda m, n, d: (
        Apply(lambda o, x: torch.cov(functional.layer_norm(o.a(x), [n]).T), a=nn.Linear(d, n)),
        [(m + 1, d)],
        2 * m + 2 * n + d,
    )
)
def covariance(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """The covariance of the columns behind layer_norm."""
    x = s.layer_norm(linear(s, p, "a", given[0]))
    centred = x - s.mean(x, 0)
    found = s.matmul(np.ascontiguousarray(centred.T), centred) * F32(1 / (len(x) - 1))
    return found if x.shape[1] > 1 else found.reshape(())


def _cubic(size: int) -> Array:
    """The weights of a bicubic resize to twice the size, exactly, by row."""
    one = torch.eye(size, dtype=torch.float64)[None, None]
    found: Array = functional.interpolate(
        one, (2 * size, size), mode="bicubic", align_corners=False
    )[0, 0].numpy()
    return found


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: functional.interpolate(
                x, scale_factor=2, mode="bicubic", align_corners=False
            )
        ),
        [(1, 2, m + 1, n + 1)],
        8,
    )
)
def bicubic(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Bicubic resampling, as two matrix products."""
    x = given[0]
    rows, columns = (_cubic(extent).astype(F32) for extent in x.shape[2:])
    return s.matmul(s.matmul(rows, x), np.ascontiguousarray(columns.T))


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: torch.relu(functional.group_norm(o.c(x), 2)).mean(-1), c=nn.Conv1d(d, 4, 3)
        ),
        [(2, d, n + 3)],
        3 * d + 5 * n,
    )
)
def conv_group_norm(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """A convolution along one axis, group_norm, relu, and the mean of each channel."""
    x = given[0]
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=2)  # [2, d, out, 3]
    rows = windows.transpose(0, 2, 1, 3).reshape(2, windows.shape[2], -1)
    y = s.matmul(rows, p["c.weight"].reshape(4, -1).T) + p["c.bias"]
    y = y.transpose(0, 2, 1)
    grouped = s.layer_norm(y.reshape(2, 2, -1)).reshape(y.shape)
    return s.mean(np.maximum(grouped, 0))[..., 0]


def _linear_attention(o: Any, x: torch.Tensor) -> torch.Tensor:
    q, k = (functional.elu(f(x)) + 1 for f in (o.q, o.k))
    states = torch.cumsum(k[:, :, None] * x[:, None, :], 0)
    norm = torch.cumsum(k, 0)
    return (q[:, None] @ states)[:, 0] / (q * norm).sum(-1, keepdim=True)


@kernel(
    lambda m, n, d: (
        Apply(_linear_attention, q=nn.Linear(d, n), k=nn.Linear(d, n)),
        [(m, d)],
        m + n + d,
    )
)
def linear_attention(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Attention without softmax: elu + 1 of queries and keys."""
    x = given[0]
    q, k = (linear(s, p, c, x) for c in "qk")
    q, k = (np.where(v > 0, v, np.expm1(np.minimum(v, 0))) + F32(1) for v in (q, k))
    mask = np.tril(np.ones((len(x), len(x)), F32))
    weights = s.matmul(q, np.ascontiguousarray(k.T)) * mask
    return s.matmul(weights, x) / s.total(weights)


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: _scan(torch.sigmoid(o.a(x)), torch.tanh(o.b(x))),
            a=nn.Linear(d, n),
            b=nn.Linear(d, n),
        ),
        [(m, d)],
        m + d,
    )
)
def gated_scan(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """A recurrence whose gates are computed from the input."""
    a, b = sigmoid(linear(s, p, "a", given[0])), np.tanh(linear(s, p, "b", given[0]))
    state, found = np.zeros_like(b[0]), []
    for decay, value in zip(a, b, strict=True):
        state = state + (F32(1) - decay) * (value - state)
        found.append(state)
    return np.stack(found)


def _scan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    state, found = torch.zeros_like(b[0]), []
    for decay, value in zip(a, b, strict=True):
        state = decay * state + (1 - decay) * value
        found.append(state)
    return torch.stack(found)


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: o.b(functional.rms_norm(o.a(x), [n], eps=1e-6)),
            a=nn.Linear(d, n, bias=False),
            b=nn.Linear(n, d, bias=False),
        ),
        [(m, d)],
        2 * n + d,
    )
)
def rms_between_products(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Two linear maps with rms_norm between them."""
    y = linear(s, p, "a", given[0])
    scale = F32(1) / np.sqrt(s.mean(y * y) + F32(1e-6))
    return linear(s, p, "b", y) * scale


@kernel(
    lambda m, n, d: (
        Apply(
            lambda o, x: o.c(torch.tanh(o.b(torch.relu(o.a(x))))),
            a=nn.Linear(d, n),
            b=nn.Linear(n, n),
            c=nn.Linear(n, d),
        ),
        [(m, d)],
        2 * n + d,
    )
)
def three_layers(s: Sums, p: dict[str, Array], given: Arrays) -> Array:
    """Three linear maps with relu and tanh between them."""
    hidden = np.maximum(linear(s, p, "a", given[0]), 0)
    return linear(s, p, "c", np.tanh(linear(s, p, "b", hidden)))


# ---------------------------------------------------------------- judging


@attrs.define
class Case:
    """One kernel at some sizes with one kind of inputs."""

    module: nn.Module
    run: Run
    length: int
    parameters: dict[str, Array]
    inputs: list[Array]
    references: References

    def judge(self, fault: str) -> Comparison:
        """Compare the kernel, with a fault or without ("")."""
        with np.errstate(all="ignore"):
            actual = self.run(Sums(fault), self.parameters, self.inputs).astype(F32)
        if fault == "scale":
            actual = actual * F32(1.002)
        if fault == "one element":
            reference = self.references.arrays[0]
            actual = np.array(actual)
            rms = float(np.sqrt(np.mean(np.square(reference))))
            actual.reshape(-1)[actual.size // 2] += F32(0.01 * rms)
        return self.references.compare(0, "Y", np.asarray(actual), DType.F32, self.length)


def case(name: str, kind: str, seed: int, sizes: Sequence[int] = SIZES) -> Case:
    """The kernel at some of the sizes, which follow from the seed."""
    build, run = KERNELS[name]
    random = np.random.default_rng([seed, *name.encode()])
    sizes = [int(size) for size in random.choice(sizes, 3)]
    torch.manual_seed(seed)
    module, shapes, length = build(*sizes)
    module.eval()
    parameters = {}
    known = {n: float(v.square().mean().sqrt()) for n, v in module.state_dict().items()}
    for parameter, value in module.state_dict().items():
        scale = known[parameter] or min(max([*known.values()], default=1.0) or 1.0, 1.0)
        drawn = generate(kind, DType.F32, tuple(value.shape), random)
        parameters[parameter] = (drawn.astype(np.float64) * scale).astype(F32)
    inputs = [generate(kind, DType.F32, shape, random) for shape in shapes]
    return Case(
        module, run, length, parameters, inputs, _references(module, parameters, inputs, kind)
    )


def _references(
    module: nn.Module, parameters: dict[str, Array], inputs: list[Array], kind: str
) -> References:
    state = {name: torch.from_numpy(value) for name, value in parameters.items()}

    def forward(
        dtype: torch.dtype, around: Any = None, number: int | None = None
    ) -> list[torch.Tensor]:
        known, values = state, inputs
        if number is not None:
            known = {n: torch.from_numpy(nudged(v, number)) for n, v in parameters.items()}
            values = [nudged(value, number) for value in inputs]
        module.to(dtype).load_state_dict(known)
        given = [torch.from_numpy(value).to(dtype) for value in values]
        with torch.no_grad():
            if around is None:
                return [module(*given)]
            with around([*given, *module.state_dict().values()]):
                return [module(*given)]

    def read(rtol: float) -> Readings:
        moved, rounded, places = explored(lambda around: forward(torch.float64, around), rtol)
        return Readings(
            (),
            tuple(tuple(value.numpy() for value in run) for run in moved),
            tuple(value.numpy() for value in rounded),
            tuple(NamedPlaces(place.values.numpy(), place.exact) for place in places),
        )

    def near(number: int) -> tuple[list[Array], list[Array]]:
        exact, own = (
            [value.numpy() for value in forward(dtype, number=number)]
            for dtype in (torch.float64, torch.float32)
        )
        return exact, own

    return References(
        [value.numpy() for value in forward(torch.float64)],
        lambda: [value.numpy() for value in forward(torch.float32)],
        kind in EXTREME_KINDS,
        tuple(inputs),
        read,
        "task",
        near,
    )


def calibrate(name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The results of the right kernel, case by case, and of each fault, seed by seed."""
    found: dict[str, Any] = {
        "cases": 0, "failed": [], "relaxed": 0, "missed": dict.fromkeys(FAULTS, 0), "worst": 0.0,
    }  # fmt: skip
    for seed in seeds:
        caught = dict.fromkeys(FAULTS, False)
        for kind in KINDS:
            one = case(name, kind, seed)
            right = one.judge("")
            found["cases"] += 1
            found["worst"] = max(found["worst"], right.worst)
            found["relaxed"] += bool(right.waived)
            if not right.passed:
                found["failed"].append([seed, kind, right.reason])
            open_faults = [fault for fault, was in caught.items() if not was]
            faulty = case(name, kind, seed, LARGE_SIZES) if open_faults else one
            for fault in open_faults:
                caught[fault] = not faulty.judge(fault).passed
        for fault, was in caught.items():
            found["missed"][fault] += not was
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each kernel; 1 where a right one fails or a fault passes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="kernels; all by default")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", type=Path, help="the file that is written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results, bad = {}, False
    for name in options.names or KERNELS:
        started = time.monotonic()
        found = results[name] = calibrate(name, range(options.seeds))
        bad |= bool(found["failed"]) or any(found["missed"].values())
        missed = ", ".join(f"{fault} {count}" for fault, count in found["missed"].items() if count)
        print(
            f"{name:28} {found['cases']} cases, {len(found['failed'])} failed, {found['relaxed']} "
            f"relaxed, largest error {found['worst']:.2g} of what is allowed; "
            f"missed: {missed or 'nothing'} ({time.monotonic() - started:.0f} s)",
            flush=True,
        )
    place = options.json or (None if options.names else RESULTS)
    if place is not None:
        place.write_text(json.dumps({"seeds": options.seeds, "kernels": results}, indent=1) + "\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
