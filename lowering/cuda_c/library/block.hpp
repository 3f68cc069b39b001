// What the threads of a block do together.
#pragma once

#include <cstdint>

#include "functions.hpp"

namespace sketch {

// How lanes are combined, and the value that changes nothing.
template <class T> struct plus {
    static constexpr T start = T{0};
    static __device__ T combine(T a, T b) { return static_cast<T>(a + b); }
};

template <class T> struct times {
    static constexpr T start = T{1};
    static __device__ T combine(T a, T b) { return static_cast<T>(a * b); }
};

template <class T> struct largest {
    static constexpr T start = std::numeric_limits<T>::has_infinity
                                   ? -std::numeric_limits<T>::infinity()
                                   : std::numeric_limits<T>::lowest();
    static __device__ T combine(T a, T b) { return max(a, b); }
};

template <class T> struct smallest {
    static constexpr T start = std::numeric_limits<T>::has_infinity
                                   ? std::numeric_limits<T>::infinity()
                                   : std::numeric_limits<T>::max();
    static __device__ T combine(T a, T b) { return min(a, b); }
};

template <class T> struct either {
    static constexpr T start = false;
    static __device__ T combine(T a, T b) { return a || b; }
};

template <class T> struct both {
    static constexpr T start = true;
    static __device__ T combine(T a, T b) { return a && b; }
};

//# lanes
// Neighbouring lanes, which a thread reads or writes at once where they are 16 bytes or less.
template <class T, int count>
struct alignas(count * sizeof(T) < 16 ? count * sizeof(T) : 16) lanes {
    static constexpr int size = count;
    T values[count];
    __device__ T &operator[](int part) { return values[part]; }
    __device__ const T &operator[](int part) const { return values[part]; }
};

// What is left where all lanes that are run at once exist.
struct enough {
    __device__ friend constexpr bool operator<(int, enough) { return true; }
};

// Whether `count` lanes may be read or written at once at each of some places.
template <int count, class... T> __device__ inline bool aligned(const T *...places)
{
    return ((reinterpret_cast<uintptr_t>(places) % (count * sizeof(T)) == 0) && ...);
}

// Whether lanes may be read or written at once at a place, where so many are left.
template <class T, int count> __device__ inline bool at_once(const T *place, int64_t left)
{
    return left >= count && aligned<count>(place);
}

// The lanes from a place on, 0 where none is left.
template <int count, class T>
__device__ inline lanes<T, count> load_lanes(const T *place, int64_t left)
{
    if (at_once<T, count>(place, left)) {
        return *reinterpret_cast<const lanes<T, count> *>(place);
    }
    lanes<T, count> found{};
#pragma unroll
    for (int part = 0; part < count; ++part) {
        if (part < left) {
            found[part] = place[part];
        }
    }
    return found;
}

//# load_all_lanes (with load_lanes)
template <int count, class T> __device__ inline lanes<T, count> load_lanes(const T *place, enough)
{
    return *reinterpret_cast<const lanes<T, count> *>(place);
}

// Writes the lanes that there are from a place on.
template <class T, int count>
__device__ inline void store_lanes(T *place, int64_t left, const lanes<T, count> &values)
{
    if (at_once<T, count>(place, left)) {
        *reinterpret_cast<lanes<T, count> *>(place) = values;
        return;
    }
#pragma unroll
    for (int part = 0; part < count; ++part) {
        if (part < left) {
            place[part] = values[part];
        }
    }
}

//# store_all_lanes (with store_lanes)
template <class T, int count>
__device__ inline void store_lanes(T *place, enough, const lanes<T, count> &values)
{
    *reinterpret_cast<lanes<T, count> *>(place) = values;
}

// Calls `turn` with the first of `count` lanes, for those from `first` on in steps, and with what is
// left of them: `enough`, as long as all `count` exist and `whole` lets them be read at once. `turns`
// of them in one go, so that the later ones' loads are on their way before the first one's is there.
template <int count, int turns, class F>
__device__ inline void over_lanes(int64_t first, int64_t step, int64_t end, bool whole, F turn)
{
    if (whole) {
        if constexpr (turns > 1) {
            for (; first + (turns - 1) * step + count <= end; first += turns * step) {
#pragma unroll
                for (int each = 0; each < turns; ++each) {
                    turn(first + each * step, enough{});
                }
            }
        }
#pragma unroll 1
        for (; first + count <= end; first += step) {
            turn(first, enough{});
        }
    }
#pragma unroll 1
    for (; first < end; first += step) {
        turn(first, end - first);
    }
}

// A number that many are divided by, as an inverse: a quotient is a product with it, mended by what
// is left, and less than 0.51 ulp off (1 ulp where it or the dividend is close to subnormal numbers).
// The inverse is that of the significand. A power of two that makes quotients larger is applied
// before, one that makes them smaller after, so that nothing overflows or is lost on the way.
class divisor {
public:
    __device__ explicit divisor(float by)
    {
        const float magnitude = ::fabsf(by);
        const uint32_t exponent = bits_of(magnitude) >> 23;
        const float power = float_of(exponent < 254U ? (254U - exponent) << 23 : 1U << 22);
        const bool scaled = exponent < 255U && magnitude > 0.0F;
        significand_ = scaled || by != by ? magnitude * power : 1.0F;
        inverse_ = 1.0F / significand_;
        before_ = scaled && power > 1.0F ? power * 0.5F : 1.0F;
        const float after = power > 1.0F ? 2.0F : power;
        const float limit = magnitude > 0.0F ? 0.0F : std::numeric_limits<float>::infinity();
        after_ = ::copysignf(scaled ? after : limit, by);
    }

    __device__ friend float operator/(float x, const divisor &by)
    {
        const float dividend = x * by.before_;
        const float near = dividend * by.inverse_;
        const float rest = ::fmaf(near, by.significand_, -dividend);
        const float mended = ::fmaf(rest, -by.inverse_, near);
        return (::fabsf(near) < std::numeric_limits<float>::infinity() ? mended : near) * by.after_;
    }

private:
    float significand_;
    float inverse_;
    float before_;
    float after_;
};

// Combines a value of every thread of a warp; every thread gets the result.
template <class How, class T> __device__ inline T combined_in_warp(T value)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        value = How::combine(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    return value;
}

// The same for the threads of a block, whose warps exchange their results through `memory`.
template <class How, class T> __device__ inline T combined(T value, char *memory)
{
    T *const parts = reinterpret_cast<T *>(memory);
    value = combined_in_warp<How>(value);
    __syncthreads(); // an earlier call may still be reading
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    const unsigned warps = blockDim.x / 32; // a power of two
    value = parts[threadIdx.x % warps];
    for (unsigned distance = warps / 2; distance > 0; distance /= 2) {
        value = How::combine(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    return value;
}

// Calls `visit` with the first lane of every line along `axis`, at which that axis stands at 0. The
// lines are dealt out to the threads of the block.
template <int axis, int rank, class F>
__device__ inline void for_lines(const int64_t (&lower)[rank], const int64_t (&upper)[rank], F visit)
{
    int64_t lines = 1;
    for (int a = 0; a < rank; ++a) {
        lines *= a == axis ? 1 : max(upper[a] - lower[a], int64_t{0});
    }
    for (int64_t line = threadIdx.x; line < lines; line += blockDim.x) {
        int64_t at[rank];
        int64_t rest = line;
        for (int a = rank - 1; a >= 0; --a) {
            const int64_t lanes = upper[a] - lower[a];
            at[a] = a == axis ? 0 : lower[a] + rest % lanes;
            rest = a == axis ? rest : rest / lanes;
        }
        visit(at);
    }
}

template <class T, int rank> __device__ inline int64_t lane_count(const tile<T, rank> &each)
{
    int64_t count = 1;
    for (int a = 0; a < rank; ++a) {
        count *= max(each.upper[a] - each.lower[a], int64_t{0});
    }
    return count;
}

// The lane of a rectangle with a number in row-major order.
template <class T, int rank> __device__ inline T *numbered_lane(const tile<T, rank> &each, int64_t n)
{
    T *place = each.data;
    for (int a = rank - 1; a >= 0; --a) {
        const int64_t lanes = each.upper[a] - each.lower[a];
        place += (each.lower[a] + n % lanes) * each.strides[a];
        n /= lanes;
    }
    return place;
}

// Copies lanes in row-major order from one rectangle to another with as many lanes.
template <class T, int from, int to>
__device__ inline void reshape(const tile<const T, from> &source, const tile<T, to> &result)
{
    const int64_t count = lane_count(result);
    for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
        *numbered_lane(result, n) = *numbered_lane(source, n);
    }
}

// Element (r, c) of a strided matrix is data[r * row + c * column].
template <class T> struct matrix {
    T *data;
    int64_t row;
    int64_t column;
};

template <class T, class S> __device__ inline T widened(S x)
{
    if constexpr (sizeof(S) == 2 && !std::is_integral_v<S>) {
        return static_cast<T>(to_float(x));
    } else {
        return static_cast<T>(x);
    }
}

template <class T> __device__ inline void atomic_replace(T *place, T (*how)(T, T), T value)
{
    using Word = std::conditional_t<sizeof(T) == 8, unsigned long long,
                                    std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;
    Word *const word = reinterpret_cast<Word *>(place);
    Word held = *word;
    for (;;) {
        T old;
        memcpy(&old, &held, sizeof old);
        const T next = how(old, value);
        Word wanted;
        memcpy(&wanted, &next, sizeof wanted);
        const Word found = atomicCAS(word, held, wanted);
        if (found == held) {
            return;
        }
        held = found;
    }
}

//# rounded_half (with to_half, atomic_replace)
__device__ inline half rounded_as(float x, half) { return to_half(x); }

//# rounded_bfloat16 (with to_bfloat16, atomic_replace)
__device__ inline bfloat16 rounded_as(float x, bfloat16) { return to_bfloat16(x); }

template <class T> __device__ inline T added(T a, T b)
{
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        return rounded_as(to_float(a) + to_float(b), a);
    } else {
        return static_cast<T>(a + b);
    }
}

template <class T> __device__ inline T larger_of(T a, T b)
{
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        return rounded_as(max(to_float(a), to_float(b)), a);
    } else {
        return max(a, b);
    }
}

template <class T> __device__ inline T smaller_of(T a, T b)
{
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        return rounded_as(min(to_float(a), to_float(b)), a);
    } else {
        return min(a, b);
    }
}

template <class T> __device__ inline void atomic_add(T *place, T value)
{
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
        atomicAdd(place, value);
    } else {
        atomic_replace<T>(place, added<T>, value);
    }
}

template <class T> __device__ inline void atomic_max(T *place, T value)
{
    atomic_replace<T>(place, larger_of<T>, value);
}

template <class T> __device__ inline void atomic_min(T *place, T value)
{
    atomic_replace<T>(place, smaller_of<T>, value);
}

} // namespace sketch
