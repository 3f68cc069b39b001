// triangular_matmul: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <omp.h>

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, half, max, min,
// matrix, vector_bytes, block_depth, blocking, widened, transpose, line_of, pack_squares, pack,
// multiply_block, multiply_panels, packed_from, panels, multiply, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t triangular_matmul(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t N)
{
    constexpr int64_t T = 128;

    if (N < 0) {
        return 1;
    }
    if (sketch::too_large({N, N})) {
        return 2;
    }
    // C starts as 0.0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(N * N * 4)) schedule(static)
    for (int64_t element = 0; element < N * N; ++element) {
        C[element] = 0.0f;
    }
    {
        const int threads = sketch::threads_for(N * (sketch::ceil_div(N, T) - 1 + 1) * T *
            (std::max<int64_t>(0, sketch::floor_div(N - 1, T) + 1) * (T * 2 + 8) + 4));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t c_place = arena.add(sizeof(float), {T, T});
        const int64_t x_place = arena.add(sizeof(float), {T, T});
        const int64_t y_place = arena.add(sizeof(float), {T, T});
        const int64_t x_panels_place = arena.add(sizeof(float), {std::min<int64_t>(T, 256), T +
            16});
        const int64_t y_panels_place = arena.add(sizeof(float), {std::min<int64_t>(T, 256), T +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict c = arena.at<float>(c_place, omp_get_thread_num());
            float *const __restrict x = arena.at<float>(x_place, omp_get_thread_num());
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            float *const __restrict y_panels = arena.at<float>(y_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, T) - 1 + 1; ++j) {
                    // for j in range(i + 1):
                    if (j < i + 1) {
                        // m = i*T + iota(T)
                        // n = j*T + iota(T)
                        for (int64_t row = 0; row < T; ++row) {
                            // c = alloc([T, T], init=0.0)
                            float *const c_row = c + row * T;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < T; ++lane) {
                                c_row[lane] = 0.0f;
                            }
                        }
                        // for b in range(j, i + 1):
                        for (int64_t b = j; b < i + 1; ++b) {
                            // k = b*T + iota(T)
                            for (int64_t row = 0; row < T; ++row) {
                                // load(A[i*T:(i+1)*T, b*T:min((b+1)*T, N)] -> x, pad=0, where=k[None, :] <= m[:, None])
                                const float *const A_row = A + ((i * T + row) * N + b * T);
                                float *const x_row = x + row * T;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - b * T);
                                    ++lane) {
                                    const float x_value = (row < N - i * T && b * T + lane <= i * T
                                        + row) ? A_row[lane] : 0.0f;
                                    x_row[lane] = x_value;
                                }
                            }
                            for (int64_t row = 0; row < std::min<int64_t>(T, N - b * T); ++row) {
                                // load(B[b*T:min((b+1)*T, N), j*T:(j+1)*T] -> y, pad=0, where=n[None, :] <= k[:, None])
                                const float *const B_row = B + ((b * T + row) * N + j * T);
                                float *const y_row = y + row * T;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < T; ++lane) {
                                    const float y_value = (lane < N - j * T && j * T + lane <= b * T
                                        + row) ? B_row[lane] : 0.0f;
                                    y_row[lane] = y_value;
                                }
                            }
                            // gemm(x, y, c)
                            sketch::multiply(
                                T, T, std::min<int64_t>(T, N - b * T),
                                sketch::matrix<const float>{x, T, 1},
                                sketch::matrix<const float>{y, T, 1},
                                sketch::matrix<float>{c, T, 1},
                                {x_panels},
                                {y_panels});
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - i * T); ++row) {
                            // store(c -> C[i*T:(i+1)*T, j*T:(j+1)*T], where=n[None, :] <= m[:, None])
                            const float *const c_row_2 = c + row * T;
                            float *const C_row = C + ((i * T + row) * N + j * T);
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                                const float c_value = c_row_2[lane];
                                if (j * T + lane <= i * T + row) {
                                    C_row[lane] = c_value;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    return 0;
}
