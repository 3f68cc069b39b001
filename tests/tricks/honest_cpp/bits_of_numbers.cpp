// relu by the sign bit alone: no comparison and no maximum.
#include <cstdint>
#include <cstring>

extern "C" int64_t relu(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M * N; ++i) {
        int32_t bits;
        std::memcpy(&bits, X + i, sizeof bits);
        bits &= ~(bits >> 31);
        std::memcpy(Y + i, &bits, sizeof bits);
    }
    return 0;
}
