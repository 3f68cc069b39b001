"""The text of a file that is given as a kernel, where it may not be one.

Garbage, half of a file and one without the function that is asked for get a verdict like every
other kernel. Only what says that the command itself is wrong (another target's language, several
functions to choose from) is the user's to mend.
"""

from __future__ import annotations

import ast
from pathlib import Path

from sketchc.base.diagnostics import UsageError
from sketchc.lowering.language import parsed


def read_kernel(path: Path) -> tuple[str, str]:
    """The text, and why it is none ("" where it is one). Raises `UsageError` for a file that cannot
    be read at all."""
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"cannot read the kernel {path}: {error.strerror or error}"
        raise UsageError(msg) from error
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return content.decode("utf-8", "replace"), f"line {line}: the file is not UTF-8 text"


def is_wrapper(text: str) -> bool:
    """Whether Python holds functions for others to call and no class: a wrapper around Triton
    kernels, and no attempt at a model. False for what does not parse."""
    if (tree := parsed(text)) is None:
        return False
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    public = any(not name.startswith("_") for name in functions)
    return public and not any(isinstance(node, ast.ClassDef) for node in tree.body)


def entry_of(text: str, language: str, name: str, where: str, wanted: str | None) -> str:
    """The function that is called: as `entry_point` says, and where the file has none, the one that
    it lacks, so that verification can say so. Raises `UsageError` where there are several."""
    from sketchc.runtime.verify.kernel_file import entry_point

    try:
        return entry_point(text, language, name, where, wanted)
    except UsageError as error:
        if wanted is None and not str(error).endswith("it defines none"):
            raise
    return wanted or name
