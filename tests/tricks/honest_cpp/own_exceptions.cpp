// Catches what its own helper throws, where a fallback might stand.
#include <cstdint>
#include <stdexcept>
#include <vector>

static float checked(const std::vector<float> &row, int64_t place)
{
    if (place >= static_cast<int64_t>(row.size())) {
        throw std::out_of_range("past the row");
    }
    return row[static_cast<std::vector<float>::size_type>(place)];
}

extern "C" int64_t row_sum(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        const std::vector<float> row(X + i * N, X + (i + 1) * N);
        double total = 0.0;
        try {
            for (int64_t j = 0;; ++j) {
                total += static_cast<double>(checked(row, j));
            }
        } catch (const std::out_of_range &) {
            Y[i] = static_cast<float>(total);
        }
    }
    return 0;
}
