"""What a process that runs somebody's code may see of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Environment variables that a worker may see; everything else may hold a secret.
ENVIRONMENT_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX"}
)
ENVIRONMENT_PREFIXES = (
    "LC_",
    "XDG_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "CUDA_",
    "ASCEND_RT_",
    "NVIDIA_",
    "TRITON_",
)

#: Never passed on, whatever the prefix: NVIDIA_API_KEY is a secret.
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")

#: What compilers and linkers need besides: where temporary files, headers and libraries are.
COMPILER_NAMES = frozenset(
    {
        *("TMPDIR", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        *("COMPILER_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
    }
)

#: What the user's own Python code needs besides: a task may import modules of its own.
PYTHON_NAMES = frozenset({"TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD"})
PYTHON_PREFIXES = ("TORCH", "PYTORCH_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_")


def clean_environment(
    extra: Mapping[str, str],
    names: frozenset[str] = frozenset(),
    prefixes: tuple[str, ...] = (),
) -> dict[str, str]:
    """The part of the environment that a worker may see, and `extra`.

    `names` and `prefixes` let more through; nothing lets a name through that says it is a secret.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ENVIRONMENT_NAMES | names or name.startswith(ENVIRONMENT_PREFIXES + prefixes))
        and not any(word in name.upper() for word in SECRET_WORDS)
    }
    return {**kept, **extra}


def compiler_environment() -> dict[str, str]:
    """For compilers and assemblers: generated source can embed what they see of it (`.incbin`)."""
    return clean_environment({}, COMPILER_NAMES)


def python_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """For processes that run a user's task, or a kernel beside one, and `extra`."""
    return clean_environment(extra, PYTHON_NAMES, PYTHON_PREFIXES)
