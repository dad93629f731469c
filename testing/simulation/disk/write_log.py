"""Records the real writes of a process to one file, by a library that is loaded before the C library (LD_PRELOAD).

The local C compiler builds the library.

    command = [sys.executable, "-c", "..."]             # in it: `Marks().add(b"acknowledged 7")`
    log = record(command, folder / "data.mdb", folder)
    events = read_log(log)
    assert replay(events) == (folder / "data.mdb").read_bytes()  # nothing bypassed the library

1. The events are in the order of the calls on the file and of the marks; a call is recorded once it has returned.
2. An operation that cannot be recorded (a writable map, a hole punched, an append) ends the process. So no log lacks an
   operation.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

LOG_VARIABLE: Final = "WRITE_LOG"
TARGET_VARIABLE: Final = "WRITE_LOG_OF"

_HEAD: Final = struct.Struct("=BBxxIQ")


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to the file."""

    offset: int
    content: bytes
    durable: bool
    """On the device when the call returned (O_DSYNC)."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Another file was given the name, with its content; at once or not at all."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Grow:
    """Space allocated for the file: it has at least `size_bytes` from now on."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class SizeChange:
    """The file's size was set."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Everything done before is on the device."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A message of the process itself."""

    text: bytes


Event: TypeAlias = Write | Replace | Grow | SizeChange | Sync | Mark


class NoCompiler(Exception):
    """There is no C compiler on this machine."""


class Marks:
    """Marks of the process that is recorded, between its writes."""

    def __init__(self) -> None:
        self._descriptor = os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def add(self, text: bytes) -> None:
        """Adds a mark after everything that has been written."""
        record = _HEAD.pack(ord("M"), 0, len(text), 0) + text
        if os.write(self._descriptor, record) != len(record):
            raise OSError("the write log is cut short: free some space")


def record(command: Sequence[str], target: Path, folder: Path, *, seconds_max: float = 120.0) -> Path:
    """Runs a command and records its operations on a file.

    Args:
        target: the file, which need not exist yet.
        folder: for the library and the log.

    Returns:
        The log, for `read_log`.

    Raises:
        NoCompiler: there is no `cc`. subprocess.SubprocessError: the library could not be made, or the command failed
            or took longer.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("writes cannot be recorded: there is no C compiler (cc) on this machine")
    library, log = folder / "write_log.so", folder / "write.log"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), "-x", "c", "-", "-ldl", "-lpthread"],
        input=_SOURCE.encode(),
        check=True,
    )
    log.touch()
    variables = {"LD_PRELOAD": str(library), LOG_VARIABLE: str(log), TARGET_VARIABLE: str(target)}
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=seconds_max)
    return log


def read_log(log: Path) -> list[Event]:
    """The events of a log that `record` made."""
    content, at = log.read_bytes(), 0
    events: list[Event] = []
    while at < len(content):
        kind, durable, length, offset = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        match chr(kind):
            case "W":
                events.append(Write(offset, content[at : at + length], bool(durable)))
            case "R":
                events.append(Replace(content[at : at + length]))
            case "G":
                events.append(Grow(offset))
            case "C":
                events.append(SizeChange(offset))
            case "S":
                events.append(Sync())
            case "M":
                events.append(Mark(content[at : at + length]))
            case other:
                raise ValueError(f"{log} holds an event of the unknown kind {other!r}")
        at += length
    return events


def replay(events: Iterable[Event]) -> bytearray:
    """The file after all of its events."""
    image = bytearray()
    for event in events:
        apply(image, event)
    return image


def apply(image: bytearray, event: Event) -> None:
    """Applies an event of the file to an image."""
    match event:
        case Write(offset, content):
            extend(image, offset + len(content))
            image[offset : offset + len(content)] = content
        case Replace(content):
            image[:] = content
        case Grow(size_bytes):
            extend(image, size_bytes)
        case SizeChange(size_bytes):
            del image[size_bytes:]
            extend(image, size_bytes)


def extend(image: bytearray, size_bytes: int) -> None:
    """Extends an image to at least this size."""
    if size_bytes > len(image):
        image.extend(bytes(size_bytes - len(image)))


_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_MAX 1024

struct head { uint8_t kind, durable; uint16_t zero; uint32_t length; uint64_t offset; };

static int log_fd = -1;
static const char *target;
/* Held over a call and its note, so that the notes stand in the order of the calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("WRITE_LOG");
    target = getenv("WRITE_LOG_OF");
    if (path && target) log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

static void give_up(const char *why) {
    fprintf(stderr, "write log: %s: the log would be incomplete\n", why);
    abort();
}

static int ours(int fd) {
    struct stat here, there;
    int kept = errno;
    int same = log_fd >= 0 && fd != log_fd && fstat(fd, &here) == 0 && stat(target, &there) == 0
        && here.st_ino == there.st_ino && here.st_dev == there.st_dev;
    errno = kept;
    return same;
}

static void note(char kind, int fd, uint64_t offset, const struct iovec *parts, int count, size_t length) {
    struct iovec out[PARTS_MAX + 1];
    int kept = errno, used = 1, flags = fcntl(fd, F_GETFL);
    struct head head = { kind, (flags & O_DSYNC) != 0, 0, (uint32_t)length, offset };
    size_t left = length;
    if (count > PARTS_MAX || length > UINT32_MAX) give_up("a very large write");
    if (kind == 'W' && flags & O_APPEND) give_up("an append");
    out[0] = (struct iovec){ &head, sizeof head };
    for (; left && used <= count; used++) {
        out[used] = parts[used - 1];
        if (out[used].iov_len > left) out[used].iov_len = left;
        left -= out[used].iov_len;
    }
    if (syscall(SYS_writev, log_fd, out, used) != (long)(sizeof head + length)) give_up("the log cannot be written");
    errno = kept;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WRITES(name, position, parts, count, parameters, ...) \
    ssize_t name parameters { \
        REAL(name); \
        if (!ours(fd)) return real(__VA_ARGS__); \
        pthread_mutex_lock(&lock); \
        off_t at = position; \
        ssize_t done = real(__VA_ARGS__); \
        if (done > 0) note('W', fd, at, parts, count, done); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }

#define HERE lseek(fd, 0, SEEK_CUR)
#define WRITES_ONE(name, position, parameters, ...) \
    WRITES(name, position, (&(struct iovec){ (void *)data, size }), 1, parameters, __VA_ARGS__)

WRITES_ONE(write, HERE, (int fd, const void *data, size_t size), fd, data, size)
WRITES_ONE(pwrite, offset, (int fd, const void *data, size_t size, off_t offset), fd, data, size, offset)
WRITES_ONE(pwrite64, offset, (int fd, const void *data, size_t size, off64_t offset), fd, data, size, offset)
WRITES(writev, HERE, data, count, (int fd, const struct iovec *data, int count), fd, data, count)
WRITES(pwritev, offset, data, count, (int fd, const struct iovec *data, int count, off_t offset),
       fd, data, count, offset)
WRITES(pwritev64, offset, data, count, (int fd, const struct iovec *data, int count, off64_t offset),
       fd, data, count, offset)

#define NO_FLAGS (flags ? give_up("a write with flags") : (void)0, offset)
WRITES(pwritev2, NO_FLAGS, data, count,
       (int fd, const struct iovec *data, int count, off_t offset, int flags), fd, data, count, offset, flags)
WRITES(pwritev64v2, NO_FLAGS, data, count,
       (int fd, const struct iovec *data, int count, off64_t offset, int flags), fd, data, count, offset, flags)

#define CHANGES(name, kind, end, parameters, ...) \
    int name parameters { \
        REAL(name); \
        if (!ours(fd)) return real(__VA_ARGS__); \
        pthread_mutex_lock(&lock); \
        int failed = real(__VA_ARGS__); \
        if (!failed) note(kind, fd, end, NULL, 0, 0); \
        pthread_mutex_unlock(&lock); \
        return failed; \
    }

CHANGES(fsync, 'S', 0, (int fd), fd)
CHANGES(fdatasync, 'S', 0, (int fd), fd)
CHANGES(ftruncate, 'C', size, (int fd, off_t size), fd, size)
CHANGES(ftruncate64, 'C', size, (int fd, off64_t size), fd, size)
CHANGES(posix_fallocate, 'G', offset + size, (int fd, off_t offset, off_t size), fd, offset, size)
CHANGES(posix_fallocate64, 'G', offset + size, (int fd, off64_t offset, off64_t size), fd, offset, size)

#define REFUSES(type, name, condition, why, parameters, ...) \
    type name parameters { \
        REAL(name); \
        if ((condition) && ours(fd)) give_up(why); \
        return real(__VA_ARGS__); \
    }

#define WRITABLE fd >= 0 && protection & PROT_WRITE && flags & MAP_SHARED
REFUSES(int, fallocate, 1, "fallocate with its modes",
        (int fd, int mode, off_t offset, off_t size), fd, mode, offset, size)
REFUSES(int, fallocate64, 1, "fallocate with its modes",
        (int fd, int mode, off64_t offset, off64_t size), fd, mode, offset, size)
REFUSES(void *, mmap, WRITABLE, "a writable map",
        (void *address, size_t size, int protection, int flags, int fd, off_t offset),
        address, size, protection, flags, fd, offset)
REFUSES(void *, mmap64, WRITABLE, "a writable map",
        (void *address, size_t size, int protection, int flags, int fd, off64_t offset),
        address, size, protection, flags, fd, offset)

int rename(const char *from, const char *to) {
    REAL(rename);
    if (log_fd < 0 || strcmp(to, target) != 0) return real(from, to);
    pthread_mutex_lock(&lock);
    int failed = real(from, to);
    if (!failed) {
        struct stat there;
        int fd = open(to, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &there) != 0) give_up("what was renamed cannot be read");
        struct iovec all = { malloc(there.st_size + 1), there.st_size };
        if (!all.iov_base || pread(fd, all.iov_base, all.iov_len, 0) != there.st_size)
            give_up("what was renamed cannot be read");
        note('R', fd, 0, &all, 1, all.iov_len);
        free(all.iov_base);
        close(fd);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}
"""
