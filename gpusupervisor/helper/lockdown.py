"""Gives up what root may do to root's other processes, which the helper never needs.

Without CAP_SYS_PTRACE root may still trace processes of root that have no more capabilities than itself: read their
memory, and by /proc/PID/root write outside of the unit's read-only view, whose files are mostly root's. Landlock
denies a process all of that, for every process but its own descendants; and from Linux 6.12 on signals, too.
"""

import ctypes
import errno
import os
import struct

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION_FLAG = 1
_PR_SET_NO_NEW_PRIVS = 38
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 11
_SCOPE_SIGNAL = 1 << 1
_SCOPED_SINCE = 6
"""Version of Landlock that can deny signals."""


class Unsupported(Exception):  # noqa: N818  (it names a state)
    """The kernel has no Landlock (Linux 5.13), or it is disabled; the text says which."""


def lock() -> None:
    """Restrict this process for good, with all threads started later and all children. Raises Unsupported, OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    if version < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        raise Unsupported(os.strerror(ctypes.get_errno()))
    # A ruleset must restrict something by itself: making device nodes.
    attributes = struct.pack("Q", _MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE)
    if version >= _SCOPED_SINCE:
        attributes += struct.pack("QQ", 0, _SCOPE_SIGNAL)
    ruleset = _checked(libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)))
    try:
        zero = ctypes.c_ulong(0)
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero))
        _checked(libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)))
    finally:
        os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
