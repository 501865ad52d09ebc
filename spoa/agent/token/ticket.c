/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/base/os/file.h"
#include "spoa/base/text/base64url.h"

/* A version that signs other fields must change the domain. */
#define DOMAIN     "cellgate ticket 2;"
#define DOMAIN_OLD "cellgate ticket 1;"

enum { SECRET_MOST = 4096, IDENTITY_MOST = 16384, TEXT = (TICKET_BYTES * 4 + 2) / 3 };

/* ---- the key ---- */

/* Creates the file with all its bytes at once, because another agent may read it immediately. Returns false and errno if it fails. */
static bool put_in_place(const char *path, const char *fresh, const uint8_t *secret)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool good = write(fd, secret, TICKET_SECRET) == TICKET_SECRET && fsync(fd) == 0;
    good = (good && link(fresh, path) == 0) || errno == EEXIST;
    int error = errno;
    close(fd);
    unlink(fresh);
    errno = error;
    return good;
}

static bool make(const char *path, struct fail *why)
{
    uint8_t secret[TICKET_SECRET];
    char fresh[4096];
    if (snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= (int)sizeof fresh)
        return fail(why, "%s: the name is too long", path);
    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return fail(why, "%s: no random bytes", path);
    bool good =
        put_in_place(path, fresh, secret) || fail(why, "%s: cannot be made: %s", path, strerror(errno));
    explicit_bzero(secret, sizeof secret);
    return good;
}

/* Refuses a file that others can read or write: a reader can ask for every sandbox, and a writer chooses the key. */
static bool is_secret(int fd, const char *path, struct fail *why)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail(why, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(why, "%s: not a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return fail(why, "%s: belongs to another user", path);
    return file_exposure_of(fd, path, why) == FILE_PRIVATE;
}

static struct key *read_key(int fd, const char *path, struct fail *why)
{
    uint8_t secret[SECRET_MOST + 1];
    struct key *key = NULL;
    if (!is_secret(fd, path, why))
        return NULL;
    ssize_t len = read(fd, secret, sizeof secret);
    if (len < 0)
        fail(why, "%s: %s", path, strerror(errno));
    else if (len > SECRET_MOST)
        fail(why, "%s: longer than %d bytes", path, SECRET_MOST);
    else
        key = key_secret(slice_of(secret, (size_t)len), TICKET_SECRET, path, why);
    explicit_bzero(secret, sizeof secret);
    return key;
}

struct key *ticket_key_load(const char *path, struct fail *why)
{
    const int how = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, how);
    if (fd < 0 && errno == ENOENT) {
        if (!make(path, why))
            return NULL;
        fd = open(path, how);
    }
    if (fd < 0) {
        fail(why, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct key *key = read_key(fd, path, why);
    close(fd);
    return key;
}

/* ---- tickets ---- */

static bool sign(const struct key *key, const char *domain, const struct handover *handover,
                 uint8_t ticket[TEXT])
{
    uint8_t text[IDENTITY_MOST], signature[KEY_SIGNATURE];
    struct writer identity = writer_of(text, sizeof text), mac = writer_of(signature, sizeof signature),
                  out = writer_of(ticket, TEXT);
    writer_text(&identity, domain);
    handover_encode_identity(handover, &identity);
    if (identity.full || !key || !key_sign(key, writer_slice(&identity), &mac))
        return false;
    base64url_encode(slice_of(signature, TICKET_BYTES), &out);
    return out.len == TEXT;
}

struct slice ticket_write(const struct key *key, const struct handover *handover, struct writer *w)
{
    uint8_t ticket[TEXT];
    size_t start = w->len;
    if (!sign(key, DOMAIN, handover, ticket) || w->full || w->size - w->len < sizeof ticket)
        return slice_text(NULL);
    writer_put(w, slice_of(ticket, sizeof ticket));
    return slice_of(w->at + start, w->len - start);
}

static bool is_signed(const struct key *key, const char *domain, const struct handover *handover)
{
    uint8_t ticket[TEXT];
    return sign(key, domain, handover, ticket) && handover->ticket.len == sizeof ticket &&
           CRYPTO_memcmp(ticket, handover->ticket.at, sizeof ticket) == 0;
}

enum ticket_age ticket_check(const struct key *key, const struct handover *handover)
{
    if (is_signed(key, DOMAIN, handover))
        return TICKET_GOOD;
    return is_signed(key, DOMAIN_OLD, handover) ? TICKET_OLD : TICKET_BAD;
}
