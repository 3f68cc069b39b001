// topk: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o topk.so topk.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, tile, lane_at, for_lines,
// no_number, stands_before, ordered_line, ranks_before, insert_lane, topk, too_large,
// max_of_floats, min_of_floats, largest, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor, strides.

extern "C" __global__ void topk_1(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N, int64_t programs)
{
    constexpr int64_t K = 8;
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        int64_t *const place = reinterpret_cast<int64_t *>(block_memory + 256);
        float *const best = reinterpret_cast<float *>(block_memory + 384);
        float *const topk_0 = reinterpret_cast<float *>(block_memory + 512);
        int64_t *const topk_1 = reinterpret_cast<int64_t *>(block_memory + 4608);
        float *const topk_result = reinterpret_cast<float *>(block_memory + 12800);
        int64_t *const topk_result_2 = reinterpret_cast<int64_t *>(block_memory + 12928);
        // place = alloc([K], init=-1)
        // best = alloc([K], init=-inf)
        for (int64_t lane = thread; lane < K; lane += threads) {
            place[lane] = -1;
            best[lane] = -std::numeric_limits<float>::infinity();
        }
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            // load(X[i, j*T:(j+1)*T] -> x)
            __syncthreads();
            const float *const X_row = X + (i * N + j * T);
            sketch::over_lanes<2, 4>(thread * 2, threads * 2, std::min<int64_t>(T, N - j * T),
                sketch::aligned<2>(X_row, topk_0, topk_1), [&](int64_t first, auto left) {
                sketch::lanes<float, 2> topk_0_lanes;
                sketch::lanes<int64_t, 2> topk_1_lanes;
                const auto X_row_lanes = sketch::load_lanes<2>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const int64_t lane = first + part;
                    const float x = X_row_lanes[part];
                    topk_0_lanes[part] = x;
                    const int64_t topk_1_value = j * T + lane;
                    topk_1_lanes[part] = topk_1_value;
                }
                sketch::store_lanes(topk_0 + first, left, topk_0_lanes);
                sketch::store_lanes(topk_1 + first, left, topk_1_lanes);
            });
            for (int64_t lane = thread; lane < K; lane += threads) {
                const float best_value = best[lane];
                topk_result[lane] = best_value;
                const int64_t place_value = place[lane];
                topk_result_2[lane] = place_value;
            }
            // topk(x, iota(T, j*T, N), 0, best, place)
            __syncthreads();
            sketch::topk<0, true>(
                sketch::tile<const float, 1>{topk_0, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                sketch::tile<const int64_t, 1>{topk_1, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                sketch::tile<float, 1>{topk_result, {0}, {K}, {1}},
                sketch::tile<int64_t, 1>{topk_result_2, {0}, {K}, {1}});
            __syncthreads();
            for (int64_t lane = thread; lane < K; lane += threads) {
                const float topk_result_value = topk_result[lane];
                best[lane] = topk_result_value;
                const int64_t topk_result_2_value = topk_result_2[lane];
                place[lane] = topk_result_2_value;
            }
        }
        // store(best -> VALUES[i, 0:K])
        // store(place -> PLACES[i, 0:K])
        __syncthreads();
        float *const VALUES_row = VALUES + i * K;
        int64_t *const PLACES_row = PLACES + i * K;
        for (int64_t lane = thread; lane < K; lane += threads) {
            const float best_value = best[lane];
            VALUES_row[lane] = best_value;
            const int64_t place_value = place[lane];
            PLACES_row[lane] = place_value;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= K
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t topk(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N)
{
    constexpr int64_t K = 8;

    if (M < 0 || N < 0) {
        return 2;
    }
    if (N < K) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            topk_1<<<static_cast<unsigned>(blocks), 128, 13056>>>(X, VALUES, PLACES, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
