/* What both load generators share: clock, processor time, latency samples and failing with a reason. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC: the clock that Python's time.monotonic() shows, so that both can be compared. */
static inline double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* User and system seconds this process has spent. */
static inline double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) die("out of memory (%zu bytes)", bytes);
    return memory;
}

/* Latencies in milliseconds; what does not fit is not kept, so size it for the run. */
struct samples {
    float *values;
    size_t count, capacity;
};

static inline struct samples samples_new(size_t capacity) {
    return (struct samples){.values = allocate(capacity * sizeof(float)), .capacity = capacity};
}

static inline void samples_add(struct samples *samples, double seconds) {
    if (samples->count < samples->capacity) samples->values[samples->count++] = (float)(seconds * 1e3);
}

static int samples_compare(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static inline void samples_sort(struct samples *samples) {
    qsort(samples->values, samples->count, sizeof(float), samples_compare);
}

/* The quantile of sorted samples in milliseconds, -1 without any. */
static inline double samples_quantile(const struct samples *samples, double quantile) {
    if (!samples->count) return -1;
    return samples->values[(size_t)(quantile * (double)(samples->count - 1))];
}

#endif
