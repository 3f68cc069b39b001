"""Record classes behave as attrs makes them, with `__init__` compiled on first use."""

from __future__ import annotations

import pickle

import attrs
import pytest

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax


def build(library):
    """The same declarations by attrs or by records."""

    @library.frozen
    class Point:
        x: int
        y: int = 2
        tags: list = library.field(factory=list, eq=False)
        note: str = library.field(default="", eq=False, repr=False, kw_only=True)

    @library.frozen
    class Deep(Point):
        z: int = 3

    @library.define
    class Mutable:
        value: int = 0

    return Point, Deep, Mutable


BOTH = [build(attrs), build(records)]


def outcome(function):
    try:
        return function()
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize(
    "act",
    [
        lambda p, d, m: [(q.x, q.y, q.tags, q.note) for q in (p(1), p(1, 5, [7], note="n"))],
        lambda p, d, m: [d(1).z, d(1, 2, [], 9, note="n").z, d(x=4, z=5).x],
        lambda p, d, m: p(1) == p(1, 2, [3], note="other"),
        lambda p, d, m: p(1) == p(2),
        lambda p, d, m: p(1) == d(1),
        lambda p, d, m: hash(p(1)) == hash(p(1, note="n")),
        lambda p, d, m: len({p(1), p(1), p(2), d(1)}),
        lambda p, d, m: p(),
        lambda p, d, m: p(1, unknown=2),
        lambda p, d, m: p(1, 2, [], "positional"),
        lambda p, d, m: setattr(p(1), "x", 3),
        lambda p, d, m: delattr(p(1), "x"),
        lambda p, d, m: hash(m()),
        lambda p, d, m: m() == m(0),
        lambda p, d, m: setattr(m(), "value", 3),
        lambda p, d, m: repr(m(4)).endswith("Mutable(value=4)"),
        lambda p, d, m: repr(p(1)).endswith("Point(x=1, y=2, tags=[])"),
        lambda p, d, m: p.__match_args__,
        lambda p, d, m: [field.name for field in attrs.fields(d)],
        lambda p, d, m: attrs.evolve(p(1), y=7).y,
        lambda p, d, m: records.evolve(d(1, z=4), x=5).z,
        lambda p, d, m: p(1).tags is p(1).tags,
        lambda p, d, m: [attrs.has(p), records.has(p), records.has(int)],
    ],
)
def test_same_as_attrs(act):
    by_attrs, by_records = (outcome(lambda made=made: act(*made)) for made in BOTH)
    assert by_attrs == by_records


def test_nodes_survive_pickling():
    node = syntax.Binary(
        "+", syntax.Name("a"), syntax.Number(1, "1"), span=Span("t", 0, 1, 1, 1, 1, 2)
    )
    copy = pickle.loads(pickle.dumps(node))
    assert copy == node
    assert copy.span == node.span
    proof = ir.Proof("covered", "Y", ir.Tier.PROVED)
    assert pickle.loads(pickle.dumps(proof)) == proof
