"""The stage: a private bus, a simulated card, engines that are real processes, and the real daemon."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from gpusupervisor.simulation.engines.launch import Engine, disguised_python, start_engine
from gpusupervisor.simulation.nvml import SimulatedCard, SimulatedGpu
from gpusupervisor.simulation.worlds import lay_out
from gpusupervisor.tenants.catalog import SHIPPED


class StageError(Exception):
    """The stage cannot be set up; the text says what is missing."""


class Stage:
    """Everything that the story needs; leaves nothing behind."""

    def __init__(self, world: str = "") -> None:
        """world: of simulation.worlds, in the place of a desktop with an RTX 4090."""
        self._world = world
        self._stack = AsyncExitStack()
        self.directory = Path()
        self.bus_address = ""
        self.ollama: Engine
        self.comfyui: Engine
        self.stranger: Engine

    @property
    def tenants(self) -> Path:
        """Where tenant files of the demo are, as /etc/gpusupervisor/tenants.d is on a real machine."""
        return self.directory / "tenants.d"

    @property
    def card(self) -> Path:
        """The card directory."""
        return self.directory / "card"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that shall talk to the demo's bus as if it were the system bus."""
        return {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.bus_address}

    async def __aenter__(self) -> "Stage":
        """Set up everything but the stranger."""
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpusupervisor-demo-")))
            self.tenants.mkdir()
            if self._world:
                lay_out(self.card, self._world)
            else:
                SimulatedCard(self.card).write_card([SimulatedGpu()])
            await self._start_bus()
            await self._enter(await start_engine("desktop", "--card", self.card))
            self.ollama = await self._enter(await self._start_ollama())
            self.comfyui = await self._enter(await self._start_comfyui())
            self._describe()
            if self._world:
                await self._start_helper()
            await self._start_daemon()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process and remove the directory."""
        await self._stack.aclose()

    async def command(self, *words: str) -> str:
        """Return what gpusupervisorctl prints here. Raises StageError, with its words, if it prints nothing and fails.

        `health` exits with 1 where a check is not ok, and prints all of them.
        """
        command = (sys.executable, "-m", "gpusupervisor.cli.main", *words)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=self.environment, stdout=pipe, stderr=pipe)
        output, errors = await process.communicate()
        if process.returncode != 0 and not output:
            raise StageError(f"gpusupervisorctl {' '.join(words)} failed: {errors.decode().strip()}")
        return output.decode()

    async def start_stranger(self, hold: str) -> None:
        """Start an application that nobody has described."""
        executable = disguised_python(self.directory / "bin" / "renderbox")
        self.stranger = await self._enter(
            await start_engine("third_app", "--card", self.card, "--port", "0", "--hold", hold, executable=executable)
        )

    async def _start_ollama(self) -> Engine:
        home = self.directory / "ollama"
        arguments = ("--card", self.card, "--port", "0", "--model", "llama3.1:13b=13G", "--home", home)
        return await start_engine("ollama", *arguments, executable=disguised_python(home / "bin" / "ollama"))

    async def _start_comfyui(self) -> Engine:
        return await start_engine("comfyui", "--card", self.card, "--port", "0")

    def _describe(self) -> None:
        """The shipped definitions, with only what is different on a stage: where the simulated engines are."""
        files = {
            **{file.name: "" for file in SHIPPED.glob("*.toml")},  # empty files mask: nothing of this machine is probed
            "desktop.toml": '[match]\ncommand-lines = ["*engines.desktop*"]\n',
            "ollama.toml": f'[match]\nexecutables = ["{self.directory}/ollama/*"]\n'
            f'[endpoint]\nurl = "{self.ollama.url}"\n',
            "comfyui.toml": f'[match]\ncommand-lines = ["*engines.comfyui*"]\n'
            f'[endpoint]\nurl = "{self.comfyui.url}"\nport-flags = []\n',
        }
        for name, text in files.items():
            (self.tenants / name).write_text(text)

    async def _start_bus(self) -> None:
        if shutil.which("dbus-daemon") is None:
            raise StageError("dbus-daemon is not installed: apt-get install dbus")
        configuration = self.directory / "bus.conf"
        configuration.write_text(
            "<busconfig><type>session</type>"
            f"<listen>unix:path={self.directory}/bus</listen><auth>EXTERNAL</auth>"
            '<policy context="default"><allow send_destination="*" eavesdrop="false"/><allow own="*"/>'
            '<allow receive_sender="*"/></policy></busconfig>'
        )
        bus = await self._spawn(
            "dbus-daemon", "--nofork", "--print-address=1", f"--config-file={configuration}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert bus.stdout is not None
        self.bus_address = (await asyncio.wait_for(bus.stdout.readline(), 10)).decode().strip().partition(",")[0]

    async def _start_helper(self) -> None:
        for name in ("state", "runtime"):
            (self.directory / "helper" / name).mkdir(parents=True, mode=0o700)
        await self._spawn(
            sys.executable, "-m", "gpusupervisor.simulation.helper_daemon", "--card", str(self.card),
            "--folder", str(self.directory / "helper"), "--bus", self.bus_address,
            stderr=(self.directory / "helper.log").open("wb"),
        )  # fmt: skip

    async def _start_daemon(self) -> None:
        state = self.directory / "state"
        state.mkdir()
        await self._spawn(
            sys.executable, "-m", "gpusupervisor.simulation.daemon",
            "--card", str(self.card), "--tenants", str(self.tenants),
            "--settings", str(self.directory / "gpusupervisor.toml"), "--bus", self.bus_address,
            env={**os.environ, "STATE_DIRECTORY": str(state)},
            stderr=(self.directory / "daemon.log").open("wb"),
        )  # fmt: skip

    async def _spawn(self, *command: str, **streams: object) -> Process:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, **streams)  # type: ignore[arg-type]
        self._stack.push_async_callback(_end, process)
        return process

    async def _enter(self, engine: Engine) -> Engine:
        self._stack.push_async_callback(engine.stop)
        return engine


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.communicate()
