"""A real notification socket, read all the time as PID 1 does."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 15.0


@dataclass
class NotifySocket:
    """What a service told systemd, one datagram after the other."""

    messages: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """Monotonic seconds at which each came in."""

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="notify-"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = str(self._folder / "notify")
        self._socket.bind(self.address)
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while datagram := self._socket.recv(65536):
            with self._news:
                self.messages.append(datagram.decode())
                self.times.append(time.monotonic())
                self._news.notify_all()

    def wait_for(self, condition: Callable[[list[str]], bool], what: str, since: int = 0) -> list[str]:
        """Wait until the messages from the one numbered `since` on are as wanted; returns them."""
        with self._news:
            if not self._news.wait_for(lambda: condition(self.messages[since:]), PATIENCE):
                raise AssertionError(f"not within {PATIENCE:.0f} s: {what}; there were {self.messages[since:]}")
            return self.messages[since:]

    def statuses(self, since: int = 0) -> list[str]:
        """The texts of STATUS=."""
        return [message.removeprefix("STATUS=") for message in self.messages[since:] if message.startswith("STATUS=")]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.address)
        self._thread.join()
        self._socket.close()
        os.unlink(self.address)
        self._folder.rmdir()
