"""What runs in a process of its own: to be killed, to be restricted, to hold memory, or to survive the script."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpusupervisor.clock import SystemClock
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.session import DriverSession
from gpusupervisor.helper import restore_fans
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import FanSetting
from tests.hardware.keep import SNAPSHOTS, restore

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
"""Linux 6.3: what systemd's MemoryDenyWriteExecute= does, for one process."""
NOBODY = 65534
TAKEN = 60
"""Percent at which a child that is to be killed keeps the fans."""


class Taker(Protocol):
    """How a child takes memory of a card. Each returns why it could not, or empty."""

    def take(self, uuid: str, size: int) -> str:
        """Hold so many bytes until told otherwise, or until the process ends."""

    def free(self) -> str:
        """Give it back, and stay."""

    def work(self, seconds: float) -> str:
        """Use it for so long."""


def start(command: Sequence[str], role: str, *arguments: str, **options: object) -> "subprocess.Popen[str]":
    """Start a child that speaks over its standard input and output."""
    environment = {**os.environ, **{name: str(value) for name, value in options.items()}}
    return subprocess.Popen(
        [*command, "--child", role, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def main(role: str, arguments: Sequence[str], taker: Taker) -> int:
    """Be a child."""
    if role == "mdwe":
        return _restricted()
    if role == "hold":
        return _hold(arguments[0], int(arguments[1]), taker)
    if role == "holder":
        return _holder(arguments[0], taker)
    if role in ("look", "stranger"):
        return _look(drop=role == "stranger")
    if role == "take-fans":
        return asyncio.run(_take_fans(arguments[0], Path(arguments[1])))
    if role == "restore-fans":
        return restore_fans.main(list(arguments))
    return _watchdog()


def _restricted() -> int:
    """Whether NVML works where no memory can become executable."""
    failed = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
    told: dict[str, object] = {"refused": os.strerror(ctypes.get_errno()) if failed else ""}
    session = HardwareSession(may_write=False)
    try:
        session.open()
        told["gpus"] = [identity.uuid for identity in session.identities()]
        for identity in session.identities():
            session.gpu(identity.uuid).capabilities()
            session.gpu(identity.uuid).temperatures()
    except DriverError as error:
        told["error"] = str(error)
    session.close()
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


def _hold(uuid: str, size: int, taker: Taker) -> int:
    _say(taker.take(uuid, size))
    sys.stdin.read()
    return 0


def _holder(uuid: str, taker: Taker) -> int:
    """Do what it is told, line by line."""
    for line in iter(sys.stdin.readline, ""):
        word, *rest = line.split()
        if word == "take":
            _say(taker.take(uuid, int(rest[0])))
        elif word == "free":
            _say(taker.free())
        else:
            _say(taker.work(float(rest[0])))
    return 0


def _say(problem: str) -> None:
    sys.stdout.write(json.dumps({"problem": problem}) + "\n")
    sys.stdout.flush()


def _look(*, drop: bool) -> int:
    """One sample; as nobody where that can be, for what a user without privilege sees."""
    told: dict[str, object] = {}
    if drop and os.geteuid() == 0:
        import pynvml  # noqa: F401  (nobody may not read where it lies)

        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    reader = NvmlReader(SystemClock())
    session = DriverSession(reader, SystemClock(), SYSFS_PCI_DEVICES)
    sample = session.sample(fresh_processes=True, utilization=False, needed=True)
    session.close()
    if sample.driver.state == "ok":
        told["gpus"] = {
            gpu.identity.uuid: {
                "total": gpu.memory.total if gpu.memory else None,
                "pids": [process.pid for process in gpu.processes],
            }
            for gpu in sample.gpus
        }
    else:
        told["problem"] = sample.driver.detail
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


class CudaTaker:
    """By the driver's own libcuda; CUDA_VISIBLE_DEVICES in the environment leaves the one GPU."""

    def __init__(self) -> None:
        self._cuda: ctypes.CDLL | None = None
        self._pointer = ctypes.c_uint64()
        self._size = 0

    def take(self, _uuid: str, size: int) -> str:
        """With a context, and written to once, so that it is there."""
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return str(error)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._size = size
        return (
            self._call("cuInit", 0)
            or self._call("cuDeviceGet", ctypes.byref(device), 0)
            or self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            or self._call("cuCtxSetCurrent", context)
            or self._call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(size))
            or self._fill()
        )

    def free(self) -> str:
        """The context stays."""
        return self._call("cuMemFree_v2", self._pointer) or self._call("cuCtxSynchronize")

    def work(self, seconds: float) -> str:
        """Fills back to back: work of the GPU without a program of our own."""
        ends = time.monotonic() + seconds
        problem = ""
        while not problem and time.monotonic() < ends:
            problem = self._fill()
        return problem

    def _fill(self) -> str:
        filled = self._call("cuMemsetD8_v2", self._pointer, ctypes.c_ubyte(1), ctypes.c_size_t(self._size))
        return filled or self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> str:
        code = getattr(self._cuda, name)(*arguments)
        return f"{name} answered {code}" if code else ""


async def _take_fans(uuid: str, directory: Path) -> int:
    """Take all fans over as the helper does, and wait to be killed; ends with the script."""
    session, clock = HardwareSession(), SystemClock()
    count = session.gpu(uuid).capabilities().fan_count
    controller = FanController(uuid, session, NvmlThread(clock), directory)
    await controller.control({index: FanSetting("fixed", percent=TAKEN) for index in range(count)})
    report = await controller.tick(clock.now())
    sys.stdout.write(report.state + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    return 0


def _watchdog() -> int:
    """Wait for the script to say that it is done; when it ends without that, restore what it touched."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = iter(sys.stdin.readline, "")
    snapshots = SNAPSHOTS.loads(next(lines, "[]"))
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    touched: set[str] = set()
    for line in lines:
        if line == "done\n":
            return 0
        touched.add(line.strip())
    session = HardwareSession()
    problems = restore(session, snapshots, touched)
    session.close()
    with contextlib.suppress(OSError):  # the terminal may be gone with the script
        text = "; ".join(problems) or "everything that was touched is as it was before"
        sys.stderr.write(f"prove.py was killed. {text}\n")
    return 1 if problems else 0
