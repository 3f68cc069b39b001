"""A small folder of documents for tests, right as it stands; `write` changes what a test needs."""

from __future__ import annotations

from pathlib import Path

MANIFEST = """
target = "toy"
title = "A toy"
language = "c++"

[basic]
files = ["basic.md"]

[api]
files = ["api.md"]

[suggestions]
strategies = ["strategies.md"]
pitfalls = ["pitfalls.md"]

[examples.torch]
scale = "one loop"
"""

SKETCH = """sketch scale {
    symbols: N;
    params: factor: f32 = 2.0;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, factor, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""

SOURCE = """#include <cstdint>

extern "C" int64_t scale(const float *X, float *Y, int64_t N, double factor)
{
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = X[i] * static_cast<float>(factor);
    }
    return 0;
}
"""

FILES = {
    "docspec.toml": MANIFEST,
    "basic.md": "# Basics\n\nWhat it is.\n\n## Entry\n\nOne function.\n",
    "api.md": (
        "# Interfaces\n\n## Loops\n\n### for\n\nsignature: `for (;;)`\nops: mul, add\n"
        "keywords: f32, elementwise\n\nA loop.\n\n```cpp from=scale.cpp\n"
        "for (int64_t i = 0; i < N; ++i) {\n"
        "    Y[i] = X[i] * static_cast<float>(factor);\n```\n\n"
        "### exp\n\nops: exp\n\n```text\nfloat exp(float)\n```\n\nNot here.\n"
    ),
    "strategies.md": "# Fast\n\n## Less\n\nDo less.\n\n## Products\n\nops: gemm\n\nBlocks.\n",
    "pitfalls.md": "# Slow\n\n## Edges\n\nkeywords: illegal_access\n\nDo not cross them.\n",
    "examples/scale.sketch": SKETCH,
    "examples/scale.cpp": SOURCE,
}


def write(folder: Path, **changes: str | None) -> Path:
    """The folder with some files changed (None: left out); "/" and "." are written "_"."""
    names = {name.replace("/", "_").replace(".", "_"): name for name in FILES}
    for key, name in names.items():
        text = changes.pop(key, FILES[name])
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    assert not changes, f"no such file: {changes}"
    return folder
