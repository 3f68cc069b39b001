"""What kernels carry with them beside functions of elements, as macros of TileLang: operations that
the threads of a block do to whole tiles, and those that take variables. `python_host.library` reads
this file as text.

Lines along an axis, or lanes, are dealt out to 128 threads.
"""

# mypy: ignore-errors

import tilelang.language as T


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
