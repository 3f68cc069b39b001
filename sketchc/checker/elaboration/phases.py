"""Phases, and what the host does around them (R8).

A phase is an outermost parallel nest, or a run of statements between such nests. The host launches
them in order; a sequential loop or an `if` around a parallel nest, a `fetch` outside all phases and
integers made from these run on the host. An integer bound in a run of statements is a host value
too, known before the launch of that run.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.calls.memory import fetch
from sketchc.checker.context.context import Context, InvalidError
from sketchc.checker.context.hints import loop_hints
from sketchc.checker.context.names import PoisonedName, ScalarName
from sketchc.checker.elaboration.branches import decided, given, look_over, uniform
from sketchc.checker.elaboration.statements import block, loop_range, note_loop
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import expressions
from sketchc.parsing import syntax
from sketchc.parsing.prepass import is_parallel
from sketchc.parsing.text import statement_text
from sketchc.parsing.walk import names


def phases_of(context: Context) -> tuple[tuple[ir.Phase, ...], tuple[ir.HostStep, ...]]:
    """The phases of a sketch and the host's schedule, () where it launches each once, in order."""
    host = _Host(context)
    steps = host.block(context.tree.body)
    plain = steps == tuple(ir.Launch(index) for index in range(len(host.phases)))
    return tuple(host.phases), () if plain else steps


@records.define(eq=False)
class _Host:
    context: Context
    phases: list[ir.Phase] = records.field(factory=list)

    def block(self, body: tuple[syntax.Statement, ...]) -> tuple[ir.HostStep, ...]:
        """The host steps of one block, in the scope that is open."""
        steps: list[ir.HostStep] = []
        run: list[syntax.Statement] = []
        for node in body:
            if not self.on_host(node):
                run.append(node)
                continue
            steps.extend(self.launch(tuple(run)))
            run = []
            try:
                steps.extend(self.step(node))
            except InvalidError:
                if isinstance(node, syntax.Fetch) and self.context.scopes.find(node.name) is None:
                    self.context.scopes.add(node.name, PoisonedName(node.span))
        steps.extend(self.launch(tuple(run)))
        return tuple(steps)

    def on_host(self, node: syntax.Statement) -> bool:
        """Whether a statement ends the run before it: parallel nests, and what the host does."""
        match node:
            case syntax.Fetch():
                return True
            case syntax.For():
                return is_parallel(node) or id(node) in self.context.prepass.parallel
            case syntax.If():
                return id(node) in self.context.prepass.parallel
            case _:
                return False

    def step(self, node: syntax.Statement) -> tuple[ir.HostStep, ...]:
        match node:
            case syntax.Fetch():
                return (fetch(self.context, node, ir.NameKind.HOST),)
            case syntax.For() if not is_parallel(node):
                return (self.loop(node),)
            case syntax.If():
                return self.branch(node)
            case _:
                return self.launch((node,))

    def launch(self, nodes: tuple[syntax.Statement, ...]) -> tuple[ir.HostStep, ...]:
        """One phase. Statements that neither load nor store (allocs, bindings) launch nothing."""
        if not nodes:
            return ()
        body = block(self.context, nodes)
        self.context.phase += 1
        steps = list(self.context.host_steps)
        self.context.host_steps.clear()
        if any(not isinstance(statement, ir.Alloc | ir.Bind) for statement in body):
            steps.append(ir.Launch(len(self.phases)))
            self.phases.append(ir.Phase(body, tuple(dict.fromkeys(_scalars(body)))))
        return tuple(steps)

    def loop(self, node: syntax.For) -> ir.HostFor:
        context = self.context
        failed = False
        try:
            start, stop, step = loop_range(context, node)
        except InvalidError:  # go on with the body: its own mistakes are worth reporting
            failed = True
            start = stop = step = ir.Literal(1)
        loop_hints(context, node)
        with context.branch(frozenset()):
            try:
                context.check_assignable(node.variable.id, node.variable.span)
            except InvalidError:
                failed = True
            variable = context.namer.fresh(node.variable.id)
            entry = ScalarName(variable, ir.NameKind.HOST, DType.I64, node.variable.span)
            context.scopes.add(node.variable.id, entry)
            note_loop(context, variable, start, stop, step)
            body = self.block(node.body)
        if failed:
            raise InvalidError(node.variable.id)
        text = statement_text(node)
        return ir.HostFor(variable, start, stop, step, body, text=text, span=node.span)

    def branch(self, node: syntax.If) -> tuple[ir.HostStep, ...]:
        context = self.context
        try:
            condition = uniform(context, node.condition)
        except InvalidError:
            context.present.update(names(node.condition))
            for branch in (node.body, node.orelse):
                self.inner(branch, frozenset())
            raise
        known = decided(condition)
        if known is not None:
            taken, other = (node.body, node.orelse) if known else (node.orelse, node.body)
            look_over(context, other, block)
            return self.inner(taken, frozenset())
        body = self.inner(node.body, given(condition, True), condition)
        orelse = self.inner(node.orelse, given(condition, False), condition, holds=False)
        if not body and not orelse:
            return ()
        text = statement_text(node)
        return (ir.HostIf(condition, body, orelse, text=text, span=node.span),)

    def inner(
        self,
        body: tuple[syntax.Statement, ...],
        present: frozenset[str],
        condition: ir.Expr | None = None,
        holds: bool = True,
    ) -> tuple[ir.HostStep, ...]:
        with self.context.branch(present, condition, holds):
            return self.block(body)


def _scalars(body: tuple[ir.Statement, ...]) -> Iterator[str]:
    """The host's names that a block uses, in order, repeats included."""
    for statement in walk.statements(body):
        for value in expressions(statement):
            for reference in walk.references(value):
                if reference.kind is ir.NameKind.HOST:
                    yield reference.name
