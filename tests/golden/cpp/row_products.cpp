// row_products: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, absolute, max, isinf, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t row_products(
    const float *__restrict X, float *__restrict PRODUCT, bool *__restrict INFINITE, int64_t M,
    int64_t N)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 256;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool PRODUCT_streams = sketch::streams(sizeof(float), {M});
    const bool INFINITE_streams = sketch::streams(sizeof(bool), {M});
    const int threads = sketch::threads_for(M * (N * 7 + (sketch::ceil_div(N, TN) * 2 + 5)));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            alignas(64) bool infinite[TM];
            alignas(64) float product[TM];
            // infinite = alloc([TM], init=False)
            // product = alloc([TM], init=1.0)
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(TM, M - i * TM); ++lane) {
                infinite[lane] = false;
                product[lane] = 1.0f;
            }
            // for j in range(ceil(N, TN)):
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                    bool found = false;
                    double part_total = 1.0;
                    // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
                    // reduce_prod(x, 1, part)
                    // isinf(x, marked)
                    // reduce_any(marked, 1, found)
                    const float *const X_row = X + ((i * TM + row) * N + j * TN);
                    #pragma omp simd reduction(* : part_total) reduction(|| : found)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                        const float x = X_row[lane];
                        part_total *= static_cast<double>(x);
                        const bool marked = sketch::isinf(x);
                        found = found || marked;
                    }
                    const float part_ = static_cast<float>(part_total);
                    // mul(product, part, product)
                    const float product_value = product[row];
                    const float product_value_2 = product_value * part_;
                    product[row] = product_value_2;
                    // logical_or(infinite, found, infinite)
                    const bool infinite_value = infinite[row];
                    const bool infinite_value_2 = infinite_value || found;
                    infinite[row] = infinite_value_2;
                }
            }
            // store(product -> PRODUCT[i*TM:(i+1)*TM])
            // store(infinite -> INFINITE[i*TM:(i+1)*TM])
            for (int64_t block = 0; block < std::min<int64_t>(TM, M - i * TM); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TM, M - i * TM), block
                    + 1024);
                alignas(64) float PRODUCT_block[1024];
                float *const PRODUCT_row = PRODUCT_streams ? PRODUCT_block : PRODUCT + (i * TM +
                    block);
                alignas(64) bool INFINITE_block[1024];
                bool *const INFINITE_row = INFINITE_streams ? INFINITE_block : INFINITE + (i * TM +
                    block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float product_value = product[lane];
                    PRODUCT_row[lane - block] = product_value;
                    const bool infinite_value = infinite[lane];
                    INFINITE_row[lane - block] = infinite_value;
                }
                if (PRODUCT_streams) {
                    sketch::stream(PRODUCT + (i * TM + block), PRODUCT_block, block_end - block);
                }
                if (INFINITE_streams) {
                    sketch::stream(INFINITE + (i * TM + block), INFINITE_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
