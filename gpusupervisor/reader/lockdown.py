"""Gives up what the reader's capabilities permit and the reader never needs: reading processes' memory by address.

CAP_SYS_PTRACE is needed for /proc/PID/exe, cwd and fd; with it /proc/PID/mem can be opened, too, which no unit setting
prevents. But memory can only be read there at an address, and nothing is mapped below 64 KiB (vm.mmap_min_addr). So a
filter of system calls permits seeking and reading at an offset only below that; files are read from their start, and
model files by sendfile(2), which /proc/PID/mem does not have. Nor is any request to a device permitted, so that one
which was opened in spite of the unit, by /proc/PID/root, is of no use. The filter lasts for the process's life, for all
its threads and children. What system call groups of the unit's systemd may not know yet is refused here, too.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Mapping, Sequence

LOWEST = 65536
"""Bytes from the start of a file that can be read at an offset."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 1
"""SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_X32 = 0x40000000
_SEEK_CUR, _SEEK_END = 1, 2
_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Of ioctl(2), what Python calls: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

_ALIKE = {"pidfd_getfd": 438, "process_madvise": 440, "io_uring_setup": 425, "fchmodat2": 452, "setxattrat": 463,
          "removexattrat": 466, "file_setattr": 469}  # fmt: skip
_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, {
        "lseek": 8, "ioctl": 16, "pread64": 17, "ptrace": 101, "preadv": 295, "preadv2": 327, "process_vm_readv": 310,
        "process_vm_writev": 311, "open_by_handle_at": 304, "io_setup": 206, **_ALIKE,
    }),
    "aarch64": (0xC00000B7, {
        "lseek": 62, "ioctl": 29, "pread64": 67, "ptrace": 117, "preadv": 69, "preadv2": 286, "process_vm_readv": 270,
        "process_vm_writev": 271, "open_by_handle_at": 265, "io_setup": 0, **_ALIKE,
    }),
}  # fmt: skip
"""By uname(2)'s machine: AUDIT_ARCH, and the numbers of the system calls that are filtered."""


class Unsupported(Exception):  # noqa: N818  (it names a state)
    """There is no filter for this machine's architecture; the text names it."""


def lock() -> None:
    """Install the filter. Call before threads are started. Raises Unsupported, OSError."""
    program = _program(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program)
    # struct sock_fprog: the number of instructions, padding, a pointer
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))):
        if libc.prctl(*map(ctypes.c_ulong, arguments), ctypes.c_ulong(0), ctypes.c_ulong(0)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _program(machine: str) -> bytes:
    """The filter, as instructions of classic BPF."""
    if machine not in _MACHINES:
        raise Unsupported(machine)
    architecture, calls = _MACHINES[machine]
    filtered = {calls["pread64"]: _read_at(3), calls["lseek"]: _seek(1, 2), calls["ioctl"]: _one_of(1, _REQUESTS)}
    code = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _DENY)]
    code += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _DENY)]
    for number in calls.values():
        body = filtered.get(number, [_step(_RETURN, _DENY)])
        code += [_step(_EQUAL, number, 0, len(body)), *body]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _read_at(argument: int) -> list[bytes]:
    """Permit a call whose argument is an offset below `LOWEST`."""
    return [
        _step(_LOAD, _high(argument)),
        _step(_EQUAL, 0, 1, 0),
        _step(_RETURN, _DENY),
        _step(_LOAD, _low(argument)),
        _step(_AT_LEAST, LOWEST, 0, 1),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]


def _seek(offset: int, whence: int) -> list[bytes]:
    """Permit SEEK_END, SEEK_DATA and SEEK_HOLE, which memory does not have; SEEK_SET below `LOWEST`; SEEK_CUR by 0."""
    by_nothing = [
        _step(_LOAD, _high(offset)),
        _step(_EQUAL, 0, 1, 0),
        _step(_RETURN, _DENY),
        _step(_LOAD, _low(offset)),
        _step(_EQUAL, 0, 1, 0),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]
    return [
        _step(_LOAD, _low(whence)),
        _step(_AT_LEAST, _SEEK_END, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, _SEEK_CUR, 0, len(by_nothing)),
        *by_nothing,
        *_read_at(offset),
    ]


def _one_of(argument: int, values: Sequence[int]) -> list[bytes]:
    """Permit a call whose argument is one of these."""
    tests = [_step(_EQUAL, value, len(values) - number, 0) for number, value in enumerate(values)]
    return [_step(_LOAD, _low(argument)), *tests, _step(_RETURN, _DENY), _step(_RETURN, _ALLOW)]


def _low(argument: int) -> int:
    """Where the lower half of an argument is in struct seccomp_data, on a little-endian machine."""
    return 16 + 8 * argument


def _high(argument: int) -> int:
    return _low(argument) + 4


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction: struct sock_filter."""
    return struct.pack("HBBI", code, if_true, if_false, value)
