"""What systemd is told: READY, STATUS, RELOADING, STOPPING, WATCHDOG, over sdnotify."""

import logging
import os
from typing import Any

from gpusupervisor.clock import MICROSECONDS, Clock

_LOG = logging.getLogger(__name__)
STATUS_INTERVAL = 5 * MICROSECONDS
"""Every changed STATUS makes PID 1 announce the unit's properties to all its clients: not more often than this."""


class Notifier:
    """Speaks to $NOTIFY_SOCKET, or to nobody when the service was not started by systemd."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notifier: Any = None
        self._status = ""
        self._status_at: int | None = None
        if os.environ.get("NOTIFY_SOCKET"):
            from sdnotify import SystemdNotifier

            self._notifier = SystemdNotifier(debug=True)  # debug: raise instead of swallowing errors
        # children of ours must not speak for us
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)

    def ready(self) -> None:
        """The name is owned and calls are answered (at start, and after every reload)."""
        self._send("READY=1")

    def reloading(self) -> None:
        """A reload begins."""
        # notify-reload (systemd 253) wants the time in the same datagram; CLOCK_MONOTONIC as PID 1 has it
        self._send(f"RELOADING=1\nMONOTONIC_USEC={_monotonic()}")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def status(self, text: str, *, urgent: bool = False) -> None:
        """The line of `systemctl status`; sent when it changed, at most once in `STATUS_INTERVAL` unless urgent."""
        now = self._clock.now()
        if text == self._status:
            return
        if not urgent and self._status_at is not None and now - self._status_at < STATUS_INTERVAL:
            return
        self._status, self._status_at = text, now
        self._send("STATUS=" + " ".join(text.split()))

    def _send(self, message: str) -> None:
        if self._notifier is None:
            return
        try:
            # sdnotify encodes Latin-1: this makes UTF-8 of it
            self._notifier.notify(message.encode().decode("latin-1"))
        except OSError as error:
            _LOG.warning("systemd could not be told %s: %s", message.partition("=")[0], error)


def _monotonic() -> int:
    import time

    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
