"""Has tenant files checked that a stranger sends: in a process of its own, one at a time, and not for long."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpusupervisor.errors import Busy, InvalidArgument
from gpusupervisor.tenants.examine import CPU_SECONDS

PATIENCE = 10.0
"""Seconds, on a busy machine; of the processor's time it is `CPU_SECONDS`."""
MOST_WAITING = 32
"""Files that wait for their turn."""
MOST_TOLD = 256 << 10
"""Bytes of problems that are read."""
COMMAND = (sys.executable, "-I", "-m", "gpusupervisor.tenants.examine")


class Examination:
    """All that are asked for, one after the other."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def of(self, name: str, text: str, layers: Sequence[Path]) -> tuple[str, ...]:
        """The problems of a file over what lies in the folders.

        Raises Busy, and InvalidArgument for what takes too long.
        """
        if self._waiting >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} tenant files wait to be checked: try again in {self._patience:.0f} s.")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._run(name, text, layers)
        finally:
            self._waiting -= 1

    async def _run(self, name: str, text: str, layers: Sequence[Path]) -> tuple[str, ...]:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *COMMAND, "--", name, *map(str, layers), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH") if name in os.environ},
            limit=MOST_TOLD,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._patience):
                told, _ = await child.communicate(text.encode("utf-8", "replace"))
        except TimeoutError:
            told = b""
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0 or not told:
            raise InvalidArgument(
                f"text: it takes more than {CPU_SECONDS} s, or more memory than there is for it, to check: "
                f"it is nested, dotted or repeated far beyond what a tenant file needs"
            )
        return tuple(str(problem) for problem in json.loads(told))
