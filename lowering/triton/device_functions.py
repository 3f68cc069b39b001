"""Device functions that generated kernels carry with them, second half: those that work on each
element by itself. `python_host.library` reads this file after `lane_functions.py`.

Only `triton.language` primitives that run under Triton's interpreter, on CUDA and on Ascend (no
libdevice). Errors are for f32 against the exact value, in units in the last place, on top of the
error of the primitive itself (CUDA's `tl.exp`: 2 + |x| / 8 ulp; others about 1).
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from sketchc.lowering.triton.lane_functions import nan_maximum, nan_minimum


@triton.jit
def floor_remainder(a, b):
    """a - b * floor(a / b) on integers, whichever way `%` rounds (Triton truncates)."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)


@triton.jit
def floor_quotient(a, b):
    """floor(a / b) on integers, whichever way `//` rounds; a - b must not overflow."""
    return (a - floor_remainder(a, b)) // b


@triton.jit
def integer_floordiv(a, b, SIGNED: tl.constexpr):
    """floor(a / b) on integer tiles; wraps. Never divides by 0 (an error in the sketch) or by -1
    (the lowest number divided by -1 overflows): some processors trap on these divisions."""
    one = b * 0 + 1
    if SIGNED:
        divisor = tl.where((b == 0) | (b == -1), one, b)
        quotient = a // divisor
        remainder = a % divisor
        below = (remainder != 0) & ((remainder < 0) != (b < 0))
        result = tl.where(b == -1, a * 0 - a, quotient - below.to(a.dtype))
    else:
        result = a // tl.where(b == 0, one, b)
    return result


@triton.jit
def integer_mod(a, b, SIGNED: tl.constexpr):
    """a - b * floor(a / b) on integer tiles; never divides by 0 or -1, on which processors trap."""
    one = b * 0 + 1
    if SIGNED:
        divisor = tl.where((b == 0) | (b == -1), one, b)
        remainder = a % divisor
        below = (remainder != 0) & ((remainder < 0) != (divisor < 0))
        result = remainder + tl.where(below, divisor, one * 0)
    else:
        result = a % tl.where(b == 0, one, b)
    return result


@triton.jit
def upper_half(x):
    """x with the lower half of its mantissa cleared: products of two such are exact."""
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True) & -134217728
    else:
        bits = x.to(tl.int32, bitcast=True) & -4096
    return bits.to(x.dtype, bitcast=True)


@triton.jit
def product_error(a, b, near):
    """a * b - near, to 36 bits (Dekker), where `near` is the `upper_half` of the product: the
    rounded product would differ where a compiler fuses the multiplication into a sum."""
    a_high, b_high = upper_half(a), upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - near) + a_high * b_low + a_low * b_high) + a_low * b_low


@triton.jit
def remainder_bits(a, b, MANTISSA: tl.constexpr):
    """The bits of |a| modulo |b|, exactly, from the bits of finite |a| and |b|. Long division in
    integers, since CUDA computes `%` on floats by a division, inexactly for large quotients."""
    hidden = a * 0 + (1 << MANTISSA)
    exponent = tl.maximum(b >> MANTISSA, 1)
    divisor = tl.where(b < hidden, b, (b & (hidden - 1)) + hidden)
    divisor = tl.where(b == 0, hidden, divisor)
    rest = tl.where(a < hidden, a, (a & (hidden - 1)) + hidden) % divisor
    left = tl.maximum(a >> MANTISSA, 1) - exponent
    steps = (tl.maximum(left, 0) + (61 - MANTISSA)) // (62 - MANTISSA)
    for _ in tl.static_range(len(a.shape)):
        steps = tl.max(steps, axis=0)
    below = left < 0
    for _ in range(steps):
        shift = tl.minimum(tl.maximum(left, 0), 62 - MANTISSA)
        rest = (rest << shift) % divisor
        left -= shift
    # Back to a float: the leading one to its place, as far as the exponent allows.
    if MANTISSA == 52:
        place = (rest.to(tl.float64).to(tl.int64, bitcast=True) >> 52) - 1023
    else:
        place = (rest.to(tl.float32).to(tl.int32, bitcast=True) >> 23).to(tl.int64) - 127
    shift = tl.minimum(MANTISSA - tl.maximum(place, 0), exponent - 1)
    moved = rest << shift
    whole = ((exponent - shift) << MANTISSA) + (moved - hidden)
    return tl.where(below, a, tl.where(moved < hidden, moved, whole))


@triton.jit
def truncated_remainder(a, b):
    """a - b * trunc(a / b), exactly, with the sign of a; NaN where a is infinite or b is zero."""
    if a.dtype == tl.float64:
        high = a.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        low = b.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        rest = remainder_bits(high, low, 52).to(tl.float64, bitcast=True)
    else:
        high = (a.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.int64)
        low = (b.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.int64)
        rest = remainder_bits(high, low, 23).to(tl.int32).to(tl.float32, bitcast=True)
    undefined = (a - a) / b
    rest = tl.where(a < 0, a * 0 - rest, rest)
    return tl.where(undefined == undefined, rest, undefined)


@triton.jit
def float_mod(a, b):
    """The remainder of floor division, with the sign of b, also where it is zero."""
    rest = truncated_remainder(a, b)
    nothing = tl.where(b < 0, tl.abs(rest) * -1.0, tl.abs(rest))  # `-rest` would be 0 - rest
    rest = tl.where(rest == 0, nothing, rest)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def float_floordiv(a, b, ROUND: tl.constexpr):
    """floor(a / b) of the quotient before rounding: 1 // 0.1 is 9. ROUND: `tl.div_rn` divides,
    since `/` is only approximate on the target."""
    rest = truncated_remainder(a, b)
    whole = tl.div_rn(a - rest, b) if ROUND else (a - rest) / b
    whole = tl.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
    floor = tl.floor(whole)
    floor = tl.where(whole - floor > 0.5, floor + 1, floor)
    floor = tl.where(whole == 0, tl.abs(whole), floor)
    return tl.where((a == 0) | (b == 0), a / b, floor)  # a zero has the quotient's sign


@triton.jit
def shift_left(a, b, BITS: tl.constexpr):
    """a << b; 0 where b is not in 0 .. BITS - 1."""
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a << tl.where(inside, b, b * 0), a * 0)


@triton.jit
def shift_right(a, b, BITS: tl.constexpr):
    """a >> b with the sign kept; a where b is not in 0 .. BITS - 1."""
    inside = (b >= 0) & (b < BITS)
    return a >> tl.where(inside, b, b * 0)


@triton.jit
def integer_power(a, b, BITS: tl.constexpr):
    """a to the b >= 0 by repeated squaring; wraps."""
    result = a * 0 + b * 0 + 1
    base = a + b * 0
    exponent = b + a * 0
    for _ in range(BITS):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return result


@triton.jit
def round_even(x, MAGIC: tl.constexpr):
    """Nearest integer, ties to even; MAGIC is 2 to the number of mantissa bits."""
    size = tl.abs(x)
    rounded = tl.where(size < MAGIC, (size + MAGIC) - MAGIC, size)
    return tl.where(x < 0, -rounded, rounded)


@triton.jit
def round_down(x):
    """floor(x), also where `tl.floor` takes negative subnormal numbers for zero."""
    whole = tl.floor(x)
    return tl.where((x < 0) & (whole == 0), -1.0, whole)


@triton.jit
def round_up(x):
    """ceil(x), also where `tl.ceil` takes positive subnormal numbers for zero."""
    whole = tl.ceil(x)
    return tl.where((x > 0) & (whole == 0), 1.0, whole)


@triton.jit
def exponential(x):
    """e to the x, 3 ulp, where `tl.exp` is 2 to the rounded x log2(e), whose error grows with x:
    the rounding error of x log2(e) is compensated for."""
    raised = x * 1.4426950216293335
    rest = tl.fma(x, 1.4426950216293335, -raised) + x * 1.9259629911266175e-08
    grown = tl.exp2(raised)
    return tl.where(tl.abs(raised) < 128.0, grown + grown * (rest * 0.6931471805599453), grown)


@triton.jit
def truncate(x):
    """x without its fraction."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def saturate(
    x,
    DTYPE: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    START: tl.constexpr,
    END: tl.constexpr,
):
    """An integer-valued float as an integer within LOW .. HIGH; NaN gives 0.

    START and END are LOW and HIGH + 1 as floats."""
    inside = (x >= START) & (x < END)
    whole = tl.where(inside, x, 0).to(DTYPE)
    return tl.where(x >= END, HIGH, tl.where(x < START, LOW, whole))


@triton.jit
def directed_cast(
    x, DTYPE: tl.constexpr, BITS: tl.constexpr, LOWEST: tl.constexpr, MODE: tl.constexpr
):
    """x in a narrower float type, rounded "down", "up" or to "zero".

    BITS is the integer type of DTYPE's size, LOWEST its smallest value: the bits of -0.0.
    """
    nearest = x.to(DTYPE)
    back = nearest.to(x.dtype)
    if MODE == "up":
        low, high = back < x, x != x
    elif MODE == "down":
        low, high = x != x, back > x
    else:
        low, high = (x < 0) & (back < x), (x > 0) & (back > x)
    # Neighbours of one sign are neighbours as integers; a zero steps to the smallest number.
    bits = nearest.to(BITS, bitcast=True)
    away = tl.where(low, back >= 0, back <= 0)
    stepped = tl.where(away, bits + 1, bits - 1).to(BITS)
    smallest = tl.where(low, bits * 0 + 1, bits * 0 + (LOWEST + 1))
    stepped = tl.where(back == 0, smallest, stepped).to(BITS)
    return tl.where(low | high, stepped, bits).to(BITS).to(DTYPE, bitcast=True)


@triton.jit
def integer_sign(x):
    """-1, 0 or 1."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def sign(x):
    """-1, 0 or 1; NaN stays."""
    return tl.where(x > 0, 1, tl.where(x < 0, -1, x))


@triton.jit
def log1p(x):
    """log(1 + x), 3 ulp: the rounding of 1 + x is divided out."""
    shifted = 1 + x
    exact = (shifted == 1) | (shifted == float("inf"))
    scale = tl.where(exact, 1, shifted - 1)
    return tl.where(shifted == 1, x, tl.log(shifted) * (tl.where(exact, 1, x) / scale))


@triton.jit
def expm1(x):
    """exp(x) - 1, 3 ulp. In f32 it is 2**n * (e**r - 1) + (2**n - 1), where |r| is at most half of
    log(2) and Taylor's series of e**r - 1 has seven terms (the eighth is 2**-26 of the first). In
    f64, an error in exp(x) is divided out by its own logarithm, near 1."""
    if x.dtype == tl.float64:
        grown = tl.exp(x)
        cancels = (grown > 0.5) & (grown < 2) & (grown != 1)
        scale = tl.where(cancels, tl.log(grown), 1)
        precise = (grown - 1) * (tl.where(cancels, x, 1) / scale)
        result = tl.where(grown == 1, x, precise)
    else:
        inside = nan_minimum(nan_maximum(x, -20.0), 89.0)  # -1 and infinite beyond
        shifted = inside * 1.4426950408889634 + 12582912.0  # its last bits are the number n
        n = shifted - 12582912.0
        # n times the first part of log(2), which has 15 bits, is exact.
        r = (inside - n * 0.693145751953125) - n * 1.4286068203094173e-06
        series = r * (1.0 / 5040) + 1.0 / 720
        series = series * r + 1.0 / 120
        series = series * r + 1.0 / 24
        series = series * r + 1.0 / 6
        series = series * r + 0.5
        series = series * (r * r) + r
        # Half of the power: 2**128 is none.
        half = (shifted.to(tl.int32, bitcast=True) << 23) + 0x3F000000
        half = half.to(tl.float32, bitcast=True)
        result = (half * series + (half - 0.5)) * 2
        result = tl.where(tl.abs(x) < 1e-10, x, result)
    return result


@triton.jit
def tanh(x):
    """Hyperbolic tangent, 6 ulp, also near 0."""
    decay = expm1(-2 * tl.abs(x))
    size = -decay / (decay + 2)
    return tl.where(x < 0, -size, size)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + tl.exp(-x))


@triton.jit
def silu(x):
    """x * sigmoid(x)."""
    return x / (1 + tl.exp(-x))


@triton.jit
def gelu(x):
    """x * Phi(x), by the error function."""
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh(x):
    """gelu in its tanh form: (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z))."""
    inner = x * 1.5957691216057308 * (1 + 0.044715 * x * x)
    return x / (1 + tl.exp(-inner))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), without overflow. log(1 + t) / t is a polynomial within 0 and 1, fitted by
    its values at Chebyshev's points, 2 ulp of f32: a logarithm and a division take longer."""
    t = tl.exp(-tl.abs(x))
    if x.dtype == tl.float64:
        rest = log1p(t)
    else:
        series = t * -0.0031639994122087955 + 0.019487686455249786
        series = series * t - 0.05626952648162842
        series = series * t + 0.10532950609922409
        series = series * t - 0.15263274312019348
        series = series * t + 0.19661018252372742
        series = series * t - 0.24951167404651642
        series = series * t + 0.33329665660858154
        series = series * t - 0.49999889731407166
        series = series * t + 1.0
        rest = t * series
    return nan_maximum(x, 0.0) + rest


@triton.jit
def softsign(x):
    """x / (1 + |x|)."""
    return x / (1 + tl.abs(x))


@triton.jit
def hardsigmoid(x):
    """clamp(x / 6 + 1/2, 0, 1)."""
    return nan_minimum(nan_maximum(x / 6 + 0.5, 0.0), 1.0)


@triton.jit
def elu(x, alpha):
    """x if x > 0 else alpha * (exp(x) - 1)."""
    return tl.where(x > 0, x, alpha * expm1(tl.where(x > 0, 0, x)))


@triton.jit
def selu(x):
    """Scaled elu with its fixed constants."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@triton.jit
def arctangent(x):
    """Arc tangent, 4 ulp: two halvings of the angle, then Taylor's series."""
    size = tl.abs(x)
    large = size > 1
    t = tl.where(large, 1 / size, size)
    t = t / (1 + tl.sqrt(1 + t * t))
    t = t / (1 + tl.sqrt(1 + t * t))
    z = t * t
    series = z * (1.0 / 21) - 1.0 / 19
    series = series * z + 1.0 / 17
    series = series * z - 1.0 / 15
    series = series * z + 1.0 / 13
    series = series * z - 1.0 / 11
    series = series * z + 1.0 / 9
    series = series * z - 1.0 / 7
    series = series * z + 1.0 / 5
    series = series * z - 1.0 / 3
    angle = 4 * (t + t * z * series)
    angle = tl.where(large, 1.5707963267948966 - angle, angle)
    return tl.where(x < 0, -angle, angle)


@triton.jit
def arctangent2(y, x):
    """Angle of the point (x, y) in -pi .. pi, signs of zeros included."""
    width, height = tl.abs(x), tl.abs(y)
    larger, smaller = nan_maximum(width, height), nan_minimum(width, height)
    scale = tl.where((larger == 0) | (larger == float("inf")), 1, larger)
    corner = tl.where(smaller == float("inf"), 1, 0)
    inside = tl.where(larger == float("inf"), corner, smaller / scale)
    angle = arctangent(tl.where((x != x) | (y != y), x + y, inside))
    angle = tl.where(height > width, 1.5707963267948966 - angle, angle)
    left = (x < 0) | ((x == 0) & (1 / x < 0))
    angle = tl.where(left, 3.141592653589793 - angle, angle)
    below = (y < 0) | ((y == 0) & (1 / y < 0))
    return tl.where(below, -angle, angle)


@triton.jit
def scaled_exp2(whole, fraction):
    """2 to the (whole + fraction), whole an integer-valued float within +-400."""
    half = tl.floor(whole * 0.5)
    return tl.exp2(fraction) * tl.exp2(half) * tl.exp2(whole - half)


@triton.jit
def power_of_magnitude(size, y):
    """size to the y for 0 < size < inf in f32, 4 ulp: the logarithm is carried in two words.

    log2(m) = 2 log2(e) atanh(s), s = (m - 1) / (m + 1), m within 1/sqrt(2) .. sqrt(2).
    """
    tiny = size < 1.1754943508222875e-38
    scaled = tl.where(tiny, size * 16777216.0, size)
    bits = scaled.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    m = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    e = exponent.to(tl.float32) - tl.where(tiny, 24.0, 0.0)
    over = m - 1.0
    under = m + 1.0
    under_low = (m - (under - 1.0)) + (1.0 - (under - (under - 1.0)))
    s = over / under
    back = upper_half(s * under)
    s_low = (((over - back) - product_error(s, under, back)) - s * under_low) / under
    z = s * s
    tail = s * z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))))
    high = 2 * s
    low = 2 * (s_low + tail)
    log_m = upper_half(high * 1.4426950216293335)
    log_low = product_error(high, high * 0 + 1.4426950216293335, log_m)
    log_low += high * 1.9259629911266175e-08 + low * 1.4426950216293335
    total = e + log_m
    total_low = (log_m - (total - e)) + (e - (total - (total - e))) + log_low
    scaled_log = upper_half(y * total)
    rest = product_error(y + total * 0, total, scaled_log) + y * total_low
    inside = tl.abs(scaled_log) < 400.0
    clamped = tl.minimum(tl.maximum(scaled_log, -400.0), 400.0)
    whole = tl.floor(clamped + 0.5)
    return scaled_exp2(whole, (clamped - whole) + tl.where(inside, rest, 0.0))


@triton.jit
def power(x, y, DOUBLE: tl.constexpr):
    """x to the y with the special cases of C's pow; f64 (DOUBLE) goes by exp2 of y log2 x."""
    size = tl.abs(x)
    ordinary = (size > 0) & (size < float("inf"))
    base = tl.where(ordinary, size, 1)
    result = tl.exp2(y * tl.log2(base)) if DOUBLE else power_of_magnitude(base, y)
    result = tl.where(size == 0, tl.where(y > 0, 0, float("inf")), result)
    result = tl.where(size == float("inf"), tl.where(y > 0, float("inf"), 0), result)
    result = tl.where(size == 1, 1, result)
    integral = tl.floor(y) == y
    odd = integral & (tl.floor(y * 0.5) != y * 0.5)
    negative = (x < 0) | ((x == 0) & (1 / x < 0))
    result = tl.where(negative & odd, -result, result)
    undefined = (x < 0) & (x > float("-inf")) & (integral == 0)
    result = tl.where(undefined | (x != x) | (y != y), float("nan"), result)
    return tl.where((y == 0) | (x == 1), 1, result)


@triton.jit
def random_words(seed, offset):
    """The first two output words for the key `seed` and the counter `offset`, both i64."""
    key = seed & 0xFFFFFFFF
    next_key = (seed >> 32) & 0xFFFFFFFF
    first = offset & 0xFFFFFFFF
    second = (offset >> 32) & 0xFFFFFFFF
    third = offset * 0
    fourth = offset * 0
    for _ in tl.static_range(10):
        product = first * 0xD2511F53
        other = third * 0xCD9E8D57
        first = ((other >> 32) & 0xFFFFFFFF) ^ second ^ key
        second = other & 0xFFFFFFFF
        third = ((product >> 32) & 0xFFFFFFFF) ^ fourth ^ next_key
        fourth = product & 0xFFFFFFFF
        key = (key + 0x9E3779B9) & 0xFFFFFFFF
        next_key = (next_key + 0xBB67AE85) & 0xFFFFFFFF
    return first, second


@triton.jit
def uniform(seed, offset):
    """Uniform in [0, 1): the upper 24 bits of the first word."""
    word, _ = random_words(seed, offset)
    return (word >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def normal(seed, offset):
    """Standard normal: sqrt(-2 ln u1) cos(2 pi u2), u1 in (0, 1] from the first word.

    The angle is reduced to an eighth of a turn on the integers, where it is exact.
    """
    word, turn = random_words(seed, offset)
    size = ((word >> 8) + 1).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    radius = tl.sqrt(-2.0 * tl.log(size))
    steps = (turn >> 8).to(tl.int32)
    quarter = (steps + 2097152) >> 22
    angle = (steps - (quarter << 22)).to(tl.float32) * 3.7450702829239286e-07
    odd = (quarter & 1) == 1
    cosine = tl.where(odd, tl.sin(angle), tl.cos(angle))
    negative = (quarter == 1) | (quarter == 2)
    return radius * tl.where(negative, -cosine, cosine)
