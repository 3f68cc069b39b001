// pixel_shuffle: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N*C*R*R*H*W == N*CRR*H*W
//   2  CRR == C*R*R
//   3  N >= 0 and CRR >= 0 and H >= 0 and W >= 0
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t pixel_shuffle(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t CRR, int64_t H, int64_t W)
{
    constexpr int64_t R = 2;
    constexpr int64_t T = 256;

    if (N < 0 || CRR < 0 || H < 0 || W < 0) {
        return 3;
    }
    [[maybe_unused]] const int64_t C = sketch::floor_div(CRR, R * R);
    if (N * C * R * R * H * W != N * CRR * H * W) {
        return 1;
    }
    if (CRR != C * R * R) {
        return 2;
    }
    if (sketch::too_large({N, CRR, H, W}) || sketch::too_large({N, C, H, W})) {
        return 4;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, H * R, W * R});
    const int threads = sketch::threads_for(W * N * C * H * R * R * 9);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(4) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < C; ++c) {
                for (int64_t h = 0; h < H; ++h) {
                    for (int64_t j = 0; j < sketch::ceil_div(W, T); ++j) {
                        for (int64_t plane = 0; plane < R; ++plane) {
                            for (int64_t row = 0; row < std::min<int64_t>(T, W - j * T); ++row) {
                                // load(XV[n, c, 0:R, 0:R, h, j*T:(j+1)*T] -> x)
                                // permute(x, [0, 2, 1], y)
                                // store(y -> YV[n, c, h, 0:R, j*T:(j+1)*T, 0:R])
                                for (int64_t block = 0; block < R; block += 1024) {
                                    const int64_t block_end = std::min<int64_t>(R, block + 1024);
                                    alignas(64) float Y_block[1024];
                                    float *const Y_row = Y_streams ? Y_block : Y + (((((n * C + c) *
                                        H + h) * R + plane) * W + (j * T + row)) * R + block);
                                    #pragma omp simd
                                    for (int64_t lane = block; lane < block_end; ++lane) {
                                        const float x = X[((((n * C + c) * R + plane) * R + lane) *
                                            H + h) * W + (j * T + row)];
                                        const float y = x;
                                        Y_row[lane - block] = y;
                                    }
                                    if (Y_streams) {
                                        sketch::stream(Y + (((((n * C + c) * H + h) * R + plane) * W
                                            + (j * T + row)) * R + block), Y_block, block_end -
                                            block);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
