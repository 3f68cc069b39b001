"""`ir.verify`: each rule on a tree that breaks it, and none on what the checker makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from sketchc.base import verification
from sketchc.base.diagnostics import NOWHERE, InternalError, Source
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.cli.main import run
from sketchc.ir import nodes as ir
from sketchc.ir.verify import RULES, verify
from sketchc.parsing.parser import parse

TEXT = """
sketch sums {
    symbols: M, N;
    params: bias: f32 = 1.0;
    constexpr: T = 64;
    let: scale = 1.0 / sqrt(N);
    tensors: X[M, N]: in f32; Y[M]: out f32;

    @llm_hint("parallel")
    for m in range(M):
        total = alloc([1], f32, init=0)
        for j in range(0, N, T):
            x = alloc([T], f32)
            part = alloc([1], f32)
            load(X[m, j:min(j + T, N)] -> x)
            mul(x, scale, x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        if M > 8:
            add(total, bias, total)
        store(total -> Y[m])
}
"""


def elaborated() -> ir.Sketch:
    tree, found = parse(Source("sums.sketch", TEXT))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    return sketch


def inferred() -> ir.Sketch:
    sketch, found = infer_domains(elaborated())
    assert not found
    return sketch


Change = Callable[[Any], Any]


def changed(sketch: ir.Sketch, kind: type, change: Change) -> ir.Sketch:
    """The sketch with its first statement of a kind changed."""
    done = False

    def visit(body: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        nonlocal done
        result: list[ir.Statement] = []
        for statement in body:
            new: Any = statement
            if isinstance(statement, kind) and not done:
                done = True
                new = change(statement)
            elif isinstance(statement, ir.For | ir.If):
                new = attrs.evolve(statement, body=visit(statement.body))
            result += new if isinstance(new, tuple) else (new,)
        return tuple(result)

    phases = tuple(attrs.evolve(phase, body=visit(phase.body)) for phase in sketch.phases)
    assert done
    return attrs.evolve(sketch, phases=phases)


def evolved(kind: type, **fields: object) -> Change:
    """A change of the first statement of a kind."""
    return lambda sketch: changed(sketch, kind, lambda node: attrs.evolve(node, **fields))


def read_only(sketch: ir.Sketch) -> ir.Sketch:
    return attrs.evolve(
        sketch, tensors=tuple(attrs.evolve(each, role=ir.Role.IN) for each in sketch.tensors)
    )


def without_subscript(load: ir.Load) -> ir.Load:
    access = attrs.evolve(load.access, subscripts=load.access.subscripts[1:])
    return attrs.evolve(load, access=access)


def with_scalar(operand: ir.Expr, dtype: Any) -> Change:
    def change(statement: ir.Compute) -> ir.Compute:
        operands = (statement.operands[0], ir.ScalarOperand(operand, dtype))
        return attrs.evolve(statement, operands=operands)

    return lambda sketch: changed(sketch, ir.Compute, change)


LET = ir.NameKind.LET
F32 = ir.DType.F32
#: For each rule a change after which it is broken.
BREAKS: dict[str, Change] = {
    "unique names": evolved(ir.For, variable="M"),
    "operations": evolved(ir.Compute, operation="no_such_operation"),
    "types of operations": evolved(ir.Compute, dtype=ir.DType.I64),
    "names in scope": with_scalar(ir.Ref("nobody", LET, F32), F32),
    "one alloc": lambda sketch: changed(sketch, ir.Alloc, lambda node: (node, node)),
    "tiles in scope": lambda sketch: changed(
        sketch, ir.For, lambda loop: (loop.body[-1], attrs.evolve(loop, body=loop.body[:-1]))
    ),
    "launched once": lambda sketch: attrs.evolve(sketch, schedule=(ir.Launch(0), ir.Launch(0))),
    "operators": with_scalar(ir.Binary("**", ir.Literal(2.0), ir.Literal(2.0)), F32),
    "types of names": with_scalar(ir.Ref("scale", LET, ir.DType.I64), F32),
    "ranks of accesses": lambda sketch: changed(sketch, ir.Load, without_subscript),
    "roles": read_only,
    "conditions": evolved(ir.If, condition=ir.Literal(1)),
    "carried tiles": evolved(ir.For, carried=("x",)),
    "depths": lambda sketch: attrs.evolve(
        sketch, tiles=tuple(attrs.evolve(tile, depth=0) for tile in sketch.tiles)
    ),
    "steps": evolved(ir.For, step=ir.Literal(0)),
    "spans": evolved(ir.Store, span=NOWHERE),
    "ranks of domains": evolved(ir.Store, domain=(ir.FULL, ir.FULL)),
    "fixed domains": lambda sketch: attrs.evolve(
        sketch, tiles=tuple(attrs.evolve(tile, domain=None) for tile in sketch.tiles)
    ),
    "masked writes": lambda sketch: changed(
        sketch, ir.Compute, lambda node: attrs.evolve(node, masked=True)
    ),
}


def test_every_rule_has_a_tree_that_breaks_it() -> None:
    assert [rule.name for rule in RULES] == list(BREAKS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "-"))
def test_a_broken_rule_is_caught(rule: Any) -> None:
    sketch = inferred()
    assert not list(rule.broken(sketch))
    broken = BREAKS[rule.name](sketch)
    assert list(rule.broken(broken))
    with pytest.raises(InternalError, match=r"ir\.verify"):
        verify(broken, inferred=True)


def test_before_inference_domains_are_not_asked_for() -> None:
    sketch = elaborated()
    verify(sketch)
    with pytest.raises(InternalError, match="domain"):
        verify(sketch, inferred=True)


@pytest.mark.parametrize("made", [elaborated, inferred])
def test_each_stage_is_verified_while_the_switch_is_on(
    made: Callable[[], ir.Sketch], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = attrs.evolve(
        RULES[0], broken=lambda sketch: iter([(sketch, "wrong")]), inferred=made is inferred
    )
    monkeypatch.setattr("sketchc.ir.verify.RULES", (strict,))
    with pytest.raises(InternalError, match="wrong"):
        made()
    monkeypatch.delenv(verification.VARIABLE)
    made()


@pytest.mark.parametrize(
    ("command", "options", "status"),
    [
        ("check", ["--static"], 0),
        ("lower", ["--target", "cpp"], 0),
        ("run", ["--symbols", "M=9,N=70"], 0),
        # No files of theirs: refused when the options have been read.
        ("verify", ["--target", "cpp", "--task", "none.py"], 2),
        ("bench", ["--target", "cpp", "--task", "none.py"], 2),
        ("gen", ["--target", "cpp"], 2),
    ],
)
def test_the_command_line_has_the_switch(
    command: str, options: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(verification.VARIABLE, "0")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sums.sketch"
    path.write_text(TEXT)
    assert run([command, str(path), *options]) == status
    assert not verification.enabled()
    assert run([command, str(path), *options, "--verify-ir"]) == status
    assert verification.enabled()
