"""Many small kernels on one target, in as few compilers and processes as it allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from toolchains import ready, require
from triton_cases import Array, Case, assert_close, lower, make_case, run_cases

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import Session, ToolchainError, toolchain
from sketchc.runtime.toolchains.cpp.toolchain import FLAGS
from sketchc.runtime.toolchains.cuda_c.toolchain import cpu_flags
from sketchc.runtime.toolchains.cuda_c.translation import for_cpu
from sketchc.runtime.toolchains.native.compiler import build
from sketchc.runtime.toolchains.native.session import UNHURRIED, signature
from sketchc.runtime.toolchains.triton_cuda.toolchain import TOOLCHAIN as TRITON_CUDA

CPP_BATCH = Path(__file__).parent / "e2e" / "cpp_random_batch.py"
Outcome = dict[str, Array] | str


def quick(level: str = "-O1") -> tuple[str, ...]:
    """The compiler's flags without the costly part of its optimiser."""
    return tuple(level if flag == "-O3" else flag for flag in FLAGS)


def unit(kernels: Sequence[Kernel]) -> str:
    """One translation unit: the includes first, then each file in a namespace of its own (C
    functions keep their names there). Kernels of CUDA-C are as they run on the CPU."""
    includes: dict[str, None] = {}
    parts = []
    for kernel in kernels:
        source = for_cpu(kernel.source) if kernel.target == "cuda_c" else kernel.source
        includes |= dict.fromkeys(re.findall(r"^#include .*$", source, re.M))
        body = re.sub(r"^#include .*$", "", source, flags=re.M)
        parts.append(f"namespace unit_{kernel.name} {{\n{body}\n}}")
    return "\n".join([*includes, *parts])


def run_everything(
    target: str, cases: Sequence[Case], folder: Path, level: str = "-O1"
) -> list[Outcome]:
    """The outputs of every case, or its error as text. Kernels have names of their own. `level`: of
    the compiler's optimiser for C++."""
    require(target)
    match target:
        case "cpp" | "cuda_c":
            flags = quick(level) if target == "cpp" else cpu_flags()
            return _run_native(cases, folder, flags)
        case "triton_cuda":
            interpreted = TRITON_CUDA.status().interpreted
            return run_cases(list(cases), folder, interpret=interpreted)
        case _:
            return _run_hosted(target, cases, folder)


def disagreements(
    target: str,
    sketches: Mapping[str, tuple[str, list[tuple[dict[str, int], dict[str, Array]]]]],
    folder: Path,
    same: Callable[[Case, dict[str, Array]], str],
) -> list[str]:
    """What is wrong on a target with sketches by name, each at sizes and on inputs. `same` says
    what a run gives wrong, and nothing where it agrees with the interpreter."""
    cases = []
    for text, runs in sketches.values():
        kernel = lower(text, target)[1]
        for seed, (symbols, tensors) in enumerate(runs):
            cases.append(make_case(kernel, symbols, tensors=tensors, seed=seed))
    wrong = []
    for case, found in zip(cases, run_everything(target, cases, folder), strict=True):
        reply = found if isinstance(found, str) else same(case, found)
        if reply:
            wrong.append(f"{case.kernel.name} at {dict(case.symbols)}: {reply}")
    return wrong


def agreement(case: Case, found: dict[str, Array], terms: int = 1) -> str:
    """What of a run's outputs is not close to the interpreter's, and nothing where all are; `terms`
    are added up for each element."""
    for name, expected in case.expected.items():
        try:
            assert_close(found[name], expected, terms=terms)
        except AssertionError as error:
            return f"{name}: {error}"
    return ""


def _run_native(cases: Sequence[Case], folder: Path, flags: Sequence[str]) -> list[Outcome]:
    kernels = list({id(case.kernel): case.kernel for case in cases}.values())
    source, library = folder / "unit.cpp", folder / "unit.so"
    source.write_text(unit(kernels), "utf-8")
    warnings, _ = build([source], flags, library)
    assert warnings == "", warnings
    requests, arrays = [], {}
    for index, case in enumerate(cases):
        passed = {**case.tensors, **poisoned(case.expected, case.tensors)}
        request = signature(case.kernel, case.symbols, case.params, passed)
        arrays |= {f"{index}/{name}": array for name, array in passed.items()}
        requests.append({"library": str(library), "signature": request})
    result = run_worker(
        f"{CPP_BATCH}:run_batch",
        {"cases": requests},
        arrays,
        timeout=120,
        environment=UNHURRIED,
        readable=[library],
    )
    assert result.reply is not None, result.describe() + result.traceback + result.output
    return [
        reply or {name: result.arrays[f"{index}/{name}"] for name in case.expected}
        for index, (case, reply) in enumerate(zip(cases, result.reply["replies"], strict=True))
    ]


def _run_hosted(target: str, cases: Sequence[Case], folder: Path) -> list[Outcome]:
    """Each kernel in a process of its own, for all of its cases."""
    sessions: dict[int, Session] = {}
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        for case in cases:
            kernel = case.kernel
            if id(kernel) not in sessions:
                artefact = ready(kernel, folder / kernel.name)
                sessions[id(kernel)] = stack.enter_context(toolchain(target).open(artefact))
            passed = {**case.tensors, **poisoned(case.expected, case.tensors)}
            try:
                found = sessions[id(kernel)].run(passed, case.symbols, case.params)
            except ToolchainError as error:
                outcomes.append(str(error))
            else:
                outcomes.append(found)
    return outcomes


def poisoned(expected: Mapping[str, Array], given: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs full of what no result holds by chance."""
    found = {}
    for name, array in expected.items():
        if name not in given:
            found[name] = np.full_like(array, np.nan if array.dtype.kind not in "iub" else 77)
    return found
