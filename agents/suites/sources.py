"""Where the tasks of a suite come from: our own rows, a checkout of somebody's benchmark as it is,
or any folder of task files.

A task has a name that is unique in its suite, a category, and a file. What a suite leaves out is
named here, one by one, with the reason; nothing else is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from sketchc.agents.suites import benchmark
from sketchc.agents.suites.level1 import rows
from sketchc.base.diagnostics import UsageError, refuse, refusing
from sketchc.base.files import replace_file

LEVEL1 = "level1"
#: The suites that need nothing but their names, with a sentence on each.
BUILT_IN = {
    LEVEL1: "the 100 operators of KernelBench's level 1, in our own words",
    "dynamic": "198 operators of the paper's benchmark and 11 attentions, each at several sizes",
    "static": "214 operators of the paper's benchmark and 11 attentions",
}


@attrs.frozen
class SuiteTask:
    """One task: `path` is its file; None where `text` is what the file is to hold. `excluded` says
    why it is not run, "" where it is. `sizes` are in words."""

    name: str
    category: str
    path: Path | None = None
    text: str = attrs.field(default="", repr=False)
    excluded: str = ""
    sizes: str = ""

    def digest(self) -> str:
        """SHA-256 of the file's content, in hexadecimal. Raises `UsageError`."""
        with refusing(f"cannot read the task file {self.path}"):
            content = self.text.encode() if self.path is None else self.path.read_bytes()
        return hashlib.sha256(content).hexdigest()


@attrs.frozen
class Suite:
    """A suite: tasks under one name."""

    name: str
    tasks: tuple[SuiteTask, ...]


def level1(*, full: bool = False) -> Suite:
    """Our own rows of KernelBench's level 1, at small sizes or (`full`) at the originals'."""
    return Suite(
        LEVEL1,
        tuple(
            SuiteTask(
                row.name,
                row.category,
                text=row.source(full=full),
                sizes=row.full if full else row.small,
            )
            for row in rows()
        ),
    )


def paper_suite(name: str) -> Suite:
    """Our own rows of the paper's benchmark: those with `dynamic` sizes, or all, each at one."""
    dynamic = name == "dynamic"
    tasks = []
    for operator in benchmark.rows(dynamic=dynamic):
        sizes = operator.sizes if dynamic else operator.sizes[:1]
        said = (" ".join(f"{size}={value}" for size, value in one.items()) for one in sizes)
        tasks.append(
            SuiteTask(
                operator.name,
                operator.category,
                text=operator.source(dynamic=dynamic),
                sizes="; ".join(said),
            )
        )
    return Suite(name, tuple(tasks))


def folder_suite(folder: Path) -> Suite:
    """The task files of a folder and of those in it, which are the categories."""
    return Suite(folder.resolve().name, tuple(_found(folder, folder, "")))


def kernelbench_suite(checkout: Path) -> Suite:
    """Levels 1 to 3 of a checkout of KernelBench (ScalingIntelligence/KernelBench), or those that
    are there, as they are."""
    categories = {row.number: row.category for row in rows()}
    tasks: list[SuiteTask] = []
    for folder in _parts(checkout, "KernelBench", ("level1", "level2", "level3")):
        for task in _found(folder, checkout, folder.name):
            known = categories.get(_number(task)) if folder.name == "level1" else None
            tasks.append(attrs.evolve(task, category=known or folder.name))
    return Suite("kernelbench", tuple(sorted(tasks, key=lambda t: (t.name[:6], _number(t)))))


def akg_suite(checkout: Path) -> Suite:
    """The dynamic and the static part of the paper's own benchmark in a checkout of AKG
    (mindspore-ai/akg), or the one that is there, as they are."""
    inner = "akg_agents/benchmark/akg_kernels_bench"
    tasks = []
    for folder in _parts(checkout, inner, ("dynamic_shape", "static_shape")):
        for task in _found(folder, checkout, folder.name.removesuffix("_shape")):
            tasks.append(attrs.evolve(task, excluded=_AKG_EXCLUDED.get(task.name, "")))
    return Suite("akg", tuple(tasks))


#: Kind of a folder of tasks -> how the suite is made of the folder.
FOLDERS: dict[str, Callable[[Path], Suite]] = {
    "kernelbench": kernelbench_suite,
    "akg": akg_suite,
    "tasks": folder_suite,
}


def selected(suite: Suite, only: str) -> Suite:
    """The tasks in whose names or categories the regular expression is found. Raises `UsageError`
    for a broken expression, and where it leaves nothing."""
    try:
        wanted = re.compile(only)
    except re.error as error:
        refuse(f"--only: {only!r} is no regular expression: {error}", error)
    kept = [t for t in suite.tasks if wanted.search(t.name) or wanted.search(t.category)]
    if not kept:
        refuse(f"--only {only!r} leaves no task of {suite.name}")
    return attrs.evolve(suite, tasks=tuple(kept))


def write_task(task: SuiteTask, folder: Path) -> Path:
    """The task's file; one of our own is made in `folder` where it is not there yet: another sample
    may be reading it. Raises `UsageError`."""
    if task.path is not None:
        return task.path
    path = folder / f"{task.name}.py"
    with refusing(f"cannot write {path}"):
        if path.exists() and path.read_text("utf-8") == task.text:
            return path
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, task.text)
    return path


def _numbered(stem: str, first: int, last: int, reason: str, digits: int = 1) -> dict[str, str]:
    return {f"static/{stem}_{n:0{digits}}": reason for n in range(first, last + 1)}


_DRAWS = "draws its result at random: two runs on the same inputs differ"
#: Tasks of AKG's benchmark that cannot be a reference, and why.
_AKG_EXCLUDED = {
    **_numbered("elemwise_cast_fp16_to_fp32", 1, 3, "calls torch.cast, which PyTorch lacks"),
    **_numbered("elemwise_full", 1, 3, 'makes its result on torch.device("npu")'),
    **_numbered("elemwise_zeros", 1, 6, 'makes its result on torch.device("npu")'),
    **_numbered("elemwise_multi_add", 1, 3, "draws normal numbers as integers: PyTorch refuses", 3),
    **_numbered("reduction_amin", 4, 6, "takes the least along an axis that is not there", 3),
    "static/reduction_weighted_swiglu_bwd": "imports torch_npu",
    "static/reduction_sum_fused_elemwise": "imports torch_npu",
    "static/matmul_006": "multiplies 1000x2688 by 1000x5120: PyTorch refuses",
    "static/elemwise_randint_like": _DRAWS,
    "static/elemwise_randn_like": _DRAWS,
    "static/sorting_topk_top_p_sampling_001": _DRAWS,
    "dynamic/sorting_topk_top_p_sampling_001_var": _DRAWS,
}


def _parts(checkout: Path, inner: str, names: Sequence[str]) -> list[Path]:
    """Those of a benchmark's folders that are there: in the checkout itself, or where a checkout
    has them. Raises `UsageError` where there is none."""
    for place in (checkout, checkout / inner):
        if found := [place / name for name in names if (place / name).is_dir()]:
            return found
    wanted = " or ".join(names)
    msg = f"{checkout} is no checkout: neither it nor its folder {inner} holds {wanted}"
    raise UsageError(msg)


def _found(folder: Path, place: Path, prefix: str) -> Iterator[SuiteTask]:
    """A task for each file of a folder, named by it, after `prefix`. Raises `UsageError` for a
    folder without any, and for two files of one name."""
    paths = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_"))
    if not paths:
        refuse(f"{folder} holds no task files (*.py)" if folder.is_dir() else f"no folder {folder}")
    seen: dict[str, Path] = {}
    for path in paths:
        name = (
            f"{prefix}/{path.stem}"
            if prefix
            else path.relative_to(place).with_suffix("").as_posix()
        )
        if name in seen:
            refuse(f"{path} and {seen[name]} have the same name")
        seen[name] = path
        inner = path.relative_to(folder).parts[:-1]
        yield SuiteTask(name, "/".join(inner) or "tasks", path.resolve())


def _number(task: SuiteTask) -> int:
    """The number that the name of a file of KernelBench begins with; 0 for none."""
    first = task.name.rpartition("/")[2].partition("_")[0]
    return int(first) if first.isdigit() else 0
