"""Faults in examples: loops cut short, tiles that forget the next one, tails that are dropped,
comparisons off by one place, branches, constants in place of numbers, corrections left out.

Each is an edit of the text of an example, and wrong at some sizes and values that the example's
task takes.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Fault:
    """`wrong` in place of `right`, which stands in the example at least `place` + 1 times."""

    example: str
    right: str
    wrong: str
    place: int = 0

    def planted(self, text: str) -> str:
        """The example with the fault."""
        parts = text.split(self.right)
        assert len(parts) > self.place + 1, (self.example, self.right)
        head = self.right.join(parts[: self.place + 1])
        return head + self.wrong + self.right.join(parts[self.place + 1 :])


_ROW = "range(ceil(N, T))"
_K = "range(ceil(K, TK))"
_SUM = "fma(running_sum, correction, block_sum, running_sum)"
_PLAIN = "add(running_sum, block_sum, running_sum)"
_SPREAD = "range(ceil(CG*H*W, T))"

#: Loops of one iteration.
CUT = {
    "argmax of a tile": Fault("argmax_rows", _ROW, "range(1)"),
    "loss of a tile of classes": Fault("cross_entropy", _ROW, "range(1)"),
    "loss of a tile of rows": Fault("cross_entropy", "range(ceil(M, T))", "range(1)"),
    "a tile of K": Fault("batched_matmul", _K, "range(1)"),
    "a tile of the mean": Fault("group_norm", _SPREAD, "range(1)"),
    "a tile of the variance": Fault("group_norm", _SPREAD, "range(1)", 1),
    "a tile of the scale": Fault("int8_dynamic_quantise", _ROW, "range(1)"),
    "a tile of the maximum": Fault("online_softmax", "range(ceil(N, TILE))", "range(1)"),
    "a tile of the largest": Fault("power_iteration", _ROW, "range(1)"),
    "a tile of the product": Fault("row_products", "range(ceil(N, TN))", "range(1)"),
    "a tile of the smallest": Fault("smallest_k", _ROW, "range(1)"),
    "a tile of a window": Fault(
        "conv2d", "range(0, CG*KH*KW, TK)", "range(0, min(TK, CG*KH*KW), TK)"
    ),
    "a part of K": Fault("split_k_matmul", "range(ceil(K, PART))", "range(1)"),
    "a tile of a part": Fault(
        "split_k_matmul", "min((p+1)*PART, K), TK)", "min(p*PART + TK, K), TK)"
    ),
    "a tile of the middle": Fault("sum_middle", "range(ceil(M, TM))", "range(1)"),
    "a block of a triangle": Fault("triangular_matmul", "range(j, i + 1)", "range(i, i + 1)"),
    "a tile of keys": Fault(
        "causal_attention", "range(ceil(min((i+1)*TM + N - M, N), TN))", "range(1)"
    ),
    "a tile of a distance": Fault("triplet_loss", "range(ceil(N, TN))", "range(1)"),
}
#: Tiles that do not know where they are, or what came before.
SECOND_TILES = {
    "no carry": Fault("cumsum", "carry=total)", "carry=total)\n            fill(0, total)"),
    "places in a tile": Fault("argmax_rows", "add(lane, j*T, lane)", "add(lane, 0, lane)"),
    "places of the first tile": Fault("smallest_k", "iota(T, j*T, N)", "iota(T, 0, T)"),
    "noise of the first tile": Fault("add_noise", "i*T + iota(T)", "iota(T)"),
    "values of the first tile": Fault(
        "group_norm", "load(XV[n, g, c, j*T:(j+1)*T]", "load(XV[n, g, c, 0:T]"
    ),
    "pixels of the first tile": Fault("depthwise_conv2d", "first = j*T*stride", "first = 0*stride"),
    "an image of first tiles": Fault("pixel_shuffle", "h, j*T:(j+1)*T] -> x", "h, 0:T] -> x"),
    "gradients of the first tile": Fault(
        "unscale_gradients", "TM, j*TN:(j+1)*TN] -> gradient", "TM, 0:TN] -> gradient"
    ),
    "heads of first tiles": Fault("repeat_heads", "XV[h, j*T:(j+1)*T]", "XV[h, 0:T]"),
    "the first samples": Fault("downsample", "j*T*FACTOR:(j+1)*T*FACTOR", "0:T*FACTOR"),
    "words of first tiles": Fault("embedding", "token, j*TD:(j+1)*TD] -> y", "token, 0:TD] -> y"),
    "heat of the first tile": Fault(
        "heat", "U[i*TM+1:(i+1)*TM+1, j*TN:(j+1)*TN]", "U[i*TM+1:(i+1)*TM+1, 0:TN]"
    ),
    "no state": Fault("retention", "fma(state, kept, block, state)", "copy(block, state)"),
    "nothing before": Fault("cumsum_two_phase", "add(y, before, y)", "add(y, 0.0, y)"),
}
#: The last, smaller tile.
TAILS = {
    "of K": Fault("matmul", _K, "range(max(K//TK, 1))"),
    "of a batch": Fault("batched_matmul", _K, "range(max(K//TK, 1))"),
    "of the middle": Fault("sum_middle", "range(ceil(M, TM))", "range(max(M//TM, 1))"),
    "of what is added": Fault("scatter_add", "range(ceil(D, TD))", "range(max(D//TD, 1))"),
    "of rows of a loss": Fault("cross_entropy", "range(ceil(M, T))", "range(max(M//T, 1))"),
}
#: Comparisons and bounds.
BORDERS = {
    "the diagonal": Fault("causal_attention", "key[None, :] <= query", "key[None, :] < query"),
    "the diagonal of a factor": Fault("triangular_matmul", "k[None, :] <= m", "k[None, :] < m"),
    "the first level": Fault("histogram_range", "level >= 0", "level > 0"),
    "the last level": Fault("histogram_range", "level < LEVELS", "level < LEVELS - 1"),
    "the present": Fault("retention", "where(key <= query", "where(key < query"),
    "the last row": Fault("depthwise_conv2d", "h >= 0 and h < H", "h >= 0 and h < H - 1"),
    "the first plane": Fault("max_pool3d", "d >= 0 and d < D", "d > 0 and d < D"),
    "le for lt": Fault("integers", "lt(a, b, truth)", "le(a, b, truth)"),
    "lt for le": Fault("integers", "le(a, b, truth)", "lt(a, b, truth)"),
    "the upper clamp": Fault("pcm_planes", "high=1)", "high=2)"),
    "where it wraps": Fault("roll", "if n > 0 else N - 1", "if n > 0 else 0"),
    "a window over the edge": Fault("avg_pool1d", "- max(start, 0)", "- start"),
}
#: What a number or an optional tensor decides.
BRANCHES = {
    "the other mode": Fault("avg_pool1d", "div(y, kernel_size, y)", "div(y, kernel_size + 1, y)"),
    "the mask": Fault("causal_attention", "add(scores, mask, scores)", "sub(scores, mask, scores)"),
    "the bias": Fault("conv2d", "add(y, bias[:, None], y)", "sub(y, bias[:, None], y)"),
    "another eps": Fault("group_norm", "add(variance, eps,", "add(variance, 1e-3,"),
    "no eps": Fault("layer_norm", "add(variance, eps,", "add(variance, 0.0,"),
    "no dilation": Fault("conv2d", "(k%KW*dilation)", "(k%KW)"),
    "the first group": Fault("conv2d", "c = g*CG + k//(KH*KW)", "c = k//(KH*KW)"),
    "one stride": Fault(
        "conv_transpose2d", "up % stride == 0 and left % stride == 0", "up % stride == 0"
    ),
    "a constant number of steps": Fault("heat", "range(steps)", "range(4)"),
    "a constant margin": Fault("triplet_loss", "add(loss, margin, loss)", "add(loss, 1.0, loss)"),
}
#: Online sums whose maximum has changed, and scales.
CORRECTIONS = {
    "of a loss": Fault("cross_entropy", _SUM, _PLAIN),
    "of a softmax": Fault("online_softmax", _SUM, _PLAIN),
    "of attention": Fault("causal_attention", "mul(y, correction, y)", "mul(y, 1.0, y)"),
    "of a sum in attention": Fault("causal_attention", _SUM, _PLAIN),
    "a scale of 128": Fault("int8_dynamic_quantise", "div(largest, 127,", "div(largest, 128,"),
}
FAULTS = {
    f"{sort}: {name}": fault
    for sort, faults in {
        "cut": CUT,
        "second tile": SECOND_TILES,
        "tail": TAILS,
        "border": BORDERS,
        "branch": BRANCHES,
        "correction": CORRECTIONS,
    }.items()
    for name, fault in faults.items()
}
