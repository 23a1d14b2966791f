"""A program on a terminal of its own: what it writes there, and keys pressed when something has appeared."""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Mapping

INTERRUPT = b"\x03"


class PseudoTerminal:
    """A program whose input, output and errors are a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        self._written = b""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    @classmethod
    async def run(
        cls, *command: str, environment: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> "PseudoTerminal":
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = await asyncio.create_subprocess_exec(
            "setsid", "--ctty", "--wait", *command, stdin=slave, stdout=slave, stderr=slave,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        os.close(slave)
        return cls(process, master)

    def _read(self) -> None:
        try:
            self._written += os.read(self._master, 65536)
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._news.set()

    @property
    def pid(self) -> int:
        """Of the program itself: setsid becomes it."""
        return self._process.pid

    def resize(self, columns: int, rows: int) -> None:
        """Another size; the kernel tells the program."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def written(self) -> str:
        return self._written.decode(errors="ignore")  # a character may not be there whole yet

    async def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until a text has appeared."""
        async with asyncio.timeout(15):
            while self.written.count(text) < times:
                self._news.clear()
                await self._news.wait()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    async def end(self) -> int:
        """Wait for its end; returns the exit code."""
        async with asyncio.timeout(15):
            code = await self._process.wait()
        self._read()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        return code
