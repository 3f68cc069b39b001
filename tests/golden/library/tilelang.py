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


class Tile:
    """The valid rectangle of a tile in flat memory: per axis its first lane, the one after its
    last, and the elements from one lane to the next; `first` is the element at which it starts."""

    def __init__(self, memory, first, lower, upper, steps):
        self.memory = memory
        self.first = first
        self.lower = [T.cast(lane, "int64") for lane in lower]
        self.upper = [T.cast(lane, "int64") for lane in upper]
        self.steps = steps

    def lanes(self, axis):
        """The number of lanes along an axis."""
        return T.max(self.upper[axis] - self.lower[axis], T.int64(0))

    def count(self, axis=None):
        """The number of lanes, or of lines along an axis."""
        total = T.int64(1)
        for each in range(len(self.steps)):
            if each != axis:
                total = total * self.lanes(each)
        return total

    def place(self, number, axis=None):
        """The index of a lane by its number in row-major order, or of a line along an axis, where
        that axis stands at 0."""
        at = T.int64(0) + self.first
        for each in range(len(self.steps) - 1, -1, -1):
            if each != axis:
                lanes = T.max(self.lanes(each), T.int64(1))
                at = at + (self.lower[each] + number % lanes) * self.steps[each]
                number = number // lanes
        return at


class Matrix:
    """A matrix in flat memory: where it starts, the elements from row to row and from column to
    column, and the number of each."""

    def __init__(self, memory, first, steps, rows, columns):
        self.memory = memory
        self.first = first
        self.steps = steps
        self.rows = rows
        self.columns = columns

    def at(self, row, column):
        """The index of an element."""
        return self.first + row * self.steps[0] + column * self.steps[1]

    def beyond(self, row, column):
        """What is left of it from an element on."""
        first = self.at(T.cast(row, "int64"), T.cast(column, "int64"))
        return Matrix(self.memory, first, self.steps, self.rows - row, self.columns - column)


def stands_before(a, b, descending):
    """Whether a comes strictly before b; NaN is the largest."""
    before = a > b if descending else a < b
    if not str(a.dtype).startswith("float"):
        return before
    missing = (a, b) if descending else (b, a)
    return T.Or(before, T.And(T.isnan(missing[0]), T.Not(T.isnan(missing[1]))))


def ranks_before(a, a_place, b, b_place, descending):
    """The order of topk: values, then indices; a negative index (nothing yet) is the largest."""
    smaller = T.cast(a_place, "uint64") < T.cast(b_place, "uint64")
    alike = T.Not(stands_before(b, a, descending))
    return T.Or(stands_before(a, b, descending), T.And(alike, smaller))


@T.macro
def running(source, result, axis, reverse, exclusive, start, multiplies):
    """Running sums or products along an axis, in the type of the number `start`."""
    # A macro is given a literal of 32 bits as a number of Python's.
    kind = str(getattr(start, "dtype", "int32"))
    count = source.count(axis)
    lanes = source.lanes(axis)
    for turn in T.serial(T.ceildiv(count, 128)):
        for thread in T.Parallel(128):
            line = turn * 128 + thread
            if line < count:
                total = T.alloc_var(kind)
                total = start
                for number in T.serial(lanes):
                    lane = (
                        source.upper[axis] - 1 - number if reverse else source.lower[axis] + number
                    )
                    before = T.alloc_var(kind)
                    before = total
                    one = T.cast(
                        source.memory[source.place(line, axis) + lane * source.steps[axis]],
                        kind,
                    )
                    total = total * one if multiplies else total + one
                    result.memory[result.place(line, axis) + lane * result.steps[axis]] = T.cast(
                        before if exclusive else total, str(result.memory.dtype)
                    )


def wins(a, b, descending):
    """Whether a takes the place of b as the largest, or smallest; NaN wins."""
    before = a > b if descending else a < b
    if not str(a.dtype).startswith("float"):
        return before
    return T.Or(before, T.And(T.isnan(a), T.Not(T.isnan(b))))


@T.macro
def extremum(source, result, axis, descending):
    """The first lane of the largest (or smallest) along an axis; NaN wins, no lane gives -1."""
    count = source.count(axis)
    for turn in T.serial(T.ceildiv(count, 128)):
        for thread in T.Parallel(128):
            line = turn * 128 + thread
            if line < count:
                found = T.alloc_var("int64")
                found = T.int64(-1)
                best = T.alloc_var(str(source.memory.dtype))
                for lane in T.serial(source.lower[axis], source.upper[axis]):
                    one = source.memory[source.place(line, axis) + lane * source.steps[axis]]
                    if found < T.int64(0) or wins(one, best, descending):
                        best = one
                        found = lane
                result.memory[result.place(line, axis)] = found


@T.macro
def sort(source, source_places, result, result_places, axis, descending):
    """Sort every line stably: each lane goes to the place of its rank."""
    count = source.count(axis)
    lanes = source.lanes(axis)
    for turn in T.serial(T.ceildiv(count * lanes, 128)):
        for thread in T.Parallel(128):
            number = turn * 128 + thread
            if number < count * lanes:
                line = number // lanes
                own = source.lower[axis] + number % lanes
                rank = T.alloc_var("int64")
                rank = source.lower[axis]
                value = T.alloc_var(str(source.memory.dtype))
                value = source.memory[source.place(line, axis) + own * source.steps[axis]]
                for lane in T.serial(source.lower[axis], source.upper[axis]):
                    other = source.memory[source.place(line, axis) + lane * source.steps[axis]]
                    alike = T.Not(stands_before(value, other, descending))
                    ahead = T.Or(stands_before(other, value, descending), T.And(alike, lane < own))
                    rank = rank + T.cast(ahead, "int64")
                result.memory[result.place(line, axis) + rank * result.steps[axis]] = value
                at = result_places.place(line, axis) + rank * result_places.steps[axis]
                result_places.memory[at] = source_places.memory[
                    source_places.place(line, axis) + own * source_places.steps[axis]
                ]


@T.macro
def insert(values, places, start, place_start, step, place_step, count, value, place, descending):
    """Insert a value among the `count` ordered ones of a line, the last of which is dropped."""
    lane = T.alloc_var("int64")
    lane = count - 1
    moving = T.alloc_var("int32")
    moving = 1
    while moving == 1:
        moving = 0
        before = T.max(lane - 1, T.int64(0))
        sooner = ranks_before(
            value,
            place,
            values[start + before * step],
            places[place_start + before * place_step],
            descending,
        )
        if T.And(lane > T.int64(0), sooner):
            values[start + lane * step] = values[start + before * step]
            places[place_start + lane * place_step] = places[place_start + before * place_step]
            lane = lane - 1
            moving = 1
    values[start + lane * step] = value
    places[place_start + lane * place_step] = place


@T.macro
def put_in_order(values, places, axis, start, place_start, descending):
    """Put the lanes of a line in their order."""
    step = values.steps[axis]
    place_step = places.steps[axis]
    held = T.alloc_var(str(values.memory.dtype))
    held_place = T.alloc_var("int64")
    for lane in T.serial(T.int64(1), values.upper[axis]):
        held = values.memory[start + lane * step]
        held_place = places.memory[place_start + lane * place_step]
        insert(
            values.memory,
            places.memory,
            start,
            place_start,
            step,
            place_step,
            lane + 1,
            held,
            held_place,
            descending,
        )


@T.macro
def topk(source, source_places, best, best_places, axis, descending):
    """Merge the lanes of every line into the best ones so far, which stay in order."""
    work = Tile(
        source.memory,
        0,
        [T.max(one, other) for one, other in zip(source.lower, best.lower, strict=True)],
        [T.min(one, other) for one, other in zip(source.upper, best.upper, strict=True)],
        source.steps,
    )
    lines = Tile(best.memory, best.first, work.lower, work.upper, best.steps)
    line_places = Tile(best.memory, best_places.first, work.lower, work.upper, best_places.steps)
    given = Tile(best.memory, source.first, work.lower, work.upper, source.steps)
    given_places = Tile(
        best.memory, source_places.first, work.lower, work.upper, source_places.steps
    )
    count = work.count(axis)
    kept = best.upper[axis]
    step = best.steps[axis]
    place_step = best_places.steps[axis]
    for turn in T.serial(T.ceildiv(count, 128)):
        for thread in T.Parallel(128):
            line = turn * 128 + thread
            if T.And(line < count, kept > T.int64(0)):
                start = lines.place(line, axis)
                place_start = line_places.place(line, axis)
                held = T.alloc_var(str(best.memory.dtype))
                held_place = T.alloc_var("int64")
                put_in_order(best, best_places, axis, start, place_start, descending)
                for lane in T.serial(source.lower[axis], source.upper[axis]):
                    held = source.memory[given.place(line, axis) + lane * source.steps[axis]]
                    held_place = source_places.memory[
                        given_places.place(line, axis) + lane * source_places.steps[axis]
                    ]
                    if ranks_before(
                        held,
                        held_place,
                        best.memory[start + (kept - 1) * step],
                        best_places.memory[place_start + (kept - 1) * place_step],
                        descending,
                    ):
                        insert(
                            best.memory,
                            best_places.memory,
                            start,
                            place_start,
                            step,
                            place_step,
                            kept,
                            held,
                            held_place,
                            descending,
                        )


@T.macro
def reshape(source, result):
    """Copy lanes in row-major order from one rectangle to another with as many lanes."""
    count = result.count()
    for turn in T.serial(T.ceildiv(count, 128)):
        for thread in T.Parallel(128):
            number = turn * 128 + thread
            if number < count:
                result.memory[result.place(number)] = source.memory[source.place(number)]


@T.macro
def multiply(left, right, result):
    """result += left @ right, an element a thread."""
    kind = str(result.memory.dtype)
    count = result.rows * result.columns
    for turn in T.serial(T.ceildiv(count, 128)):
        for thread in T.Parallel(128):
            number = turn * 128 + thread
            if number < count:
                row = T.truncdiv(number, result.columns)
                column = T.truncmod(number, result.columns)
                at = result.at(row, column)
                total = T.alloc_var(kind)
                total = result.memory[at]
                for term in T.serial(left.columns):
                    one = left.memory[left.at(row, term)]
                    other = right.memory[right.at(term, column)]
                    total = total + T.cast(one, kind) * T.cast(other, kind)
                result.memory[at] = total


@T.macro
def sum_of(parts, total):
    """The sum of what the threads have, for all of them."""
    whole = T.alloc_fragment((1,), str(parts.dtype))
    T.reduce_sum(parts, whole)
    total[0] = whole[0]


@T.macro
def product_of(parts, total):
    """The product of what the threads have, for all of them."""
    exchange = T.alloc_shared((parts.shape[0],), str(parts.dtype))
    T.sync_threads()
    for thread in T.Parallel(parts.shape[0]):
        exchange[thread] = parts[thread]
    T.sync_threads()
    total[0] = exchange[0]
    for number in T.serial(1, parts.shape[0]):
        total[0] = total[0] * exchange[number]


@T.macro
def unless_missing(parts, total):
    """NaN in place of the total where a thread has it: TileLang's reductions pass it over."""
    flags = T.alloc_fragment((parts.shape[0],), "int32")
    found = T.alloc_fragment((1,), "int32")
    for thread in T.Parallel(parts.shape[0]):
        flags[thread] = T.cast(T.isnan(parts[thread]), "int32")
    T.reduce_max(flags, found)
    if found[0] > 0:
        total[0] = getattr(T, str(parts.dtype))(float("nan"))


@T.macro
def largest_of(parts, total):
    """The largest of what the threads have, for all of them; NaN wins."""
    whole = T.alloc_fragment((1,), str(parts.dtype))
    T.reduce_max(parts, whole)
    total[0] = whole[0]
    if str(parts.dtype).startswith("float"):
        unless_missing(parts, total)


@T.macro
def smallest_of(parts, total):
    """The smallest of what the threads have, for all of them; NaN wins."""
    whole = T.alloc_fragment((1,), str(parts.dtype))
    T.reduce_min(parts, whole)
    total[0] = whole[0]
    if str(parts.dtype).startswith("float"):
        unless_missing(parts, total)


@T.macro
def philox(words, seed, offset):
    """Philox4x32-10 (Salmon et al. 2011): words[0] gets the first two words for a key and a
    counter."""
    low = T.uint64(0xFFFFFFFF)
    wide = T.uint64(32)
    k = T.alloc_local((2,), "uint64")
    c = T.alloc_local((4,), "uint64")
    p = T.alloc_local((2,), "uint64")
    k[0] = T.cast(seed, "uint64") & low
    k[1] = T.cast(seed, "uint64") >> wide
    c[0] = T.cast(offset, "uint64") & low
    c[1] = T.cast(offset, "uint64") >> wide
    c[2] = T.uint64(0)
    c[3] = T.uint64(0)
    for _ in T.serial(10):
        p[0] = T.uint64(0xD2511F53) * c[0]
        p[1] = T.uint64(0xCD9E8D57) * c[2]
        c[0] = ((p[1] >> wide) ^ c[1]) ^ k[0]
        c[1] = p[1] & low
        c[2] = ((p[0] >> wide) ^ c[3]) ^ k[1]
        c[3] = p[0] & low
        k[0] = (k[0] + T.uint64(0x9E3779B9)) & low
        k[1] = (k[1] + T.uint64(0xBB67AE85)) & low
    words[0] = c[0] | (c[1] << wide)


@T.macro
def fetch(tile, source):
    """Copy a matrix into a tile; what lies beyond its rows and columns is zero. There must be
    memory for all elements of the tile: where threads copy several at once, the compiler reads
    them before it asks which of them are valid."""
    for row, column in T.Parallel(tile.shape[0], tile.shape[1]):
        tile[row, column] = T.if_then_else(
            T.And(row < source.rows, column < source.columns),
            source.memory[source.at(row, column)],
            T.cast(T.float32(0.0), str(tile.dtype)),
        )


@T.macro
def fetch_within(tile, source):
    """As fetch; nothing beyond the rows and columns is read. (The compiler reads ahead of a
    condition that decides which of two values an element gets.)"""
    for row, column in T.Parallel(tile.shape[0], tile.shape[1]):
        tile[row, column] = T.cast(T.float32(0.0), str(tile.dtype))
    for row, column in T.Parallel(tile.shape[0], tile.shape[1]):
        if T.And(row < source.rows, column < source.columns):
            tile[row, column] = source.memory[source.at(row, column)]


@T.macro
def deliver(part, result):
    """Add the valid elements of a fragment to a matrix."""
    for row, column in T.Parallel(part.shape[0], part.shape[1]):
        if T.And(row < result.rows, column < result.columns):
            at = result.at(row, column)
            result.memory[at] = result.memory[at] + part[row, column]


@T.macro
def multiply_tiles(left, right, result, left_turned, right_turned):
    """result += left @ right for tiles in shared memory, perhaps stored as their transposes: each
    thread has a block of the fragment in registers."""
    kind = str(result.dtype)
    for step in T.serial(right.shape[1 if right_turned else 0] // 4):
        for part in T.unroll(4):
            term = step * 4 + part
            for row, column in T.Parallel(result.shape[0], result.shape[1]):
                one = left[term, row] if left_turned else left[row, term]
                other = right[column, term] if right_turned else right[term, column]
                result[row, column] = result[row, column] + T.cast(one, kind) * T.cast(other, kind)


@T.macro
def multiply_in_blocks(left, right, result):
    """result += left @ right: the threads hold 64 rows and columns at a time in registers."""
    kind = str(result.memory.dtype)
    rows = T.alloc_shared((64, 16), str(left.memory.dtype))
    columns = T.alloc_shared((16, 64), str(right.memory.dtype))
    part = T.alloc_fragment((64, 64), kind)
    for down in T.serial(T.ceildiv(result.rows, 64)):
        for across in T.serial(T.ceildiv(result.columns, 64)):
            for row, column in T.Parallel(64, 64):
                part[row, column] = T.cast(0, kind)
            for step in T.serial(T.ceildiv(left.columns, 16)):
                fetch_within(rows, left.beyond(down * 64, step * 16))
                fetch_within(columns, right.beyond(step * 16, across * 64))
                multiply_tiles(rows, columns, part, False, False)
            deliver(part, result.beyond(down * 64, across * 64))


@T.macro
def float_max(signed, unsigned, at, value):
    """Update an f32 to the larger of itself and a value, by its bits: those of numbers from 0 on
    are ordered as signed integers, those of others the other way round; NaN is above all."""
    bits = T.Select(T.isnan(value), T.int32(0x7FC00000), T.reinterpret(value, "int32"))
    if bits >= T.int32(0):
        T.atomic_max(signed[at], bits)
    else:
        T.atomic_min(unsigned[at], T.cast(bits, "uint32"))


@T.macro
def float_min(signed, unsigned, at, value):
    """Update an f32 to the smaller of itself and a value, as float_max does; NaN is below all."""
    bits = T.Select(T.isnan(value), T.int32(-0x400000), T.reinterpret(value, "int32"))
    if bits >= T.int32(0):
        T.atomic_min(signed[at], bits)
    else:
        T.atomic_max(unsigned[at], T.cast(bits, "uint32"))


def streams(*tensors):
    """Whether the copy engine of the chip, which Hopper and later ones have, can fetch tiles of
    these tensors: rows begin at multiples of 16 bytes."""
    if torch.cuda.get_device_capability(tensors[0].device)[0] < 9:
        return False
    return all(
        tensor.numel() > 0
        and max(tensor.shape) < 2**31
        and tensor.data_ptr() % 16 == 0
        and tensor.shape[-1] * tensor.element_size() % 16 == 0
        for tensor in tensors
    )


def lanes_at_once(lanes, sizes, *tensors):
    """How many lanes kernels move at once: `lanes` where these divide the sizes, and the tensors
    begin at multiples of 16 bytes, else 1."""
    whole = all(size % lanes == 0 for size in sizes)
    return lanes if whole and all(tensor.data_ptr() % 16 == 0 for tensor in tensors) else 1


def turns_held(lanes, share, most):
    """The turns in which threads take `share` lanes at a time, where they can hold the lanes of so
    many in registers: at most `most`, else 0."""
    turns = -(-lanes // share)
    return turns if turns <= most else 0
