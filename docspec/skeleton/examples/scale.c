// scale: one loop over all elements.

#include <stdint.h>

void scale(const float *X, float *Y, int64_t N, double factor)
{
    for (int64_t n = 0; n < N; ++n) {
        Y[n] = X[n] * (float)factor;
    }
}
