"""What the reader gives up: reading memory by address, by whatever call, and what it needs all the same."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.reader.lockdown import _MACHINES, Unsupported, _program

PROGRAM = """
import ctypes, errno, os, sys, threading
from gpusupervisor.reader.lockdown import lock
secret = ctypes.create_string_buffer(b"a secret of this process")
address = ctypes.addressof(secret)
memory = os.open("/proc/self/mem", os.O_RDONLY)
assert os.pread(memory, 24, address) == secret.value, "before, it works"
lock()
null = os.open("/dev/null", os.O_WRONLY)
def call(name, attempt):
    try:
        print(name, attempt())
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def seek_and_read():
    os.lseek(memory, address, os.SEEK_SET)
    return os.read(memory, 24)
def creep():
    for _ in range(address // 65535 + 1):
        os.lseek(memory, 65535, os.SEEK_CUR)
def first_bytes():
    os.lseek(memory, 65535, os.SEEK_SET)
    return os.read(memory, 24)
def in_a_thread():
    result = []
    def work():
        try: result.append(os.pread(memory, 24, address))
        except OSError as error: result.append(errno.errorcode[error.errno])
    thread = threading.Thread(target=work); thread.start(); thread.join()
    return result[0]
call("pread", lambda: os.pread(memory, 24, address))
call("preadv", lambda: os.preadv(memory, [bytearray(24)], address))
call("seek", seek_and_read)
call("creep", creep)
call("first", first_bytes)
call("sendfile", lambda: os.sendfile(null, memory, address, 24))
call("splice", lambda: os.splice(memory, os.pipe()[1], 24, address))
call("copy_file_range", lambda: os.copy_file_range(memory, null, 24, address))
def map_it():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    found = libc.mmap(None, ctypes.c_size_t(4096), 1, 2, memory, ctypes.c_long(address & ~4095))
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "")
    return found
call("mmap", map_it)
call("thread", in_a_thread)
own = os.open(sys.executable, os.O_RDONLY)
assert len(os.pread(own, 100, 64)) == 100, "as the dynamic loader does"
assert os.lseek(own, 0, os.SEEK_CUR) == 0
assert os.lseek(own, 0, os.SEEK_END) > 65536
assert os.lseek(own, 65536 + 4096, os.SEEK_DATA) >= 65536
assert os.sendfile(null, own, 65536 + 5, 1000) == 1000
import decimal, sqlite3
print("done")
"""


def test_no_call_reads_memory_at_an_address_any_more_and_what_is_needed_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "done"
    told = dict(line.split() for line in lines)
    refused = {"EPERM", "EINVAL", "EIO", "ENODEV", "EBADF", "EOVERFLOW"}
    assert set(told.values()) <= refused, told
    assert [told[name] for name in ("pread", "preadv", "seek", "creep", "thread")] == ["EPERM"] * 5
    assert told["first"] == errno.errorcode[errno.EIO], "nothing is mapped there"


@pytest.mark.parametrize("machine", _MACHINES)
def test_every_jump_of_the_filter_stays_within_it(machine: str) -> None:
    program = _program(machine)
    steps = [program[start : start + 8] for start in range(0, len(program), 8)]
    assert all(number + 1 + max(step[2], step[3]) < len(steps) for number, step in enumerate(steps) if step[0] != 6)


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(Unsupported, match="vax"):
        _program("vax")
