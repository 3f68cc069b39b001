// A static workspace kept by size between calls: scratch alone, written anew before it is read.
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    static std::map<int64_t, std::vector<float>> *kept = nullptr;
    if (kept == nullptr) {
        kept = new std::map<int64_t, std::vector<float>>();
    }
    std::vector<float> &columns = (*kept)[N * K];
    columns.resize(static_cast<std::vector<float>::size_type>(N * K));
    float *packed = columns.data();
    for (int64_t k = 0; k < N; ++k) {
        for (int64_t j = 0; j < K; ++j) {
            packed[j * N + k] = X2[k * K + j];
        }
    }
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < K; ++j) {
            float total = 0.0f;
            for (int64_t k = 0; k < N; ++k) {
                total += X[i * N + k] * packed[j * N + k];
            }
            Y[i * K + j] = total;
        }
    }
    return 0;
}
