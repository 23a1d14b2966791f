"""The system calls that the standard library does not have, with the kernel's own errors; nothing here decides.

Numbers: those of the table that all architectures have shared since Linux 5.1.
"""

import ctypes
import errno
import mmap
import os
from typing import ClassVar

OPENAT2 = 437
CACHESTAT = 451
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
MISSING = frozenset({errno.ENOSYS, errno.EPERM})
"""How a call that an old kernel lacks, or a filter of system calls refuses, answers to nonsense."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


class _OpenHow(ctypes.Structure):
    _fields_: ClassVar = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


class _Range(ctypes.Structure):
    _fields_: ClassVar = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _CacheStat(ctypes.Structure):
    _fields_: ClassVar = [
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


def has_openat2() -> bool:
    """Whether openat2(2) (Linux 5.6) can be called: it answers EINVAL to a structure of no size."""
    return _probe(OPENAT2, b"", None, ctypes.c_size_t(0)) not in MISSING


def has_cachestat() -> bool:
    """Whether cachestat(2) (Linux 6.5) can be called: it answers EBADF to no file."""
    return _probe(CACHESTAT, None, None, ctypes.c_uint(0)) not in MISSING


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """A new descriptor. Raises OSError."""
    how = _OpenHow(flags, 0, resolve)
    arguments = (ctypes.c_int(folder), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    return _checked(_LIBC.syscall(ctypes.c_long(OPENAT2), *arguments), path)


def cachestat(descriptor: int, offset: int, length: int) -> int:
    """Return how many pages of a part of a file are in the page cache. Raises OSError, EPERM if not permitted."""
    part, found = _Range(offset, length), _CacheStat()
    arguments = (ctypes.c_uint(descriptor), ctypes.byref(part), ctypes.byref(found), ctypes.c_uint(0))
    _checked(_LIBC.syscall(ctypes.c_long(CACHESTAT), *arguments))
    return int(found.cached)


def mincore(descriptor: int, offset: int, length: int) -> int:
    """How many pages of a part of a file are in the page cache. Raises OSError.

    offset: of a page. Whoever could not write to the file is told that all are, and gets no error.
    """
    pages = -(-length // mmap.PAGESIZE)
    address = _LIBC.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
    if address == _MAP_FAILED:
        raise _error()
    try:
        found = ctypes.create_string_buffer(pages)
        _checked(_LIBC.mincore(address, length, found))
    finally:
        _LIBC.munmap(address, length)
    return sum(map((1).__and__, found.raw))


def _probe(number: int, *arguments: object) -> int:
    """The error with which a call answers to nonsense."""
    _LIBC.syscall(ctypes.c_long(number), ctypes.c_int(-1), *arguments)
    return ctypes.get_errno()


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        raise _error(path)
    return int(result)


def _error(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
