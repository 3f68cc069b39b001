// channel_shuffle: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, natural, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  groups >= 1
//   3  CG >= 0
//   4  N*groups*CG*(H*W) == N*C*H*W
//   5  N*CG*groups*(H*W) == N*C*H*W
//   6  groups >= 1 and C == CG*groups
//   7  N >= 0 and C >= 0 and H >= 0 and W >= 0
//   8  fewer than 2**48 elements in each tensor
//   9  integers that stay within 64 bits
extern "C" int64_t channel_shuffle(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W,
    int64_t groups)
{
    constexpr int64_t T = 1024;

    if (N < 0 || C < 0 || H < 0 || W < 0) {
        return 7;
    }
    if (groups < 1) {
        return 1;
    }
    [[maybe_unused]] const int64_t CG = sketch::floor_div(C, groups);
    if (CG < 0) {
        return 3;
    }
    if (N * groups * CG * (H * W) != N * C * H * W) {
        return 4;
    }
    if (N * CG * groups * (H * W) != N * C * H * W) {
        return 5;
    }
    if (groups < 1 || C != CG * groups) {
        return 6;
    }
    if (sketch::too_large({N, C, H, W})) {
        return 8;
    }
    if ((sketch::natural(CG) * H * N * W * groups + sketch::natural(CG) * N * groups +
        sketch::natural(CG) * N + sketch::natural(CG) * groups + sketch::natural(N) * groups +
        groups).reaches(UINT64_C(9223090561878065152))) {
        return 9;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, H, W});
    const int threads = sketch::threads_for(H * W * N * groups * CG * 8);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(4) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t g = 0; g < groups; ++g) {
                for (int64_t c = 0; c < CG; ++c) {
                    for (int64_t j = 0; j < sketch::ceil_div(H * W, T); ++j) {
                        // load(XV[n, g, c, j*T:(j+1)*T] -> x)
                        // store(x -> YV[n, c, g, j*T:(j+1)*T])
                        const float *const X_row = X + (((n * groups + g) * CG + c) * (H * W) + j *
                            T);
                        for (int64_t block = 0; block < std::min<int64_t>(T, H * W - j * T); block
                            += 1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, H * W -
                                j * T), block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + (((n * CG + c) * groups +
                                g) * (H * W) + j * T + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float x = X_row[lane];
                                Y_row[lane - block] = x;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + (((n * CG + c) * groups + g) * (H * W) + j * T +
                                    block), Y_block, block_end - block);
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
