/* SPDX-License-Identifier: MIT */
/* cellgate certificates: writes a file for each name of `egress.http2` to a folder from which HAProxy serves them. HAProxy offers no
 * HTTP/2 with certificates that it generates itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/base/os/file.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/certificate.h"
#include "spoa/ctl/ctl.h"
#include "spoa/service/settings.h"

enum { EXIT_GOOD, EXIT_BAD, EXIT_USAGE, PATH_MOST = 4096, FILE_MOST = 256 * 1024 };

static const char usage[] =
    "usage: cellgate certificates [--config FILE] [-o KEY=VALUE]... [--check]\n"
    "Writes a certificate for each name of egress.http2 into egress.http2_folder, signed by\n"
    "egress.sign_file: with these HAProxy offers HTTP/2 to programs in sandboxes. Keeps those that are\n"
    "good, and removes those whose name is listed no longer. Run it as who starts HAProxy, and again when\n"
    "the list or the authority has changed; then reload HAProxy. With --check it changes nothing, and says\n"
    "what it would do.\n";

struct job {
    const struct settings *settings;
    const char *folder;
    struct authority authority;
    bool check;  /* change nothing */
    size_t open; /* number of files that are not as they should be (--check) */
};

struct path {
    char text[PATH_MOST];
};

static bool path_of(const struct job *job, const char *before, const char *name, const char *behind,
                    struct path *path, struct fail *why)
{
    int len = snprintf(path->text, sizeof path->text, "%s/%s%s%s", job->folder, before, name, behind);
    return (size_t)len < sizeof path->text || fail(why, "%s: the path is too long", job->folder);
}

static bool fail_of(struct fail *why, const struct path *path)
{
    return fail(why, "%s: %s", path->text, strerror(errno));
}

/* ---- the folder's content ---- */

static bool is_wanted(const struct job *job, const char *file)
{
    const struct texts *names = &job->settings->egress.http2;
    for (size_t i = 0; i < names->count; i++) {
        size_t len = strlen(names->at[i]);
        if (strncmp(file, names->at[i], len) == 0 && strcmp(file + len, ".pem") == 0)
            return true;
    }
    return false;
}

static bool check_ours(struct job *job, const char *file, struct fail *why)
{
    struct path path;
    struct slice pem;
    if (!path_of(job, "", file, "", &path, why) || !file_read(path.text, FILE_MOST, &pem, why))
        return false;
    bool ours = certificate_is_ours(pem);
    file_free(pem);
    return ours || fail(why,
                        "%s: this command did not write it, and HAProxy would serve it: remove it, or give "
                        "egress.http2_folder a folder of its own",
                        path.text);
}

static bool drop_unlisted(struct job *job, const char *file, struct fail *why)
{
    struct path path;
    if (is_wanted(job, file))
        return true;
    if (!path_of(job, "", file, "", &path, why))
        return false;
    if (job->check) {
        fprintf(stderr, "%s: its name is not in egress.http2\n", path.text);
        job->open++;
        return true;
    }
    if (unlink(path.text) != 0)
        return fail_of(why, &path);
    printf("removed %s\n", file);
    return true;
}

typedef bool each(struct job *job, const char *file, struct fail *why);

/* HAProxy reads no file whose name begins with a dot. */
static bool for_each(struct job *job, each *do_it, struct fail *why)
{
    DIR *folder = opendir(job->folder);
    bool good = true;
    if (!folder)
        return (job->check && errno == ENOENT) || fail(why, "%s: %s", job->folder, strerror(errno));
    struct dirent *entry;
    while (good && (entry = readdir(folder)))
        good = entry->d_name[0] == '.' || do_it(job, entry->d_name, why);
    closedir(folder);
    return good;
}

/* ---- a name ---- */

/* Returns NULL if the name's file is as it should be; otherwise the reason why not. */
static const char *outdated(const struct job *job, const char *name, const struct path *path)
{
    struct fail ignored;
    struct slice pem;
    if (!file_read(path->text, FILE_MOST, &pem, &ignored))
        return "there is no certificate";
    const char *reason = file_exposure(path->text, FILE_READ_BY_ROOT, &ignored) != FILE_PRIVATE
                             ? "others can read or write its key"
                             : certificate_outdated(&job->authority, name, pem);
    file_free(pem);
    return reason;
}

/* Replaces the file atomically, because HAProxy may reload meanwhile and must see the old file or the new one. */
static bool write_file(const struct job *job, const char *name, const struct path *path, struct fail *why)
{
    struct path fresh;
    if (!path_of(job, ".", name, ".new", &fresh, why))
        return false;
    unlink(fresh.text);
    int fd = open(fresh.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_of(why, &fresh);
    bool good = certificate_write(&job->authority, name, fd, why);
    if (good && fsync(fd) != 0)
        good = fail_of(why, &fresh);
    if (close(fd) != 0 && good)
        good = fail_of(why, &fresh);
    if (good && rename(fresh.text, path->text) != 0)
        good = fail_of(why, path);
    if (!good)
        unlink(fresh.text);
    return good;
}

static bool provide(struct job *job, const char *name, struct fail *why)
{
    struct path path;
    if (!path_of(job, "", name, ".pem", &path, why))
        return false;
    const char *reason = outdated(job, name, &path);
    if (!reason)
        return true;
    if (job->check) {
        fprintf(stderr, "%s: %s\n", name, reason);
        job->open++;
        return true;
    }
    char end[11];
    authority_end(&job->authority, end);
    if (!write_file(job, name, &path, why))
        return false;
    printf("made %s, until %s\n", name, end);
    return true;
}

/* ---- all ---- */

/* Checks that nobody else can write to the folder, because another user could replace the files while they are written. */
static bool prepare_folder(const struct job *job, struct fail *why)
{
    struct stat look;
    if (!job->check && mkdir(job->folder, 0700) != 0 && errno != EEXIST)
        return fail(why, "%s: %s", job->folder, strerror(errno));
    if (stat(job->folder, &look) != 0)
        return true;
    if (look.st_uid != geteuid() && look.st_uid != 0)
        return fail(why, "%s: it belongs to somebody else, who can write there", job->folder);
    return !(look.st_mode & (S_IWGRP | S_IWOTH)) ||
           fail(why, "%s: others can write there: chmod 700", job->folder);
}

static bool work(struct job *job, struct fail *why)
{
    const struct texts *names = &job->settings->egress.http2;
    if (!prepare_folder(job, why) || !for_each(job, check_ours, why))
        return false;
    for (size_t i = 0; i < names->count; i++)
        if (!provide(job, names->at[i], why))
            return false;
    return for_each(job, drop_unlisted, why);
}

static int run(struct settings *settings, bool check)
{
    struct fail why;
    struct job job = {.settings = settings, .folder = settings->egress.http2_folder, .check = check};
    bool good = job.folder || fail(&why, "there is no egress.http2_folder in the configuration");
    good = good &&
           (settings->egress.sign_file || fail(&why, "there is no egress.sign_file in the configuration"));
    good = good && authority_load(&job.authority, settings->egress.sign_file, &why);
    good = good && work(&job, &why);
    if (!good)
        fprintf(stderr, "%s\n", why.text);
    authority_free(&job.authority);
    return good && job.open == 0 ? EXIT_GOOD : EXIT_BAD;
}

int ctl_certificates(int argc, char **argv)
{
    const char *path = NULL;
    struct argument_texts overrides = {.count = 0};
    bool help = false, check = false;
    char **word = argv + 1;
    (void)argc;
    while (*word && (argument_take(&word, "--config", &path) || argument_add(&word, "-o", &overrides) ||
                     argument_flag(&word, "--check", &check) || argument_flag(&word, "--help", &help) ||
                     argument_flag(&word, "-h", &help)))
        ;
    if (help || *word) {
        fputs(usage, help ? stdout : stderr);
        return help ? EXIT_GOOD : EXIT_USAGE;
    }
    struct fail why;
    struct settings *settings =
        settings_load(path ? path : SETTINGS_PATH, overrides.at, overrides.count, &why);
    if (!settings)
        fprintf(stderr, "%s\n", why.text);
    int code = settings ? run(settings, check) : EXIT_BAD;
    settings_free(settings);
    return code;
}
