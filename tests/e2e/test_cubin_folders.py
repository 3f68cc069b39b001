"""Cubins of TileLang that travel to a GPU machine: launches fit the kernels, and reach them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cubin_launches
import numpy as np
import pytest
from cubin_folders import asked, compare, parameters, read
from toolchains import require

from sketchc.runtime.process.messages import Raw, raw_of
from sketchc.runtime.toolchains import cuda_driver

#: Broadcast, a reduction of rows, and a product whose operands come by tensor maps.
NAMES = ("bias_activation", "softmax", "matmul_half")
SCRIPT = Path(__file__).parents[1] / "device" / "build_cubins.py"
#: A driver whose device memory is the host's. It notes the extents of a launch, and of each
#: argument as many bytes as `sizes` says.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
unsigned long long places[64];
unsigned sizes[64], extents[7];
unsigned char noted[64][128];
int allocated;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int place) { *device = place; return 0; }
int cuDevicePrimaryCtxRetain(void **found, int device) { *found = (void *)7; return 0; }
int cuCtxSetCurrent(void *given) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(int status, const char **name) { *name = "CUDA_ERROR_SOME"; return 0; }
int cuModuleLoadData(void **module, const void *code) { *module = (void *)1; return 0; }
int cuModuleGetFunction(void **f, void *m, const char *n) { *f = (void *)2; return 0; }
int cuFuncSetAttribute(void *f, int attribute, int value) { return 0; }
int cuMemAlloc_v2(unsigned long long *place, size_t size)
{
    *place = places[allocated++] = (unsigned long long)aligned_alloc(256, (size + 255) / 256 * 256);
    return 0;
}
int cuMemsetD8_v2(unsigned long long place, unsigned char value, size_t size)
{
    memset((void *)place, value, size);
    return 0;
}
int cuMemFree_v2(unsigned long long place) { free((void *)place); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size)
{
    memcpy((void *)to, from, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size)
{
    memcpy(to, (void *)from, size);
    return 0;
}
int cuTensorMapEncodeTiled(void *to, int element, unsigned rank, void *place,
                           const unsigned long long *sizes, const unsigned long long *steps,
                           const unsigned *box, const unsigned *each, int a, int b, int c, int d)
{
    unsigned long long made[16] = {(unsigned long long)place, (unsigned)element, rank, sizes[0],
                                   sizes[1], steps[0], box[0], box[1], each[0], each[1],
                                   a, b, c, d};
    memcpy(to, made, 128);
    return (unsigned long long)to % 64 || rank != 2;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty,
                   unsigned tz, unsigned shared, void *stream, void **given, void **more)
{
    unsigned told[7] = {gx, gy, gz, tx, ty, tz, shared};
    memcpy(extents, told, sizeof told);
    for (int n = 0; n < 64 && sizes[n]; n++) memcpy(noted[n], given[n], sizes[n]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of `NAMES`."""
    require("tilelang_cuda")
    folder = tmp_path_factory.mktemp("cubins")
    command = [sys.executable, str(SCRIPT), str(folder), *NAMES, "--jobs", "1"]
    subprocess.run(command, check=True, env=dict(os.environ), timeout=600)
    return folder


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not here")
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(DRIVER)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, env=dict(os.environ))
    made = ctypes.CDLL(str(library))
    cuda_driver.driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    yield made
    cuda_driver.driver.cache_clear()


def width(argument: dict[str, Any]) -> int:
    """Bytes of an argument."""
    if "map" in argument:
        return cubin_launches.MAP_BYTES
    return 8 if "buffer" in argument else ctypes.sizeof(cubin_launches.SCALARS[argument["scalar"]])


@pytest.mark.sweep(6, together="cubins")
@pytest.mark.parametrize("name", NAMES)
def test_launches_fit_their_cubins(name: str, built: Path) -> None:
    told, _ = read(built / name)
    assert len(told["cases"]) >= 3
    for case in told["cases"]:
        for launch in case["launches"]:
            sizes, threads = parameters(str(built / name / launch["cubin"]))
            assert [width(argument) for argument in launch["arguments"]] == sizes
            assert launch["block"] == [threads, 1, 1]
    maps = any("map" in a for c in told["cases"] for la in c["launches"] for a in la["arguments"])
    assert maps == (name == "matmul_half")


@pytest.mark.sweep(6, together="cubins")
@pytest.mark.parametrize("name", NAMES)
def test_arguments_reach_the_kernel_as_c_holds_them(name: str, built: Path, driver: Any) -> None:
    told, arrays = read(built / name)
    for number in range(len(told["cases"])):
        request, before = asked(built / name, told, arrays, number)
        for launch in request["launches"]:
            ctypes.c_int.in_dll(driver, "allocated").value = 0
            sizes = [width(argument) for argument in launch["arguments"]]
            (ctypes.c_uint * 64).in_dll(driver, "sizes")[:] = sizes + [0] * (64 - len(sizes))
            raws: dict[str, Raw] = {key: raw_of(array) for key, array in before.items()}
            reply, found = cubin_launches.serve({**request, "launches": [launch]}, raws)
            assert reply == {}
            assert set(found) == set(before) - set(request["unchanged"])
            places = list((ctypes.c_ulonglong * 64).in_dll(driver, "places"))
            starts = {key: place + 4096 for key, place in zip(before, places, strict=False)}
            extents = list((ctypes.c_uint * 7).in_dll(driver, "extents"))
            assert extents == [*launch["grid"], *launch["block"], launch["shared"]]
            noted = ((ctypes.c_ubyte * 128) * 64).in_dll(driver, "noted")
            for argument, memory in zip(launch["arguments"], noted, strict=False):
                assert_holds(bytes(memory), argument, starts)


def assert_holds(memory: bytes, argument: dict[str, Any], starts: dict[str, int]) -> None:
    """The memory begins with an argument, as C holds it."""
    if "map" in argument:
        told = argument["map"]
        place = starts[told["place"]["buffer"]] + told["place"]["offset"]
        numbers = [place, told["element"], 2, *told["extents"], *told["steps"], *told["box"]]
        numbers += [*told["each"], *told["kinds"]]
        assert list(np.frombuffer(memory, np.uint64))[: len(numbers)] == numbers
    elif "buffer" in argument:
        place = starts[argument["buffer"]] + argument["offset"]
        assert ctypes.c_uint64.from_buffer_copy(memory).value == place
    else:
        kind = cubin_launches.SCALARS[argument["scalar"]]
        assert kind.from_buffer_copy(memory).value == kind(argument["value"]).value


@pytest.mark.sweep(6, together="cubins")
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_compared(name: str, built: Path) -> None:
    """The interpreter's pass, buffers as they were before the launches do not."""
    told, arrays = read(built / name)
    for number in range(len(told["cases"])):
        _, before = asked(built / name, told, arrays, number)
        start = f"{number}/after/"
        right = {key.removeprefix(start): a for key, a in arrays.items() if key.startswith(start)}
        compare(told, arrays, number, right, 256.0)
        with pytest.raises(AssertionError):
            compare(told, arrays, number, before, 256.0)
