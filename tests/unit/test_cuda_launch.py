"""Drop-ins of CUDA-C launch kernels through the driver: what it is given, without one here."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
loading = importlib.import_module("sketchc.runtime.toolchains.cuda_c.loading")

#: A driver that notes each launch: its extents, and of its arguments the first (an address), the
#: second (an integer), the third (a double), the fourth (a truth value) and the fifth (an integer).
DRIVER = r"""
#include <string.h>
#include <unistd.h>
struct launch { unsigned blocks, threads, shared; void *stream; void *address; long long whole;
                double real; unsigned char truth; long long last; };
struct launch noted[64];
int count, status, wait_us;
__thread void *context = (void *)5;
int cuCtxGetCurrent(void **found) { *found = context; return 0; }
int cuCtxSetCurrent(void *given) { context = given; return 0; }
int cuDeviceGet(int *device, int place) { *device = place; return 0; }
int cuDevicePrimaryCtxRetain(void **found, int device) { *found = (void *)(7L + device); return 0; }
int cuModuleLoadData(void **module, const void *code)
{
    *module = (void *)1;
    return context ? 0 : 201;
}
int cuModuleGetFunction(void **f, void *m, const char *n) { *f = (void *)2; return 0; }
int cuFuncSetAttribute(void *f, int attribute, int value)
{
    return context ? value > 200000 : 201;
}
int cuGetErrorName(int status, const char **name) { *name = "CUDA_ERROR_SOME"; return 0; }
unsigned long long map[16];
int maps;
int cuTensorMapEncodeTiled(void *to, int element, unsigned rank, void *place,
                           const unsigned long long *extents, const unsigned long long *steps,
                           const unsigned *box, const unsigned *each, int a, int b, int c, int d)
{
    unsigned long long made[16] = {(unsigned long long)place, (unsigned)element, rank};
    if ((unsigned long long)to % 64) return 1;
    memcpy(made + 3, extents, 32); memcpy(made + 7, steps, 24); made[10] = box[2];
    memcpy(to, made, 128);
    return steps[2] >> 40 ? 1 : 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty,
                   unsigned tz, unsigned shared, void *stream, void **given, void **more)
{
    if (status) return status;
    if (!context) return 201;
    usleep(wait_us);
    struct launch *one = noted + __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
    one->blocks = gx; one->threads = tx; one->shared = shared; one->stream = stream;
    memcpy(&one->address, given[0], 8); memcpy(&one->whole, given[1], 8);
    memcpy(&one->real, given[2], 8); memcpy(&one->truth, given[3], 1);
    memcpy(&one->last, given[4], 8);
    if (maps) memcpy(map, given[5], 128);
    return 0;
}
"""


class Launch(ctypes.Structure):
    """A launch that the driver has noted."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("blocks", "threads", "shared")),
        ("stream", ctypes.c_void_p),
        ("address", ctypes.c_void_p),
        ("whole", ctypes.c_longlong),
        ("real", ctypes.c_double),
        ("truth", ctypes.c_ubyte),
        ("last", ctypes.c_longlong),
    ]


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
    monkeypatch.setattr(loading, "cuda_driver", lambda: made)
    monkeypatch.setattr(loading, "STREAM", lambda place: 77 + place)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for kept in (loading.launcher, loading.context_of, loading.encoded_map):
        kept.cache_clear()
    yield made
    for kept in (loading.launcher, loading.context_of, loading.encoded_map):
        kept.cache_clear()


def noted(driver: Any) -> list[Launch]:
    """The launches so far."""
    count = ctypes.c_int.in_dll(driver, "count").value
    return list((Launch * 64).in_dll(driver, "noted"))[:count]


def module(tmp_path: Path) -> Any:
    (tmp_path / "kernels.cubin").write_bytes(b"code")
    return loading.CudaModule(tmp_path / "kernels.cubin")


def test_arguments_reach_the_kernel_as_c_holds_them(driver: Any, tmp_path: Path) -> None:
    kernels, device = module(tmp_path), SimpleNamespace(index=0)
    for number in (-(2**63), -1, 0, 3, 2**63 - 1):
        given = (2**47 + 16, number, -0.1, number == 3, 7 - number // 2)
        kernels.launch(device, "k", 5, 128, 60_000, "Pqd?q", *given)
    found = [(one.address, one.whole, one.real, bool(one.truth), one.last) for one in noted(driver)]
    assert found == [
        (2**47 + 16, number, -0.1, number == 3, 7 - number // 2)
        for number in (-(2**63), -1, 0, 3, 2**63 - 1)
    ]
    last = noted(driver)[-1]
    assert (last.blocks, last.threads, last.shared, last.stream) == (5, 128, 60_000, 77)


def test_threads_do_not_mix_their_arguments(driver: Any, tmp_path: Path) -> None:
    """ctypes lets other threads run while the driver reads the arguments."""
    kernels, device = module(tmp_path), SimpleNamespace(index=0)
    ctypes.c_int.in_dll(driver, "wait_us").value = 2000

    def launch(number: int) -> None:
        for _ in range(4):
            given = (number, number, float(number), True, number)
            kernels.launch(device, "k", 1, 32, 0, "Pqd?q", *given)

    threads = [threading.Thread(target=launch, args=(number,), daemon=True) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = [(one.address, one.whole, one.real, one.last) for one in noted(driver)]
    assert sorted(found) == sorted((n, n, float(n), n) for n in (1, 2, 3) for _ in range(4))


def test_a_thread_without_a_context_gets_that_of_the_device(driver: Any, tmp_path: Path) -> None:
    """A new thread has none before something of CUDA's runtime has been launched there."""
    kernels, device = module(tmp_path), SimpleNamespace(index=0)
    context = ctypes.c_void_p.in_dll(driver, "context").value
    seen = []

    def launch(shared: int) -> None:
        driver.cuCtxSetCurrent(None)
        kernels.launch(device, "k", 1, 32, shared, "Pqd?q", 1, 1, 1.0, True, shared)
        found = ctypes.c_void_p()
        driver.cuCtxGetCurrent(ctypes.byref(found))
        seen.append(found.value)

    for shared in (0, 0, 60_000):  # the kernel is found, launched only, and may have more memory
        thread = threading.Thread(target=launch, args=(shared,), daemon=True)
        thread.start()
        thread.join(20)
    assert seen == [7, 7, 7]
    assert [one.last for one in noted(driver)] == [0, 0, 60_000]
    assert ctypes.c_void_p.in_dll(driver, "context").value == context


def test_errors_of_the_driver_have_names(driver: Any, tmp_path: Path) -> None:
    kernels, device = module(tmp_path), SimpleNamespace(index=0)
    with pytest.raises(RuntimeError, match="cuFuncSetAttribute: CUDA_ERROR_SOME"):
        kernels.launch(device, "k", 1, 32, 300_000, "Pqd?q", 1, 1, 1.0, True, 1)
    ctypes.c_int.in_dll(driver, "status").value = 700
    with pytest.raises(RuntimeError, match="cuLaunchKernel: CUDA_ERROR_SOME"):
        kernels.launch(device, "k", 1, 32, 0, "Pqd?q", 1, 1, 1.0, True, 1)


def test_maps_reach_the_kernel_as_the_driver_made_them(driver: Any, tmp_path: Path) -> None:
    kernels, device = module(tmp_path), SimpleNamespace(index=0)
    ctypes.c_int.in_dll(driver, "maps").value = 1
    x = torch.zeros(3 * 5 * 16 + 8, dtype=torch.float16)[:240].view(3, 5, 16)
    made = kernels.described(x, 6, 64, 16, 5, 3, 1)
    for truth in (True, False):  # the second time in memory that was used before
        kernels.launch(device, "k", 1, 32, 0, "Pqd?qT?", 1, 2, 3.0, truth, 4, made, truth)
        found = list((ctypes.c_ulonglong * 16).in_dll(driver, "map"))
        assert found == [x.data_ptr(), 6, 4, 16, 5, 3, 1, 32, 160, 480, 64, *[0] * 5]
        assert (noted(driver)[-1].last, bool(noted(driver)[-1].truth)) == (4, truth)
    kernels.launch(device, "k", 1, 32, 0, "Pqd?qT?", 1, 2, 3.0, True, 4, b"", False)
    assert list((ctypes.c_ulonglong * 16).in_dll(driver, "map")) == [0] * 16
    # Lines or places that begin on other borders, steps too long, and a tensor that is absent.
    assert kernels.described(x, 6, 64, 15, 16, 1, 1) is None
    assert kernels.described(x.view(-1)[1:161], 6, 64, 16, 10, 1, 1) is None
    assert kernels.described(x, 6, 64, 16, 2**30, 2**20, 1) is None
    assert kernels.described(None, 6, 64, 16, 5, 3, 1) == bytes(128)
