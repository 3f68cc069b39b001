"""Is a generated Python file Python at all? Asked here, before a worker imports it."""

from __future__ import annotations

import ast

from sketchc.runtime.toolchains.base import ToolchainError


def check_python(source: str) -> None:
    """Raise `ToolchainError` ("compile", kind SyntaxError) for text that does not parse."""
    # As the file will hold it: see `base.write_source`.
    text = source.encode("utf-8", "replace").decode()
    kinds = ("SyntaxError",)
    try:
        ast.parse(text)
    except SyntaxError as error:
        msg = f"line {error.lineno}: {error.msg}"
        line = (error.text or "").rstrip("\n")
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        raise ToolchainError(
            stage="compile", message=msg, log=f"{line}\n{caret}", kinds=kinds
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        msg = f"the file is not Python: {error or 'nested too deeply'}"
        raise ToolchainError(stage="compile", message=msg, kinds=kinds) from error
