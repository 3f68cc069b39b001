"""Special functions that PyTorch has no decomposition for, as formulas of elementary ones: to seven
digits, as f32 has them. Those of f64 are left whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import Any

import torch

Tensor = torch.Tensor


def special_functions() -> dict[Any, Callable[..., Any]]:
    """The formulas by operation, as `make_fx` takes them."""
    aten = torch.ops.aten
    found = {
        aten.erfinv.default: _erfinv,
        aten.erfc.default: _erfc,
        aten.digamma.default: _digamma,
        aten.lgamma.default: _lgamma,
        aten.i0.default: lambda x: _bessel(x, _I0, odd=False, scaled=False),
        aten.special_i0e.default: lambda x: _bessel(x, _I0, odd=False, scaled=True),
        aten.special_i1.default: lambda x: _bessel(x, _I1, odd=True, scaled=False),
        aten.special_i1e.default: lambda x: _bessel(x, _I1, odd=True, scaled=True),
    }
    return {operation: _of_f32(formula) for operation, formula in found.items()}


def _of_f32(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    @wraps(formula)
    def applied(x: Tensor) -> Any:
        if x.dtype is torch.float64:
            return NotImplemented
        return formula(x if x.is_floating_point() else x.to(torch.float32))

    return applied


#: The polynomial of erfinv(x) / x in w = -log(1 - x^2), near the middle and at the ends, highest
#: degree first: M. Giles, "Approximating the erfinv function" (2010), for f32.
_ERFINV_NEAR = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_ERFINV_FAR = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """The polynomial of `coefficients`, the highest degree first, at `x`."""
    first, *rest = coefficients
    return reduce(lambda sum, each: sum * x + each, rest, torch.full_like(x, first))


def _erfinv(x: Tensor) -> Tensor:
    w = -torch.log((1 - x) * (1 + x))
    near = w < 5
    ratio = torch.where(
        near,
        _polynomial(_ERFINV_NEAR, torch.where(near, w, 0.0) - 2.5),
        _polynomial(_ERFINV_FAR, torch.sqrt(torch.where(near, 5.0, w)) - 3),
    )
    return torch.where(torch.abs(x) == 1, x * torch.inf, ratio * x)


#: log(erfc(x) e^(x^2) / t) in t = 1 / (1 + x / 2), lowest degree first: W. Press and others,
#: "Numerical Recipes" (1992), 6.2.
_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _erfc(x: Tensor) -> Tensor:
    """`erfc` to 7 digits, also far from 0, where 1 - erf(x) has none; near 0, to 7 digits of 1."""
    size = torch.abs(x)
    near = size < 0.5
    t = 1 / (1 + 0.5 * torch.where(near, 0.5, size))
    far = t * torch.exp(_polynomial(_ERFC[::-1], t) - size * size)
    return torch.where(near, 1 - torch.erf(x), torch.where(x < 0, 2 - far, far))


#: The series of digamma at infinity, B(2k) / 2k in 1 / x^2, lowest degree first; and how far from 0
#: it is taken, so that its terms are few.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
_FAR = 8


def _digamma(x: Tensor) -> Tensor:
    """`digamma` to 7 digits of the terms that it is the sum of."""
    left = x < 0.5
    within = torch.where(left, 1 - x, x)
    far = within + _FAR
    square = 1 / (far * far)
    right = torch.log(far) - 0.5 / far - _polynomial(_DIGAMMA[::-1], square) * square
    right = right - reduce(torch.add, (1 / (within + k) for k in range(_FAR)))
    tangent = torch.tan((x - torch.round(x)) * math.pi)
    found = torch.where(left, right - math.pi / tangent, right)
    # A pole at 0 has the sign of the zero, each other one has none.
    found = torch.where((x == torch.round(x)) & (x < 0), torch.nan, found)
    return torch.where(x == 0, -1 / x, found)


#: lgamma(x) / (x - 2) between 1.5 and 2.5 in x - 2, lowest degree first: fitted to this at the
#: places of Chebyshev's.
_LGAMMA = (
    *(0.4227843351, 0.3224670337, -0.06735230144, 0.02058078833, -0.007385533142, 0.002890956191),
    *(-0.001193056054, 0.0005056574227, -0.0002208636393, 0.0001150035521, -5.279714242e-05),
)
#: The series of lgamma at infinity, B(2k) / (2k (2k - 1)) in 1 / x^2, lowest degree first, and from
#: where on it is taken.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260)
_HIGH = 8.5


def _lgamma(x: Tensor) -> Tensor:
    """`lgamma` to 7 digits; between the poles below 0, to 7 digits of the terms of its sum."""
    right = torch.where(x < 0, 1 - x, x)
    low = right < 1.5
    # Between 0 and 0.5 two steps up, to 1.5 one; above 2.5 some down: no two large parts cancel.
    within = torch.where(low | (right >= _HIGH), 2.0, right)
    steps = torch.floor(within - 1.5)
    base = within - steps
    factors = (torch.where(steps > k, base + k, 1.0) for k in range(int(_HIGH - 1.5)))
    product = reduce(torch.mul, factors)
    beyond = torch.where(right < 0.5, right, torch.where(low, right - 1, base - 2))
    near = beyond * _polynomial(_LGAMMA[::-1], beyond)
    divisor = torch.where(right < 0.5, right * (right + 1), torch.where(low, right, 1.0))
    near = torch.where(low, near - torch.log(divisor), near + torch.log(product))
    high = torch.where(right < _HIGH, _HIGH, right)
    square = 1 / (high * high)
    far = (high - 0.5) * torch.log(high) - high + 0.5 * math.log(2 * math.pi)
    far = far + _polynomial(_STIRLING[::-1], square) / high
    found = torch.where(right < _HIGH, near, far)
    whole = x == torch.round(x)
    sine = torch.abs(torch.sin((x - torch.round(x)) * math.pi))
    mirrored = math.log(math.pi) - torch.log(torch.where(whole, 1.0, sine)) - found
    found = torch.where(x < 0, mirrored, found)
    poles = (whole & (x <= 0)) | (torch.abs(x) == torch.inf)
    return torch.where(poles, torch.inf, found)


#: Modified Bessel functions: near 0 in (x / 3.75)^2 (of the first order, over x), and from 3.75 on
#: times sqrt(x) e^-x, in 3.75 / x. M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions"
#: (1964), 9.8.1 to 9.8.4.
_I0 = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (
        *(0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281),
        *(-0.02057706, 0.02635537, -0.01647633, 0.00392377),
    ),
)
_I1 = (
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
    (
        *(0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555),
        *(0.02282967, -0.02895312, 0.01787654, -0.00420059),
    ),
)
_BEND = 3.75


def _bessel(x: Tensor, series: Sequence[Sequence[float]], *, odd: bool, scaled: bool) -> Tensor:
    size = torch.abs(x)
    near = size < _BEND
    inner = torch.where(near, x, 0.0) / _BEND
    outer = torch.where(near, _BEND, size)
    low = _polynomial(series[0][::-1], inner * inner)
    high = _polynomial(series[1][::-1], _BEND / outer) / torch.sqrt(outer)
    # Where e^x overflows, e^(x / 2) does not.
    half = torch.exp(size * 0.5)
    low = low * x if odd else low
    high = torch.where(x < 0, -high, high) if odd else high
    if scaled:
        return torch.where(near, low / half / half, high)
    return torch.where(near, low, high * half * half)
