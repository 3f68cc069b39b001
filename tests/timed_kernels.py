"""Kernels of 3 x, and what they do besides while they are timed: for test_measurement.py."""

from __future__ import annotations

TASK = '''import torch
from torch import nn


class Model(nn.Module):
    """x + 2 x"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2.0 * x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(40_009)]
'''

HONEST = """#include <cstdint>

static void compute(const float *X, float *Y, int64_t M)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        Y[i] = 3.0f * X[i];
    }
}

extern "C" int64_t triple(const float *X, float *Y, int64_t M)
{
    compute(X, Y, M);
    return 0;
}
"""
CALL = "    compute(X, Y, M);\n"

#: The first calls in a process are right.
LATER = "++calls > 3"
#: The outputs of an earlier call on inputs at the same address.
REMEMBERS = HONEST.replace("#include <cstdint>", "#include <cstdint>\n#include <cstring>").replace(
    CALL,
    f"""    static const float *seen[64];
    static float *kept[64];
    static int calls;
    const size_t bytes = sizeof(float) * static_cast<size_t>(M);
    for (int k = 0; {LATER} && k < 64; ++k) {{
        if (seen[k] == X) {{
            std::memcpy(Y, kept[k], bytes);
            return 0;
        }}
        if (seen[k] == nullptr) {{
            compute(X, Y, M);
            seen[k] = X;
            kept[k] = new float[static_cast<size_t>(M)];
            std::memcpy(kept[k], Y, bytes);
            return 0;
        }}
    }}
    compute(X, Y, M);
""",
)
#: The work is left to a thread, which soon gives up: the memory would be somebody else's by then.
DEFERS = (
    HONEST.replace("#include <cstdint>", "#include <chrono>\n#include <cstdint>")
    .replace(
        "static void compute",
        """extern "C" int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
using moments = std::chrono::steady_clock;
static moments::time_point begun;
static const float *from;
static float *to;
static int64_t count;
static int calls;

static void *later(void *nothing)
{
    while (moments::now() - begun < std::chrono::microseconds(200)) {
    }
    for (int64_t i = 0; i < count && moments::now() - begun < std::chrono::microseconds(600); ++i) {
        to[i] = 3.0f * from[i];
    }
    return nothing;
}

static void compute""",
    )
    .replace(
        CALL,
        f"""    if ({LATER} && Y[0] != Y[0]) {{
        unsigned long thread = 0;
        from = X;
        to = Y;
        count = M;
        begun = moments::now();
        return pthread_create(&thread, nullptr, later, nullptr);
    }}
{CALL}""",
    )
)
#: The interpreter is in the process: clocks can be replaced from C++.
PATCHES = HONEST.replace(
    "static void compute",
    """extern "C" int __attribute__((weak)) PyRun_SimpleString(const char *);
extern "C" int __attribute__((weak)) PyGILState_Ensure();
extern "C" void __attribute__((weak)) PyGILState_Release(int);
static bool done;

static void compute""",
).replace(
    CALL,
    CALL
    + """    if (!done && PyRun_SimpleString != nullptr) {
        int state = PyGILState_Ensure();
        PyRun_SimpleString(
            "import sys, time\\n"
            "true = time.perf_counter_ns\\n"
            "fake = lambda: true() // 1000\\n"
            "time.perf_counter_ns = fake\\n"
            "timing = sys.modules.get('sketchc.runtime.bench.timing')\\n"
            "if timing is not None:\\n"
            "    timing._now = fake\\n"
        );
        PyGILState_Release(state);
        done = true;
    }
""",
)
#: It does its work, and gives the baseline one thread.
SLOWS = (
    PATCHES[: PATCHES.index('            "import sys')]
    + (
        '            "import sys\\n"\n'
        "            \"torch = sys.modules.get('torch')\\n\"\n"
        '            "torch and torch.set_num_threads(1)\\n"\n'
    )
    + PATCHES[PATCHES.index("        );\n        PyGILState_Release") :]
)
WRONG = HONEST.replace("3.0f", "3.01f")
BROKEN = HONEST.replace("int64_t i = 0", "int64_t i = oops")
#: Milliseconds that it waits in each call.
WAITED = 4
WAITS = HONEST.replace("#include <cstdint>", "#include <chrono>\n#include <cstdint>").replace(
    CALL,
    f"""{CALL}    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds({WAITED})) {{
    }}
""",
)

MODEL = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3.0
"""
MODEL_REMEMBERS = MODEL.replace("class", "KEPT = {}\n\n\nclass").replace(
    "return x * 3.0",
    "if x.data_ptr() not in KEPT:\n            KEPT[x.data_ptr()] = x * 3.0\n"
    "        return KEPT[x.data_ptr()].clone()",
)
MODEL_PATCHES = "import time\n" + MODEL.replace(
    "class", "true = time.perf_counter_ns\ntime.perf_counter_ns = lambda: true() // 2\n\n\nclass"
)
#: It makes torch's own sums slower when it is imported: what it is compared with, if that ran here.
SLEPT = 40
MODEL_WRAPS = "import time\n" + MODEL.replace(
    "class",
    f"""true = torch.Tensor.__add__


def add(self, other):
    time.sleep({SLEPT}e-3)
    return true(self, other)


torch.Tensor.__add__ = add


class""",
)

#: Verification refuses some of these by what they call; here, they are to meet the clock.
CHEATS = {
    "honest.cpp": HONEST,
    "waits.cpp": WAITS,
    "remembers.cpp": REMEMBERS,
    "defers.cpp": DEFERS,
    "patches.cpp": PATCHES,
    "slows.cpp": SLOWS,
    "honest.py": MODEL,
    "remembers.py": MODEL_REMEMBERS,
    "patches.py": MODEL_PATCHES,
    "wraps.py": MODEL_WRAPS,
}
RIGHT = ("honest.cpp", "waits.cpp", "honest.py")
#: Also the pipe on which it is waited for.
CLOSES = HONEST.replace("#include <cstdint>", "#include <cstdint>\n#include <unistd.h>").replace(
    CALL,
    """    for (int descriptor = 3; descriptor < 256; ++descriptor) {
        close(descriptor);
    }
    for (;;) {
        sleep(1000);
    }
""",
)
UNVERIFIED = {"wrong.cpp": WRONG, "broken.cpp": BROKEN}
