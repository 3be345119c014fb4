/*
 * Preloaded into a process, interrupts each of its threads again and again, as a profiler does.
 *
 * SIGNAL_STORM says how many microseconds lie between two signals. The handler does nothing and is installed without
 * SA_RESTART, so whatever a thread waits in comes back with EINTR. A timer of the process strikes its main thread
 * nearly every time, so every other thread gets a timer of its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct start {
    void *(*body)(void *);
    void *argument;
};

static long microseconds;

static void nothing(int signal) { (void)signal; }

__attribute__((constructor)) static void begin(void) {
    const char *every = getenv("SIGNAL_STORM");
    microseconds = every ? atol(every) : 0;
    if (microseconds <= 0) return;
    struct sigaction action = {.sa_handler = nothing};
    struct itimerval timer;
    timer.it_interval.tv_sec = timer.it_value.tv_sec = microseconds / 1000000;
    timer.it_interval.tv_usec = timer.it_value.tv_usec = microseconds % 1000000;
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL)) abort();
}

static void *run(void *argument) {
    struct start start = *(struct start *)argument;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    struct itimerspec every;
    timer_t timer;
    void *result;
    free(argument);
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    every.it_interval.tv_sec = every.it_value.tv_sec = microseconds / 1000000;
    every.it_interval.tv_nsec = every.it_value.tv_nsec = microseconds % 1000000 * 1000;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL)) abort();
    result = start.body(start.argument);
    timer_delete(timer);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start *start = NULL;
    int failed;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (microseconds <= 0) return create(thread, attributes, body, argument);
    start = malloc(sizeof *start);
    if (!start) abort();
    start->body = body;
    start->argument = argument;
    failed = create(thread, attributes, run, start);
    if (failed) free(start);
    return failed;
}
