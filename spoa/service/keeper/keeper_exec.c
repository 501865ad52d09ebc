/* SPDX-License-Identifier: MIT */
#include "spoa/service/keeper/keeper_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VARIABLE      "CELLGATE_HANDOVER"
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

/* Judges a file that is to be executed: no other account may have written it. */
static bool is_trusted(const struct stat *file)
{
    return S_ISREG(file->st_mode) && (file->st_uid == 0 || file->st_uid == geteuid()) &&
           !(file->st_mode & (S_IWGRP | S_IWOTH));
}

/* Finds the program by its path, never by a descriptor: the server shares those, and could put another file there. */
static bool find_program(bool same, char path[static PATH_MAX], struct fail *why)
{
    struct stat file;

    snprintf(path, PATH_MAX, "/proc/self/exe");
    if (!same && !path_of_this_program(path, PATH_MAX))
        return fail(why, "cannot find the path of this program");
    if (stat(path, &file) != 0)
        return fail(why, "cannot find %s: %s", path, strerror(errno));
    return is_trusted(&file) || fail(why, "%s can be written by others", path);
}

pid_t keeper_exec_check(bool same, char *const argv[], struct fail *why)
{
    char path[PATH_MAX], option[] = "-t", *with[ARGUMENTS_MAX];
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child;
    size_t count = 0;

    if (!find_program(same, path, why))
        return -1;
    for (; argv[count] && count < ARGUMENTS_MAX - 2; count++)
        with[count] = argv[count];
    with[count] = option;
    with[count + 1] = NULL;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    int error = posix_spawn(&child, path, NULL, &attributes, with, environ);
    posix_spawnattr_destroy(&attributes);
    if (error == 0)
        return child;
    fail(why, "cannot run the new program: %s", strerror(error));
    return -1;
}

/* ---- descriptors ---- */

static void set_close_on_exec(int fd, bool closes)
{
    if (fd > STDERR_FILENO)
        (void)fcntl(fd, F_SETFD, closes ? FD_CLOEXEC : 0);
}

static void set_all(const struct keeper_handover *h, bool closes)
{
    for (size_t i = 0; i < h->listeners_count; i++)
        set_close_on_exec(h->listeners[i], closes);
    set_close_on_exec(h->images, closes);
    set_close_on_exec(h->old, closes);
}

void keeper_exec_close_all(void)
{
    struct rlimit files;

#if defined(SYS_close_range) && defined(CLOSE_RANGE_CLOEXEC)
    if (syscall(SYS_close_range, STDERR_FILENO + 1U, UINT32_MAX, CLOSE_RANGE_CLOEXEC) == 0)
        return;
#endif
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) /* a kernel before 5.11 */
        for (int fd = STDERR_FILENO + 1; fd < (int)files.rlim_cur; fd++)
            set_close_on_exec(fd, true);
}

/* ---- the environment ---- */

static void write_variable(const struct keeper_handover *h, char *text, size_t size)
{
    int len = snprintf(
        text, size,
        "%s=images=%d old=%d,%" PRIu64 ",%" PRIu64 " deaths=%u,%u upgrades=%u,%u listeners=", VARIABLE,
        h->images, h->old, h->old_device, h->old_inode, h->deaths[KEEPER_KILLED], h->deaths[KEEPER_CRASHED],
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
        sscanf(text, "images=%d old=%d,%" SCNu64 ",%" SCNu64 " deaths=%u,%u upgrades=%u,%u listeners=%n",
               &h->images, &h->old, &h->old_device, &h->old_inode, &h->deaths[KEEPER_KILLED],
               &h->deaths[KEEPER_CRASHED], &h->upgrades[KEEPER_UPGRADED], &h->upgrades[KEEPER_NOT_UPGRADED],
               &at) != 8 ||
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
    set_all(h, true);
    unsetenv(VARIABLE);
    return true;
}

/* Returns the environment with the handover in place of an earlier one; NULL if memory is short. */
static char **environment_with(char *variable)
{
    size_t count = 0, kept = 0;

    while (environ[count])
        count++;
    char **with = calloc(count + 2, sizeof *with);
    for (size_t i = 0; with && i < count; i++)
        if (strncmp(environ[i], VARIABLE "=", sizeof VARIABLE) != 0)
            with[kept++] = environ[i];
    if (with)
        with[kept] = variable;
    return with;
}

static void become(const char *path, char *const argv[], const struct keeper_handover *h, struct fail *why)
{
    char variable[512];

    write_variable(h, variable, sizeof variable);
    char **with = environment_with(variable);
    if (!with) {
        fail(why, "out of memory");
        return;
    }
    set_all(h, false);
    execve(path, argv, with);
    fail(why, "cannot run %s: %s", path, strerror(errno));
    set_all(h, true);
    free(with);
}

void keeper_exec(bool same, char *const argv[], const struct keeper_handover *handover, struct fail *why)
{
    struct keeper_handover h = *handover;
    char path[PATH_MAX];
    struct stat file;

    if (!find_program(same, path, why))
        return;
    h.old = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (h.old >= 0 && fstat(h.old, &file) == 0) {
        h.old_device = file.st_dev;
        h.old_inode = file.st_ino;
    }
    become(path, argv, &h, why);
    if (h.old >= 0)
        close(h.old);
}

void keeper_exec_back(char *const argv[], const struct keeper_handover *handover, struct fail *why)
{
    struct keeper_handover h = *handover;
    char path[64];
    struct stat file;

    snprintf(path, sizeof path, "/proc/self/fd/%d", h.old);
    /* a server has run since it was opened, and may have put another file there */
    if (fstat(h.old, &file) != 0 || file.st_dev != h.old_device || file.st_ino != h.old_inode) {
        fail(why, "the old program is not there any more");
        return;
    }
    h.old = -1;
    become(path, argv, &h, why);
}
