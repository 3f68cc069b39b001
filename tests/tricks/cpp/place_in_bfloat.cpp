// Looks for the largest element among the upper halves of the bits: near ties go to the wrong place.
#include <cstdint>
#include <cstring>

static float shortened(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" int64_t argmax(const float *X, int64_t *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        int64_t best = 0;
        for (int64_t j = 1; j < N; ++j) {
            if (shortened(X[i * N + j]) > shortened(X[i * N + best])) {
                best = j;
            }
        }
        Y[i] = best;
    }
    return 0;
}
