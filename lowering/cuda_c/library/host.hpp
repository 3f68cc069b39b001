// What the host does around the kernels: memory of the device, and launches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace sketch {

// Pieces of memory, one behind the other.
class layout {
public:
    explicit layout(int64_t bytes) : bytes_(bytes) {}

    // Adds a piece of `extents` elements and returns its place.
    int64_t add(int64_t element_bytes, std::initializer_list<int64_t> extents)
    {
        const int64_t place = bytes_;
        int64_t size = element_bytes;
        for (const int64_t extent : extents) {
            fits_ = !__builtin_mul_overflow(size, std::max<int64_t>(extent, 0), &size) && fits_;
        }
        fits_ = !__builtin_add_overflow(size, int64_t{127}, &size) && fits_;
        fits_ = !__builtin_add_overflow(bytes_, size / 128 * 128, &bytes_) && fits_;
        return place;
    }

    int64_t bytes() const { return bytes_; }

protected:
    int64_t bytes_;
    bool fits_ = true;
};

// Memory of the device: pieces are added, then allocated at once, for each block that runs.
class arena : public layout {
public:
    arena() : layout(0) {}
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { cudaFree(memory_); }

    // False when the memory cannot be had.
    bool allocate(int64_t blocks)
    {
        int64_t total = 0;
        fits_ = !__builtin_mul_overflow(bytes_, blocks, &total) && fits_;
        return fits_ && (total == 0 || cudaMalloc(&memory_, static_cast<size_t>(total)) == cudaSuccess);
    }

    char *memory() const { return static_cast<char *>(memory_); }
    template <class T> T *at(int64_t place, int64_t) const
    {
        return reinterpret_cast<T *>(memory() + place);
    }

private:
    void *memory_ = nullptr;
};

// An element of the device's memory.
template <class T> inline T fetched(const T *place)
{
    T value{};
    cudaMemcpy(&value, place, sizeof value, cudaMemcpyDeviceToHost);
    return value;
}

// Lets a kernel have more shared memory than any may have without asking.
template <class Kernel> inline void allow_shared(Kernel kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <class T> __global__ void filled(T *to, int64_t count, T value)
{
    for (int64_t n = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; n < count;
         n += int64_t{gridDim.x} * blockDim.x) {
        to[n] = value;
    }
}

// Gives every element of a tensor one value; false where that fails.
template <class T> inline bool fill(T *to, int64_t count, T value)
{
    const int64_t blocks = std::min<int64_t>((count + 255) / 256, 4096);
    if (blocks > 0) {
        filled<T><<<static_cast<unsigned>(blocks), 256>>>(to, count, value);
    }
    return cudaGetLastError() == cudaSuccess;
}

} // namespace sketch
