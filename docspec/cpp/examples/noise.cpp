// noise: Philox4x32-10 lane by lane; all of it is integer arithmetic that vectorises.

#include <cstdint>

namespace {

// Uniform in [0, 1), a multiple of 2^-24, bit for bit as every target makes it.
inline float uniform(uint64_t seed, uint64_t offset)
{
    uint32_t c[4] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32), 0, 0};
    uint32_t low = static_cast<uint32_t>(seed);
    uint32_t high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53U} * c[0];
        const uint64_t b = uint64_t{0xCD9E8D57U} * c[2];
        c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ low;
        c[1] = static_cast<uint32_t>(b);
        c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ high;
        c[3] = static_cast<uint32_t>(a);
        low += 0x9E3779B9U;
        high += 0xBB67AE85U;
    }
    return static_cast<float>(c[0] >> 8) * 0x1p-24F;
}

} // namespace

extern "C" int64_t noise(const float *__restrict X, float *__restrict Y, int64_t N, int64_t seed,
                         double scale)
{
    const float factor = static_cast<float>(scale);
    #pragma omp parallel for simd schedule(static) if (N > 8192)
    for (int64_t lane = 0; lane < N; ++lane) {
        const float u = uniform(static_cast<uint64_t>(seed), static_cast<uint64_t>(lane));
        Y[lane] = X[lane] + factor * u;
    }
    return 0;
}
