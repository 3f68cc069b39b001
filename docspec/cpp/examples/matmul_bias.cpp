// matmul_bias: Y = X @ W^T + BIAS for X [M, K] and W [N, K].
//
// Panels of both operands are packed so that the inner kernel reads them in a row: `rows` lines of
// X or `columns` lines of W, element after element along K; missing lines are zero. The inner
// kernel keeps rows x columns sums in vector registers over `depth` steps of K.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omp.h>

namespace {

#if defined(__AVX512F__)
constexpr int64_t vector_bytes = 64; // 32 registers: 12 x 2 sums, 2 of W, broadcasts of X
constexpr int64_t rows = 12;
#elif defined(__AVX2__)
constexpr int64_t vector_bytes = 32; // 16 registers: 6 x 2 sums
constexpr int64_t rows = 6;
#else
constexpr int64_t vector_bytes = 16;
constexpr int64_t rows = 4;
#endif
constexpr int64_t lanes = vector_bytes / 4;
constexpr int64_t columns = 2 * lanes;
constexpr int64_t depth = 256;   // a panel of W (columns x depth) fits the first-level cache
constexpr int64_t wide = 1024;   // a block of W (wide x depth): 1 MiB, shared by all threads
constexpr int64_t most_rows = 8 * rows; // a block of X (most_rows x depth): second-level cache

typedef float vector __attribute__((vector_size(vector_bytes)));

constexpr int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Packs up to `size` lines of `stride` elements into one panel: panel[k * size + line].
template <int64_t size>
void pack(const float *from, int64_t stride, int64_t count, int64_t part, float *panel)
{
    for (int64_t start = 0; start < part; start += 16) {
        const int64_t stop = std::min(start + 16, part);
        for (int64_t line = 0; line < size; ++line) {
            for (int64_t k = start; k < stop; ++k) {
                panel[k * size + line] = line < count ? from[line * stride + k] : 0.0F;
            }
        }
    }
}

// sums = x @ w for packed panels; sums is rows x columns.
void multiply(const float *x, const float *w, int64_t part, float *sums)
{
    vector sum[rows][2] = {};
    for (int64_t k = 0; k < part; ++k) {
        vector first;
        vector second;
        std::memcpy(&first, w + k * columns, sizeof first);
        std::memcpy(&second, w + k * columns + lanes, sizeof second);
        #pragma GCC unroll 16
        for (int64_t r = 0; r < rows; ++r) {
            sum[r][0] += x[k * rows + r] * first;
            sum[r][1] += x[k * rows + r] * second;
        }
    }
    std::memcpy(sums, sum, sizeof sum);
}

} // namespace

extern "C" int64_t matmul_bias(const float *__restrict X, const float *__restrict W,
                               const float *__restrict BIAS, float *__restrict Y, int64_t M,
                               int64_t N, int64_t K)
{
    const int64_t threads = omp_get_max_threads();
    // Few rows are shared out too: every thread gets a block of them.
    const int64_t share = round_up((M + threads - 1) / threads, rows);
    const int64_t high = std::clamp(share, rows, most_rows);
    const int64_t shared_size = wide * depth;
    const int64_t own_size = most_rows * depth;
    const size_t bytes = static_cast<size_t>(shared_size + threads * own_size) * sizeof(float);
    float *const memory = static_cast<float *>(std::aligned_alloc(64, bytes));
    if (memory == nullptr) {
        return -1;
    }
    #pragma omp parallel
    {
        float *const left = memory + shared_size + omp_get_thread_num() * own_size;
        alignas(64) float sums[rows * columns];
        for (int64_t n = 0; n < N; n += wide) {
            const int64_t width = std::min(wide, N - n);
            // At least one round, so that an empty K leaves the bias.
            for (int64_t k = 0; k == 0 || k < K; k += depth) {
                const int64_t part = std::min(depth, K - k);
                #pragma omp for schedule(static)
                for (int64_t c = 0; c < width; c += columns) {
                    pack<columns>(W + (n + c) * K + k, K, std::min(columns, width - c), part,
                                  memory + c * depth);
                }
                #pragma omp for schedule(dynamic)
                for (int64_t m = 0; m < M; m += high) {
                    const int64_t height = std::min(high, M - m);
                    for (int64_t r = 0; r < height; r += rows) {
                        pack<rows>(X + (m + r) * K + k, K, std::min(rows, height - r), part,
                                   left + r * depth);
                    }
                    for (int64_t c = 0; c < width; c += columns) {
                        const int64_t across = std::min(columns, width - c);
                        for (int64_t r = 0; r < height; r += rows) {
                            const int64_t down = std::min(rows, height - r);
                            multiply(left + r * depth, memory + c * depth, part, sums);
                            for (int64_t i = 0; i < down; ++i) {
                                float *const y = Y + (m + r + i) * N + n + c;
                                const float *const old = k == 0 ? BIAS + n + c : y;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < across; ++lane) {
                                    y[lane] = old[lane] + sums[i * columns + lane];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    std::free(memory);
    return 0;
}
