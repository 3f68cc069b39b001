"""Imports for every run in Triton's interpreter, made once by the template that forks the runs.

Triton decides while it is imported whether its own functions are compiled or interpreted, so
TRITON_INTERPRET is set before. Imported by worker processes alone.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: F401

from sketchc.runtime.toolchains.triton_cuda import interpreter, worker  # noqa: F401

interpreter.mend()
