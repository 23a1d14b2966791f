"""Starting simulated engines from tests and the demo."""

import asyncio
import os
import shutil
import signal
import sys
import sysconfig
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT = 15
PACKAGE = "gpusupervisor.simulation.engines"


@dataclass(frozen=True, slots=True)
class Engine:
    """A simulated engine that is ready."""

    process: Process
    port: int
    """0 for one that does not listen."""

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its PID."""
        return self.process.pid

    async def stop(self) -> int:
        """End it in an orderly way; returns its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await self.process.communicate()
        return self.process.returncode or 0

    async def kill(self) -> None:
        """End it at once."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()


async def start_engine(name: str, *arguments: str | Path, executable: Path | None = None) -> Engine:
    """Start an engine ("ollama", "comfyui", "third_app", "desktop") and wait until it is ready.

    executable: from `disguised_python`, to be recognised by. Raises RuntimeError when it does not come up.
    """
    process = await asyncio.create_subprocess_exec(
        executable or sys.executable,
        "-m",
        f"{PACKAGE}.{name}",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment() if executable else {})},
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT)
    except TimeoutError:
        line = b""
    except asyncio.CancelledError:
        await Engine(process, 0).kill()
        raise
    if not line:
        await Engine(process, 0).kill()
        raise RuntimeError(f"the simulated {name} did not come up: see its messages above")
    port = line.decode().rstrip().rpartition(":")[2]
    return Engine(process, int(port) if port.isdigit() else 0)


def disguised_python(path: Path) -> Path:
    """A copy of this Python interpreter at `path`, so that /proc/PID/exe is what shipped definitions look for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        shutil.copy(Path(sys.executable).resolve(), path)
    return path


def environment() -> Mapping[str, str]:
    """Variables with which a copied interpreter finds its library and this package."""
    return {
        "PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}",
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR") or ""),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
