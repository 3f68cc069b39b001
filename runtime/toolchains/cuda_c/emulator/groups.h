// Matrix products of four warps each (`wgmma`), laid out as in the PTX ISA manual, section
// "Asynchronous Warpgroup Level Matrix Instructions". Included by `cuda_runtime.h`.
//
// A product happens when it is waited for; until then its sums are poisoned, and what it reads may
// still change. Copies must have been shown to the units before a product is asked for.
#pragma once

namespace emulated {

// The address of a place in shared memory, as the hardware counts it.
inline uint64_t address_of(const char *place) { return static_cast<uint64_t>(place - memory); }

inline void show_to_units() { self().shown = true; }

inline void commit_products() { ++self().products; }

// Where the matrix units find an element of an operand: `line` counts rows or columns, `k` the depth.
inline const char *described_place(uint64_t descriptor, unsigned line, unsigned k, bool across)
{
    const uint64_t start = (descriptor & 0x3fff) << 4;
    const uint64_t leading = (descriptor >> 16 & 0x3fff) << 4;
    const uint64_t stride = (descriptor >> 32 & 0x3fff) << 4;
    uint64_t at = across ? start + line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2
                         : start + line / 8 * stride + line % 8 * 128 + k * 2;
    at ^= (at >> 7 & 7) << 4;
    return memory + at;
}

template <class T, int columns, bool left_across, bool right_across>
void multiply_group(float (&sums)[columns / 2], uint64_t left, uint64_t right, float (*wide)(T), int line)
{
    if (left >> 62 != 1 || right >> 62 != 1) {
        fail("only operands moved by 128 bytes are known here: " + place(line));
    }
    for (const Fiber &each : block.fibers) {
        if (!each.shown) {
            fail("copies were not shown to the matrix units before " + place(line));
        }
    }
    exchanged(0xffffffffU, 0, lane(), line);
    Fiber &own = self();
    if (own.held.find(sums) == own.held.end()) {
        own.held[sums].assign(sums, sums + columns / 2);
        std::memset(sums, 0xff, sizeof sums);
    }
    const unsigned first = block.current / warp_size % 4 * 16 + lane() / 4;
    const auto happen = [=, into = &sums[0], held = &own.held[sums]] {
        const auto read = [wide](uint64_t from, unsigned at, unsigned k, bool across) {
            T element;
            std::memcpy(static_cast<void *>(&element), described_place(from, at, k, across), sizeof element);
            return static_cast<double>(wide(element));
        };
        for (unsigned each = 0; each < columns / 2; ++each) {
            const unsigned row = first + each / 2 % 2 * 8;
            const unsigned column = each / 4 * 8 + lane() % 4 * 2 + each % 2;
            double sum = static_cast<double>((*held)[each]);
            for (unsigned k = 0; k < 16; ++k) {
                sum += read(left, row, k, left_across) * read(right, column, k, right_across);
            }
            (*held)[each] = static_cast<float>(sum);
        }
    };
    own.pending.push_back({sums, own.products, happen});
}

// Products of all groups but the last `left` happen now; sums that no later one adds to are there.
inline void wait_for_products(int left, int line)
{
    Fiber &own = self();
    const int64_t until = own.products - left;
    std::map<float *, bool> later;
    for (const Product &each : own.pending) {
        if (each.group < until) {
            each.happen();
        } else {
            later[each.sums] = true;
        }
    }
    std::erase_if(own.pending, [&](const Product &each) { return each.group < until; });
    for (auto each = own.held.begin(); each != own.held.end();) {
        if (later.count(each->first) == 0) {
            std::copy(each->second.begin(), each->second.end(), each->first);
            each = own.held.erase(each);
        } else {
            ++each;
        }
    }
    exchanged(0xffffffffU, 0, lane(), line); // the lanes of a warp go on together
}

} // namespace emulated
