// Kernels that attack whoever runs them. Every entry point has the signature of the sketch in
// test_sandbox.py: one input, one output, one size. `HIDDEN` and `VISIBLE` are folders that are not
// theirs, one below the temporary folder and one elsewhere.

#include <arpa/inet.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOSTILE(name) extern "C" int64_t name(const float *X, float *Y, int64_t N)

namespace {

void copy(const float *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        to[i] = from[i];
    }
}

[[noreturn]] void forever()
{
    for (;;) {
        pause();
    }
}

void *sleeping(void *) { forever(); }

void remove_all(const std::string &place, int depth)
{
    if (DIR *folder = opendir(place.c_str())) {
        while (const dirent *entry = readdir(folder)) {
            const std::string name = entry->d_name;
            if (name == "." || name == "..") {
                continue;
            }
            const std::string path = place + "/" + name;
            if (unlink(path.c_str()) != 0 && depth > 0) {
                remove_all(path, depth - 1);
                rmdir(path.c_str());
            }
        }
        closedir(folder);
    }
}

volatile int deepest = 0;

int deeper(int depth)
{
    volatile char filler[4096];
    filler[depth % 4096] = static_cast<char>(depth);
    deepest = depth;
    return deeper(depth + 1) + filler[depth % 4096];
}

} // namespace

HOSTILE(honest)
{
    copy(X, Y, N);
    return 0;
}

HOSTILE(fork_bomb)
{
    for (;;) {
        fork();
    }
}

HOSTILE(daemons)
{
    // Each leaves its group and its parent, and stays.
    for (int i = 0; i < 20; ++i) {
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                signal(SIGTERM, SIG_IGN);
                signal(SIGHUP, SIG_IGN);
                forever();
            }
            _exit(0);
        }
    }
    copy(X, Y, N);
    return 0;
}

HOSTILE(thread_bomb)
{
    pthread_t thread;
    for (int i = 0; i < 1000000; ++i) {
        if (pthread_create(&thread, nullptr, sleeping, nullptr) != 0) {
            return 7;
        }
    }
    return 0;
}

HOSTILE(memory_bomb)
{
    for (;;) {
        const size_t size = size_t{64} << 20;
        void *block = malloc(size);
        if (block == nullptr) {
            forever();
        }
        memset(block, 1, size);
    }
}

HOSTILE(shared_memory_bomb)
{
    // Many processes, each below its own limit.
    for (int i = 0; i < 12; ++i) {
        if (fork() == 0) {
            for (int block = 0; block < 4; ++block) {
                const size_t size = size_t{64} << 20;
                memset(malloc(size), 1, size);
            }
            forever();
        }
    }
    forever();
}

HOSTILE(endless_loop)
{
    volatile bool on = true;
    while (on) {
    }
    return 0;
}

HOSTILE(segfault)
{
    *reinterpret_cast<volatile int *>(8) = 1;
    return 0;
}

HOSTILE(stack_overflow) { return deeper(0); }

HOSTILE(aborts) { abort(); }

HOSTILE(throws) { throw std::runtime_error("nobody catches this"); }

HOSTILE(prints_a_gigabyte)
{
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    for (int i = 0; i < 1024; ++i) {
        if (write(1, line, sizeof line) < 0) {
            break;
        }
    }
    copy(X, Y, N);
    return 0;
}

HOSTILE(deletes_files)
{
    // Nothing else, lest a sandbox with a hole costs the machine that tests it.
    remove_all(HIDDEN, 3);
    remove_all(VISIBLE, 3);
    copy(X, Y, N);
    return 0;
}

HOSTILE(overwrites_files)
{
    for (const char *place : {HIDDEN "/kept.txt", VISIBLE "/kept.txt"}) {
        const int file = open(place, O_WRONLY | O_TRUNC);
        if (file >= 0) {
            if (write(file, "mine", 4) < 0) {
                return 9;
            }
            close(file);
        }
    }
    copy(X, Y, N);
    return 0;
}

HOSTILE(fills_the_disk)
{
    static char block[1 << 20];
    for (int number = 0; number < 100000; ++number) {
        const std::string name = "/tmp/left-" + std::to_string(number);
        const int file = open(name.c_str(), O_WRONLY | O_CREAT, 0600);
        if (file < 0 || write(file, block, sizeof block) < 0) {
            break;
        }
        close(file);
    }
    copy(X, Y, N);
    return 0;
}

HOSTILE(leaves_early) { exit(0); }

HOSTILE(leaves_at_once) { _exit(0); }

HOSTILE(kills_everybody)
{
    kill(-1, SIGKILL);
    for (pid_t process = 2; process < 40000; ++process) {
        if (process != getpid()) {
            kill(process, SIGKILL);
        }
    }
    kill(getppid(), SIGKILL);
    kill(1, SIGKILL);
    copy(X, Y, N);
    return 0;
}

HOSTILE(stops_itself)
{
    raise(SIGSTOP);
    return 0;
}

HOSTILE(closes_everything)
{
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
        close(descriptor);
    }
    return 0;
}

HOSTILE(forges_an_answer)
{
    // The length, then JSON that says all is well.
    const char text[] = R"({"body": {"answer": {"status": 0, "stray": ""}}, "arrays": []})";
    const uint64_t length = sizeof text - 1;
    if (write(3, &length, 8) < 0 || write(3, text, length) < 0) {
        return 9;
    }
    _exit(0);
}

HOSTILE(answers_garbage)
{
    for (int i = 0; i < 1000; ++i) {
        if (write(3, "garbage!", 8) < 0) {
            break;
        }
    }
    _exit(0);
}

HOSTILE(promises_too_much)
{
    const uint64_t length = uint64_t{1} << 60;
    if (write(3, &length, 8) < 0) {
        return 9;
    }
    forever();
}

HOSTILE(drips)
{
    // A byte now and then, so that no single wait is long.
    for (;;) {
        const uint64_t length = 1 << 20;
        static bool first = true;
        const ssize_t done = first ? write(3, &length, 8) : write(3, " ", 1);
        first = false;
        if (done < 0) {
            return 9;
        }
        usleep(20000);
    }
}

HOSTILE(traces_its_parent)
{
    if (ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr) == 0 ||
        open("/proc/1/mem", O_RDWR) >= 0 || unshare(CLONE_NEWUSER) == 0) {
        for (int64_t i = 0; i < N; ++i) {
            Y[i] = 1e30F;
        }
        return 0;
    }
    copy(X, Y, N);
    return 0;
}

HOSTILE(calls_home)
{
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(PORT);
    inet_pton(AF_INET, "127.0.0.1", &place.sin_addr);
    const bool connected =
        out >= 0 && connect(out, reinterpret_cast<sockaddr *>(&place), sizeof place) == 0;
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = connected ? 1e30F : X[i];
    }
    return 0;
}

HOSTILE(ignores_signals)
{
    for (int number = 1; number < 65; ++number) {
        signal(number, SIG_IGN);
    }
    forever();
}
