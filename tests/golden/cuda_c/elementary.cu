// elementary: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o elementary.so elementary.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, exp2, log2, tan, atan, tanh, erf, expm1,
// log1p, pow, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor.

extern "C" __global__ void elementary_1(
    const float *__restrict X, const float *__restrict BASE, float *__restrict EXP2,
    float *__restrict TAN, float *__restrict ATAN, float *__restrict TANH, float *__restrict ERF,
    float *__restrict EXPM1, float *__restrict LOG2, float *__restrict LOG1P,
    float *__restrict POW, int64_t N, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(X[i*T:(i+1)*T] -> x)
        // exp2(x, y)
        // store(y -> EXP2[i*T:(i+1)*T])
        // tan(x, y)
        // store(y -> TAN[i*T:(i+1)*T])
        // atan(x, y)
        // store(y -> ATAN[i*T:(i+1)*T])
        // tanh(x, y)
        // store(y -> TANH[i*T:(i+1)*T])
        // erf(x, y)
        // store(y -> ERF[i*T:(i+1)*T])
        // expm1(x, y)
        // store(y -> EXPM1[i*T:(i+1)*T])
        // load(BASE[i*T:(i+1)*T] -> base)
        // log2(base, y)
        // store(y -> LOG2[i*T:(i+1)*T])
        // log1p(base, y)
        // store(y -> LOG1P[i*T:(i+1)*T])
        // pow(base, x, y)
        // store(y -> POW[i*T:(i+1)*T])
        const float *const X_row = X + i * T;
        float *const EXP2_row = EXP2 + i * T;
        float *const TAN_row = TAN + i * T;
        float *const ATAN_row = ATAN + i * T;
        float *const TANH_row = TANH + i * T;
        float *const ERF_row = ERF + i * T;
        float *const EXPM1_row = EXPM1 + i * T;
        const float *const BASE_row = BASE + i * T;
        float *const LOG2_row = LOG2 + i * T;
        float *const LOG1P_row = LOG1P + i * T;
        float *const POW_row = POW + i * T;
        sketch::over_lanes<4, 1>(thread * 4, threads * 4, std::min<int64_t>(T, N - i * T),
            sketch::aligned<4>(X_row, BASE_row, EXP2_row, TAN_row, ATAN_row, TANH_row, ERF_row,
            EXPM1_row, LOG2_row, LOG1P_row, POW_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> EXP2_row_lanes;
            sketch::lanes<float, 4> TAN_row_lanes;
            sketch::lanes<float, 4> ATAN_row_lanes;
            sketch::lanes<float, 4> TANH_row_lanes;
            sketch::lanes<float, 4> ERF_row_lanes;
            sketch::lanes<float, 4> EXPM1_row_lanes;
            sketch::lanes<float, 4> LOG2_row_lanes;
            sketch::lanes<float, 4> LOG1P_row_lanes;
            sketch::lanes<float, 4> POW_row_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            const auto BASE_row_lanes = sketch::load_lanes<4>(BASE_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                const float y = sketch::exp2(x);
                EXP2_row_lanes[part] = y;
                const float y_tan = sketch::tan(x);
                TAN_row_lanes[part] = y_tan;
                const float y_atan = sketch::atan(x);
                ATAN_row_lanes[part] = y_atan;
                const float y_tanh = sketch::tanh(x);
                TANH_row_lanes[part] = y_tanh;
                const float y_erf = sketch::erf(x);
                ERF_row_lanes[part] = y_erf;
                const float y_expm1 = sketch::expm1(x);
                EXPM1_row_lanes[part] = y_expm1;
                const float base = BASE_row_lanes[part];
                const float y_log2 = sketch::log2(base);
                LOG2_row_lanes[part] = y_log2;
                const float y_log1p = sketch::log1p(base);
                LOG1P_row_lanes[part] = y_log1p;
                const float y_pow = sketch::pow(base, x);
                POW_row_lanes[part] = y_pow;
            }
            sketch::store_lanes(EXP2_row + first, left, EXP2_row_lanes);
            sketch::store_lanes(TAN_row + first, left, TAN_row_lanes);
            sketch::store_lanes(ATAN_row + first, left, ATAN_row_lanes);
            sketch::store_lanes(TANH_row + first, left, TANH_row_lanes);
            sketch::store_lanes(ERF_row + first, left, ERF_row_lanes);
            sketch::store_lanes(EXPM1_row + first, left, EXPM1_row_lanes);
            sketch::store_lanes(LOG2_row + first, left, LOG2_row_lanes);
            sketch::store_lanes(LOG1P_row + first, left, LOG1P_row_lanes);
            sketch::store_lanes(POW_row + first, left, POW_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t elementary(
    const float *__restrict X, const float *__restrict BASE, float *__restrict EXP2, float
    *__restrict TAN, float *__restrict ATAN, float *__restrict TANH, float *__restrict ERF, float
    *__restrict EXPM1, float *__restrict LOG2, float *__restrict LOG1P, float *__restrict POW,
    int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            elementary_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, BASE, EXP2, TAN, ATAN,
                TANH, ERF, EXPM1, LOG2, LOG1P, POW, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
