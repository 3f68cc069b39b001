/* Runs one compiled kernel over a launch grid, program after program.
 *
 * Compiled together with the generated body of
 * `sketchc_program`, which calls the kernel, and
 * linked with the kernel's object file. The kernel is MLIR's output: a memref is (base, aligned,
 * offset, size, stride), and it asks for memory and for strided copies by the functions below.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int32_t programs[3];
    int32_t position[3];
} sketchc_place;

static void sketchc_program(void *const *arguments, const int64_t *lengths,
                            const sketchc_place *place);

/* Memory that one program asked for: freed after it. */
typedef struct block {
    struct block *next;
    int64_t padding; /* keeps what follows aligned to 16 bytes */
} block;

static block *blocks = NULL;
static int64_t held_bytes = 0;
static int64_t most_bytes = 0;

static void fail(const char *message) {
    size_t length = strlen(message);
    if (write(2, message, length) != (ssize_t)length) {
        _exit(71);
    }
    _exit(70);
}

void *_mlir_memref_to_llvm_alloc(int64_t size) {
    block *fresh = malloc(sizeof(block) + (size_t)(size > 0 ? size : 1));
    if (fresh == NULL) {
        fail("sketchc: no memory for the kernel's buffers\n");
    }
    fresh->next = blocks;
    fresh->padding = size;
    blocks = fresh;
    held_bytes += size;
    if (held_bytes > most_bytes) {
        most_bytes = held_bytes;
    }
    /* NaN, or -1: what was never written shows. */
    memset(fresh + 1, 0xFF, (size_t)size);
    return fresh + 1;
}

void _mlir_memref_to_llvm_free(void *memory) {
    (void)memory; /* all at once, after the program */
}

static void release_blocks(void) {
    while (blocks != NULL) {
        block *next = blocks->next;
        memset(blocks + 1, 0xFF, (size_t)blocks->padding);
        free(blocks);
        blocks = next;
    }
    held_bytes = 0;
}

/* Processors without bf16 instructions round by these, which libgcc has from version 13 on. A bf16
 * is returned in the low half of a float's register. */
__attribute__((weak)) float __truncsfbf2(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        bits = (bits >> 16) | 0x40u; /* a quiet NaN stays one */
    } else {
        bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16; /* to nearest, ties to even */
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

__attribute__((weak)) float __truncdfbf2(double value) {
    /* Round to odd first, so that the second rounding sees on which side the value lies. */
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if ((double)narrow != value && value == value && (bits & 1u) == 0) {
        const int away = ((double)narrow < value) == (value > 0.0);
        bits += away ? 1u : -1u;
        memcpy(&narrow, &bits, sizeof narrow);
    }
    return __truncsfbf2(narrow);
}

/* A memref of any rank: sizes, then strides, both in elements. */
typedef struct {
    char *base;
    char *aligned;
    int64_t offset;
    int64_t extents[];
} memref;

typedef struct {
    int64_t rank;
    memref *descriptor;
} ranked_memref;

static void copy_axis(int64_t size, int64_t rank, int64_t axis, const int64_t *extents,
                      const char *from, const int64_t *from_strides, char *to,
                      const int64_t *to_strides) {
    if (axis == rank) {
        memcpy(to, from, (size_t)size);
        return;
    }
    if (axis == rank - 1 && from_strides[axis] == 1 && to_strides[axis] == 1) {
        if (extents[axis] > 0) {
            memmove(to, from, (size_t)(size * extents[axis]));
        }
        return;
    }
    for (int64_t i = 0; i < extents[axis]; ++i) {
        copy_axis(size, rank, axis + 1, extents, from + i * from_strides[axis] * size,
                  from_strides, to + i * to_strides[axis] * size, to_strides);
    }
}

void memrefCopy(int64_t size, ranked_memref *source, ranked_memref *destination) {
    const memref *from = source->descriptor;
    const memref *to = destination->descriptor;
    const int64_t rank = source->rank;
    copy_axis(size, rank, 0, from->extents, from->aligned + from->offset * size,
              from->extents + rank, to->aligned + to->offset * size, to->extents + rank);
}

/* Buffers end at a page that cannot be accessed: name the buffer that a fault belongs to. */
enum { BUFFERS = 64 };
static struct {
    uintptr_t start, end;
    char name[64];
} buffers[BUFFERS];
static int buffer_count = 0;

void sketchc_forget_buffers(void) { buffer_count = 0; }

void sketchc_name_buffer(uintptr_t start, uintptr_t end, const char *name) {
    if (buffer_count < BUFFERS) {
        buffers[buffer_count].start = start;
        buffers[buffer_count].end = end;
        snprintf(buffers[buffer_count].name, sizeof buffers[0].name, "%s", name);
        ++buffer_count;
    }
}

static sketchc_place current;

static void on_fault(int number, siginfo_t *information, void *context) {
    (void)number;
    (void)context;
    const uintptr_t address = (uintptr_t)information->si_addr;
    char message[256];
    const char *name = NULL;
    uintptr_t distance = 0;
    for (int i = 0; i < buffer_count; ++i) {
        const uintptr_t away =
            address >= buffers[i].end ? address - buffers[i].end : buffers[i].start - address;
        if (name == NULL || away < distance) {
            name = buffers[i].name;
            distance = away;
        }
    }
    snprintf(message, sizeof message,
             "sketchc: illegal access by program (%d, %d, %d), %llu bytes outside of %s\n",
             current.position[0], current.position[1], current.position[2],
             (unsigned long long)distance, name == NULL ? "every buffer" : name);
    fail(message);
}

/* The programs `order[0..count)` of the grid, numbered with x fastest. Returns the most bytes that
 * one program held at a time. */
int64_t sketchc_launch(void *const *arguments, const int64_t *lengths, const int64_t *order,
                       int64_t count, const int32_t *grid) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    most_bytes = 0;
    memcpy(current.programs, grid, sizeof current.programs);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t number = order[i];
        current.position[0] = (int32_t)(number % grid[0]);
        current.position[1] = (int32_t)(number / grid[0] % grid[1]);
        current.position[2] = (int32_t)(number / grid[0] / grid[1]);
        sketchc_program(arguments, lengths, &current);
        release_blocks();
    }
    return most_bytes;
}
