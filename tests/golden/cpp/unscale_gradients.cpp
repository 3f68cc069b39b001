// unscale_gradients: a C++ kernel for cpu, made from a sketch.

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
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The library: least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, bits_of, float_of, odd, bfloat16, bfloat16_bits, to_bfloat16,
// to_bfloat16_double, bfloat16_to_float, absolute, max, isfinite, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
//   3  SCALE_extent_0 == 1 or SCALE_extent_0 == M
extern "C" int64_t unscale_gradients(
    const sketch::bfloat16 *__restrict GRADIENT, const float *__restrict SCALE, sketch::bfloat16
    *__restrict Y, bool *__restrict FINITE, int64_t M, int64_t N, int64_t SCALE_extent_0)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 256;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    if (SCALE_extent_0 != 1 && SCALE_extent_0 != M) {
        return 3;
    }
    [[maybe_unused]] const int64_t SCALE_step_0 = SCALE_extent_0 == 1 ? 0 : 1;
    const bool FINITE_streams = sketch::streams(sizeof(bool), {M});
    const int threads = sketch::threads_for(M * (N * 9 + (sketch::ceil_div(N, TN) + 5)));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            alignas(64) bool finite[TM];
            // finite = alloc([TM], init=True)
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(TM, M - i * TM); ++lane) {
                finite[lane] = true;
            }
            // for j in range(ceil(N, TN)):
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row_ = 0; row_ < std::min<int64_t>(TM, M - i * TM); ++row_) {
                    bool row = true;
                    // load(GRADIENT[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> gradient)
                    // isfinite(gradient, ok)
                    // reduce_all(ok, 1, row)
                    // load(SCALE[i*TM:(i+1)*TM, 0:1] -> scale)
                    // div(gradient, scale, y)
                    // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    const float scale = SCALE[(i * TM + row_) * SCALE_step_0];
                    const sketch::bfloat16 *const GRADIENT_row = GRADIENT + ((i * TM + row_) * N + j
                        * TN);
                    sketch::bfloat16 *const Y_row = Y + ((i * TM + row_) * N + j * TN);
                    #pragma omp simd reduction(&& : row)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                        const sketch::bfloat16 gradient = GRADIENT_row[lane];
                        const bool ok = sketch::isfinite(sketch::to_float(gradient));
                        row = row && ok;
                        const float y = sketch::to_float(gradient) / scale;
                        Y_row[lane] = sketch::to_bfloat16(y);
                    }
                    // logical_and(finite, row, finite)
                    const bool finite_value = finite[row_];
                    const bool finite_value_2 = finite_value && row;
                    finite[row_] = finite_value_2;
                }
            }
            // store(finite -> FINITE[i*TM:(i+1)*TM])
            for (int64_t block = 0; block < std::min<int64_t>(TM, M - i * TM); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TM, M - i * TM), block
                    + 1024);
                alignas(64) bool FINITE_block[1024];
                bool *const FINITE_row = FINITE_streams ? FINITE_block : FINITE + (i * TM + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const bool finite_value = finite[lane];
                    FINITE_row[lane - block] = finite_value;
                }
                if (FINITE_streams) {
                    sketch::stream(FINITE + (i * TM + block), FINITE_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
