"""What the helper gives up: processes of its own user, which root without capabilities could be."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.helper import lockdown
from gpusupervisor.helper.lockdown import Unsupported

PROGRAM = """
import errno, os, subprocess, sys
from gpusupervisor.helper.lockdown import Unsupported, lock
other, folder = int(sys.argv[1]), sys.argv[2]
def tried(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
attempts = {
    "memory": lambda: os.close(os.open(f"/proc/{other}/mem", os.O_RDWR)),
    "root": lambda: os.listdir(f"/proc/{other}/root/"),
    "device": lambda: os.mknod(f"{folder}/device", 0o20600, os.makedev(1, 3)),
}
before = {name: tried(attempt) for name, attempt in attempts.items()}
if os.path.exists(f"{folder}/device"):
    os.unlink(f"{folder}/device")
try:
    lock()
except Unsupported as why:
    sys.exit(f"unsupported: {why}")
after = {name: tried(attempt) for name, attempt in attempts.items()}
with open(f"{folder}/old", "w") as file:
    file.write("text")
os.rename(f"{folder}/old", f"{folder}/new")
assert open(f"/proc/{other}/stat").read() and open("/proc/self/maps").read()
assert subprocess.run(["true"]).returncode == 0
print(before["memory"], before["root"], after["memory"], after["root"], after["device"])
"""


def test_processes_of_the_same_user_are_out_of_reach_and_what_is_needed_works(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        command = [sys.executable, "-c", PROGRAM, str(other.pid), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        other.communicate(b"\n")
    if done.stderr.startswith("unsupported"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    *before, memory, root, device = done.stdout.split()
    assert before == ["done", "done"]
    assert {memory, root} <= {"EACCES", "EPERM"}
    assert device in ("EACCES", "EPERM")


def test_without_landlock_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockdown, "_CREATE_RULESET", 10_000)  # no kernel has so many system calls
    with pytest.raises(Unsupported, match=os.strerror(errno.ENOSYS)):
        lockdown.lock()
