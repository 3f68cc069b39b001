// Checks before a launch, on integers that cannot wrap around unnoticed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace sketch {

// The magnitude of an integer. Sums and products stay at the greatest value once they reach it.
class natural {
public:
    constexpr natural(int64_t value)
        : value_(value < 0 ? uint64_t{0} - static_cast<uint64_t>(value)
                           : static_cast<uint64_t>(value))
    {
    }

    friend constexpr natural operator+(natural a, natural b)
    {
        natural sum = 0;
        if (__builtin_add_overflow(a.value_, b.value_, &sum.value_)) {
            sum.value_ = std::numeric_limits<uint64_t>::max();
        }
        return sum;
    }

    friend constexpr natural operator*(natural a, natural b)
    {
        natural product = 0;
        if (__builtin_mul_overflow(a.value_, b.value_, &product.value_)) {
            product.value_ = std::numeric_limits<uint64_t>::max();
        }
        return product;
    }

    constexpr bool reaches(uint64_t limit) const { return value_ >= limit; }

private:
    uint64_t value_;
};

// Whether a tensor has 2^48 elements or more, an extent of 0 counted as 1.
inline bool too_large(std::initializer_list<int64_t> extents)
{
    int64_t elements = 1;
    bool wraps = false;
    for (const int64_t extent : extents) {
        wraps |= __builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
    }
    return wraps || elements >= int64_t{1} << 48;
}

} // namespace sketch
