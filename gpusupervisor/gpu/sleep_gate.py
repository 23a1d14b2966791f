"""Whether NVML may be open now, so that a GPU under runtime power management can sleep.

An open NVML keeps a laptop's GPU awake (5 to 7 W), and a question wakes a sleeping one. A pure state machine: what it
is told in, a verdict out.
"""

from collections.abc import Sequence

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.gpu.power import DevicePower

QUIET = 10 * MICROSECONDS
"""Nobody has needed or used the GPUs for this long: NVML is closed."""
LONGEST_QUIET = 640 * MICROSECONDS
STAYS_ACTIVE = 30 * MICROSECONDS
"""A GPU that stays awake for so long with NVML closed is used by somebody: NVML is opened to see by whom."""


class SleepGate:
    """Decides once per sample. Instants are microseconds of the domain clock."""

    def __init__(self) -> None:
        self._quiet = QUIET
        self._quiet_since: int | None = None
        self._closed = False
        self._active_since: dict[str, int] = {}

    def may_open(self, now: int, devices: Sequence[DevicePower], *, needed: bool, vacant: bool) -> bool:
        """True: NVML is (or may be) open in this sample. False: it must be closed, and only sysfs looked at.

        devices: what sysfs shows, empty when it shows none (then nothing is known to sleep, and nothing is closed).
        needed: somebody wants figures. vacant: the last sample found that nobody uses any GPU, for certain.
        """
        awake = [device.pci_bus_id for device in devices if not device.asleep]
        if not devices:
            self._reopen()
        elif not awake:
            self._close(awake, now)
            self._quiet = QUIET
        elif self._closed:
            self._look_again(now, awake, needed=needed)
        else:
            managed = all(device.managed for device in devices)
            self._watch_quiet(now, awake, used=needed or not vacant, managed=managed)
        return not self._closed

    def _look_again(self, now: int, awake: list[str], *, needed: bool) -> None:
        self._active_since = {pci: self._active_since.get(pci, now) for pci in awake}
        in_use = any(now - since >= STAYS_ACTIVE for since in self._active_since.values())
        if in_use:
            # Closing did not let it sleep, so closing again is tried ever more rarely.
            self._quiet = min(self._quiet * 2, LONGEST_QUIET)
        if needed or in_use:
            self._reopen()

    def _watch_quiet(self, now: int, awake: list[str], *, used: bool, managed: bool) -> None:
        if used:
            self._quiet = QUIET
        if used or not managed:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now
        elif now - self._quiet_since >= self._quiet:
            self._close(awake, now)

    def _reopen(self) -> None:
        self._closed = False
        self._quiet_since = None
        self._active_since = {}

    def _close(self, awake: list[str], now: int) -> None:
        self._closed = True
        self._quiet_since = None
        self._active_since = dict.fromkeys(awake, now)
