"""Examples on a GPU, beside PyTorch eager and torch.compile: some tuned, all others once.

    python benchmarks/examples_gpu.py build FOLDER [NAME ...] [--points N] [--jobs N] [--own-sizes]
    python FOLDER/tasks_queue.py FOLDER RESULTS          # on the GPU: torch and Triton alone
    python benchmarks/examples_gpu.py pack FOLDER [--results RESULTS] [--data FILE]
    python benchmarks/examples_gpu.py show [--data FILE]

Those in `TUNED`, every kind of kernel among them, have sizes that fill an H200, as many further
points of their tuning spaces as `--points` says (10), and take turns with eager, torch.compile
(its default mode) and, where memory bounds them, a copy of as many bytes as the task's inputs,
parameters and outputs have. All others have their task's own sizes and the cost model's choice, and
take turns with eager alone. `--own-sizes` builds all at these, for a try without a GPU. Where
products ask for another precision than the sketch does, that is named.
`python benchmarks/tables.py` writes what `pack` has put into FILE into docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from cost_model import with_precision
from gpu_tasks import (
    ROOT,
    Given,
    chosen_text,
    geometric_mean,
    is_tuned,
    main,
    median,
    ratio,
    speedup,
    tuned_text,
)

DATA = ROOT / "docs" / "data" / "examples_h200.json.gz"
EXAMPLES = ROOT / "examples"
POINTS = 10
#: What is asked for: as geometric means over those that are tuned, of eager and of torch.compile;
#: of each that memory bounds, of torch.compile or else of a copy's bandwidth.
OF_EAGER, OF_COMPILE, EACH_OF_COMPILE, EACH_OF_COPY = 1.5, 1.1, 0.95, 0.9
#: The kinds that memory bounds are all but these.
_COMPUTE = ("product", "attention", "convolution", "random")
_SPLIT = "f32_split"


@attrs.frozen
class Case:
    """An example at sizes that fill an H200: `sizes` by the names that its task has for them, and
    the precision that its products ask for in place of the sketch's."""

    kind: str
    sizes: Mapping[str, int]
    precision: str = ""

    @property
    def is_bound_by_memory(self) -> bool:
        """Whether a kernel of this kind takes as long as its bytes need."""
        return self.kind not in _COMPUTE


_LARGE = {"rows": 16384, "columns": 8192}
_SQUARE = {"rows": 4096, "columns": 4096, "inner": 4096}
TUNED: dict[str, Case] = {
    "add": Case("element-wise", _LARGE),
    "argmax_rows": Case("reduction", {"rows": 8192, "columns": 16384}),
    "causal_attention": Case(
        "attention",
        {"batch_size": 4, "heads": 16, "key_heads": 4, "queries": 2048, "keys": 2048},
        _SPLIT,
    ),
    "conv2d": Case(
        "convolution",
        {"batch_size": 32, "channels": 64, "size": 56, "out_channels": 128, "groups": 1},
        _SPLIT,
    ),
    "cross_entropy": Case("loss", {"rows": 8192, "classes": 32768}),
    "cumsum_two_phase": Case("scan", {"rows": 64, "columns": 2_000_000}),
    "dropout": Case("random", {"rows": 8192, "columns": 4096}),
    "embedding": Case("gather", {"batch_size": 64, "length": 2048, "words": 32768, "width": 1024}),
    "gelu": Case("element-wise", _LARGE),
    "group_norm": Case("norm", {"batch_size": 64, "channels": 128, "size": 112, "groups": 32}),
    "int8_dynamic_quantise": Case("quantisation", _LARGE),
    "layer_norm": Case("norm", {"rows": 32768, "columns": 4096}),
    "matmul": Case("product", _SQUARE, _SPLIT),
    "matmul_bias_gelu": Case(
        "product", {"rows": 4096, "in_features": 4096, "out_features": 4096}, _SPLIT
    ),
    "matmul_half": Case("product", {"rows": 8192, "columns": 8192, "inner": 8192}),
    "max_pool2d": Case("pooling", {"batch_size": 64, "channels": 64, "size": 224}),
    "online_softmax": Case("softmax", {"rows": 1024, "columns": 131072}),
    "pixel_shuffle": Case("layout", {"batch_size": 64, "channels": 64, "size": 256}),
    "rms": Case("norm", {"batch_size": 16, "features": 64, "dim1": 256, "dim2": 256}),
    "rope": Case("element-wise", {"batch_size": 16, "length": 4096, "heads": 16}),
    "scatter_add": Case("scatter", {"targets": 4096, "rows": 131072, "columns": 1024}),
    "softmax": Case("softmax", {"rows": 32768, "columns": 4096}),
    "sum_middle": Case("reduction", {"batch_size": 32, "rows": 2048, "columns": 2048}),
    "topk": Case("selection", {"rows": 4096, "columns": 32768}),
}


def given_of(name: str, points: int, own_sizes: bool) -> Given:
    """An example as a task to be built."""
    case = TUNED.get(name, Case("", {}))
    text = (EXAMPLES / "tasks" / f"{name}.py").read_text()
    for size, value in {} if own_sizes else case.sizes.items():
        text, found = re.subn(rf"(?m)^{size} = .*$", f"{size} = {value}", text)
        assert found == 1, (name, size)
    sketch = (EXAMPLES / f"{name}.sketch").read_text()
    beside = ("eager", "compile") if name in TUNED else ("eager",)
    beside += ("copy",) if name in TUNED and case.is_bound_by_memory else ()
    sizes = re.findall(r"(?m)^(\w+) = (\d+)$", text)
    return Given(
        name,
        case.kind or "others",
        " ".join(f"{size}={value}" for size, value in sizes),
        text,
        with_precision(sketch, case.precision),
        beside,
        points if name in TUNED else 0,
        {"precision": case.precision},
    )


def tasks_of(given: argparse.Namespace) -> list[Given]:
    """The examples that the command line asks for, those that are tuned first."""
    others = sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
    names = given.names or list(dict.fromkeys([*TUNED, *others]))
    if unknown := set(names) - {*others}:
        raise SystemExit(f"no such example: {', '.join(sorted(unknown))}")
    points = POINTS if given.points is None else given.points
    return [given_of(name, points, given.own_sizes) for name in names]


# ---------------------------------------------------------------- show


def holds_bandwidth(task: Mapping[str, Any]) -> bool | None:
    """Whether a tuned kernel that memory bounds does what is asked for; None for other kernels."""
    if "copy" not in task["beside"]:
        return None
    of_compile, of_copy = (ratio(task, side, "tuned") or 0.0 for side in ("compile", "copy"))
    return of_compile >= EACH_OF_COMPILE or of_copy >= EACH_OF_COPY


def sums(tasks: Mapping[str, Any]) -> list[str]:
    """What is said of all in sentences: of those that are tuned, and of all others."""
    tuned = [task for task in tasks.values() if is_tuned(task)]
    others = [task for task in tasks.values() if not is_tuned(task)]
    said = []
    for side, wanted in (("eager", OF_EAGER), ("compile", OF_COMPILE)):
        for of in ("ours", "tuned"):
            found = [ratio(task, side, of) for task in tuned]
            known = [each for each in found if each is not None]
            said.append(
                f"{of} of {side}: geometric mean {geometric_mean(found):.2f} of {len(known)} "
                f"(asked for: {wanted}), faster {sum(each > 1 for each in known)} times"
            )
    held = {task["name"]: holds_bandwidth(task) for task in tuned}
    bound = [name for name, each in held.items() if each is not None]
    missed = [name for name in bound if not held[name]]
    said.append(
        f"{len(bound) - len(missed)} of {len(bound)} that memory bounds have {EACH_OF_COMPILE} of "
        f"torch.compile or {EACH_OF_COPY:.0%} of a copy's bandwidth; not: "
        f"{', '.join(missed) or 'none'}"
    )
    far = geometric_mean(ratio(task, "ours", "tuned") for task in tuned)
    said.append(f"the plan's own choice takes {far:.3f} of the tuned time (geometric mean)")
    if others:
        found = [speedup(task) for task in others]
        known = [each for each in found if each is not None]
        said.append(
            f"all others, ours of eager: geometric mean {geometric_mean(found):.2f} of "
            f"{len(known)}, faster {sum(each > 1 for each in known)} times of {len(others)}"
        )
    return said


def predicted(task: Mapping[str, Any]) -> float | None:
    """The cost model's time for the plan's own choice over the median; None where it was not
    measured."""
    own = median(task, "ours")
    return None if own is None else 1e3 * task["points"][0]["predicted"] / own


def lines(tasks: Mapping[str, Any]) -> Iterator[str]:
    """The table: a line for each example in milliseconds, then the sentences. The shares are those
    of what was tuned, "predicted" is the cost model's time over that of the plan's own choice."""
    head = ("eager", "compile", "copy", "ours", "tuned", "/eager", "/compile", "/copy", "predicted")
    yield f"{'':24}{''.join(f'{word:>9}' for word in head)}"
    for task in sorted(tasks.values(), key=lambda one: (not is_tuned(one), one["name"])):
        why = task.get("failure") or task.get("wrong") or ""
        times = [_cell(median(task, side)) for side in head[:5]]
        shares = [_cell(ratio(task, side, "tuned")) for side in ("eager", "compile", "copy")]
        shares.append(_cell(predicted(task)))
        point = chosen_text(task) + (f" -> {tuned_text(task)}" if tuned_text(task) else "")
        yield f"{task['name']:24}{''.join(times)}{''.join(shares)}  {why or point}"
    yield ""
    yield from sums(tasks)


def _cell(value: float | None) -> str:
    return f"{'':9}" if value is None else f"{value:9.3f}"


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `build`."""
    parser.add_argument("--own-sizes", action="store_true", help="the tasks' own sizes for all")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DATA, tasks_of, lines, options))
