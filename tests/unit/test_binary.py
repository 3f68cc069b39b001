"""What a compiled library calls, and what runs when it is loaded: read off real libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from toolchains import require

from sketchc.runtime.guards.binary import NotElfError, in_libc, inspect_elf, refusal

HONEST = """
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <valarray>
#include <vector>

static thread_local float scratch[8];
static const float table[4] = {1, 2, 3, 4};

extern "C" int64_t kernel(const float *x, float *y, int64_t n)
{
    std::vector<float> sorted(x, x + n);
    std::sort(sorted.begin(), sorted.end(), std::greater<float>());
    std::stable_sort(sorted.begin(), sorted.end());
    std::valarray<float> values(x, n);
    std::string name = std::to_string(n);
    double *memory = static_cast<double *>(std::aligned_alloc(64, 64 * n));
    if (memory == nullptr) {
        return -1;
    }
    float total = 0;
    #pragma omp parallel for reduction(+ : total) schedule(dynamic)
    for (int64_t i = 0; i < n; ++i) {
        total += std::exp(x[i]) + std::erf(x[i]) + std::tgamma(x[i]) + std::fma(x[i], 2.f, 1.f);
        y[i] = static_cast<float>(_Float16(x[i])) + static_cast<float>(std::pow(x[i], 1.5));
        #pragma omp critical
        y[i] += table[i % 4] + scratch[i % 8];
    }
    std::complex<double> z = std::exp(std::complex<double>(total, 1.0));
    std::memcpy(y, sorted.data(), sizeof(float) * n);
    y[0] += values.sum() + float(z.real()) + float(name.size());
    if (n > 1000000) {
        std::abort();
    }
    std::free(memory);
    return 0;
}
"""

HEAD = '#include <cstdint>\n#include <vector>\nextern "C" {\n%s\n}\n'
BODY = 'extern "C" int64_t kernel(float *y, int64_t n) { %s; return n; }\n'
#: (what is declared, what is said, a part of the reason)
REFUSED = (
    ("int system(const char *);", 'y[0] = system("true")', "a process"),
    ("int wordexp(const char *, void *, int);", 'y[0] = wordexp("x", 0, 0)', "`wordexp`"),
    ("void *dlopen(const char *, int);", 'y[0] = dlopen("x", 1) != 0', "code from elsewhere"),
    ("char *getenv(const char *);", 'y[0] = getenv("HOME")[0]', "the environment"),
    ("int socket(int, int, int);", "y[0] = socket(1, 2, 3)", "the network"),
    ("long syscall(long, ...);", "y[0] = syscall(39)", "the system itself"),
    ("void *fopen(const char *, const char *);", 'y[0] = fopen("x", "r") != 0', "files"),
    (
        "void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *,"
        " int, float, float *, int);",
        "cblas_sgemm(101, 111, 111, n, n, n, 1, y, n, y, n, 0, y, n)",
        "BLAS",
    ),
    ("void sgemm_(char *, ...);", 'sgemm_((char *)"N", y)', "BLAS"),
    ("__attribute__((constructor)) void early() {}", "y[0] = 1", "runs by itself"),
    ("float now(); static float table = now();\nfloat now() { volatile float x = 2; return x; }",
     "y[0] = table", "runs by itself"),
)  # fmt: skip


def build(folder: Path, source: str) -> Path:
    """The source as a shared library, as the toolchain of C++ builds it."""
    path, library = folder / "kernel.cpp", folder / "kernel.so"
    path.write_text(source)
    flags = ["-std=c++17", "-O2", "-fopenmp", "-fPIC", "-shared"]
    subprocess.run(["g++", *flags, str(path), "-o", str(library), "-lmvec", "-lm"], check=True)
    return library


def test_what_kernels_use_is_let_through(tmp_path: Path) -> None:
    require("cpp")
    library = inspect_elf(build(tmp_path, HONEST))
    assert refusal(library) == ""
    assert "aligned_alloc" in library.undefined
    assert any(name.startswith("libgomp") for name in library.needed)
    assert library.constructors == 0


@pytest.mark.parametrize(("declared", "said", "reason"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_no_kernel_needs_is_refused(
    declared: str, said: str, reason: str, tmp_path: Path
) -> None:
    require("cpp")
    library = inspect_elf(build(tmp_path, HEAD % declared + BODY % said))
    assert reason in refusal(library, exists=in_libc)


def test_a_name_that_nobody_has_is_for_the_loader(tmp_path: Path) -> None:
    require("cpp")
    source = HEAD % "float nowhere(float);" + BODY % "y[0] = nowhere(1)"
    library = inspect_elf(build(tmp_path, source))
    assert refusal(library, exists=in_libc) == ""
    assert "nowhere" in refusal(library)


def test_other_files_are_no_libraries(tmp_path: Path) -> None:
    require("cpp")
    whole = build(tmp_path, HEAD % "" + BODY % "y[0] = 1").read_bytes()
    for content in (b"", b"\x7fELF", b"#!/bin/sh\n", whole[:200], whole[:-300]):
        path = tmp_path / "other.so"
        path.write_bytes(content)
        with pytest.raises(NotElfError):
            inspect_elf(path)
