// Matrix products of a warp. CUDA does not say which lane holds which element of a fragment: here it
// is the lane l for the elements l, l + 32, ... in row-major order.
#pragma once

#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
    static constexpr int columns = std::is_same_v<Use, matrix_a> ? k : n;
    static constexpr int num_elements = rows * columns / 32;
    std::conditional_t<std::is_same_v<T, precision::tf32>, float, T> x[num_elements];
};

inline float __float_to_tf32(float x) { return emulated::rounded_to_tf32(x); }

namespace emulated_matrix {

// All lanes of the warp are here, with a matrix that may be read or written as a whole.
inline void meet(const void *place, std::size_t row_bytes, int line)
{
    if (reinterpret_cast<uintptr_t>(place) % 32 != 0 || row_bytes % 16 != 0) {
        emulated::fail("a matrix begins on 32 bytes, its rows on 16: " + emulated::place(line));
    }
    __syncwarp(0xffffffffU, line);
}

template <class F> int64_t offset(int element, unsigned stride, bool by_rows)
{
    const int64_t row = element / F::columns, column = element % F::columns;
    return by_rows ? row * stride + column : column * stride + row;
}

} // namespace emulated_matrix

template <class F, class T> void fill_fragment(F &into, T value)
{
    for (auto &each : into.x) {
        each = value;
    }
}

template <class Use, int m, int n, int k, class T, class Layout, class S>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout> &into, const S *from, unsigned stride,
                      int line = __builtin_LINE())
{
    using F = fragment<Use, m, n, k, T, Layout>;
    emulated_matrix::meet(from, stride * sizeof(S), line);
    for (int each = 0; each < F::num_elements; ++each) {
        const int element = each * 32 + static_cast<int>(emulated::lane());
        into.x[each] =
            from[emulated_matrix::offset<F>(element, stride, std::is_same_v<Layout, row_major>)];
    }
}

template <int m, int n, int k, class T>
void load_matrix_sync(fragment<accumulator, m, n, k, T> &into, const T *from, unsigned stride,
                      layout_t layout, int line = __builtin_LINE())
{
    using F = fragment<accumulator, m, n, k, T>;
    emulated_matrix::meet(from, stride * sizeof(T), line);
    for (int each = 0; each < F::num_elements; ++each) {
        const int element = each * 32 + static_cast<int>(emulated::lane());
        into.x[each] = from[emulated_matrix::offset<F>(element, stride, layout == mem_row_major)];
    }
}

template <int m, int n, int k, class T>
void store_matrix_sync(T *to, const fragment<accumulator, m, n, k, T> &from, unsigned stride,
                       layout_t layout, int line = __builtin_LINE())
{
    using F = fragment<accumulator, m, n, k, T>;
    emulated_matrix::meet(to, stride * sizeof(T), line);
    for (int each = 0; each < F::num_elements; ++each) {
        const int element = each * 32 + static_cast<int>(emulated::lane());
        to[emulated_matrix::offset<F>(element, stride, layout == mem_row_major)] = from.x[each];
    }
}

template <int m, int n, int k, class T, class S, class A, class B>
void mma_sync(fragment<accumulator, m, n, k, T> &d, const fragment<matrix_a, m, n, k, S, A> &a,
              const fragment<matrix_b, m, n, k, S, B> &b,
              const fragment<accumulator, m, n, k, T> &c, int line = __builtin_LINE())
{
    struct Given {
        fragment<matrix_a, m, n, k, S, A> a;
        fragment<matrix_b, m, n, k, S, B> b;
    };
    static Given given[32][32]; // of each warp and lane
    Given *const lanes = given[emulated::block.current / 32];
    lanes[emulated::lane()] = {a, b};
    __syncwarp(0xffffffffU, line);
    for (int each = 0; each < d.num_elements; ++each) {
        const int element = each * 32 + static_cast<int>(emulated::lane());
        double sum = static_cast<double>(c.x[each]);
        for (int inner = 0; inner < k; ++inner) {
            const int left = element / n * k + inner, right = inner * n + element % n;
            sum += static_cast<double>(lanes[left % 32].a.x[left / 32]) *
                   static_cast<double>(lanes[right % 32].b.x[right / 32]);
        }
        d.x[each] = static_cast<T>(sum);
    }
    __syncwarp(0xffffffffU, line); // all have read before one of them gives the next
}

} // namespace nvcuda::wmma
