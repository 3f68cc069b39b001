// The copy engine: boxes of tensors that arrive on barriers in shared memory, by the PTX ISA manual's
// sections "Tensors" and "mbarrier". Included by `cuda_runtime.h`.
//
// In every other order of threads a box arrives at once, which shows when a stage is filled that is
// still read; else when no thread can go on, which shows when nobody has waited.
#pragma once

namespace emulated {

// What the driver's function writes into a tensor's map.
struct Map {
    const char *data;
    uint64_t extents[4];
    uint64_t steps[4]; // bytes from one element to the next
    uint32_t box[4];
};

inline int encode_map(void *map, int, uint32_t rank, void *data, const uint64_t *extents,
                      const uint64_t *steps, const uint32_t *box, const uint32_t *each, int together,
                      int moved, int, int beyond)
{
    const bool known = rank == 4 && together == 0 && moved == 3 && beyond == 0 && box[0] == 64;
    Map made{static_cast<const char *>(data), {}, {2}, {}};
    bool right = known && reinterpret_cast<uintptr_t>(data) % 16 == 0;
    for (unsigned axis = 0; right && axis < rank; ++axis) {
        made.extents[axis] = extents[axis];
        made.box[axis] = box[axis];
        right = extents[axis] > 0 && extents[axis] <= uint64_t{1} << 32 && box[axis] > 0 &&
                box[axis] <= 256 && each[axis] == 1;
        if (axis > 0) {
            made.steps[axis] = steps[axis - 1];
            right = right && steps[axis - 1] % 16 == 0 && steps[axis - 1] < uint64_t{1} << 40;
        }
    }
    std::memcpy(map, &made, sizeof made);
    return right ? 0 : 1;
}

inline Barrier &barrier_at(const char *place, const std::string &where)
{
    const auto found = block.barriers.find(place);
    if (found == block.barriers.end()) {
        fail("a barrier that was not begun" + where);
    }
    return found->second;
}

// Goes to the next phase where nothing is missing any more.
inline void end_phase(Barrier &barrier)
{
    if (barrier.missing == 0 && barrier.bytes == 0) {
        barrier.missing = barrier.arrivals;
        barrier.phase ^= 1U;
    }
}

inline void begin_barrier(const char *place, int arrivals)
{
    if (!block.barriers.emplace(place, Barrier{arrivals, arrivals, 0, 0}).second) {
        fail("a barrier begins that has begun");
    }
    self().shown = false;
}

inline void end_barrier(const char *place)
{
    barrier_at(place, "");
    block.barriers.erase(place);
}

inline void arrive(const char *place, int bytes, int line)
{
    Barrier &barrier = barrier_at(place, " is arrived at in " + emulated::place(line));
    if (barrier.missing == 0) {
        fail("more arrivals than a barrier has, at " + emulated::place(line));
    }
    barrier.bytes += bytes;
    --barrier.missing;
    end_phase(barrier);
}

inline void wait_for_phase(const char *place, unsigned phase, int line)
{
    while (barrier_at(place, " is waited for in " + emulated::place(line)).phase == phase) {
        self().barrier = place;
        self().phase = phase;
        wait(State::in_phase, line);
    }
}

// A box arrives: chunks of 16 bytes are moved by their addresses, and what is beyond the tensor is 0.
inline void arrive_box(const Box &box)
{
    Map map;
    std::memcpy(&map, box.map, sizeof map);
    int bytes = 0;
    for (uint32_t line = 0; line < map.box[2]; ++line) {
        for (uint32_t inner = 0; inner < map.box[0]; ++inner, bytes += 2) {
            const int64_t at[4] = {int64_t{box.at[0]} + inner, box.at[1], int64_t{box.at[2]} + line,
                                   box.at[3]};
            const char *from = map.data;
            bool inside = true;
            for (int axis = 0; axis < 4; ++axis) {
                inside = inside && at[axis] >= 0 && at[axis] < static_cast<int64_t>(map.extents[axis]);
                from += at[axis] * static_cast<int64_t>(map.steps[axis]);
            }
            uint64_t place = static_cast<uint64_t>(box.to - memory) + bytes;
            place ^= (place >> 7 & 7) << 4;
            std::memset(memory + place, 0, 2);
            if (inside) {
                std::memcpy(memory + place, from, 2);
            }
        }
    }
    const auto found = block.barriers.find(box.barrier);
    if (found == block.barriers.end() || found->second.bytes < bytes) {
        block.failure = "a box of a tensor arrives on a barrier that does not expect its bytes";
        return;
    }
    found->second.bytes -= bytes;
    end_phase(found->second);
}

inline void copy_box(char *to, const void *map, const int (&at)[4], const char *barrier)
{
    if ((to - memory) % 128 != 0) {
        fail("a box of a tensor that does not begin on 128 bytes");
    }
    for (const Fiber &each : block.fibers) {
        if (!each.shown) {
            fail("barriers or copies were not shown to the engine before a box of a tensor");
        }
    }
    block.boxes.push_back({to, map, {at[0], at[1], at[2], at[3]}, barrier});
    if (block.ahead) {
        arrive_boxes();
    }
}

} // namespace emulated
