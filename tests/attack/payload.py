"""What a taken-over process would try. Runs within a unit's sandbox, alone, with nothing but the standard library.

    python payload.py VICTIMS [MODULE]

Prints one JSON object: for each attempt "done", or the name of the error. VICTIMS is a JSON object: by name a PID and
the address of 16 bytes in its memory. MODULE locks the process down first, as the service does at its start.
"""

import ctypes
import errno
import fcntl
import importlib
import json
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "x86_64": {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321, "perf_event_open": 298,
               "mount": 165, "unshare": 272, "setns": 308, "init_module": 175, "keyctl": 250, "mknodat": 259,
               "open_by_handle_at": 304, "setuid": 105, "pidfd_open": 434, "pidfd_getfd": 438, "io_uring_setup": 425},
    "aarch64": {"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "bpf": 280, "perf_event_open": 241,
                "mount": 40, "unshare": 97, "setns": 268, "init_module": 105, "keyctl": 219, "mknodat": 33,
                "open_by_handle_at": 265, "setuid": 146, "pidfd_open": 434, "pidfd_getfd": 438, "io_uring_setup": 425},
}[platform.machine()]  # fmt: skip
SECRET = b"0123456789abcdef"


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def call(name: str, *arguments: object) -> int:
    """A system call by its name. Raises OSError."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *wide)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def open_and_close(path: str, flags: int) -> None:
    """Open a file."""
    os.close(os.open(path, flags, 0o600))


def read_memory(pid: int, address: int) -> None:
    """Read by /proc/PID/mem, at an offset and by seeking."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        os.pread(descriptor, 16, address)
    except OSError:
        os.lseek(descriptor, address, os.SEEK_SET)
        os.read(descriptor, 16)


def write_memory(pid: int, address: int) -> None:
    """Write by /proc/PID/mem."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    os.pwrite(descriptor, SECRET, address)


def vm(name: str, pid: int, address: int) -> None:
    """process_vm_readv and process_vm_writev."""
    buffer = ctypes.create_string_buffer(SECRET, 16)
    here, there = Vector(ctypes.addressof(buffer), 16), Vector(address, 16)
    call(name, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


def steal_descriptor(pid: int) -> None:
    """Take a copy of an open file of another process."""
    call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0)


def against(name: str, pid: int, address: int) -> dict[str, Callable[[], object]]:
    """Attempts on one process."""
    root = f"/proc/{pid}/root"
    return {
        f"{name}: read memory": lambda: read_memory(pid, address),
        f"{name}: write memory": lambda: write_memory(pid, address),
        f"{name}: process_vm_readv": lambda: vm("process_vm_readv", pid, address),
        f"{name}: process_vm_writev": lambda: vm("process_vm_writev", pid, address),
        f"{name}: ptrace attach": lambda: call("ptrace", 16, pid, 0, 0),
        f"{name}: ptrace seize": lambda: call("ptrace", 0x4206, pid, 0, 0),
        f"{name}: pidfd_getfd": lambda: steal_descriptor(pid),
        f"{name}: write below its root": lambda: open_and_close(f"{root}/etc/taken", os.O_WRONLY | os.O_CREAT),
        f"{name}: overwrite below its root": lambda: open_and_close(f"{root}/etc/passwd", os.O_WRONLY),
        f"{name}: chmod below its root": lambda: os.chmod(f"{root}/etc/shadow", 0o666),
        f"{name}: signal": lambda: os.kill(pid, signal.SIGCONT),
        f"{name}: oom_score_adj": lambda: open_and_close(f"/proc/{pid}/oom_score_adj", os.O_WRONLY),
    }


def against_the_system() -> dict[str, Callable[[], object]]:
    """Attempts on the machine."""
    return {
        "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "remount /proc writable": lambda: call("mount", None, b"/proc", None, 32, None),
        "unshare": lambda: call("unshare", 0x00020000),
        "setns": lambda: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
        "bpf": lambda: call("bpf", 5, ctypes.create_string_buffer(128), 128),
        "perf_event_open": lambda: call("perf_event_open", ctypes.create_string_buffer(128), 1, 0, -1, 0),
        "init_module": lambda: call("init_module", None, 0, b""),
        "keyctl": lambda: call("keyctl", 0, -3, 1),
        "io_uring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
        "open_by_handle_at": lambda: call("open_by_handle_at", -100, ctypes.create_string_buffer(128), 0),
        "mknod": lambda: call("mknodat", -100, b"/tmp/mem", 0o20600, 0x101),
        "write /etc": lambda: open_and_close("/etc/taken", os.O_WRONLY | os.O_CREAT),
        "write /usr": lambda: open_and_close("/usr/taken", os.O_WRONLY | os.O_CREAT),
        "chmod shadow": lambda: os.chmod("/etc/shadow", 0o666),
        "core_pattern": lambda: open_and_close("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "sysrq": lambda: open_and_close("/proc/sysrq-trigger", os.O_WRONLY),
        "cgroup": lambda: open_and_close("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
        "inet socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "/dev/mem": lambda: open_and_close("/dev/mem", os.O_RDONLY),
        "/dev/kmsg": lambda: open_and_close("/dev/kmsg", os.O_WRONLY),
        "gpu": lambda: open_and_close("/dev/nvidia0", os.O_RDWR),
        "gpu by the root of PID 1": lambda: open_and_close("/proc/1/root/dev/nvidia0", os.O_RDWR),
        "disk by the root of PID 1": lambda: open_and_close("/proc/1/root/dev/a-disk", os.O_RDONLY),
        "request to a driver": lambda: fcntl.ioctl(os.open("/dev/null", os.O_RDWR), 0xC020462A),
    }


def outcome(attempt: Callable[[], object]) -> str:
    """ "done", or the name of the error."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def main() -> None:
    """Try everything."""
    for module in sys.argv[2:]:
        importlib.import_module(module).lock()
    attempts = against_the_system()
    for name, (pid, address) in json.loads(sys.argv[1]).items():
        attempts |= against(name, pid, address)
    sys.stdout.write(json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}))


if __name__ == "__main__":
    main()
