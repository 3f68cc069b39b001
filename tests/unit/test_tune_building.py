"""Kernels of many points are built once each, in the background, and failures come when asked."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import cast

import attrs
import pytest

from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.bench.driver import MeasurementFailedError
from sketchc.runtime.toolchains.base import Artefact, Toolchain, ToolchainError
from sketchc.runtime.tune.building import Builder

CORES = len(os.sched_getaffinity(0))


@attrs.define
class Compiler:
    """Stands for a toolchain: it compiles when it may, and refuses a kernel called `broken`."""

    may: Event = attrs.field(factory=Event)
    compiled: list[str] = attrs.field(factory=list)
    places: list[set[int]] = attrs.field(factory=list)

    def compile(self, kernel: Kernel, folder: Path) -> Artefact:
        assert self.may.wait(60)
        self.compiled.append(kernel.name)
        self.places.append(os.sched_getaffinity(0))
        if kernel.name == "broken":
            raise ToolchainError("compile", "it is broken")
        return Artefact(kernel, folder, folder / f"{kernel.name}.so")


def kernel(name: str) -> Kernel:
    return Kernel("cpp", "cpu", name, name, "c++", "", cast(ir.Sketch, None))


def builder(compiler: Compiler, place: Path, device: str, threads: int) -> Builder:
    return Builder(cast(Toolchain, compiler), place, device, threads)


def test_each_is_built_once_and_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    compiler = Compiler()
    made = builder(compiler, tmp_path, "cpu", CORES)
    for name in ("one", "two", "one"):
        made.start(name, kernel(name))
    assert compiler.compiled == []
    compiler.may.set()
    assert made.built("two").code.name == "two.so"
    assert made.built("one").kernel.name == "one"
    assert made.built("one").code.parent != made.built("two").code.parent
    made.close()
    assert sorted(compiler.compiled) == ["one", "two"]


def test_what_does_not_compile_says_so_when_it_is_asked_for(tmp_path: Path) -> None:
    compiler = Compiler()
    compiler.may.set()
    made = builder(compiler, tmp_path, "cpu", CORES)
    made.start("broken", kernel("broken"))
    made.settle(["broken", "unknown"])
    with pytest.raises(MeasurementFailedError, match="does not compile: it is broken"):
        made.built("broken")
    made.close()


def test_builds_go_on_beside_measurements_only_where_they_disturb_none(tmp_path: Path) -> None:
    compiler = Compiler()
    made = builder(compiler, tmp_path, "cpu", CORES)
    assert not made.beside
    made.close()
    for device, threads in (("cuda", CORES), *((("cpu", 1),) if CORES > 1 else ())):
        place = tmp_path / device
        place.mkdir()
        made = builder(compiler, place, device, threads)
        assert made.beside
        made.start(device, kernel(device))
        made.settle([device])  # returns at once: nothing may be compiled yet
        compiler.may.set()
        made.built(device)
        made.close()
        compiler.may.clear()
    if CORES > 1:
        assert max(os.sched_getaffinity(0)) not in compiler.places[-1]  # where one thread is timed
