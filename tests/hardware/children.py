"""What runs in a process of its own: to be killed, to be restricted, to hold memory, or to survive the script."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gpusupervisor.clock import SystemClock
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper import restore_fans
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import FanSetting
from tests.hardware.keep import SNAPSHOTS, restore

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
"""Linux 6.3: what systemd's MemoryDenyWriteExecute= does, for one process."""
TAKEN = 60
"""Percent at which a child that is to be killed keeps the fans."""

Hold = Callable[[str, int], str]
"""Take so many bytes of VRAM on a GPU, to be held until the process ends; why it could not, or empty."""


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


def main(role: str, arguments: Sequence[str], hold: Hold) -> int:
    """Be a child."""
    if role == "mdwe":
        return _restricted()
    if role == "hold":
        return _holder(arguments[0], int(arguments[1]), hold)
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


def _holder(uuid: str, size: int, hold: Hold) -> int:
    sys.stdout.write(json.dumps({"problem": hold(uuid, size)}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


def hold_with_cuda(_uuid: str, size: int) -> str:
    """By the driver's own libcuda; CUDA_VISIBLE_DEVICES in the environment leaves the one GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    calls: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(pointer), ctypes.c_size_t(size))),
        ("cuMemsetD8_v2", (pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size))),
        ("cuCtxSynchronize", ()),
    )
    for name, arguments in calls:
        code = getattr(cuda, name)(*arguments)
        if code:
            return f"{name} answered {code}"
    return ""


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
