"""Convolutions as matrix products: pixels in rows, and places of a window one after the other.

A convolution is a product summed over the channels and over the places of its window. As one joint
axis of terms, each term has digits, and so a row, a column and a mask of its own in each lane of
the image's tile. Where there are channels enough for blocks of their own, the places are taps: the
loop goes through blocks of channels at one place after the other. Then an image's tile is a block
of channels beside pixels that all are the same step away from those of the result, and its mask is
one of pixels alone. The weight is copied first, so that the elements of one place lie together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import Axis, Element, Index
from sketchc.agents.autosketch.phase import Phase, Product
from sketchc.agents.autosketch.windows import ONE_BLOCK, extents_of, is_digit, moved
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import names

#: Blocks of channels may have so many lanes for each channel.
_PADDED = 1.35
#: For images of fewer pixels, a launch that copies the weight is not worth it.
_FEWEST_PIXELS = 4096
#: The pixels of a block, its channels at most, and the terms beside fewer channels and so many.
_PIXELS, _MOST_CHANNELS, _TERMS = 128, 128, (16, 32)


def with_taps(phase: Phase, sizes: Mapping[str, int]) -> Phase:
    """The phase with a convolution's pixels in rows, and the places of its window as taps where, at
    the task's own `sizes` of symbols, the image is large and blocks of the other terms are nearly
    full; a phase that is no convolution as it is."""
    product = phase.fold
    if not isinstance(product, Product):
        return phase
    taps, turned = _window_axes(phase, product)
    if turned is None:
        return phase
    if turned:
        product = attrs.evolve(
            product,
            down=product.across,
            across=product.down,
            left=product.right,
            right=product.left,
        )
    rest = tuple(axis for axis in product.over if axis not in taps)
    large = _count((*phase.rows, *product.down), sizes) >= _FEWEST_PIXELS
    if product.part is not None or not large or not _fills_blocks(_count(rest, sizes)):
        rest, taps = product.over, ()
    blocks = _blocks(product, _count(rest, sizes) if taps else 0, sizes) if large else None
    product = _guarded(attrs.evolve(product, over=rest, taps=taps, blocks=blocks))
    return phase if product is None else attrs.evolve(phase, fold=product)


def _guarded(product: Product) -> Product | None:
    """The product with the conditions of its first factor that are the same for all lanes of tiles
    as conditions of its own; None where what these leave out counts."""
    lanes = {axis.name for group in (product.down, product.across, product.over) for axis in group}
    left = product.left
    parts = [] if left.where is None else list(symbolic.conjuncts(left.where))
    alone = [part for part in parts if not lanes & set(names(part))]
    if not alone:
        return product
    if left.pad != 0:
        return None
    kept = [part for part in parts if part not in alone]
    left = attrs.evolve(left, where=symbolic.conjunction(kept) if kept else None)
    return attrs.evolve(product, left=left, where=symbolic.conjunction(alone))


def _window_axes(phase: Phase, product: Product) -> tuple[tuple[Axis, ...], bool | None]:
    """The axes of the terms that shift a subscript which an axis of the result is in; and whether
    the second factor is the image, in which this is no axis of the rows; None where neither is, or
    both are."""
    own = {axis.name for axis in product.over}
    rows = {axis.name for axis in phase.rows}
    extents = extents_of(phase)

    def shifted(axis: Axis, element: Element) -> set[str]:
        """The axes of the result in subscripts that `axis` shifts."""
        found: set[str] = set()
        for subscript in (each for each in element.index if axis.name in names(each)):
            others = (set(names(subscript)) - own) & extents.keys()
            # The channels of a group are digits, however few they are.
            apart = {n for n in others & rows if symbolic.equal(moved(subscript, n), axis.extent)}
            others -= apart
            if not is_digit(subscript, axis.name, others, extents):
                found |= others
        return found

    factors = (product.left, product.right)
    taps = tuple(a for a in product.over if any(shifted(a, each) for each in factors))
    images = [any(shifted(tap, each) - rows for tap in taps) for each in factors]
    return taps, images[1] if any(images) and not all(images) else None


def _blocks(product: Product, terms: int, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """The sizes of blocks of pixels, channels and terms that were fastest on an H200
    (docs/BENCHMARKS.md): `terms` are the channels that blocks divide, 0 for terms of one axis."""
    channels = max(_count(product.across, sizes), 1)
    across = min(max(1 << (channels - 1).bit_length(), ONE_BLOCK), _MOST_CHANNELS)
    wide = across == _MOST_CHANNELS and _fills_blocks(terms, _TERMS[1])
    return _PIXELS, across, _TERMS[wide]


def _count(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    """The product of extents at the task's own sizes; 0 where that is open."""
    extent = symbolic.product([axis.extent for axis in axes])
    return int(evaluate(extent, sizes)) if set(names(extent)) <= sizes.keys() else 0


def _fills_blocks(count: int, block: int = ONE_BLOCK) -> bool:
    """Whether blocks of `block` terms have few lanes more than there are terms."""
    return 0 < -(-count // block) * block <= _PADDED * count


def copied_weight(
    phase: Phase, name: str, shape: Sequence[ir.Expr]
) -> tuple[Phase, Phase, tuple[ir.Expr, ...]]:
    """The phase that copies the weight of a phase with taps, of extents `shape`, to `name`, with
    the axes along the window first and that of the result's channels last; the phase with the copy
    in place of the weight; and the extents of the copy."""
    product = phase.fold
    assert isinstance(product, Product)
    weight = product.right
    across = {axis.name for axis in product.across}

    over = {axis.name for axis in product.over}

    def order(number: int) -> tuple[bool, bool, int]:
        used = set(names(weight.index[number]))
        return bool(used & across), bool(used & over), number

    order_of = sorted(range(len(shape)), key=order)
    extents = tuple(shape[number] for number in order_of)
    axes = tuple(Axis(_LETTERS[n], shape[n]) for n in range(len(shape)))
    wide = tuple(axis for axis in axes if axis.extent != ir.Literal(1))
    refs = tuple(axis.ref if axis in wide else ir.Literal(0) for axis in axes)
    rows = tuple(axes[number] for number in order_of if axes[number] in wide)
    source = Element(weight.source, refs, weight.dtype)
    place = tuple(refs[number] for number in order_of)
    copying = Phase(name, weight.dtype, place, (), (), rows, source, step=phase.step)
    index = tuple(weight.index[number] for number in order_of)
    weight = attrs.evolve(weight, source=name, index=index)
    return copying, attrs.evolve(phase, fold=attrs.evolve(product, right=weight)), extents


#: What the axes of a copied weight are called.
_LETTERS = "ijklmnpq"


@attrs.frozen
class Cut:
    """An axis that was cut in two digits; `clipped`: they reach beyond it."""

    upper: Axis
    lower: Axis
    clipped: bool


def in_rows(product: Product, cuts: Sequence[Cut], place: Index) -> Product:
    """The product, whose result goes to `place`, without axes that programs of their own have: a
    lower digit beside an upper one that only one factor has, such as the phase of a place; and
    where digits reach beyond an axis, all axes of an image but the last. (That each place is stored
    just once is proved of one pair of digits along a tile.)"""
    sides = (product.down, product.across)
    apart = {cut.lower for cut in cuts if any(cut.upper in side for side in sides)}
    for side in sides:
        left = [axis for axis in side if axis not in apart]
        if any(cut.clipped and cut.upper in side for cut in cuts):
            apart |= {axis for axis in left[:-1] if place[0] != axis.ref}
    groups = [tuple(axis for axis in side if axis not in apart) for side in sides]
    if not all(groups):
        return product
    last = {group[-1] for group in groups}
    innermost = next((cut.lower for cut in cuts if cut.upper in last), None)
    return attrs.evolve(product, down=groups[0], across=groups[1], innermost=innermost)
