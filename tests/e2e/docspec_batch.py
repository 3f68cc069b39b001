"""Worker handlers of `test_docspec_api_claims.py`: many small kernels in one process.

It runs in sketchc's environment (`compile_claims`, `run_claims`) and in that of triton-ascend
(`lower_claims`), and so imports nothing at module level that one of them lacks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any


def _load(path: str, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _message(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return f"{type(error).__name__}: {cause}"


def compile_claims(
    request: dict[str, Any], _arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile every kernel of `request["file"]` for sm_90; "" or the refusal, each. `marks` counts
    the lines of PTX with one of the words in `request["words"]`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = _load(request["file"], "claims")
    replies, marks = [], []
    for name in request["kernels"]:
        source = ASTSource(getattr(module, name), dict(request["types"]), {})
        try:
            compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        except Exception as error:
            replies.append(_message(error))
            marks.append(0)
            continue
        replies.append("")
        lines = compiled.asm["ptx"].splitlines()
        marks.append(sum(any(word in line for word in request["words"]) for line in lines))
    return {"replies": replies, "marks": marks}, {}


def run_claims(
    request: dict[str, Any], _arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run every kernel in Triton's interpreter, one program each; "" or the exception, each."""
    import torch

    from sketchc.runtime.toolchains.triton_cuda import interpreter

    module = _load(request["file"], "claims")
    interpreter.mend()
    replies = []
    for name in request["kernels"]:
        numbers = torch.arange(4096)
        arguments = (
            torch.linspace(0.5, 2.5, 4096),
            torch.linspace(0.5, 2.5, 4096).half(),
            (numbers % 32).int(),
            numbers,
            torch.zeros(4096),
        )
        try:
            getattr(module, name)[(1,)](*arguments, 4)
        except Exception as error:
            replies.append(_message(error))
            continue
        replies.append("")
    return {"replies": replies}, {}


def lower_elsewhere(
    request: dict[str, Any], _arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`lower_claims` in the interpreter `python`, which has triton-ascend."""
    from sketchc.runtime.sandbox.worker import run_inside

    handler = f"{os.path.abspath(__file__)}:lower_claims"
    result = run_inside(handler, request, python=request["python"], timeout=500)
    assert result.reply is not None, result.describe() + result.traceback + result.output
    return dict(result.reply), {}


def lower_claims(
    request: dict[str, Any], _arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Linalg of every kernel by triton-ascend's front end, or its refusal. Each has a process of
    its own: some mistakes abort the front end."""
    import triton.backends.ascend.compiler

    assert triton is not None
    frontend = _load(request["frontend"], "frontend")
    replies = []
    for name in request["kernels"]:
        body = {
            "file": request["file"],
            "kernel": name,
            "chip": "Ascend910B4",
            "options": {},
            "arguments": [
                (key, kind, 3 if key == "n" else None) for key, kind in request["types"].items()
            ],
            "constants": {},
        }
        replies.append(_apart(frontend, body))
    return {"replies": replies}, {}


def _apart(frontend: ModuleType, body: dict[str, Any]) -> dict[str, str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            reply, _ = frontend.compile_kernel(body, {})
            answer = {"linalg": reply["linalg"], "refusal": ""}
        except Exception as error:
            answer = {"linalg": "", "refusal": _message(error)}
        with os.fdopen(writing, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return {"linalg": "", "refusal": f"the front end ended with status {status}"}
    found: dict[str, str] = json.loads(text)
    return found
