"""The settings of every GPU as they were before, and how they are set again, whatever becomes of the script."""

import json
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import ClockDomain, Support

DOMAINS: tuple[ClockDomain, ...] = ("graphics", "memory")
POWER, OFFSETS, LOCKS, PERSISTENCE, FANS = "power-limit", "offsets", "locked-clocks", "persistence", "fans"
SETTABLE: frozenset[Support] = frozenset({"supported", "unverifiable"})
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What can be read of one GPU's settings; locked clocks cannot."""

    uuid: str
    power_limit: int | None
    offsets: dict[ClockDomain, int]
    persistence: bool | None
    fans: list[tuple[str, int | None]]
    """Policy of each, and the target of those that are manual."""


class SNAPSHOTS:
    """To a line of text and back."""

    @staticmethod
    def dumps(snapshots: Iterable[Snapshot]) -> str:
        """One line."""
        return json.dumps([asdict(snapshot) for snapshot in snapshots])

    @staticmethod
    def loads(line: str) -> list[Snapshot]:
        """What `dumps` wrote."""
        told: list[dict[str, Any]] = json.loads(line)
        return [Snapshot(**{**each, "fans": [(fan[0], fan[1]) for fan in each["fans"]]}) for each in told]


def take(session: HardwareSession) -> list[Snapshot]:
    """Of every GPU; raises DriverError."""
    return [_snapshot(session.gpu(identity.uuid)) for identity in session.identities()]


def _snapshot(gpu: GpuHardware) -> Snapshot:
    known = gpu.capabilities()
    return Snapshot(
        gpu.identity.uuid,
        gpu.power_limit() if known.power_limit.support != "unsupported" else None,
        {domain: gpu.offset(domain) for domain in DOMAINS if known.offsets[domain].support != "unsupported"},
        gpu.persistence() if known.persistence.support == "supported" else None,
        [(fan.policy, fan.target if fan.policy == "manual" else None) for fan in gpu.fans()],
    )


def restore(session: HardwareSession, snapshots: Iterable[Snapshot], touched: Collection[str]) -> list[str]:
    """Set what was touched as it was; what could not be, in words. Never raises DriverError."""
    problems: list[str] = []
    for snapshot in snapshots:
        try:
            steps = _steps(session.gpu(snapshot.uuid), snapshot)
        except (DriverError, NoSuchGpu) as error:
            problems.append(str(error))
            continue
        for name, work in steps:
            if name in touched:
                try:
                    work()
                except DriverError as error:
                    if error.error_class == "permission":
                        continue  # who may not set it has not changed it
                    problems.append(f"{name} of {snapshot.uuid} is NOT as it was before: {error}")
    return problems


def _steps(gpu: GpuHardware, before: Snapshot) -> list[tuple[str, Callable[[], object]]]:
    """Fans first, for they keep the card cool. What the driver refused to be set is not to be set again."""
    known = gpu.capabilities()
    steps: list[tuple[str, Callable[[], object]]] = []
    if known.fans.support == "supported":
        steps += [(FANS, partial(_restore_fan, gpu, index, *fan)) for index, fan in enumerate(before.fans)]
    if before.power_limit is not None and known.power_limit.support == "supported":
        steps.append((POWER, partial(gpu.set_power_limit, before.power_limit)))
    for domain, offset in before.offsets.items():  # in any case: some drivers report 0 whatever is set
        if known.offsets[domain].support in SETTABLE:
            steps.append((OFFSETS, partial(gpu.set_offset, domain, offset)))
    if known.locked_clocks["graphics"].support in SETTABLE:
        steps.append((LOCKS, partial(gpu.reset_locked_clocks, "graphics")))
    if before.persistence is not None:
        steps.append((PERSISTENCE, partial(_restore_persistence, gpu, before.persistence)))
    return steps


def _restore_persistence(gpu: GpuHardware, on: bool) -> None:
    if gpu.persistence() != on:
        gpu.set_persistence(on)


def _restore_fan(gpu: GpuHardware, index: int, policy: str, target: int | None) -> None:
    if policy == "manual" and target is not None:
        gpu.set_fan(index, target)
    else:
        gpu.set_fan_automatic(index)


class Keeper:
    """Restores once, at the end of the script; a child does it instead when the script is killed."""

    def __init__(self, session: HardwareSession, snapshots: list[Snapshot], watchdog: "subprocess.Popen[str]") -> None:
        self._session = session
        self._watchdog = watchdog
        self._touched: set[str] = set()
        self._over = False
        self.snapshots = snapshots
        self._tell(SNAPSHOTS.dumps(snapshots))
        assert watchdog.stdout is not None
        if watchdog.stdout.readline() != "watching\n":
            watchdog.kill()
            watchdog.communicate()
            raise OSError("the process that would restore everything after a crash did not come up")

    def touch(self, name: str) -> None:
        """This will be changed now."""
        self._touched.add(name)
        self._tell(name)

    def finish(self) -> list[str]:
        """Set everything as it was; what could not be, in words. Done once, the next time there is nothing to do."""
        if self._over:
            return []
        self._over = True
        problems = restore(self._session, self.snapshots, self._touched)
        if not problems:
            self._tell("done")
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()  # it tries by itself what we could not do
        self._watchdog.wait(PATIENCE)
        assert self._watchdog.stdout is not None
        self._watchdog.stdout.close()
        return problems

    def _tell(self, line: str) -> None:
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(line + "\n")
        self._watchdog.stdin.flush()
