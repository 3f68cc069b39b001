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

// Describes a tensor of 16-bit elements, which have this number for the driver, to the copy engine: its
// extents, the innermost one first, and the boxes in which it is copied, of so many `lines` of 128 bytes
// along axis 2, whose chunks of 16 bytes are moved as in `panels`. False where the engine cannot copy it:
// lines that do not begin on 16 bytes. A tensor that is absent is copied by nobody.
inline bool described_tensor(tensor_map &map, int element, const void *data,
                             const int64_t (&extents)[4], unsigned lines)
{
    using encode = int (*)(tensor_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                           const uint32_t *, const uint32_t *, int, int, int, int);
    constexpr int together = 0, moved_in_128_bytes = 3, fetched_as_256_bytes = 3, zeros_beyond = 0;
    uint64_t sizes[4], steps[4], step = 2;
    for (int axis = 0; axis < 4; ++axis) {
        if (extents[axis] <= 0 || extents[axis] > INT32_MAX) {
            return false;
        }
        sizes[axis] = static_cast<uint64_t>(extents[axis]);
        steps[axis] = step *= sizes[axis];
    }
    if (data == nullptr) {
        return true;
    }
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    const bool there = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                        cudaEnableDefault, &status) == cudaSuccess;
    if (!there || found == nullptr || reinterpret_cast<uintptr_t>(data) % 16 != 0 || steps[0] % 16 != 0) {
        return false;
    }
    const uint32_t box[4] = {64, 1, lines, 1}, each[4] = {1, 1, 1, 1};
    return reinterpret_cast<encode>(found)(&map, element, 4, const_cast<void *>(data), sizes, steps, box,
                                           each, together, moved_in_128_bytes, fetched_as_256_bytes,
                                           zeros_beyond) == 0;
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
