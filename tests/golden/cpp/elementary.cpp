// elementary: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, exp2, log2, tan, atan, tanh, erf, expm1, log1p, pow.

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
    const bool EXP2_streams = sketch::streams(sizeof(float), {N});
    const bool TAN_streams = sketch::streams(sizeof(float), {N});
    const bool ATAN_streams = sketch::streams(sizeof(float), {N});
    const bool TANH_streams = sketch::streams(sizeof(float), {N});
    const bool ERF_streams = sketch::streams(sizeof(float), {N});
    const bool EXPM1_streams = sketch::streams(sizeof(float), {N});
    const bool LOG2_streams = sketch::streams(sizeof(float), {N});
    const bool LOG1P_streams = sketch::streams(sizeof(float), {N});
    const bool POW_streams = sketch::streams(sizeof(float), {N});
    const int threads = sketch::threads_for(N * 53);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
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
            const float *const BASE_row = BASE + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) float EXP2_block[1024];
                float *const EXP2_row = EXP2_streams ? EXP2_block : EXP2 + (i * T + block);
                alignas(64) float TAN_block[1024];
                float *const TAN_row = TAN_streams ? TAN_block : TAN + (i * T + block);
                alignas(64) float ATAN_block[1024];
                float *const ATAN_row = ATAN_streams ? ATAN_block : ATAN + (i * T + block);
                alignas(64) float TANH_block[1024];
                float *const TANH_row = TANH_streams ? TANH_block : TANH + (i * T + block);
                alignas(64) float ERF_block[1024];
                float *const ERF_row = ERF_streams ? ERF_block : ERF + (i * T + block);
                alignas(64) float EXPM1_block[1024];
                float *const EXPM1_row = EXPM1_streams ? EXPM1_block : EXPM1 + (i * T + block);
                alignas(64) float LOG2_block[1024];
                float *const LOG2_row = LOG2_streams ? LOG2_block : LOG2 + (i * T + block);
                alignas(64) float LOG1P_block[1024];
                float *const LOG1P_row = LOG1P_streams ? LOG1P_block : LOG1P + (i * T + block);
                alignas(64) float POW_block[1024];
                float *const POW_row = POW_streams ? POW_block : POW + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float x = X_row[lane];
                    const float y = sketch::exp2(x);
                    EXP2_row[lane - block] = y;
                    const float y_tan = sketch::tan(x);
                    TAN_row[lane - block] = y_tan;
                    const float y_atan = sketch::atan(x);
                    ATAN_row[lane - block] = y_atan;
                    const float y_tanh = sketch::tanh(x);
                    TANH_row[lane - block] = y_tanh;
                    const float y_erf = sketch::erf(x);
                    ERF_row[lane - block] = y_erf;
                    const float y_expm1 = sketch::expm1(x);
                    EXPM1_row[lane - block] = y_expm1;
                    const float base = BASE_row[lane];
                    const float y_log2 = sketch::log2(base);
                    LOG2_row[lane - block] = y_log2;
                    const float y_log1p = sketch::log1p(base);
                    LOG1P_row[lane - block] = y_log1p;
                    const float y_pow = sketch::pow(base, x);
                    POW_row[lane - block] = y_pow;
                }
                if (EXP2_streams) {
                    sketch::stream(EXP2 + (i * T + block), EXP2_block, block_end - block);
                }
                if (TAN_streams) {
                    sketch::stream(TAN + (i * T + block), TAN_block, block_end - block);
                }
                if (ATAN_streams) {
                    sketch::stream(ATAN + (i * T + block), ATAN_block, block_end - block);
                }
                if (TANH_streams) {
                    sketch::stream(TANH + (i * T + block), TANH_block, block_end - block);
                }
                if (ERF_streams) {
                    sketch::stream(ERF + (i * T + block), ERF_block, block_end - block);
                }
                if (EXPM1_streams) {
                    sketch::stream(EXPM1 + (i * T + block), EXPM1_block, block_end - block);
                }
                if (LOG2_streams) {
                    sketch::stream(LOG2 + (i * T + block), LOG2_block, block_end - block);
                }
                if (LOG1P_streams) {
                    sketch::stream(LOG1P + (i * T + block), LOG1P_block, block_end - block);
                }
                if (POW_streams) {
                    sketch::stream(POW + (i * T + block), POW_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
