// weighted_counts: sums by class. Lanes that meet the same class would add at once: each addition is
// atomic. WEIGHT may be absent, and is then nullptr.

#include <cstdint>

extern "C" int64_t weighted_counts(const int64_t *__restrict CLASS, const float *__restrict SEEN,
                                   const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
                                   int64_t C)
{
    // `Y[C]: out f32 = 0`: the kernel itself gives the output its first value.
    for (int64_t c = 0; c < C; ++c) {
        Y[c] = 0.0F;
    }
    #pragma omp parallel for schedule(static) if (N > 8192)
    for (int64_t i = 0; i < N; ++i) {
        const int64_t c = CLASS[i];
        if (c < 0 || c >= C) {
            continue; // A loaded index out of range: its lane neither reads nor writes.
        }
        const float part = WEIGHT == nullptr ? SEEN[c] : SEEN[c] * WEIGHT[c];
        #pragma omp atomic
        Y[c] += part;
    }
    return 0;
}
