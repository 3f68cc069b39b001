// Matrix products of a block: operands pass through shared memory, sums stay in registers.
#pragma once

#include <cstdint>

#include "sums.hpp"

namespace sketch {

// An address in shared memory, where the memory is the whole of what may be named.
#ifdef SKETCH_EMULATOR
using shared_place = char *;
#else
using shared_place = unsigned;
#endif

__device__ inline shared_place place_of(void *memory)
{
#ifdef SKETCH_EMULATOR
    return static_cast<char *>(memory);
#else
    return static_cast<unsigned>(__cvta_generic_to_shared(memory));
#endif
}

// The place whose address differs in some bits.
__device__ inline shared_place differing(shared_place place, unsigned bits)
{
#ifdef SKETCH_EMULATOR
    return reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(place) ^ bits);
#else
    return place ^ bits;
#endif
}

// 16 bytes of the device's memory into shared memory, of which `bytes` are there and the rest is 0; see
// `wait_for_chunks`.
__device__ inline void copy_chunk(shared_place to, const void *from, int bytes)
{
#ifdef SKETCH_EMULATOR
    emulated::copy_async(to, from, 16, bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#endif
}

// Ends a group of copies.
__device__ inline void commit_chunks()
{
#ifdef SKETCH_EMULATOR
    emulated::commit_copies();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of copies of this thread but the last `left` ones.
template <int left> __device__ inline void wait_for_chunks()
{
#ifdef SKETCH_EMULATOR
    emulated::wait_for_copies(left);
#else
    asm volatile("cp.async.wait_group %0;" : : "n"(left) : "memory");
#endif
}

// Four 8 x 8 matrices of 16-bit elements from shared memory, each lane giving a row's address;
// `across`: transposed.
template <bool across>
__device__ inline void load_fragments(uint32_t (&into)[4], shared_place row)
{
#ifdef SKETCH_EMULATOR
    emulated::load_matrices<4>(into, row, across, __LINE__);
#else
    if constexpr (across) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                     : "r"(row)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                     : "r"(row)
                     : "memory");
    }
#endif
}

//# multiply_half (with to_half, by_warps)
// sums += left @ right, of 16 x 16 and 16 x 8 elements.
__device__ inline void multiply_fragments(float (&sums)[4], const uint32_t (&left)[4],
                                          const uint32_t *right, half)
{
#ifdef SKETCH_EMULATOR
    emulated::multiply<half, float, 16>(sums, left, right, to_float, __LINE__);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                   "r"(right[1]));
#endif
}

//# multiply_bfloat16 (with to_bfloat16, by_warps)
// The same in bf16.
__device__ inline void multiply_fragments(float (&sums)[4], const uint32_t (&left)[4],
                                          const uint32_t *right, bfloat16)
{
#ifdef SKETCH_EMULATOR
    emulated::multiply<bfloat16, float, 16>(sums, left, right, to_float, __LINE__);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                   "r"(right[1]));
#endif
}

// The bits of a float that matrix units see.
constexpr uint32_t seen_bits = 0xffffe000U;

// A float as matrix units take it: its 11 leading bits, rounded, but never up to infinity; NaN has a
// leading bit.
__device__ inline float leading_bits(float x)
{
#ifdef SKETCH_EMULATOR
    const float rounded = emulated::rounded_to_tf32(x);
#else
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    const float rounded = float_of(bits & seen_bits);
#endif
    const float finite = isfinite(rounded) ? rounded : float_of(bits_of(x) & seen_bits);
    return isfinite(x) ? finite : x + x;
}

// sums += left @ right, of 16 x 8 and 8 x 8 floats of which 11 bits count.
__device__ inline void multiply_leading(float (&sums)[4], const uint32_t (&left)[4],
                                        const uint32_t *right)
{
#ifdef SKETCH_EMULATOR
    emulated::multiply<float, float, 8>(sums, left, right, emulated::seen_as_tf32, __LINE__);
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                   "r"(right[1]));
#endif
}

// Four registers of a lane with operands of a product.
struct fragment {
    uint32_t parts[4];
};

// Matrix units multiply 16-bit elements that a warp has in registers.
struct halves {
    template <class T, int tall, int wide>
    static __device__ void multiply(float (&sums)[tall][wide][2][4], const fragment (&left)[tall],
                                    const fragment (&right)[wide])
    {
#pragma unroll
        for (int r = 0; r < tall; ++r) {
#pragma unroll
            for (int part = 0; part < 2 * wide; ++part) {
                // There and back: products that follow each other share an operand.
                const int column = r % 2 == 0 ? part : 2 * wide - 1 - part;
                const int c = column / 2, side = column % 2;
                multiply_fragments(sums[r][c][side], left[r].parts, right[c].parts + 2 * side, T{});
            }
        }
    }
};

// They multiply floats nearly as f32, by three products of tf32: what the leading bits leave of each
// operand is multiplied with the leading bits of the other.
struct in_tf32 {
    // Adds a product. Infinity and NaN are those of the leading bits. Matrix units drop the bits that a
    // sum has no room for, always towards 0: they begin at 0 each time, and the sums are rounded here.
    static __device__ void add(float (&sums)[4], const uint32_t (&left)[4], const uint32_t *right,
                               const uint32_t (&left_rest)[4], const uint32_t *right_rest)
    {
        float now[4] = {};
        multiply_leading(now, left_rest, right);
        multiply_leading(now, left, right_rest);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            now[part] = isfinite(now[part]) ? now[part] : 0.0F;
        }
        multiply_leading(now, left, right);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            sums[part] += now[part];
        }
    }
    template <int count>
    static __device__ void split(fragment (&leading)[count], fragment (&rest)[count],
                                 const fragment (&from)[count])
    {
#pragma unroll
        for (int each = 0; each < count * 4; ++each) {
            const float x = float_of(from[each / 4].parts[each % 4]);
            const float lead = leading_bits(x);
            leading[each / 4].parts[each % 4] = bits_of(lead);
            rest[each / 4].parts[each % 4] = bits_of(x - lead) & seen_bits;
        }
    }
    template <class T, int tall, int wide>
    static __device__ void multiply(float (&sums)[tall][wide][2][4], const fragment (&left)[tall],
                                    const fragment (&right)[wide])
    {
        fragment lefts[tall], left_rests[tall];
        fragment rights[wide], right_rests[wide];
        split(lefts, left_rests, left);
        split(rights, right_rests, right);
#pragma unroll
        for (int r = 0; r < tall; ++r) {
#pragma unroll
            for (int c = 0; c < wide; ++c) {
                add(sums[r][c][0], lefts[r].parts, rights[c].parts, left_rests[r].parts,
                    right_rests[c].parts);
                add(sums[r][c][1], lefts[r].parts, rights[c].parts + 2, left_rests[r].parts,
                    right_rests[c].parts + 2);
            }
        }
    }
};

// Elements from one line to the next, and within one.
struct strides {
    int64_t line;
    int64_t step;
};

// An operand in shared memory: `lines` of `length` elements, in chunks of 16 bytes, which are moved so
// that no eight lanes of a fragment's load, nor all 32 that load elements across lines, meet in a bank.
// All threads of a block copy it. Lines of a `deep` operand lie along the depth.
template <class T, int lines, int length, int threads, bool deep> struct staged {
    static constexpr int size = 16 / sizeof(T);
    static constexpr int wide = length / size;
    static constexpr int pitch = wide > 32 ? 64 : wide > 16 ? 32 : wide > 8 ? 16 : wide > 4 ? 8 : 4;
    static constexpr int elements = lines * pitch * size;
    // The place of a chunk.
    static __device__ int at(int line, int chunk)
    {
        int moved = pitch >= 8 ? line & 7 : line / (8 / pitch) & (pitch - 1);
        if (!deep && sizeof(T) == 4) {
            moved = pitch >= 8 ? (line & 3) * 2 : line & 2;
        }
        return (line * pitch + (chunk ^ moved)) * size;
    }
    // The place of an element.
    static __device__ int element(int line, int place)
    {
        return at(line, place / size) + place % size;
    }
    static constexpr int chunks = lines * wide;
    // Whether each thread has the same chunk of some lines.
    static constexpr bool even = threads % wide == 0 && chunks % threads == 0;
    // The first element that a thread copies, and the lines from one to the next.
    static __device__ int64_t first(int64_t line_step)
    {
        return threadIdx.x / wide * line_step + threadIdx.x % wide * size;
    }
    static constexpr int down = even ? threads / wide : 1;
    // Copies an operand that is there as a whole, in aligned lines, from a thread's first element on.
    static __device__ void copy_whole(shared_place to, const T *from, int64_t line_step)
    {
        const int line = threadIdx.x / wide;
        const int chunk = threadIdx.x % wide;
#pragma unroll
        for (int turn = 0; turn < chunks / threads; ++turn) {
            // Every eighth line has its chunks in the same order.
            const int place = down % 8 == 0 ? at(line, chunk) + turn * down * pitch * size
                                            : at(line + turn * down, chunk);
            copy_chunk(to + place * sizeof(T), from, 16);
            from += down * line_step;
        }
    }
    // Copies any operand; what lies behind the first `count` lines and the first `left` elements is 0.
    static __device__ __noinline__ void copy(T *to, const T *from, strides steps, int64_t count,
                                             int64_t left)
    {
        copy_inline(to, from, steps, count, left);
    }
    static __device__ __forceinline__ void copy_inline(T *to, const T *from, strides steps,
                                                       int64_t count, int64_t left)
    {
        const auto [line_step, step] = steps;
        const bool far = !__isShared(from); // only what is there is copied by itself
#pragma unroll 1
        for (int each = threadIdx.x; each < chunks; each += threads) {
            const int line = each / wide;
            const int chunk = each % wide;
            T *const place = to + at(line, chunk);
            const int64_t there = line < count ? min(left - chunk * size, int64_t{size}) : 0;
            const T *const start = from + line * line_step + chunk * size * step;
            if (far && there > 0 && step == 1 && reinterpret_cast<uintptr_t>(start) % 16 == 0) {
                copy_chunk(place_of(place), start, static_cast<int>(there * sizeof(T)));
                continue;
            }
            lanes<T, size> part{};
#pragma unroll
            for (int element = 0; element < size; ++element) {
                if (element < there) {
                    part[element] = start[element * step];
                }
            }
            *reinterpret_cast<lanes<T, size> *>(place) = part;
        }
    }
};

// The stages of shared memory through which the operands of steps pass, each laid out as `Left` and
// `Right` say. An operand that is `deep` lies along the depth.
template <class T, class Left, class Right, bool left_deep, bool right_deep> struct stages_of {
    static constexpr int elements = Left::elements + Right::elements;
    T *memory;
    shared_place places;
    // Lines and steps are the same in all turns.
    strides left;
    strides right;
    int64_t rows;
    int64_t columns;
    bool whole;
    int64_t left_first;
    int64_t right_first;
    __device__ stages_of(const factors<T, T> &now, char *staging, bool complete)
        : memory(reinterpret_cast<T *>(staging)), places(place_of(staging)),
          left(left_deep ? strides{now.left.row, now.left.column}
                         : strides{now.left.column, now.left.row}),
          right(right_deep ? strides{now.right.column, now.right.row}
                           : strides{now.right.row, now.right.column}),
          rows(now.rows), columns(now.columns),
          whole(complete && Left::even && Right::even && left.step == 1 && right.step == 1 &&
                left.line % Left::size == 0 && right.line % Right::size == 0 &&
                !__isShared(now.left.data) && !__isShared(now.right.data)),
          left_first(Left::first(left.line)), right_first(Right::first(right.line))
    {
    }
    // The place of a stage's left operand; the right one lies behind it.
    __device__ shared_place at(int number) const
    {
        return places + number * elements * int{sizeof(T)};
    }
    static constexpr int left_bytes = Left::elements * int{sizeof(T)};
    // Whether all of a step of this `depth` is there, in aligned lines.
    template <int depth> __device__ bool is_whole(const factors<T, T> &now) const
    {
        const uintptr_t addresses = reinterpret_cast<uintptr_t>(now.left.data) |
                                    reinterpret_cast<uintptr_t>(now.right.data);
        return whole && now.depth >= depth && addresses % 16 == 0;
    }
    // Begins to copy such a step into a stage.
    template <int depth, class Steps> __device__ void load_whole(Steps &steps, int number)
    {
        const auto &now = steps.now;
        Left::copy_whole(at(number), now.left.data + left_first, left.line);
        Right::copy_whole(at(number) + left_bytes, now.right.data + right_first, right.line);
        steps.take(depth);
    }
    // Begins to copy any step; false where none is left.
    template <int depth, class Steps> __device__ bool load(Steps &steps, int number)
    {
        if (!steps.find()) {
            return false;
        }
        const auto &now = steps.now;
        if (is_whole<depth>(now)) {
            load_whole<depth>(steps, number);
        } else {
            T *const to = memory + number * elements;
            Left::copy(to, now.left.data, left, left_deep ? rows : now.depth,
                       left_deep ? now.depth : rows);
            Right::copy(to + Left::elements, now.right.data, right,
                        right_deep ? columns : now.depth, right_deep ? now.depth : columns);
            steps.take(depth);
        }
        return true;
    }
};

// How a warp gets its fragments of an operand in shared memory, laid out as `Stage` says: `count` of 16
// lines and 32 bytes of the depth each. Lines of a `deep` operand lie along the depth; those of a right
// operand are columns. A thread has the same place in each fragment, but for 32 bytes within a line.
template <class Stage, bool deep, bool right, int count, class T> struct fragments_of {
    // Whether fragments beside each other have places that differ in two bits of the address.
    static constexpr bool paired = sizeof(T) == 2 && (count & (count - 1)) == 0;
    static constexpr int line_bytes = Stage::pitch * 16;
    // The place of a thread in the first fragment of those from line `first` on.
    static __device__ int start(int first)
    {
        const int lane = threadIdx.x % 32;
        const int half_of = right ? lane / 8 % 2 : lane / 16;
        const int line = right ? lane / 16 * 8 + lane % 8 : lane % 16;
        if constexpr (deep) {
            return Stage::at(first + line, half_of) * int{sizeof(T)};
        } else if constexpr (sizeof(T) == 2) {
            // Matrices are transposed: what are lines of an operand along the depth are chunks here.
            const int other = right ? lane % 16 : lane / 16 * 8 + lane % 8;
            return Stage::at(other, first / 8 + (right ? lane / 16 : lane / 8 % 2)) * int{sizeof(T)};
        } else {
            return 0;
        }
    }
    // The fragments of a stage at `place` from a part of the depth on; `from` is what `start` gave.
    static __device__ void load(fragment (&into)[count], const T *memory, shared_place place, int from,
                                int first, int inner)
    {
#pragma unroll
        for (int each = 0; each < count; ++each) {
            if constexpr (deep) {
                load_fragments<false>(into[each].parts,
                                      differing(place + from, inner * 32) + each * 16 * line_bytes);
            } else if constexpr (paired) {
                const shared_place line = differing(place + from, each % 4 * 32) + each / 4 * 128;
                load_fragments<true>(into[each].parts, line + inner * 16 * line_bytes);
            } else if constexpr (sizeof(T) == 2) {
                const int there = start(first + each * 16) + inner * 16 * line_bytes;
                load_fragments<true>(into[each].parts, place + there);
            } else {
                const int lane = threadIdx.x % 32;
#pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const int across = right ? part / 2 : part % 2, along = right ? part % 2 : part / 2;
                    const int line = inner * 8 + along * 4 + lane % 4;
                    const int element = first + each * 16 + across * 8 + lane / 4;
                    into[each].parts[part] = bits_of(memory[Stage::element(line, element)]);
                }
            }
        }
    }
};

// How the warps of a block multiply by matrix units, as `Units` says: `down` of the warps stand above
// each other and the others beside, each with `tall` x `wide` parts of 16 x 16 elements. An operand that
// is `deep` lies along the depth. A step takes `depth` elements along it, and passes through one of so
// many stages.
template <int warps, int down, int tall, int wide, int depth, int stages, bool left_deep, bool right_deep,
          class Units = halves>
struct by_warps {
    static constexpr int across = warps / down;
    static constexpr int rows = down * tall * 16;
    static constexpr int columns = across * wide * 16;
    // The products of all turns, for one block of sums.
    template <bool single, class T, class At, class To>
    static __device__ void multiply(product_steps<single, T, T, At> steps, const To &to, char *staging)
    {
        using left_stage =
            staged<T, left_deep ? rows : depth, left_deep ? depth : rows, warps * 32, left_deep>;
        using right_stage = staged<T, right_deep ? columns : depth, right_deep ? depth : columns,
                                   warps * 32, right_deep>;
        constexpr int deep = 32 / sizeof(T); // elements along the depth of a fragment
        static_assert(depth / deep % 2 == 0, "fragments of the next step come beside the last ones");
        const int top = threadIdx.x / 32 / across * tall * 16;
        const int first = threadIdx.x / 32 % across * wide * 16;
        float sums[tall][wide][2][4];
        const bool complete = steps.now.rows >= rows && steps.now.columns >= columns;
        const auto placed = in_tiles<tall, 16, 2 * wide>(
            steps.now, steps.row, steps.column, top, first, [&](int block, int lower, int tile) {
                return &sums[block][tile / 2][tile % 2][lower * 2];
            });
        placed.begin(to);
        __syncthreads();
        stages_of<T, left_stage, right_stage, left_deep, right_deep> operands(
            steps.now, staging, complete);
        fragment lefts[2][tall];
        fragment rights[2][wide];
        using left_parts = fragments_of<left_stage, left_deep, false, tall, T>;
        using right_parts = fragments_of<right_stage, right_deep, true, wide, T>;
        const int left_start = left_parts::start(top);
        const int right_start = right_parts::start(first);
        const auto fetch = [&](int number, int inner) {
            const shared_place place = operands.at(number);
            const T *const memory = operands.memory + number * operands.elements;
            left_parts::load(lefts[inner % 2], memory, place, left_start, top, inner);
            right_parts::load(rights[inner % 2], memory + left_stage::elements,
                              place + operands.left_bytes, right_start, first, inner);
        };
        // Goes to a stage. The matrix units have products of the one before meanwhile.
        const auto enter = [&](int number) {
            wait_for_chunks<stages - 2>();
            __syncthreads();
            fetch(number, 0);
        };
        // The part of a step beside which copies begin: with two stages they are awaited at its end.
        constexpr int begins = stages > 2 && depth / deep > 2 ? 1 : 0;
        int ahead = 0;
        int number = 0;
        // The steps beside which whole ones are copied, or any, or none is left to copy.
        const auto run = [&](auto whole) {
            while (ahead > 0) {
                if constexpr (whole) {
                    if (!steps.find() || !operands.template is_whole<depth>(steps.now)) {
                        return;
                    }
                }
                const int next = number + 1 == stages ? 0 : number + 1;
#pragma unroll
                for (int inner = 0; inner < depth / deep; ++inner) {
                    if (inner + 1 < depth / deep) {
                        fetch(number, inner + 1);
                    } else if (whole || ahead > 0) {
                        enter(next);
                    }
                    Units::template multiply<T>(sums, lefts[inner % 2], rights[inner % 2]);
                    if (inner == begins) {
                        // All warps had what they need of this stage before the last barrier.
                        const int last = number == 0 ? stages - 1 : number - 1;
                        if constexpr (whole) {
                            operands.template load_whole<depth>(steps, last);
                        } else {
                            ahead -= operands.template load<depth>(steps, last) ? 0 : 1;
                        }
                        commit_chunks();
                    }
                }
                number = next;
            }
        };
        for (int each = 0; each < stages - 1; ++each) {
            ahead += operands.template load<depth>(steps, each) ? 1 : 0;
            commit_chunks();
        }
        if (ahead > 0) {
            enter(0);
        }
        run(std::true_type{}); // without calls, so that all registers are free
        run(std::false_type{});
        wait_for_chunks<0>();
        __syncthreads();
        placed.end(to, complete);
    }
};

// How the threads of a block multiply any types by multiply-adds: 16 of them stand above each other and
// the others beside, each with `tall` x `wide` elements.
template <int warps, int tall, int wide, bool left_deep, bool right_deep> struct by_threads {
    static constexpr int threads = warps * 32;
    static constexpr int across = threads / 16;
    static constexpr int rows = tall * 16;
    static constexpr int columns = wide * across;
    static constexpr int depth = 8;
    // The products of all turns, for one block of sums.
    template <bool single, class L, class R, class At, class To>
    static __device__ void multiply(product_steps<single, L, R, At> steps, const To &to, char *staging)
    {
        using T = typename To::type;
        constexpr int left_parts = (rows * depth + threads - 1) / threads;
        constexpr int right_parts = (columns * depth + threads - 1) / threads;
        T *const memory = reinterpret_cast<T *>(staging);
        const int top = threadIdx.x / across;
        const int first = threadIdx.x % across;
        const int64_t valid_rows = steps.now.rows;
        const int64_t valid_columns = steps.now.columns;
        const int64_t block_row = steps.row;
        const int64_t block_column = steps.column;
        T sums[tall][wide];
        const auto visit = [&](auto how) {
#pragma unroll
            for (int part = 0; part < tall * wide; ++part) {
                const int row = top + part / wide * 16;
                const int column = first + part % wide * across;
                const int64_t left = row < valid_rows ? valid_columns - column : 0;
                how(sums[part / wide][part % wide], block_row + row, block_column + column, left);
            }
        };
        visit([&](T &sum, int64_t row, int64_t column, int64_t left) {
            sum = left > 0 ? to.start(row, column) : T{0};
        });
        __syncthreads();
        T lefts[left_parts];
        T rights[right_parts];
        const auto load = [&] {
            if (!steps.find()) {
                return false;
            }
            const auto &now = steps.now;
#pragma unroll
            for (int part = 0; part < left_parts; ++part) {
                const int each = threadIdx.x + part * threads;
                const int64_t row = left_deep ? each / depth : each % rows;
                const int k = left_deep ? each % depth : each / rows;
                const bool there = row < min(now.rows, int64_t{rows}) && k < now.depth;
                lefts[part] = there ? widened<T>(now.left.data[row * now.left.row + k * now.left.column])
                                    : T{0};
            }
#pragma unroll
            for (int part = 0; part < right_parts; ++part) {
                const int each = threadIdx.x + part * threads;
                const int64_t column = right_deep ? each / depth : each % columns;
                const int k = right_deep ? each % depth : each / columns;
                const bool there = column < min(now.columns, int64_t{columns}) && k < now.depth;
                rights[part] =
                    there ? widened<T>(now.right.data[k * now.right.row + column * now.right.column])
                          : T{0};
            }
            steps.take(depth);
            return true;
        };
        bool more = load();
        for (int number = 0; more; number = 1 - number) {
            T *const left = memory + number * depth * (rows + columns);
            T *const right = left + depth * rows;
#pragma unroll
            for (int part = 0; part < left_parts; ++part) {
                const int each = threadIdx.x + part * threads;
                const int row = left_deep ? each / depth : each % rows;
                const int k = left_deep ? each % depth : each / rows;
                if (each < rows * depth) {
                    left[k * rows + row] = lefts[part];
                }
            }
#pragma unroll
            for (int part = 0; part < right_parts; ++part) {
                const int each = threadIdx.x + part * threads;
                const int column = right_deep ? each / depth : each % columns;
                const int k = right_deep ? each % depth : each / columns;
                if (each < columns * depth) {
                    right[k * columns + column] = rights[part];
                }
            }
            __syncthreads();
            more = load();
#pragma unroll
            for (int k = 0; k < depth; ++k) {
                T of_left[tall];
                T of_right[wide];
#pragma unroll
                for (int r = 0; r < tall; ++r) {
                    of_left[r] = left[k * rows + top + r * 16];
                }
#pragma unroll
                for (int c = 0; c < wide; ++c) {
                    of_right[c] = right[k * columns + first + c * across];
                }
#pragma unroll
                for (int r = 0; r < tall; ++r) {
#pragma unroll
                    for (int c = 0; c < wide; ++c) {
                        sums[r][c] += of_left[r] * of_right[c];
                    }
                }
            }
        }
        __syncthreads();
        visit([&](T sum, int64_t row, int64_t column, int64_t left) {
            to.take(row, column, left, lanes<T, 1>{sum});
        });
    }
};

// Adds the products that `at` gives for each turn, whose rows and columns are the same, up block by
// block, as `how` says, which takes each turn in one step where turns are `single`; `to` says with what
// sums begin and what becomes of them. `staging` may be the memory of a matrix that has no more
// elements than one block.
template <class How, bool single, class L, class R, class At, class To>
__device__ inline void multiply_blocks(const How &how, factors<L, R> whole, int64_t turns, At at,
                                       const To &to, char *staging)
{
    for (int64_t row = 0; row < whole.rows; row += How::rows) {
        for (int64_t column = 0; column < whole.columns; column += How::columns) {
            const auto now = factors_from(whole, row, column);
            const product_steps<single, L, R, At> steps{turns, at, row, column, 0, now};
            how.multiply(steps, to, staging);
        }
    }
}

template <class How, bool single, class At, class To>
__device__ inline void multiply_along(int64_t turns, At at, const To &to, char *staging)
{
    multiply_blocks<How, single>(How{}, at(0), turns, at, to, staging);
}

} // namespace sketch
