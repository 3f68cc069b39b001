"""Random applications of operations to tiles at hand.

Discontinuous operations (comparisons, rounding, sorting, casts to integers) take exact tiles only:
there all targets must agree bit by bit. Functions with poles or steep slopes get guarded operands.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from random_sketches.draft import Draft, Tile
from sketchc.base.types import DType
from sketchc.ops.table import OPS, Category

FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F64)
INTEGERS = (DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.U32)

_KEEPS_BITS = ("copy", "neg", "abs", "relu", "clamp", "max", "min", "where", "fill")
_INTEGRAL = ("floor", "ceil", "round", "trunc", "sign")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_TESTS = ("isnan", "isinf", "isfinite")
_LOGIC = ("logical_and", "logical_or")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_SHIFTS = ("shl", "shr")
_WHOLE = ("floordiv", "mod")
_SMOOTH = tuple(
    name
    for name, row in OPS.items()
    if row.category is Category.ELEMENTWISE
    and row.operands == ("source",)
    and name not in (*_KEEPS_BITS, *_INTEGRAL, *_TESTS, "cast", "logical_not", "bitwise_not")
)
#: Operands that keep values and slopes moderate: (lowest, highest) of a clamp, or None.
_RANGES: dict[str, tuple[str, str]] = {
    "exp": ("-4.0", "4.0"),
    "exp2": ("-4.0", "4.0"),
    "tan": ("-1.0", "1.0"),
    "log": ("0.25", "8.0"),
    "log2": ("0.25", "8.0"),
    "expm1": ("-4.0", "4.0"),
    "log1p": ("-0.75", "8.0"),
    "sqrt": ("0.25", "8.0"),
    "rsqrt": ("0.25", "8.0"),
    "pow": ("0.25", "4.0"),
    "div": ("0.5", "8.0"),
    "atan2": ("0.25", "4.0"),
    "softplus": ("-8.0", "8.0"),
}
_DEEPEST = 3


@attrs.define
class Operations:
    """Applies operations in one scope; `tiles` are those at hand, newest last."""

    draft: Draft
    tiles: list[Tile]
    across: bool = False  # cross-lane operations may run along the last axis

    # ------------------------------------------------------------ choices

    def pick(self, test: Callable[[Tile], bool]) -> Tile | None:
        found = [tile for tile in self.tiles if test(tile)]
        return self.draft.rng.choice(found) if found else None

    def shaped(self, shape: tuple[str, ...], test: Callable[[Tile], bool]) -> Tile | None:
        return self.pick(lambda tile: tile.extents == shape and test(tile))

    def smooth_input(self) -> Tile | None:
        return self.pick(lambda tile: tile.dtype.is_float and tile.depth < _DEEPEST)

    def step(self) -> Tile | None:
        """Apply one operation that fits, the least used first; None where nothing fits."""
        choices = list(self._choices())
        self.draft.rng.shuffle(choices)
        choices.sort(key=lambda f: self.draft.balance[f"op:{f}"] + self.draft.features[f"op:{f}"])
        for operation in choices:
            made = self.apply(operation)
            if made is not None:
                self.draft.use(f"op:{operation}")
                self.tiles.append(made)
                return made
        return None

    def _choices(self) -> list[str]:
        found = [name for name, row in OPS.items() if row.category is Category.ELEMENTWISE]
        found += ["broadcast"]
        if self.across:
            kinds = (
                Category.REDUCTION,
                Category.SCAN,
                Category.INDEX,
                Category.SORTING,
                Category.COMPOSITE,
            )
            found += [name for name, row in OPS.items() if row.category in kinds]
            found += ["concat", "reshape", "permute"]
            found += ["transpose", "rand", "randn"]
        return found

    # ------------------------------------------------------------ application

    def apply(self, operation: str) -> Tile | None:
        """One operation on suitable tiles, or None."""
        if operation in ("broadcast", "fill", "cast", "where", "fma"):
            return getattr(self, f"_{operation}")()
        for group, method in _GROUPS:
            if operation in group:
                return method(self, operation)
        return self._across(operation)

    def emit(self, tile: Tile, call: str, init: str = "") -> Tile:
        """Allocate `tile` under a new name and write the call, where `{}` is the destination."""
        name = self.draft.alloc(tile.extents, tile.dtype, init)
        self.draft.line(call.format(name))
        return attrs.evolve(tile, name=name)

    def guarded(self, tile: Tile, operation: str) -> Tile:
        """The tile clamped to where the operation is moderate."""
        if operation not in _RANGES:
            return tile
        low, high = _RANGES[operation]
        self.draft.use("op:clamp")
        return self.emit(tile, f"clamp({tile.name}, {{}}, low={low}, high={high})")

    def _result(self, *operands: Tile, dtype: DType | None = None, exact: bool = False) -> Tile:
        kind = dtype or operands[0].dtype
        all_exact = exact and all(tile.exact for tile in operands)
        depth = max(tile.depth for tile in operands) + (not exact)
        partial = any(tile.partial for tile in operands)
        padded = any(tile.padded for tile in operands)
        return Tile("", operands[0].extents, kind, all_exact, depth, partial, padded)

    # ------------------------------------------------------------ element-wise

    def _smooth(self, operation: str) -> Tile | None:
        source = self.smooth_input()
        if source is None:
            return None
        source = self.guarded(source, operation)
        more = (
            ', approximate="tanh"' if operation == "gelu" and self.draft.rng.random() < 0.5 else ""
        )
        return self.emit(self._result(source), f"{operation}({source.name}, {{}}{more})")

    def _bits(self, operation: str) -> Tile | None:
        if operation in ("max", "min"):
            left = self.pick(lambda tile: tile.dtype is not DType.BOOL)
            right = left and self.shaped(left.extents, lambda t: t.dtype is left.dtype)
            if left is None or right is None:
                return None
            made = self._result(left, right, exact=True)
            return self.emit(made, f"{operation}({left.name}, {right.name}, {{}})")
        signed = operation in ("neg", "abs")
        source = self.pick(
            lambda t: t.dtype is not DType.BOOL and (not signed or t.dtype.is_signed)
        )
        if source is None:
            return None
        more = ", low=-2, high=3" if operation == "clamp" else ""
        if operation == "clamp" and not source.dtype.is_signed:
            more = ", low=1, high=3"
        return self.emit(
            self._result(source, exact=True), f"{operation}({source.name}, {{}}{more})"
        )

    def _integral(self, operation: str) -> Tile | None:
        source = self.pick(lambda t: t.dtype.is_float and t.exact)
        if source is None:
            return None
        return self.emit(self._result(source, exact=True), f"{operation}({source.name}, {{}})")

    def _arithmetic(self, operation: str) -> Tile | None:
        left = self.pick(
            lambda t: t.dtype is not DType.BOOL and (not t.dtype.is_float or t.depth < _DEEPEST)
        )
        if left is None:
            return None
        if operation in _RANGES and not left.dtype.is_float:
            return None
        right = self.shaped(left.extents, lambda t: t.dtype is left.dtype and t.depth < _DEEPEST)
        exact = not left.dtype.is_float
        if right is None or self.draft.rng.random() < 0.25:
            scalar = "3" if exact else "0.75"
            made = self._result(left, exact=exact)
            return self.emit(made, f"{operation}({left.name}, {scalar}, {{}})")
        if operation == "pow":
            left = self.guarded(left, "pow")
            self.draft.use("op:clamp")
            right = self.emit(
                self._result(right, exact=True),
                f"clamp({right.name}, {{}}, low=-2.0, high=2.0)",
            )
        elif operation in _RANGES:
            right = self.guarded(right, operation)
        made = self._result(left, right, exact=exact)
        return self.emit(made, f"{operation}({left.name}, {right.name}, {{}})")

    def _whole(self, operation: str) -> Tile | None:
        source = self.pick(lambda t: t.dtype is not DType.BOOL and t.exact)
        if source is None:
            return None
        divisor = self.draft.rng.choice(["3", "7"] if source.dtype.is_integer else ["0.75", "2.0"])
        if source.dtype.is_signed and self.draft.rng.random() < 0.3:
            divisor = f"-{divisor}"
        made = self._result(source, exact=True)
        return self.emit(made, f"{operation}({source.name}, {divisor}, {{}})")

    def _compare(self, operation: str) -> Tile | None:
        left = self.pick(lambda t: t.exact and t.dtype is not DType.BOOL)
        right = left and self.shaped(left.extents, lambda t: t.exact and t.dtype is left.dtype)
        if left is None or right is None:
            return None
        made = self._result(left, right, dtype=DType.BOOL, exact=True)
        return self.emit(made, f"{operation}({left.name}, {right.name}, {{}})")

    def _test(self, operation: str) -> Tile | None:
        source = self.pick(lambda t: t.dtype.is_float and t.exact)
        if source is None:
            return None
        made = self._result(source, dtype=DType.BOOL, exact=True)
        return self.emit(made, f"{operation}({source.name}, {{}})")

    def _logic(self, operation: str) -> Tile | None:
        left = self.pick(lambda t: t.exact and (t.dtype is DType.BOOL or t.dtype.is_integer))
        if left is None:
            return None
        made = self._result(left, dtype=DType.BOOL, exact=True)
        if operation == "logical_not":
            return self.emit(made, f"logical_not({left.name}, {{}})")
        right = self.shaped(left.extents, lambda t: t.exact and t.dtype is left.dtype)
        assert right is not None
        return self.emit(made, f"{operation}({left.name}, {right.name}, {{}})")

    def _bitwise(self, operation: str) -> Tile | None:
        left = self.pick(lambda t: t.dtype.is_integer)
        if left is None:
            return None
        made = self._result(left, exact=True)
        if operation == "bitwise_not":
            return self.emit(made, f"bitwise_not({left.name}, {{}})")
        right = self.shaped(left.extents, lambda t: t.dtype is left.dtype)
        assert right is not None
        return self.emit(made, f"{operation}({left.name}, {right.name}, {{}})")

    def _shift(self, operation: str) -> Tile | None:
        source = self.pick(lambda t: t.dtype.is_integer)
        if source is None:
            return None
        by = self.draft.rng.choice("0123")
        made = self._result(source, exact=True)
        return self.emit(made, f"{operation}({source.name}, {by}, {{}})")

    def _where(self) -> Tile | None:
        condition = self.pick(lambda t: t.dtype is DType.BOOL)
        if condition is None:
            return None
        left = self.shaped(condition.extents, lambda t: t.dtype is not DType.BOOL)
        right = left and self.shaped(condition.extents, lambda t: t.dtype is left.dtype)
        if left is None or right is None:
            return None
        made = attrs.evolve(self._result(left, right, condition, exact=True), dtype=left.dtype)
        return self.emit(made, f"where({condition.name}, {left.name}, {right.name}, {{}})")

    def _fma(self) -> Tile | None:
        first = self.smooth_input()
        if first is None:
            return None
        test: Callable[[Tile], bool] = lambda t: t.dtype is first.dtype and t.depth < _DEEPEST  # noqa: E731
        second = self.shaped(first.extents, test)
        third = self.shaped(first.extents, test)
        assert second is not None
        assert third is not None
        made = self._result(first, second, third)
        return self.emit(made, f"fma({first.name}, {second.name}, {third.name}, {{}})")

    def _cast(self) -> Tile | None:
        source = self.pick(lambda t: t.exact and t.dtype is not DType.BOOL)
        if source is None:
            return None
        target = self.draft.rng.choice([d for d in (*FLOATS, *INTEGERS) if d is not source.dtype])
        options = ""
        if source.dtype.is_float and target.is_integer:
            options = ", sat=True"
            rounding = self.draft.rng.choice(["", "down", "up", "zero", "nearest"])
            options += f', round="{rounding}"' if rounding else ""
        elif source.dtype.is_integer and target.is_integer:
            options = ", sat=True"
        made = self._result(source, dtype=target, exact=True)
        return self.emit(made, f"cast({source.name}, {{}}{options})")

    def _fill(self) -> Tile | None:
        like = self.pick(lambda t: not t.partial and t.dtype is not DType.BOOL)
        if like is None:
            return None
        value = "2.5" if like.dtype.is_float else "5"
        filled = self.emit(Tile("", like.extents, like.dtype), f"fill({value}, {{}})")
        # Alone it would be valid everywhere; beside a loaded tile it takes that one's lanes.
        made = self._result(like, filled, exact=True)
        return self.emit(made, f"max({like.name}, {filled.name}, {{}})")

    def _broadcast(self) -> Tile | None:
        narrow = self.pick(lambda t: "1" in t.extents)
        if narrow is None:
            return None
        wide = self.pick(
            lambda t: (
                len(t.extents) == len(narrow.extents)
                and "1" not in t.extents
                and all(a in ("1", b) for a, b in zip(narrow.extents, t.extents, strict=True))
                and t.dtype is not DType.BOOL
            )
        )
        if wide is None or narrow.dtype is not wide.dtype:
            return None
        spread = self.emit(
            attrs.evolve(narrow, extents=wide.extents), f"broadcast({narrow.name}, {{}})"
        )
        made = attrs.evolve(self._result(wide, spread, exact=True), extents=wide.extents)
        return self.emit(made, f"min({wide.name}, {spread.name}, {{}})")

    def _across(self, operation: str) -> Tile | None:
        from random_sketches.cross_lane import across

        return across(self, operation)


_GROUPS: tuple[tuple[tuple[str, ...], Callable[[Operations, str], Tile | None]], ...] = (
    (("copy", "neg", "abs", "relu", "clamp", "max", "min"), Operations._bits),
    (_INTEGRAL, Operations._integral),
    (("add", "sub", "mul", "div", "pow", "atan2"), Operations._arithmetic),
    (_WHOLE, Operations._whole),
    (_COMPARE, Operations._compare),
    (_TESTS, Operations._test),
    ((*_LOGIC, "logical_not"), Operations._logic),
    ((*_BITS, "bitwise_not"), Operations._bitwise),
    (_SHIFTS, Operations._shift),
    (_SMOOTH, Operations._smooth),
)
