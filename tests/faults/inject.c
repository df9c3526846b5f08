/* Makes one call that changes files below a folder fail, for tests of writers.

   Loaded by LD_PRELOAD. `faults_arm` names the folder, what happens and at which call; until then
   nothing is changed. Calls are counted across threads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, NOSPC, IO, INTR, SHORT };
enum { WRITE = 1, RESTARTED = 2, REMOVAL = 4 };

static char root[PATH_MAX];
static int kind;
static long chosen, next;
static atomic_long calls;
static const char *struck = "";
static const char *names[4096];

/* The process dies `then` calls after the fault at call `at`; if below 0, all these fail. */
void faults_arm(const char *folder, int what, long at, long then) {
    snprintf(root, sizeof root, "%s", folder);
    kind = what;
    chosen = at;
    next = then;
    atomic_store(&calls, 0);
    struck = "";
}

long faults_calls(void) { return atomic_load(&calls); }
const char *faults_struck(void) { return struck; }
const char *faults_name(long number) {
    const char *name = number > 0 && number <= 4096 ? names[number - 1] : 0;
    return name ? name : "";
}

static int is_below(const char *path) {
    size_t size = strlen(root);
    return size && !strncmp(path, root, size) && (path[size] == '/' || !path[size]);
}

static int is_inside(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_below(path);
}

static int is_named(int dir, const char *path) {
    char folder[PATH_MAX];
    if (!root[0] || !path) return 0;
    if (path[0] == '/') return is_below(path);
    if (dir != AT_FDCWD) return is_inside(dir);
    return getcwd(folder, sizeof folder) && is_below(folder);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    pause();
}

/* What is to happen in this call: 0 nothing, 1 it fails with errno set, 2 it is short,
   3 it is short and then the process dies. */
static int strikes(int inside, const char *name, int traits) {
    if (!inside) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (kind == COUNT && number <= 4096) names[number - 1] = name;
    if (kind == COUNT || number < chosen) return 0;
    if (number > chosen) {
        if (next > 0 && number == chosen + next) die();
        errno = EIO;
        return next < 0;
    }
    if (kind == INTR && !(traits & RESTARTED)) return 0;
    if (kind == SHORT && !(traits & WRITE)) return 0;
    struck = name;
    if (kind == KILL) {
        if (traits & WRITE) return 3;
        die();
    }
    if (kind == SHORT) return 2;
    errno = kind == NOSPC ? ENOSPC : kind == IO ? EIO : EINTR;
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define STRIKE(inside, name, traits) \
    if (root[0] && strikes(inside, #name, traits)) return -1

#define WRITER(name, last_parameter, last_argument) \
    ssize_t name(int fd, const void *data, size_t size last_parameter) { \
        REAL(name); \
        int what = root[0] ? strikes(is_inside(fd), #name, WRITE | RESTARTED) : 0; \
        if (what == 1) return -1; \
        if (what && size > 1) size /= 2; \
        ssize_t done = real(fd, data, size last_argument); \
        if (what == 3) die(); \
        return done; \
    }
#define NOTHING
#define COMMA ,
WRITER(write, NOTHING, NOTHING)
WRITER(pwrite, COMMA off_t at, COMMA at)
WRITER(pwrite64, COMMA off64_t at, COMMA at)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int what = root[0] ? strikes(is_inside(fd), "writev", WRITE | RESTARTED) : 0;
    if (what == 1) return -1;
    if (what && count > 1) count /= 2;
    ssize_t done = real(fd, parts, count);
    if (what == 3) die();
    return done;
}

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    REAL(copy_file_range);
    int what = root[0] ? strikes(is_inside(to), "copy_file_range", WRITE | RESTARTED) : 0;
    if (what == 1) return -1;
    if (what && size > 1) size /= 2;
    ssize_t done = real(from, at, to, there, size, flags);
    if (what == 3) die();
    return done;
}

int fchmod(int fd, mode_t mode) {
    REAL(fchmod);
    STRIKE(is_inside(fd), fchmod, 0);
    return real(fd, mode);
}

#define OPENER(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list list; \
        va_start(list, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0; \
        va_end(list); \
        if (flags & (O_CREAT | O_TRUNC)) STRIKE(is_named(AT_FDCWD, path), name, RESTARTED); \
        return real(path, flags, mode); \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        REAL(name); \
        va_list list; \
        va_start(list, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0; \
        va_end(list); \
        if (flags & (O_CREAT | O_TRUNC)) STRIKE(is_named(dir, path), name, RESTARTED); \
        return real(dir, path, flags, mode); \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

#define ON_FILE(name, traits) \
    int name(int fd) { \
        REAL(name); \
        STRIKE(is_inside(fd), name, traits); \
        return real(fd); \
    }
ON_FILE(fsync, RESTARTED)
ON_FILE(fdatasync, RESTARTED)
ON_FILE(syncfs, 0)

#define CUT(name, type) \
    int name(int fd, type size) { \
        REAL(name); \
        STRIKE(is_inside(fd), name, RESTARTED); \
        return real(fd, size); \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    if (root[0] && strikes(is_inside(fd), "posix_fallocate", 0)) return errno;
    return real(fd, at, size);
}

#define ON_PATH(name, traits) \
    int name(const char *path) { \
        REAL(name); \
        STRIKE(is_named(AT_FDCWD, path), name, traits); \
        return real(path); \
    }
ON_PATH(unlink, REMOVAL)
ON_PATH(rmdir, REMOVAL)

int unlinkat(int dir, const char *path, int flags) {
    REAL(unlinkat);
    STRIKE(is_named(dir, path), unlinkat, REMOVAL);
    return real(dir, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    STRIKE(is_named(AT_FDCWD, path), mkdir, 0);
    return real(path, mode);
}

#define TWO_PATHS(name) \
    int name(const char *old, const char *new) { \
        REAL(name); \
        STRIKE(is_named(AT_FDCWD, new), name, 0); \
        return real(old, new); \
    }
TWO_PATHS(rename)
TWO_PATHS(link)

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(linkat);
    STRIKE(is_named(to, new), linkat, 0);
    return real(from, old, to, new, flags);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat);
    STRIKE(is_named(to, new), renameat, 0);
    return real(from, old, to, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL(renameat2);
    STRIKE(is_named(to, new), renameat2, 0);
    return real(from, old, to, new, flags);
}
