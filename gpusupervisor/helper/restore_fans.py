"""Gives marked fans back to the driver: after the helper ended in whatever way, and before it starts again.

    python -m gpusupervisor.helper.restore_fans [RUNTIME-DIRECTORY]

For ExecStopPost= and for start-up; needs no daemon. The directory is $RUNTIME_DIRECTORY by default. Exits 0 when there
is nothing to do, when no driver is loaded (then no fan is in its hands), or when all is done, and 1 when fans are left.
"""

import contextlib
import os
import sys
from pathlib import Path

from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NOT_FOUND,
    DriverError,
    plain,
)
from gpusupervisor.helper.fans.marker import Marked, find_marks
from gpusupervisor.helper.hardware.fans import Fans
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.lockdown import Unsupported, lock

DEFAULT_DIRECTORY = "/run/gpusupervisor-helper"
NO_DRIVER = frozenset({DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND})
GPU_GONE = frozenset({NOT_FOUND, 28})
"""NVML has no GPU of that UUID: it was taken out, or given away."""


def main(arguments: list[str]) -> int:
    """Entry point; the exit status."""
    directory = Path(arguments[0] if arguments else os.environ.get("RUNTIME_DIRECTORY") or DEFAULT_DIRECTORY)
    lines, left = restore(directory)
    for line in lines:
        sys.stderr.write(f"{line}\n")
    return 1 if left else 0


def restore(directory: Path) -> tuple[list[str], bool]:
    """What was done, in lines for a person, and whether fans are left in our hands. Never raises DriverError."""
    marks = find_marks(directory)
    stale = [mark for mark in marks if not mark.of_this_boot]
    for mark in stale:
        mark.path.unlink(missing_ok=True)
    current = [mark for mark in marks if mark.of_this_boot]
    if not current:
        return [], False
    try:
        ask("nvmlInit")
    except DriverError as error:
        if error.code not in NO_DRIVER:
            return [f"Fans could not be given back to the driver: {error}"], True
        for mark in current:
            mark.path.unlink(missing_ok=True)
        return [f"No fans to give back: {error}"], False
    try:
        done = [_restore_marked(mark) for mark in current]
    finally:
        with contextlib.suppress(DriverError):
            ask("nvmlShutdown")
    return [line for lines, _ in done for line in lines], any(left for _, left in done)


def _restore_marked(mark: Marked) -> tuple[list[str], bool]:
    """One mark; it is removed when all fans that it names are automatic again."""
    try:
        gpus = [mark.uuid] if mark.uuid else _all_uuids()
    except DriverError as error:
        return [f"Fans could not be given back to the driver, for the GPUs cannot be listed: {error}"], True
    done = [_restore_gpu(uuid, mark.fans) for uuid in gpus]
    left = any(left for _, left in done)
    if not left:
        mark.path.unlink(missing_ok=True)
    return [line for lines, _ in done for line in lines], left


def _all_uuids() -> list[str]:
    return [
        ask("nvmlDeviceGetUUID", ask("nvmlDeviceGetHandleByIndex", index)) for index in range(ask("nvmlDeviceGetCount"))
    ]


def _restore_gpu(uuid: str, indexes: tuple[int, ...]) -> tuple[list[str], bool]:
    """Fans of one GPU, all of them when none is named; lines, and whether any is left."""
    name = plain(uuid)
    try:
        fans = Fans(Handle(ask("nvmlDeviceGetHandleByUUID", uuid)))
        wanted = indexes or range(fans.count())
    except DriverError as error:
        if error.code in GPU_GONE:
            return [f"GPU {name} is not there any more, its fans are not in our hands"], False
        if error.error_class == "unsupported":
            return [f"GPU {name} has no fans that can be set"], False
        return [f"Fans of GPU {name} could not be given back to the driver: {error}"], True
    done = [_restore_fan(fans, index) for index in wanted]
    return [f"Fan {index} of GPU {name}: {text}" for index, text, _ in done], any(left for *_, left in done)


def _restore_fan(fans: Fans, index: int) -> tuple[int, str, bool]:
    """One fan: automatic, or else at full, which keeps the GPU cool until somebody looks."""
    try:
        if fans.set_automatic(index) != "manual":
            return index, "automatic again", False
        reason = "it stays manual"
    except DriverError as error:
        reason = str(error)
    try:
        fans.set(index, fans.limits()[1])
    except DriverError as error:
        return index, f"could be set neither to automatic ({reason}) nor to full ({error})", True
    return index, f"at full, because it could not be set to automatic ({reason})", True


if __name__ == "__main__":
    with contextlib.suppress(Unsupported):
        lock()
    sys.exit(main(sys.argv[1:]))
