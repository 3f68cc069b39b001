// triangular_matmul: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o triangular_matmul.so triangular_matmul.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, too_large, max_of_floats,
// min_of_floats, lanes, enough, aligned, at_once, store_lanes, store_all_lanes, over_lanes,
// divisor, matrix, widened, window, factors, factors_from, sums_in, product_steps, by_threads,
// multiply_blocks, multiply_along, layout, arena, allow_shared, filled, fill.

extern "C" __global__ void triangular_matmul_1(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t N,
    int64_t programs, char *scratch_memory, int64_t scratch_bytes, int64_t x_place,
    int64_t y_place)
{
    constexpr int64_t T = 128;
    extern __shared__ __align__(128) char block_memory[];
    char *const scratch = scratch_memory + blockIdx.x * scratch_bytes;
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % (sketch::ceil_div(N, T) - 1 + 1);
        const int64_t i = program / (sketch::ceil_div(N, T) - 1 + 1);
        float *const c = reinterpret_cast<float *>(block_memory + 256);
        float *const x = reinterpret_cast<float *>(scratch + x_place);
        float *const y = reinterpret_cast<float *>(scratch + y_place);
        // for j in range(i + 1):
        if (j < i + 1) {
            // m = i*T + iota(T)
            // n = j*T + iota(T)
            for (int64_t row = thread / 32; row < T; row += threads / 32) {
                // c = alloc([T, T], init=0.0)
                float *const c_row = c + row * T;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, T, sketch::aligned<4>(c_row),
                    [&](int64_t first, auto left) {
                    sketch::lanes<float, 4> c_row_lanes;
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        c_row_lanes[part] = 0.0f;
                    }
                    sketch::store_lanes(c_row + first, left, c_row_lanes);
                });
            }
            // for b in range(j, i + 1):
            for (int64_t b = j; b < i + 1; ++b) {
                // k = b*T + iota(T)
                __syncthreads();
                for (int64_t row = thread / 32; row < T; row += threads / 32) {
                    // load(A[i*T:(i+1)*T, b*T:min((b+1)*T, N)] -> x, pad=0, where=k[None, :] <= m[:, None])
                    const float *const A_row = A + ((i * T + row) * N + b * T);
                    float *const x_row = x + row * T;
                    for (int64_t lane = thread % 32; lane < std::min<int64_t>(T, N - b * T); lane +=
                        32) {
                        const float x_value = (row < N - i * T && b * T + lane <= i * T + row) ?
                            A_row[lane] : 0.0f;
                        x_row[lane] = x_value;
                    }
                }
                for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - b * T); row +=
                    threads / 32) {
                    // load(B[b*T:min((b+1)*T, N), j*T:(j+1)*T] -> y, pad=0, where=n[None, :] <= k[:, None])
                    const float *const B_row = B + ((b * T + row) * N + j * T);
                    float *const y_row = y + row * T;
                    for (int64_t lane = thread % 32; lane < T; lane += 32) {
                        const float y_value = (lane < N - j * T && j * T + lane <= b * T + row) ?
                            B_row[lane] : 0.0f;
                        y_row[lane] = y_value;
                    }
                }
                // gemm(x, y, c)
                __syncthreads();
                sketch::multiply_along<sketch::by_threads<4, 8, 16, true, false>, false>(
                    1,
                    [&](int64_t) {
                        return sketch::factors<float, float>{
                            T, T, std::min<int64_t>(T, N - b * T),
                            sketch::matrix<const float>{x, T, 1},
                            sketch::matrix<const float>{y, T, 1}};
                    },
                    sketch::sums_in<float, false>{sketch::matrix<float>{c, T, 1}},
                        reinterpret_cast<char *>(c));
            }
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - i * T); row += threads /
                32) {
                // store(c -> C[i*T:(i+1)*T, j*T:(j+1)*T], where=n[None, :] <= m[:, None])
                const float *const c_row_2 = c + row * T;
                float *const C_row = C + ((i * T + row) * N + j * T);
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(T, N - j * T); lane +=
                    32) {
                    const float c_value = c_row_2[lane];
                    if (j * T + lane <= i * T + row) {
                        C_row[lane] = c_value;
                    }
                }
            }
        }
        __syncthreads();
    }
}

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
    if (!sketch::fill<float>(C, N * N, 0.0f)) {
        return -2;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T) * (sketch::ceil_div(N, T) - 1 + 1);
        const int64_t blocks = std::min<int64_t>(programs, 1024);
        // Scratch memory of each block.
        sketch::arena arena;
        const int64_t x_place = arena.add(sizeof(float), {T, T});
        const int64_t y_place = arena.add(sizeof(float), {T, T});
        if (!arena.allocate(blocks)) {
            return -1;
        }
        sketch::allow_shared(triangular_matmul_1, 65792);
        if (blocks > 0) {
            triangular_matmul_1<<<static_cast<unsigned>(blocks), 128, 65792>>>(A, B, C, N, programs,
                arena.memory(), arena.bytes(), x_place, y_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
