// murmur_hash: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, shl, shr.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t murmur_hash(
    const uint32_t *__restrict KEY, uint32_t *__restrict HASH, int64_t N)
{
    constexpr int64_t T = 2048;

    if (N < 0) {
        return 1;
    }
    const bool HASH_streams = sketch::streams(sizeof(uint32_t), {N});
    const int threads = sketch::threads_for(N * 27);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(KEY[i*T:(i+1)*T] -> h)
            // mul(h, 0xcc9e2d51, h)
            // shr(h, 17, part)
            // shl(h, 15, h)
            // bitwise_or(h, part, h)
            // mul(h, 0x1b873593, h)
            // shr(h, 19, part)
            // shl(h, 13, h)
            // mul(h, 5, h)
            // add(h, 0xe6546b64, h)
            // bitwise_xor(h, 4, h)
            // shr(h, 16, part)
            // bitwise_xor(h, part, h)
            // mul(h, 0x85ebca6b, h)
            // shr(h, 13, part)
            // mul(h, 0xc2b2ae35, h)
            // store(h -> HASH[i*T:(i+1)*T])
            const uint32_t *const KEY_row = KEY + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) uint32_t HASH_block[1024];
                uint32_t *const HASH_row = HASH_streams ? HASH_block : HASH + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const uint32_t h = KEY_row[lane];
                    const uint32_t h_mul = h * 3432918353U;
                    const uint32_t part_ = sketch::shr(h_mul, 17U);
                    const uint32_t h_shl = sketch::shl(h_mul, 15U);
                    const uint32_t h_bitwise_or = h_shl | part_;
                    const uint32_t h_mul_2 = h_bitwise_or * 461845907U;
                    const uint32_t part_shr = sketch::shr(h_mul_2, 19U);
                    const uint32_t h_shl_2 = sketch::shl(h_mul_2, 13U);
                    const uint32_t h_bitwise_or_2 = h_shl_2 | part_shr;
                    const uint32_t h_mul_3 = h_bitwise_or_2 * 5U;
                    const uint32_t h_add = h_mul_3 + 3864292196U;
                    const uint32_t h_bitwise_xor = h_add ^ 4U;
                    const uint32_t part_shr_2 = sketch::shr(h_bitwise_xor, 16U);
                    const uint32_t h_bitwise_xor_2 = h_bitwise_xor ^ part_shr_2;
                    const uint32_t h_mul_4 = h_bitwise_xor_2 * 2246822507U;
                    const uint32_t part_shr_3 = sketch::shr(h_mul_4, 13U);
                    const uint32_t h_bitwise_xor_3 = h_mul_4 ^ part_shr_3;
                    const uint32_t h_mul_5 = h_bitwise_xor_3 * 3266489909U;
                    const uint32_t part_shr_4 = sketch::shr(h_mul_5, 16U);
                    const uint32_t h_bitwise_xor_4 = h_mul_5 ^ part_shr_4;
                    HASH_row[lane - block] = h_bitwise_xor_4;
                }
                if (HASH_streams) {
                    sketch::stream(HASH + (i * T + block), HASH_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
