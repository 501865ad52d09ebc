/* SPDX-License-Identifier: MIT */
#include "spoa/service/process_metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/json/json_write.h"

/* Values of /proc/self/stat. */
struct process {
    unsigned long long user, system,
        started;                          /* clock ticks; `started` counts from the start of the machine */
    unsigned long long virtual, resident; /* bytes; pages */
};

/* Reads /proc/self/stat (proc_pid_stat(5)). The name in brackets may have any byte, so the numbers are those after the last bracket. */
static bool read_process(struct process *p)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[len > 0 ? len : 0] = '\0';
    const char *after = strrchr(text, ')');
    return after && sscanf(after + 1,
                           " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu %*s %*s %*s %*s %*s %*s "
                           "%llu %llu %llu",
                           &p->user, &p->system, &p->started, &p->virtual, &p->resident) == 5;
}

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The start of the machine, in Unix seconds. Computed once: a later result would differ in its last digit, and by more after the clock was
 * set, so that a reader who counts restarts by it would count too many. */
static double boot;

static void find_boot(void)
{
    boot = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME);
}

/* Writes one metric with HELP and TYPE. */
static bool write_one(struct buffer *to, const char *name, const char *type, const char *help, double value)
{
    return json_write(to, "# HELP %s %s\n# TYPE %s %s\n%s %.3f\n", name, help, name, type, name, value);
}

static bool write_process(struct buffer *to)
{
    struct process p;
    double tick = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
    if (!read_process(&p))
        return true;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_boot);
    return write_one(to, "process_start_time_seconds", "gauge",
                     "When the process was started, in Unix seconds.", boot + (double)p.started / tick) &&
           write_one(to, "process_cpu_seconds_total", "counter",
                     "Time on processors, of the process and the kernel for it.",
                     (double)(p.user + p.system) / tick) &&
           write_one(to, "process_resident_memory_bytes", "gauge", "Memory that is present.",
                     (double)p.resident * page) &&
           write_one(to, "process_virtual_memory_bytes", "gauge", "Memory that is mapped.",
                     (double)p.virtual);
}

bool process_metrics_write(const char *program, struct buffer *to)
{
    struct rlimit files;
    return json_write(to,
                      "# HELP cellgate_build_info 1, of this version.\n# TYPE cellgate_build_info gauge\n"
                      "cellgate_build_info{program=\"%s\",version=\"" CELLGATE_VERSION "\"} 1\n",
                      program) &&
           write_process(to) &&
           (getrlimit(RLIMIT_NOFILE, &files) != 0 ||
            write_one(to, "process_max_fds", "gauge", "Descriptors that may be open.",
                      (double)files.rlim_cur));
}
