/*
 * Preloaded into a process, moves the clocks that it reads through libc by offsets that somebody else writes.
 *
 * CLOCK_SHIM names a file of three 64-bit counts of nanoseconds: realtime, monotonic, boottime. It is mapped, so a
 * step is seen by the very next reading. The true time comes by system call: nothing here depends on what else is
 * preloaded or already initialised.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { REALTIME, MONOTONIC, BOOTTIME, WORDS };

static const int64_t *offsets;

__attribute__((constructor)) static void open_offsets(void) {
    const char *path = getenv("CLOCK_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, WORDS * sizeof *offsets, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) offsets = map;
    close(file);
}

static int64_t offset(clockid_t clock) {
    if (!offsets) return 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return __atomic_load_n(&offsets[REALTIME], __ATOMIC_RELAXED);
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return __atomic_load_n(&offsets[MONOTONIC], __ATOMIC_RELAXED);
    case CLOCK_BOOTTIME:
        return __atomic_load_n(&offsets[BOOTTIME], __ATOMIC_RELAXED);
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed) return failed;
    int64_t by = offset(clock);
    now->tv_sec += by / 1000000000;
    now->tv_nsec += by % 1000000000;
    if (now->tv_nsec < 0) {
        now->tv_nsec += 1000000000;
        now->tv_sec--;
    } else if (now->tv_nsec >= 1000000000) {
        now->tv_nsec -= 1000000000;
        now->tv_sec++;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME_COARSE, &precise);
    if (result) *result = precise.tv_sec;
    return precise.tv_sec;
}
