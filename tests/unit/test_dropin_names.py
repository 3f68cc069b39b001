"""The texts that drop-ins are made of stand in one module: none defines a name of another's."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

from sketchc.runtime.dropin import kernel_module
from sketchc.runtime.toolchains import cuda_c, native

SUPPORT = (
    kernel_module.LOADING,
    kernel_module.SUPPORT,
    kernel_module.MODEL_SUPPORT,
    kernel_module.LIST_SUPPORT,
    kernel_module.PARTIAL_SUPPORT,
    kernel_module.GRAPH_SUPPORT,
)
OF_TARGETS = tuple(
    Path(package.__path__[0]) / name
    for package, name in ((native, "built.py"), (cuda_c, "loading.py"))
)


def defined(file: Path) -> set[str]:
    """The names that a file's copied text defines."""
    found = set()
    for node in ast.parse(kernel_module.copied([file])[1]).body:
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Assign([ast.Name(name)]):
                found.add(name)
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *itertools.combinations(SUPPORT, 2),
        *itertools.product(OF_TARGETS, SUPPORT),
    ],
    ids=lambda path: path.stem,
)
def test_no_name_is_defined_twice(first: Path, second: Path) -> None:
    assert defined(first)
    assert defined(first).isdisjoint(defined(second))
