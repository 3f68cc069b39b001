"""Sketches of the built-in Designer are proved, and mean what PyTorch computes, at ragged sizes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from toolchains import require  # noqa: E402

import sketchc  # noqa: E402
from sketchc.agents.autosketch.designer import design  # noqa: E402
from sketchc.agents.designer import design_check  # noqa: E402
from sketchc.base.diagnostics import Source, UsageError, has_errors  # noqa: E402
from sketchc.checker.api import check, self_check  # noqa: E402
from sketchc.cli.main import run  # noqa: E402
from sketchc.interpreter.api import interpret  # noqa: E402
from sketchc.ir import nodes as ir  # noqa: E402
from sketchc.ir.walk import statements  # noqa: E402
from sketchc.lowering.passes.pipeline import build_plan  # noqa: E402
from sketchc.parsing.parser import parse  # noqa: E402
from sketchc.runtime.tasks.task import load_task  # noqa: E402
from sketchc.runtime.toolchains.base import ToolchainError  # noqa: E402
from sketchc.runtime.toolchains.interpreter import InterpreterSession  # noqa: E402

HEAD = (
    "import functools\nimport itertools\nimport math\n\n"
    "import torch\nimport torch.nn.functional as F\n\n\n"
)
#: The body of a function of x (and w, b), and the shapes of its own inputs.
Task = tuple[str, tuple[tuple[int, ...], ...]]
TASKS: dict[str, Task] = {
    "pointwise": ("F.gelu(x * 0.5 + 1.0) - torch.tanh(x).abs()", ((48, 80),)),
    "broadcast": ("torch.sigmoid(x + w[:, None]) * b", ((6, 40, 70), (40,), (70,))),
    "clipped": ("F.leaky_relu(x.clamp(-0.5, 2.0), 0.1) + F.elu(x, 1.5)", ((30, 50),)),
    "chosen": ("torch.where(x > w, x, -w.exp())", ((30, 50), (30, 50))),
    "permuted": ("x.permute(2, 0, 1).contiguous() * 2.0", ((5, 40, 60),)),
    "regrouped": ("x.reshape(x.shape[0], 4, -1).transpose(1, 2) + 1.0", ((30, 48),)),
    "cut": ("x[:, 1:].flip(1) - x[:, :-1]", ((20, 90),)),
    "softmax": ("torch.softmax(x, dim=-1)", ((20, 300),)),
    "log_softmax": ("F.log_softmax(x, dim=1)", ((6, 70, 40),)),
    "layer_norm": ("F.layer_norm(x, (x.shape[-1],)) * w + b", ((20, 300), (300,), (300,))),
    "rms_norm": (
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w",
        ((20, 300), (300,)),
    ),
    "instance_norm": ("F.instance_norm(x)", ((4, 6, 30, 20),)),
    "middle": ("x.amax(dim=1) - x.mean(dim=1)", ((6, 70, 40),)),
    "read_again": (
        "torch.logsumexp(x.reshape(-1, 3, 9), 2) + x.reshape(-1, 3, 9).mean(2)",
        ((12, 27),),
    ),
    "shared_by_passes": (
        "F.layer_norm(torch.softmax(x.reshape(-1, 3, 9) * 0.5, 2), (9,)) * x.reshape(-1, 3, 9)",
        ((12, 27),),
    ),
    # A view of what lies in memory in another order.
    "diagonal": (
        "torch.einsum('bhid,bhjd->ijbh', x, w).diagonal(1)",
        ((2, 3, 7, 8), (2, 3, 7, 8)),
    ),
    # Together they divide by 16, which no one of them does.
    "strides_in_a_row": (
        "functools.reduce(lambda y, _: F.max_pool2d(y, 3, 2, 1), range(4), x).mean((2, 3))",
        ((2, 3, 70, 67),),
    ),
    "long_strides": (
        "F.gelu(F.avg_pool1d(F.pad(x @ w, (0, 20)).unsqueeze(1), 11).squeeze(1)).amax(1)",
        ((12, 20), (20, 60)),
    ),
    "behind_a_product": (
        "torch.softmax(torch.tanh(x @ w.T + b) * 0.7 - b, 1)",
        ((40, 50), (60, 50), (60,)),
    ),
    "added_to_a_product": (
        "F.layer_norm(x @ w.T + b, (60,)).permute(1, 0) * (x @ w.T + b).sum(0)[:, None]",
        ((40, 50), (60, 50), (60,)),
    ),
    "variance": ("torch.var(x, dim=(0, 2))", ((12, 20, 30),)),
    "whole": ("((x - w) ** 2).mean()", ((40, 60), (40, 60))),
    "cosine": ("1.0 - (x * w).sum(-1) / (x.norm(dim=-1) * w.norm(dim=-1))", ((30, 90), (30, 90))),
    "product": ("torch.relu(x @ w.T + b) * 0.5", ((40, 50), (60, 50), (60,))),
    "rows_of_images": ("F.linear(x, w, b).tanh()", ((3, 20, 40), (30, 40), (30,))),
    "einsum": ("torch.einsum('bik,bjk->bji', x, w)", ((3, 20, 40), (3, 30, 40))),
    "after_a_product": ("torch.softmax(torch.exp(x) @ w, dim=-1)", ((20, 40), (40, 50))),
    "triangles": ("torch.tril(torch.tril(x) @ torch.tril(w))", ((40, 40), (40, 40))),
    "convolution": (
        "F.conv2d(x, w, b, stride=2, padding=1)",
        ((2, 3, 20, 22), (5, 3, 3, 3), (5,)),
    ),
    "in_groups": ("F.conv1d(x, w, padding=2, dilation=2, groups=2)", ((2, 6, 40), (4, 3, 3))),
    "transposed": (
        "F.conv_transpose2d(x, (torch.arange(108.0).reshape(3, 4, 3, 3) / 54.0 - 1.0).to(x), "
        "stride=2, padding=1, output_padding=1)",
        ((2, 3, 10, 11),),
    ),
    "largest_of_windows": (
        "F.max_pool2d(torch.relu(x) - 1.0, 3, 2, 1)",
        ((2, 3, 20, 22),),
    ),
    "means_of_windows": (
        "F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)",
        ((2, 3, 20, 22),),
    ),
    "padded": ("F.pad(x, (1, 2), value=0.5) * 2.0", ((20, 30),)),
    "joined": ("torch.cat([x, torch.exp(w), x], dim=1)", ((20, 30), (20, 40))),
    # Each layer of a dense block joins all that the ones before it gave.
    "dense_block": (
        "functools.reduce(lambda parts, _: [*parts, torch.tanh(torch.cat(parts, 1) @ w[: x.shape[1]"
        " * len(parts)])], range(6), [x])[-1]",
        ((9, 5), (40, 5)),
    ),
    # Patches of an image, as strides over it; then windows of windows.
    "patches": (
        "torch.tanh(x * torch.full((3, 16, 12), 2.0)).unfold(2, 4, 4).unfold(3, 3, 3)"
        ".reshape(x.shape[0], -1, 36) @ w",
        ((2, 3, 16, 12), (36, 5)),
    ),
    "windows": (
        "torch.tanh(x.reshape(x.shape[0], 3, 4, 2, 5, 6).transpose(2, 3).reshape(-1, 20, 6) @ w)"
        ".reshape(x.shape[0], 3, 2, 4, 5, -1).transpose(2, 3).reshape(x.shape[0], 120, -1) * 2.0",
        ((2, 120, 6), (6, 7)),
    ),
    # All of the window but its middle is padding.
    "one_pixel": (
        "F.conv2d(x.mean((2, 3), keepdim=True), w, padding=1, groups=x.shape[1])",
        ((2, 6, 7, 8), (6, 1, 3, 3)),
    ),
    "rolled": ("torch.roll(x, 3, 1)", ((20, 30),)),
    "nearest": ("F.interpolate(x, scale_factor=2)", ((2, 3, 10, 11),)),
    "looked_up": ("x[(w.abs() * 3).long() % x.shape[0]]", ((20, 30), (17,))),
    "place_of_the_largest": ("torch.argmax(x, dim=1)", ((6, 70, 40),)),
    "along_an_axis": ("torch.max(x, dim=1)[0] - torch.min(x, dim=1).values", ((6, 70, 40),)),
    "place_of_the_smallest": ("torch.min(x, dim=-1, keepdim=True)[1]", ((6, 7, 40),)),
    "each_channel": ("F.conv2d(x, w, groups=x.shape[1])", ((2, 6, 12, 14), (6, 1, 3, 3))),
    "norms": ("x.norm(p=3, dim=0) * x.norm(p=1, dim=0) + x.norm(dim=0)", ((30, 40),)),
    "unit_rows": ("x / x.norm(dim=-1, keepdim=True)", ((20, 300),)),
    "volumes": ("F.conv3d(x, w, padding=1)", ((2, 3, 6, 7, 8), (4, 3, 2, 3, 2))),
    # The workspace between the two has extents that no tensor of the task has.
    "pooled_filter": ("F.avg_pool2d(F.conv2d(x, w), 2)", ((2, 3, 9, 8), (4, 3, 3, 3))),
    # A mean over windows: at sizes that PyTorch refuses it would be one over nothing.
    "mean_of_windows": (
        "F.max_pool2d(F.conv2d(x, w) / 2.0, 2).mean((2, 3))",
        ((2, 3, 9, 8), (4, 3, 3, 3)),
    ),
    # Several phases read what the windows hold.
    "normed_windows": (
        "F.group_norm(F.max_pool2d(torch.tanh(F.conv_transpose2d(x, w / 64.0, padding=1)), 2), 2)",
        ((2, 3, 9, 8), (3, 4, 5, 5)),
    ),
    # A number that holds one extent twice.
    "squared_extent": ("F.avg_pool1d(x, 3, 1) / (x.shape[1] - 2) ** 2", ((9, 20),)),
    # Rows of windows, each of several heads: an index is a sum of two quotients.
    "windows_of_heads": (
        "F.linear((x @ x.transpose(1, 2) @ x).reshape(-1, 4, 16, 8).transpose(1, 2)"
        ".reshape(-1, 16, 32), w)",
        ((40, 16, 8), (20, 32)),
    ),
    "normed_images": ("F.instance_norm(F.conv2d(x, w))", ((2, 3, 12, 14), (4, 3, 3, 3))),
    "running_products": ("torch.cumprod(x, dim=1)", ((20, 300),)),
    "running": ("torch.cumsum(x.flip(1), dim=1).flip(1) + x", ((20, 300),)),
    "running_rows": ("torch.cumprod(x, dim=0)", ((30, 40),)),
    "running_halves": ("torch.cumsum(x.half(), dim=0).float() * 0.0 + x", ((30, 40),)),
    "best": ("torch.topk(torch.softmax(x, 1), 3)[0] * 2.0", ((20, 300),)),
    "places_of_the_least": ("torch.topk(x, 3, dim=0, largest=False)[1]", ((30, 40),)),
    "in_order": ("torch.sort(x, dim=1)[0] + x", ((20, 30),)),
    "first_in_order": ("torch.sort(x, dim=1)[0][:4, :5]", ((20, 70),)),
    "rank_of_ranks": ("torch.argsort(torch.argsort(x, dim=1), dim=1)", ((4, 70),)),
    "sorted_one": ("torch.sort(x, dim=1)[0]", ((20, 1),)),
    # Many are equal: they stay as they came.
    "places_in_order": (
        "torch.sort(x.round(), stable=True, dim=0, descending=True)[1]",
        ((30, 20),),
    ),
    "counted_below": ("torch.searchsorted(torch.sort(w)[0], x, right=True)", ((20, 30), (40,))),
    "scattered": (
        "torch.zeros_like(x).scatter_add(0, (w.abs() * 3).long() % x.shape[0], b)",
        ((20, 30), (17, 30), (17, 30)),
    ),
    "scattered_along_rows": (
        "x.scatter(1, (w.abs() * 3).long() % x.shape[1], b, reduce='multiply')",
        ((20, 30), (20, 17), (20, 17)),
    ),
    "largest_arrivals": (
        "x.scatter_reduce(0, (w.abs() * 3).long() % x.shape[0], b, 'amax')",
        ((20, 30), (17, 30), (17, 30)),
    ),
    "put": (
        "x.index_put(((w * 3).long() % x.shape[0] - x.shape[0],), b, accumulate=True)",
        ((20, 30), (17,), (17, 30)),
    ),
    "written_over": ("torch.slice_scatter(x, w, 1, 1, None, 2) * 2.0", ((20, 30), (20, 15))),
    "one_place": ("torch.select_scatter(x, w, 1, -1)", ((20, 30), (20,))),
    "parts": ("x.split([10, 20], 1)[1] * 2.0", ((20, 30),)),
    "of_all": ("x - torch.max(x) * torch.min(x)", ((20, 30),)),
    "place_of_all": ("torch.argmax(x) + x.long() // 3", ((20, 30),)),
    "signs": ("torch.signbit(x).float() - torch.isfinite(1.0 / x).float()", ((20, 30),)),
    # Sizes that the task takes in steps only, and one that is twice another.
    "in_steps": (
        "(x.reshape(x.shape[0], 2, -1) * w[None, None]).sum(1)",
        ((20, 30), (15,)),
    ),
    "resized": (
        "F.interpolate(x, size=18, mode='linear', align_corners=True)",
        ((2, 3, 9),),
    ),
    "places_in_windows": ("F.max_pool2d(x, 3, 2, return_indices=True)[1]", ((2, 3, 9, 11),)),
    "masked_rows": (
        "x.index_put((w > 0,), torch.tensor(0.5, dtype=x.dtype)) * 2.0",
        ((20, 30), (20,)),
    ),
    "own_filter": (
        "F.conv2d(x, torch.tensor([[[[1.0, 0.0, -1.0], [2.0, 0.0, -2.0]]]], dtype=x.dtype))",
        ((2, 1, 9, 11),),
    ),
    "own_places": (
        "x[:, torch.tensor([2, 0, 1, 1])] * torch.tensor([0.5, 3.0, 3.0, -1.0])",
        ((20, 30),),
    ),
    "distances": ("torch.cdist(x, w)", ((30, 5), (20, 5))),
    "median": ("x - torch.median(x, dim=1, keepdim=True)[0]", ((20, 30),)),
    "third_least": ("torch.kthvalue(x, 3, dim=1)[0]", ((20, 30),)),
    "largest_so_far": ("torch.cummax(x, dim=1)[0] - torch.cummin(x, dim=0)[0]", ((9, 20),)),
    "places_so_far": ("torch.cummax(x.round(), dim=1)[1]", ((9, 20),)),
    "log_sums_so_far": ("torch.logcumsumexp(x, dim=1)", ((9, 20),)),
    "largest_of_integers": ("torch.amax((x * 9.0).long(), 1) - x.long().amin(1)", ((9, 20),)),
    # Of six norms, each reads the one before three times: 3^6 of them, unless memory holds some.
    "norms_behind_norms": (
        "functools.reduce(lambda y, _: F.layer_norm(y + torch.relu(y), y.shape[1:]), range(6), x)",
        ((9, 20),),
    ),
    "quantiles": ("torch.quantile(x, 0.3, dim=1, keepdim=True) + x", ((9, 20),)),
    "covariances": (
        "torch.cov(torch.cat([x, w])) + torch.corrcoef(torch.cat([w, x]))",
        ((9, 20), (9, 20)),
    ),
    "gaussian_loss": (
        "F.gaussian_nll_loss(x, w, b * b + 0.1, full=True, reduction='none')",
        ((20, 30), (20, 30), (20, 30)),
    ),
    "bags": (
        "F.embedding_bag((w.abs() * 3).long() % x.shape[0], x, mode='max')",
        ((20, 30), (7, 5)),
    ),
    "inverse_errors": ("torch.erfinv(torch.tanh(x * 0.3))", ((20, 30),)),
    "digammas": ("torch.digamma(x.abs() + 0.3)", ((20, 30),)),
    "log_of_gamma": ("torch.lgamma(x.abs() * 3 + 0.3)", ((20, 30),)),
    "bessel": (
        "torch.special.i0e(x) * 2 - torch.special.i1e(w * 3) + torch.i0(x / 4)",
        ((20, 30), (20, 30)),
    ),
    "bicubic": (
        "F.interpolate(x, scale_factor=(2.0, 1.5), mode='bicubic')",
        ((2, 3, 8, 10),),
    ),
    "largest_of_parts": ("F.adaptive_max_pool2d(x, (3, 2))", ((2, 3, 8, 11),)),
    "means_of_parts": ("F.adaptive_avg_pool2d(x, (3, 4))", ((2, 3, 8, 11),)),
    "means_of_volumes": ("F.adaptive_avg_pool3d(x, (2, 3, 2))", ((1, 2, 5, 4, 7),)),
    "places_in_parts_of_volumes": (
        "F.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True)[1]",
        ((1, 2, 5, 4, 7),),
    ),
    "places_in_padded_windows": (
        "F.max_pool2d(x, 3, 2, padding=1, return_indices=True)[1]",
        ((2, 3, 8, 11),),
    ),
    "bilinear": ("F.bilinear(x, w, b)", ((20, 6), (20, 7), (4, 6, 7))),
    # Of integers: cut off towards zero, and by as many bits as a place in 32 bits says.
    "cut_quotients": (
        "torch.div((x * 90).long(), (w * 3).long() * 2 + 1, rounding_mode='trunc')",
        ((20, 30), (20, 30)),
    ),
    "shifted_by_places": (
        "((x * 90).int() >> (torch.arange(x.shape[1], dtype=torch.int32) % 8)) & 3",
        ((20, 30),),
    ),
    "values_and_places_in_order": (
        "torch.sort(x, dim=1)[0] + torch.sort(x, dim=1)[1]",
        ((4, 70),),
    ),
    "round_the_ends": (
        "F.conv2d(F.pad(x, (1, 1, 2, 2), mode='circular'), w, groups=x.shape[1])",
        ((2, 4, 7, 9), (4, 1, 3, 3)),
    ),
    # Numbers that follow the sizes as a line, a logarithm and a power.
    "numbers_of_sizes": (
        "x.sum(1) * math.log(x.shape[1] + 1) + 0.5 * math.log(2 * math.pi) * x.shape[1] - "
        "x[:, 0] / (x.shape[0] + 1) ** 0.7",
        ((20, 30),),
    ),
    # An image that is resized from one that was: data says where in it data says where.
    "resized_twice": (
        "w + F.interpolate(b + F.interpolate(x, size=b.shape[-2:]), size=w.shape[-2:])",
        ((2, 3, 4, 5), (2, 3, 15, 19), (2, 3, 7, 9)),
    ),
    "rounded_down": (
        "torch.div((x * 9).long(), 4, rounding_mode='floor')",
        ((20, 30),),
    ),
    "widened": ("F.layer_norm(x.half().float(), (30,)) * 2", ((20, 30),)),
    # Windows of 1, over what memory holds.
    "behind_a_map": (
        "F.avg_pool2d(F.conv2d(torch.relu(torch.exp(x) - 1.5), w), 2)",
        ((2, 3, 6, 8), (4, 3, 1, 1)),
    ),
    # Each part's product has its own rows, and the result those of both.
    "joined_products": (
        "torch.relu(torch.cat([x @ w + 1.0, x @ b], dim=1))",
        ((20, 30), (30, 12), (30, 15)),
    ),
    "hyperbolic": (
        "torch.sinh(x) + torch.cosh(x) * torch.asinh(x) - torch.atanh(w.sin()) + torch.hypot(x, w)",
        ((20, 30), (20, 30)),
    ),
    # Padding counts as nothing where lanes are combined: memory holds the padded row.
    "padded_rows": (
        "((1 - torch.exp(-F.softplus(x) * F.pad(w[:, 1:] - w[:, :-1], (0, 1), value=9.0))) * w)"
        ".sum(1) + torch.softmax(F.pad(x, (1, 2), value=0.5), -1).amax(1)",
        ((20, 30), (20, 30)),
    ),
    # A quotient by the number of terms whose dividend is padded, and one by infinity.
    "no_means": (
        "x - F.pad(x.sum(1), (0, 1), value=3.0)[1:, None] / x.shape[1] - w.sum(0) / math.inf",
        ((20, 30), (20, 30)),
    ),
    "scaled_products": (
        "torch.addmm(b, x, w, beta=0.5, alpha=-2.0) + torch.addbmm(b, x[None], w[None], beta=0, "
        "alpha=0.1)",
        ((20, 30), (30, 12), (20, 12)),
    ),
    "near_zero": (
        "torch.expm1(x * 1e-4) / 1e-4 + torch.log1p(w.abs() * 1e-4) / 1e-4",
        ((20, 30), (20, 30)),
    ),
    "thresholds": ("F.softplus(x, 1.0, 3.0) - F.softplus(w, 2.0, 5.0)", ((20, 30), (20, 30))),
    "ones_on_a_diagonal": (
        "x @ torch.eye(x.shape[1], 300).to(x) + "
        "torch.eye(x.shape[0], dtype=torch.bool).any(1)[:, None]",
        ((20, 30),),
    ),
    # What is divided may be negative, and so is the remainder then.
    "remainders_in_an_index": (
        "x[:, torch.fmod(torch.arange(x.shape[1]) - 3, 3) + 2]",
        ((20, 30),),
    ),
    "arcs": ("torch.asin(x.sin() * 0.9) - torch.acos(w.sin() * 0.9)", ((20, 30), (20, 30))),
    # As many parts as the size says, of which the first two are always there.
    "halves": ("torch.split(x, x.shape[1] // 2, 1)[1] + 1.0", ((20, 90),)),
    # Loops whose steps need the one before, as long as a size: layers, and what a task writes. (By
    # larger weights each step would multiply the rounding of those before.)
    "recurrent": (
        "torch.gru(x, x.new_zeros(1, x.shape[1], b.shape[1]), [w / 8, b / 8], False, 1, 0.0, "
        "False, False, False)[0]",
        ((9, 3, 5), (12, 5), (12, 4)),
    ),
    "both_ways": (
        "torch.gru(x, x.new_ones(4, x.shape[0], 4), [w / 8, b / 8] * 2 + [b.repeat(1, 2) / 8, "
        "b / 8] * 2, False, 2, 0.0, False, True, True)[1]",
        ((3, 9, 5), (12, 5), (12, 4)),
    ),
    "own_loop": (
        "torch.stack(list(itertools.accumulate(x.unbind(1), lambda h, y: torch.tanh(h @ w / 16 + "
        "y), initial=b))[1:], 1)",
        ((3, 9, 5), (5, 5), (3, 5)),
    ),
    "last_of_a_loop": (
        "functools.reduce(lambda h, t: 0.5 * h + w[:, t] * x[:, t], reversed(range(x.shape[1])), "
        "b)",
        ((3, 9, 5), (3, 9, 5), (3, 5)),
    ),
    # Behind the last step nothing needs the other state; the first state stands beside the others.
    "two_states": (
        "torch.stack([s for s, _ in itertools.accumulate(x.unbind(1), lambda each, y: (each[0] + "
        "each[1] * (y - each[0]), torch.sigmoid(each[1] - y)), initial=(b, w))][1:], -1)",
        ((3, 9, 5), (3, 5), (3, 5)),
    ),
    "with_the_first": (
        "torch.cat(list(itertools.accumulate(x.split(1, 1), lambda h, y: torch.tanh(h + y), "
        "initial=b[:, None])), 1)",
        ((3, 9, 5), (3, 5), (3, 5)),
    ),
    # One loop reads what the steps of another gave, the last one first.
    "there_and_back": (
        "functools.reduce(lambda y, h: y * 0.5 + h, reversed(list(itertools.accumulate("
        "x.unbind(1), lambda h, y: torch.tanh(h + y), initial=b))[1:]), w)",
        ((3, 9, 5), (3, 5), (3, 5)),
    ),
    # Many steps, whatever the sizes are.
    "many_steps": (
        "functools.reduce(lambda h, _: torch.tanh(h @ w / 16 + x), range(60), x)",
        ((20, 5), (5, 5)),
    ),
    # What a step scatters into goes through a workspace of that step.
    "scattered_in_a_loop": (
        "functools.reduce(lambda h, t: torch.tanh(h).scatter_add(0, (w[:, t].abs() * 3).long() % "
        "b.shape[0], x[:, t]), range(x.shape[1]), b)",
        ((6, 9, 5), (6, 9, 5), (3, 5)),
    ),
    # Places that nothing is written to keep what they hold.
    "combined_at_places": (
        "w.scatter_reduce(0, (x.abs() * 3).long() % b.shape[0], x, 'mean', include_self=False) + "
        "w.index_reduce(0, (b * 9).abs().long() % (b.shape[0] - 1), w[:b.shape[0]], 'amax')",
        ((20, 5), (30, 5), (30,)),
    ),
    # Of what lies outside of a part, a maximum or a product takes nothing.
    "largest_of_joined": ("torch.cat([x, w * 2.0], 1).amax(1) + b", ((20, 30), (20, 12), (20,))),
    "joined_with_rows": (
        "torch.cat([b[(x.abs() * 3).long() % b.shape[0]], torch.log1p(w.abs())], 1).sum(1)",
        ((20, 7), (20, 9), (30,)),
    ),
    "of_a_part_and_a_row": ("x[:, :5].sum(1) * w.amax(1) + w.sum(1)", ((20, 9), (20, 90))),
    "error_tails": ("torch.erfc(x * 2.0) * torch.exp(x)", ((20, 30),)),
    # Nothing needs the number that is made first.
    "made_for_nothing": ("[torch.tensor(0.5) * 2.0, x * 3.0][1]", ((20, 30),)),
    "numbers_alone": (
        "torch.where(x > 0, torch.where(w > 1, torch.zeros_like(x), torch.ones_like(x)), 0.0) - w",
        ((20, 30), (20, 30)),
    ),
    "less_its_mean": (
        "F.group_norm(x, 3, torch.ones(x.shape[1], dtype=x.dtype), None)",
        ((4, 6, 40),),
    ),
}
#: What the sizes of the symbols are: at and around tiles of 8, primes, and 1.
SIZES = (1, 7, 8, 9, 13)
#: Those of images and channels where there are four symbols: one loop goes over the rows of both,
#: whose number is on both sides of a tile, too.
FEW = (1, 2, 3, 4, 6)


def written(folder: Path, name: str, task: Task | None = None) -> Path:
    """The file of a task, by default of that in `TASKS`."""
    body, shapes = task or TASKS[name]
    names = ("x", "w", "b")[: len(shapes)]
    made = ", ".join(f"torch.rand{shape}" for shape in shapes).replace("rand", "randn")
    path = folder / f"{name}.py"
    path.write_text(
        f"{HEAD}class Model(torch.nn.Module):\n    def forward(self, {', '.join(names)}):\n"
        f"        return {body}\n\n\ndef get_inputs():\n    return [{made}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return path


def function(path: Path) -> object:
    """The task's model, in this process."""
    scope: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["Model"]()  # type: ignore[operator]


def small_tiles(text: str) -> dict[str, int]:
    """Tiles of 8 for all that is tuned."""
    (section,) = re.findall(r"constexpr:(.*?);", text, re.DOTALL) or [""]
    return dict.fromkeys(re.findall(r"(\w+) in", section), 8)


def sizes_of(sketch: ir.Sketch, turn: int) -> dict[str, int]:
    """Each symbol's size, another one in each turn; what has to be a multiple stays small."""
    few = 2 if len(sketch.symbols) > 3 else 0
    return {
        s.name: (FEW if n < few else SIZES)[(turn + n) % len(SIZES)]
        for n, s in enumerate(sketch.symbols)
    }


def arrays(sketch: ir.Sketch, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Signed inputs of mixed scales."""
    from sketchc.ir.evaluate import evaluate

    generator = np.random.default_rng(5)
    found = {}
    for tensor in sketch.tensors:
        if tensor.role is ir.Role.IN:
            shape = [int(evaluate(extent, sizes)) for extent in tensor.extents]
            scale = np.exp2(generator.integers(-2, 3, shape))
            found[tensor.name] = (generator.standard_normal(shape) * scale).astype(np.float32)
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("name", TASKS)
def test_a_design_is_proved_and_means_the_task(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    with load_task(str(path)) as task:
        text = design(task)
    proved_and_right(name, text, path)


def proved_and_right(name: str, text: str, path: Path) -> None:
    """Assert that a sketch is proved, and that it means the task of this file."""
    source = Source(f"{name}.sketch", text)
    result = check(source)
    assert result.ok, result.diagnostics
    tree, _ = parse(source)
    assert tree is not None
    planned = build_plan(tree.sketches[0], "cpp", None, small_tiles(text))
    tiers = {proof.tier.value for proof in planned.proofs}
    # That the places of a sorted row are its places in another order is promised by the store.
    promised = {"assumed"} if " rank(" in text else set()
    assert tiers <= {"proved", "checked at launch"} | promised, text
    sketch, model = planned.plan.sketch, function(path)
    compared = 0
    for turn in range(len(SIZES)):
        sizes = sizes_of(sketch, turn)
        given = arrays(sketch, sizes)
        try:
            exact = model(*(torch.from_numpy(a).double() for a in given.values()))
        except (RuntimeError, ValueError):
            continue  # PyTorch refuses these sizes
        found = interpret(sketch, given, sizes, {})
        (output,) = found.outputs.values()
        expected = exact.numpy()
        assert output.shape == expected.shape
        if not np.isnan(expected).all():
            scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
            np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-6 * scale)
        compared += 1
    assert compared > 1


def test_the_norm_of_one_element_is_its_magnitude(tmp_path: Path) -> None:
    """Its square is 0 in single precision; PyTorch takes no square of it."""
    with load_task(str(written(tmp_path, "unit_rows"))) as task:
        tree, _ = parse(Source("unit_rows.sketch", design(task)))
    assert tree is not None
    sketch = build_plan(tree.sketches[0], "cpp").plan.sketch
    given = {"X": np.array([[-1e-30]], np.float32)}
    (output,) = interpret(sketch, given, {"M": 1, "N": 1}, {}).outputs.values()
    assert output.tolist() == [[-1.0]]


def test_terms_that_are_equal_have_no_distance_from_their_mean() -> None:
    """A kernel adds terms up in some order of its own, and rounds; 0.1 times 1,153 shows it."""
    difference = sketchc.compile(
        lambda x: x - x.mean(-1, keepdim=True), target="cpp", inputs=[torch.randn(4, 1153)]
    )
    equal = torch.tensor([[0.1], [-1.0 / 3.0], [1e6 / 7.0]]).expand(3, 1153)
    assert torch.equal(difference(equal), torch.zeros(3, 1153))


def test_what_a_workspace_holds_is_computed_once(tmp_path: Path) -> None:
    """Mean and deviation of a group need the windows in a workspace: the result loads them."""
    with load_task(str(written(tmp_path, "normed_windows"))) as task:
        text = design(task)
    assert text.count("tanh(") == 1
    assert text.count("max(largest") == 1


def test_what_follows_a_product_is_computed_where_it_is_stored(tmp_path: Path) -> None:
    """The two passes of a softmax load one tensor each, and compute nothing again."""
    with load_task(str(written(tmp_path, "behind_a_product"))) as task:
        text = design(task)
    (checked,) = check(Source("t.sketch", text)).sketches
    first, second = (
        Counter(s.access.tensor for s in statements(phase.body) if isinstance(s, ir.Load))
        for phase in checked.sketch.phases
    )
    (workspace,) = second
    assert second[workspace] == 2
    assert workspace not in first


def test_a_sketch_asks_for_images_that_hold_their_windows(tmp_path: Path) -> None:
    """So no run that tries tile sizes is at sizes at which the task has no result."""
    with load_task(str(written(tmp_path, "mean_of_windows"))) as task:
        text = design(task)
    assert "require: K_MID_2 >= 1; P_MID_2 >= 1;" in text
    assert not has_errors(self_check(Source("t.sketch", text)))


def test_the_window_of_a_weight_keeps_its_size(tmp_path: Path) -> None:
    """It follows a number that the model is built with, as its channels do; nobody hands it over.
    Cubes of windows as large as other sizes are when a task is traced would fill the memory."""
    path = tmp_path / "t.py"
    path.write_text(
        f"{HEAD}class Model(torch.nn.Module):\n    def __init__(self, channels, window):\n"
        "        super().__init__()\n"
        "        self.up = torch.nn.ConvTranspose3d(channels, 4, window, stride=2)\n\n"
        "    def forward(self, x):\n        return F.avg_pool3d(self.up(x), 2)\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 3, 4, 6, 7)]\n\n\n"
        "def get_init_inputs():\n    return [3, 5]\n"
    )
    with load_task(str(path)) as task:
        text = design(task)
    assert "UP_WEIGHT[N, 4, 5, 5, 5]: in f32;" in text
    assert check(Source("t.sketch", text)).ok


OTHERWISE = {
    "padded": (
        "        # Nothing is padded where there is nothing to pad.\n"
        "        behind = -x.shape[1] % 16\n"
        "        y = F.pad(x, (0, behind)) if behind else torch.sin(x)\n"
        "        return y.view(x.shape[0], -1, 16).sum(2)\n"
    ),
    "uneven steps": (
        "        y = x[:, 0]\n"
        "        for place in range(1, x.shape[1]):\n"
        "            y = y * x[:, place] if (place * place) % 3 else torch.sin(y) + x[:, place]\n"
        "        return y\n"
    ),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_sizes_at_which_a_task_runs_otherwise_are_held(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them, where the others may vary; the run says why."""
    require("cpp")
    path = tmp_path / "padded.py"
    path.write_text(
        f"{HEAD}class Model(torch.nn.Module):\n    def forward(self, x):\n{OTHERWISE[what]}"
        "\n\ndef get_inputs():\n    return [torch.randn(5, 44)]\n"
    )
    out = tmp_path / "out"
    assert run(["gen", str(path), "-t", "cpp", "--no-bench", "--no-store", "-o", str(out)]) == 0
    text = (out / "padded.sketch").read_text()
    assert "symbols: M;" in text
    assert "X[M, 44]: in f32" in text
    summary = (out / "SUMMARY.md").read_text()
    assert "with sizes held at the task's own: the task runs otherwise at other sizes" in summary


def test_heads_that_a_quotient_of_sizes_repeats_are_held(tmp_path: Path) -> None:
    """At some sizes there are none: PyTorch then sees the repeated heads with other strides."""
    require("cpp")
    path = tmp_path / "heads.py"
    path.write_text(
        f"{HEAD}class Model(torch.nn.Module):\n    def forward(self, x, w):\n"
        "        w = w.repeat_interleave(x.shape[1] // w.shape[1], 1)\n"
        "        i = torch.arange(x.shape[2])\n"
        "        near = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < 9)\n"
        "        return F.scaled_dot_product_attention(x, w, w, attn_mask=near)\n\n"
        "def get_inputs():\n    return [torch.randn(2, 8, 50, 32), torch.randn(2, 2, 50, 32)]\n"
    )
    out = tmp_path / "out"
    assert run(["gen", str(path), "-t", "cpp", "--no-bench", "--no-store", "-o", str(out)]) == 0


def test_what_has_no_form_is_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text(
        f"{HEAD}class Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.polygamma(2, torch.special.bessel_j0(x))\n\n\ndef get_inputs():\n"
        "    return [torch.randn(20, 30)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    with load_task(str(path)) as task, pytest.raises(UsageError, match="bessel_j0, polygamma"):
        design(task)


@pytest.mark.parametrize(("target", "name"), [("cpp", "layer_norm"), ("triton_cuda", "cut")])
def test_gen_needs_no_model_and_leaves_a_kernel_that_passed(
    target: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require(target)
    out = tmp_path / "out"
    given = ["gen", str(written(tmp_path, name)), "--target", target, "-o", str(out)]
    assert run([*given, "--no-bench", "--seed", "5", "--json"]) == 0, capsys.readouterr()
    trace = json.loads(capsys.readouterr().out)
    assert trace["outcome"] == "passed"
    assert [step["agent"] for step in trace["steps"]] == ["autosketch", "coder", "verifier"]
    assert (out / f"{name}.sketch").read_text().startswith(f"sketch {name} {{")
    assert (out / f"{name}_dropin.py").exists()


@pytest.mark.sweep
def test_what_takes_too_long_to_interpret_is_judged_by_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    hasty = partial(design_check.check_design, timeout=1e-3)
    monkeypatch.setattr(design_check, "check_design", hasty)
    command = ["gen", str(written(tmp_path, "softmax")), "-t", "cpp", "-o", str(tmp_path / "out")]
    assert run(command) == 0, capsys.readouterr().out
    with load_task(str(written(tmp_path, "softmax"))) as task:
        plan = build_plan(parse(Source("s.sketch", design(task)))[0].sketches[0], "cpp").plan
        (found,) = hasty(plan, task, tmp_path / "slow", 0).failures
    assert found.failure == "timeout"


@pytest.mark.sweep
def test_what_takes_too_much_memory_to_interpret_is_judged_by_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")

    def exhausted(*_: object, **__: object) -> None:
        raise ToolchainError(stage="design", message="too large", kinds=("MemoryError",))

    monkeypatch.setattr(InterpreterSession, "run", exhausted)
    command = ["gen", str(written(tmp_path, "softmax")), "-t", "cpp", "-o", str(tmp_path / "out")]
    assert run(command) == 0, capsys.readouterr().out


def test_stages_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, "softmax"))
    for stage, shown in (
        ("graph", "prims::exp"),
        ("loops", "max["),
        ("phases", "Y for each [i<M]:"),
        ("sketch", "sketch softmax {"),
    ):
        assert run(["gen", path, "-t", "cpp", "--emit", stage]) == 0
        assert shown in capsys.readouterr().out


def test_contradicting_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["gen", str(written(tmp_path, "softmax")), "-t", "cpp", "--designer"]
    assert run([*given, "builtin", "--workflow", "default"]) == 2
    assert "--designer builtin goes with --workflow builtin" in capsys.readouterr().err
    assert run([*given, "llm", "--workflow", "builtin"]) == 2


LOOP = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(5, 3, bidirectional=True, batch_first=True)
        self.cell = torch.nn.LSTMCell(6, 4)
        self.read = torch.nn.Linear(4, 2)

    def forward(self, x):
        state = memory = x.new_zeros(x.shape[0], 4)
        found = x.new_empty(x.shape[0], x.shape[1], 2)
        x, _ = self.layer(x)
        for place in reversed(range(x.shape[1])):
            state, memory = self.cell(x[:, place], (state, memory))
            found[:, place] = self.read(state)
        return found, memory


def get_inputs():
    return [torch.randn(3, 11, 5)]


def get_init_inputs():
    return []
"""


@pytest.mark.sweep
def test_a_loop_of_a_task_is_a_loop_of_its_sketch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop of the host over a size, whatever that is, as is each direction of a recurrent layer;
    the kernel passes."""
    require("cpp")
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    with load_task(str(path)) as task:
        text = design(task)
    tree, _ = parse(Source("loop.sketch", text))
    assert tree is not None
    sketch = build_plan(tree.sketches[0], "cpp").plan.sketch
    loops = [step for step in sketch.schedule if isinstance(step, ir.HostFor)]
    assert [isinstance(loop.stop, ir.Ref) and loop.stop.kind for loop in loops] == [
        ir.NameKind.SYMBOL
    ] * 3
    options = ["--no-bench", "--no-store", "-o", str(tmp_path / "out")]
    assert run(["gen", str(path), "-t", "cpp", *options]) == 0, capsys


def test_all_that_has_no_form_is_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    body = (
        "torch.linalg.inv(x) + torch.mode(x, 1)[0] + torch.mode(x, 0)[0] + "
        "x.to(torch.int32).scatter_reduce(0, (x > 0).long(), x.to(torch.int32), 'mean')"
    )
    path.write_text(f"""{HEAD}

class Model(torch.nn.Module):
    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
""")
    with load_task(str(path)) as task, pytest.raises(UsageError) as error:
        design(task)
    for said in ("linalg_inv_ex", "mode (2 times)", "scatter_reduce by mean"):
        assert said in str(error.value)
