"""Functions of elements that generated kernels carry with them; `python_host.library` reads this
file as text. They run while a kernel is traced, and build expressions of TileLang's compiler.

No comparison of floats is negated: for NaN, the compiler would get it wrong.
"""

# mypy: ignore-errors

import math

import tilelang.language as T


def opposite(a):
    """The truth value that a is not."""
    return T.cast(a, "int32") == T.int32(0)


def typed(number, a):
    """A number in the type of the expression a."""
    return getattr(T, str(a.dtype))(number)


def largest(a, b):
    """The larger of a and b; NaN wins."""
    return T.Select(T.isnan(b), b, T.Select(b > a, b, a))


def smallest(a, b):
    """The smaller of a and b; NaN wins."""
    return T.Select(T.isnan(b), b, T.Select(b < a, b, a))


def larger(a, b):
    """The larger of two integers."""
    return T.Select(b > a, b, a)


def lesser(a, b):
    """The smaller of two integers."""
    return T.Select(b < a, b, a)


def absolute(a):
    """The magnitude of a float."""
    return T.abs(a)


def magnitude(a):
    """The magnitude of an integer; that of the least one is itself."""
    if str(a.dtype).startswith("u") or str(a.dtype) == "bool":
        return a
    return T.Select(a < typed(0, a), typed(0, a) - a, a)


def sign(a, zero):
    """-1, 0 or 1; NaN for NaN."""
    if str(a.dtype).startswith("u"):
        return T.Select(a > zero, typed(1, a), zero)
    return T.Select(a > zero, typed(1, a), T.Select(a < zero, typed(-1, a), a))


def at_least(a, low):
    """a, or low where that is larger; NaN stays."""
    return T.Select(a < low, low, a)


def at_most(a, high):
    """a, or high where that is smaller; NaN stays."""
    return T.Select(a > high, high, a)


def relu(a, zero):
    """a, or 0 where a is negative; NaN stays."""
    return T.Select(a < zero, zero, a)


def rsqrt(a):
    """The inverse square root, correctly rounded but for its last bit."""
    return typed(1.0, a) / T.sqrt(a)


def expm1(a):
    """exp(a) - 1, as tanh(a / 2) * (exp(a) + 1), without cancellation near 0."""
    return T.tanh(a * typed(0.5, a)) * (T.exp(a) + typed(1.0, a))


def sigmoid(a):
    """1 / (1 + exp(-a))."""
    return typed(1.0, a) / (typed(1.0, a) + T.exp(-a))


def silu(a):
    """a * sigmoid(a)."""
    return a / (typed(1.0, a) + T.exp(-a))


def gelu(a):
    """a times the probability that a standard normal number is below a."""
    return typed(0.5, a) * a * (typed(1.0, a) + T.erf(a * typed(math.sqrt(0.5), a)))


def gelu_tanh(a):
    """The approximation of gelu by tanh."""
    inner = a + typed(0.044715, a) * a * a * a
    scaled = typed(math.sqrt(2.0 / math.pi), a) * inner
    return typed(0.5, a) * a * (typed(1.0, a) + T.tanh(scaled))


def softplus(a):
    """log(1 + exp(a)); a itself above 30."""
    bounded = at_most(a, typed(30.0, a))
    return T.Select(a > typed(30.0, a), a, T.log1p(T.exp(bounded)))


def softsign(a):
    """a / (1 + |a|)."""
    return a / (typed(1.0, a) + T.abs(a))


def hardsigmoid(a):
    """a / 6 + 1/2, within 0 and 1."""
    line = a / typed(6.0, a) + typed(0.5, a)
    return at_most(at_least(line, typed(0.0, a)), typed(1.0, a))


def hardswish(a):
    """a * hardsigmoid(a)."""
    return a * hardsigmoid(a)


def elu(a, alpha):
    """a, or alpha * (exp(a) - 1) where a is not positive."""
    negative = alpha * expm1(at_most(a, typed(0.0, a)))
    return T.Select(a > typed(0.0, a), a, negative)


def selu(a):
    """The scaled elu that keeps mean and variance."""
    grown = elu(a, typed(1.6732632423543772848, a))
    return typed(1.0507009873554804934, a) * grown


def leaky_relu(a, slope):
    """a, or slope * a where a is not positive."""
    return T.Select(a > typed(0.0, a), a, slope * a)


def isnan(a):
    """Whether a is no number."""
    return T.isnan(a)


def isinf(a):
    """Whether a is infinite."""
    return T.abs(a) == typed(math.inf, a)


def isfinite(a):
    """Whether a is a number and not infinite."""
    return T.abs(a) < typed(math.inf, a)


def power(a, b):
    """a to the power of b."""
    return T.pow(a, b)


def whole_power(a, b, bits):
    """An integer to the power of another one, which wraps; 1 for a negative exponent."""
    one = typed(1, a)
    result, base = one, a
    for bit in range(min(bits, 6)):
        odd = ((b >> typed(bit, b)) & typed(1, b)) == typed(1, b)
        result = result * T.Select(odd, base, one)
        base = base * base
    return T.Select(b > typed(0, b), result, one)


def shl(a, b, mask):
    """a shifted left; the distance is taken modulo the number of bits."""
    return a << (b & typed(mask, b))


def shr(a, b, mask):
    """a shifted right; the distance is taken modulo the number of bits."""
    return a >> (b & typed(mask, b))


def floor_div(a, b):
    """The quotient of integers, rounded down; 0 for a divisor of 0."""
    zero, one = typed(0, b), typed(1, b)
    if str(b.dtype).startswith("u"):
        return T.Select(b == zero, typed(0, a), T.truncdiv(a, T.Select(b == zero, one, b)))
    least = typed(-1, b)
    odd = T.Or(b == zero, b == least)
    quotient = T.floordiv(a, T.Select(odd, one, b))
    return T.Select(b == zero, typed(0, a), T.Select(b == least, typed(0, a) - a, quotient))


def floor_mod(a, b):
    """What floor_div leaves; a itself for a divisor of 0."""
    return a - b * floor_div(a, b)


def ceil_div(a, b):
    """The quotient of integers, rounded up."""
    return typed(0, a) - floor_div(typed(0, a) - a, b)


def whole_quotient(a, b):
    """The floor of a / b before it is rounded; a zero has the quotient's sign."""
    zero, one = typed(0.0, a), typed(1.0, a)
    rest = T.fmod(a, b)
    below = T.And(rest != zero, (rest < zero) != (b < zero))
    whole = (a - rest) / b - T.Select(below, one, zero)
    floor = T.floor(whole)
    near = T.Select(whole - floor > typed(0.5, a), floor + one, floor)
    signed = T.Select(whole == zero, T.copysign(zero, a / b), near)
    return T.Select(b == zero, a / b, signed)


def floor_rest(a, b):
    """What floor division leaves, exactly, with the sign of b."""
    zero = typed(0.0, a)
    rest = T.fmod(a, b)
    turned = T.Select((rest < zero) != (b < zero), rest + b, rest)
    return T.Select(rest == zero, T.copysign(rest, b), turned)


def round_even(a):
    """The nearest whole number; of two, the even one."""
    return T.nearbyint(a)


def round_nearest(a):
    """The nearest whole number; of two, the even one."""
    return T.nearbyint(a)


def round_down(a):
    """The next whole number below."""
    return T.floor(a)


def round_up(a):
    """The next whole number above."""
    return T.ceil(a)


def round_zero(a):
    """The next whole number towards 0."""
    return T.trunc(a)


def to_integer(a, kind, least, limit):
    """A whole float as an integer; what does not fit, and NaN, gives 0."""
    fits = T.And(a >= typed(least, a), a < typed(limit, a))
    return T.cast(T.Select(fits, a, typed(0.0, a)), kind)


def saturated(a, kind, least, limit, low, high):
    """A whole float as the nearest integer of a type; NaN gives 0."""
    inside = T.Select(a < typed(least, a), low, to_integer(a, kind, least, limit))
    return T.Select(a >= typed(limit, a), high, inside)


def directed(a, kind, word, mode):
    """An f64 in a narrower type, rounded "down", "up" or towards "zero": the nearest number, or the
    one beside it, whose bits follow or precede as the numbers do."""
    nearest = T.cast(a, kind)
    back = T.cast(nearest, "float64")
    bits = T.reinterpret(nearest, word)
    one = getattr(T, word)(1)
    top = getattr(T, word)(1 << (15 if word == "uint16" else 31))
    negative = bits >= top
    size = bits & (top - one)
    # Beside a zero is the smallest number of either sign.
    above = T.Select(size == one - one, one, T.Select(negative, bits - one, bits + one))
    below = T.Select(size == one - one, top + one, T.Select(negative, bits + one, bits - one))
    if mode == "up":
        chosen = T.Select(back < a, above, bits)
    elif mode == "down":
        chosen = T.Select(back > a, below, bits)
    else:
        toward = T.Select(a < T.float64(0.0), above, below)
        chosen = T.Select(T.abs(back) > T.abs(a), toward, bits)
    return T.reinterpret(chosen, kind)


def uniform(words):
    """A number in [0, 1): the upper 24 bits of the first word."""
    first = (words & T.uint64(0xFFFFFFFF)) >> T.uint64(8)
    return T.cast(first, "float32") * T.float32(2.0**-24)


def normal(words):
    """A standard normal number, by Box-Muller."""
    first = T.cast((words & T.uint64(0xFFFFFFFF)) >> T.uint64(8), "float64")
    second = T.cast(words >> T.uint64(40), "float64")
    unit = T.float64(2.0**-24)
    radius = T.sqrt(T.float64(-2.0) * T.log((first + T.float64(1.0)) * unit))
    return radius * T.cos(T.float64(2.0 * math.pi) * (second * unit))
