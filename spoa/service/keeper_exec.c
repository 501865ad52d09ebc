/* SPDX-License-Identifier: MIT */
#include "spoa/service/keeper_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE      "CELLGATE_HANDOVER"
#define CHECK_STEPS   1000 /* of 10 ms */
#define ARGUMENTS_MAX 256

extern char **environ;

/* ---- the program ---- */

static bool path_of_this_program(char *path, size_t size)
{
    static const char deleted[] = " (deleted)"; /* the kernel's word for a file that was replaced */
    ssize_t len = readlink("/proc/self/exe", path, size - 1);

    if (len <= 0)
        return false;
    path[len] = '\0';
    char *end = path + strlen(path) - (sizeof deleted - 1);
    if (end > path && strcmp(end, deleted) == 0)
        *end = '\0';
    return true;
}

int keeper_exec_open(bool same, struct fail *why)
{
    char path[4096] = "/proc/self/exe";
    struct stat file;

    if (!same && !path_of_this_program(path, sizeof path)) {
        fail(why, "cannot find the path of this program");
        return -1;
    }
    int program = open(path, O_RDONLY | O_CLOEXEC);
    if (program < 0 || fstat(program, &file) != 0) {
        fail(why, "cannot open %s: %s", path, strerror(errno));
    } else if (!S_ISREG(file.st_mode) || (file.st_uid != 0 && file.st_uid != geteuid()) ||
               (file.st_mode & (S_IWGRP | S_IWOTH))) {
        fail(why, "%s can be written by others", path);
    } else {
        return program;
    }
    if (program >= 0)
        close(program);
    return -1;
}

/* Waits for a child for ten seconds; returns false with *why if it fails. */
static bool await_check(pid_t child, struct fail *why)
{
    int status;

    for (int step = 0; step < CHECK_STEPS; step++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                   fail(why, "the new program does not find the configuration good (-t)");
        (void)poll(NULL, 0, 10);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return fail(why, "the new program takes too long to check the configuration (-t)");
}

bool keeper_exec_check(int program, char *const argv[], struct fail *why)
{
    char path[64], option[] = "-t", *with[ARGUMENTS_MAX];
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none;
    pid_t child;
    size_t count = 0;

    for (; argv[count] && count < ARGUMENTS_MAX - 2; count++)
        with[count] = argv[count];
    with[count] = option;
    with[count + 1] = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, program,
                                     program); /* a script is opened again by its interpreter */
    int error = posix_spawn(&child, path, &actions, &attributes, with, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? await_check(child, why)
                      : fail(why, "cannot run the new program: %s", strerror(error));
}

/* ---- descriptors ---- */

static void set_close_on_exec(int fd, bool closes)
{
    int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;

    if (flags >= 0)
        (void)fcntl(fd, F_SETFD, closes ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC);
}

/* The file was written by a server, which may have been taken over: its descriptors are numbers below the limit, or nothing. */
static void set_of_images(int images, bool closes)
{
    struct keeper_images head;
    struct rlimit files;
    int32_t fds[1024];

    if (images < 0 || pread(images, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != KEEPER_IMAGES || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    uint64_t count = head.count < files.rlim_cur ? head.count : files.rlim_cur;
    for (uint64_t at = 0; at < count;) {
        ssize_t got = pread(images, fds, sizeof fds, (off_t)(sizeof head + at * sizeof *fds));
        if (got < (ssize_t)sizeof *fds)
            return;
        for (size_t i = 0; i < (size_t)got / sizeof *fds && at < count; i++, at++)
            set_close_on_exec(fds[i], closes);
    }
}

static void set_all(const struct keeper_handover *h, bool closes)
{
    for (size_t i = 0; i < h->listeners_count; i++)
        set_close_on_exec(h->listeners[i], closes);
    set_close_on_exec(h->images, closes);
    set_close_on_exec(h->old, closes);
    set_of_images(h->images, closes);
}

/* ---- the environment ---- */

static void write_variable(const struct keeper_handover *h, char *text, size_t size)
{
    int len = snprintf(text, size,
                       "%s=program=%d images=%d old=%d deaths=%u,%u upgrades=%u,%u listeners=", VARIABLE,
                       h->program, h->images, h->old, h->deaths[KEEPER_KILLED], h->deaths[KEEPER_CRASHED],
                       h->upgrades[KEEPER_UPGRADED], h->upgrades[KEEPER_NOT_UPGRADED]);

    for (size_t i = 0; i < h->listeners_count && len > 0 && (size_t)len < size; i++)
        len += snprintf(text + len, size - (size_t)len, "%s%d", i ? "," : "", h->listeners[i]);
}

bool keeper_exec_taken(struct keeper_handover *h)
{
    const char *text = getenv(VARIABLE);
    int at = 0;

    *h = (struct keeper_handover){.images = -1, .old = -1};
    if (!text ||
        sscanf(text, "program=%d images=%d old=%d deaths=%u,%u upgrades=%u,%u listeners=%n", &h->program,
               &h->images, &h->old, &h->deaths[KEEPER_KILLED], &h->deaths[KEEPER_CRASHED],
               &h->upgrades[KEEPER_UPGRADED], &h->upgrades[KEEPER_NOT_UPGRADED], &at) != 7 ||
        at == 0)
        return false;
    for (const char *p = text + at; *p && h->listeners_count < KEEPER_LISTENERS_MAX;) {
        char *end;
        long fd = strtol(p, &end, 10);
        if (end == p || fd <= STDERR_FILENO || fd > INT32_MAX)
            break;
        h->listeners[h->listeners_count++] = (int)fd;
        p = *end == ',' ? end + 1 : end;
    }
    if (h->program > STDERR_FILENO)
        close(h->program);
    set_all(h, true);
    unsetenv(VARIABLE);
    return true;
}

void keeper_exec(int program, char *const argv[], const struct keeper_handover *handover, struct fail *why)
{
    struct keeper_handover given = *handover;
    char variable[512], path[64];
    size_t count = 0, kept = 0;

    while (environ[count])
        count++;
    char **with = calloc(count + 2, sizeof *with);
    if (!with) {
        fail(why, "out of memory");
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], VARIABLE "=", sizeof VARIABLE) != 0)
            with[kept++] = environ[i];
    given.program = program;
    write_variable(&given, variable, sizeof variable);
    with[kept] = variable;
    set_all(handover, false);
    set_close_on_exec(program, false); /* a script is opened again by its interpreter */
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    execve(path, argv, with);
    fail(why, "cannot run the new program: %s", strerror(errno));
    set_all(handover, true);
    set_close_on_exec(program, true);
    free(with);
}
