"""What is proved by setting something and reading it back. Each group is asked for, and set back."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.fans.marker import find_marks
from gpusupervisor.helper.hardware.gpu import LARGEST_STEP, GpuHardware
from gpusupervisor.helper.values import ClockDomain
from tests.hardware.children import start
from tests.hardware.findings import Findings
from tests.hardware.keep import FANS, LOCKS, OFFSETS, PERSISTENCE, POWER, SETTABLE, Keeper
from tests.hardware.reads import until

WATT = 1000
STEP = 10 * WATT
GENTLE: dict[ClockDomain, int] = {"graphics": -30, "memory": -100}
"""MHz: slower is always stable."""
NEAR = 10
"""Percent points."""

Ask = Callable[[str], bool]


class Writes:
    """Everything that is set on one GPU."""

    def __init__(self, findings: Findings, command: Sequence[str], keeper: Keeper, ask: Ask, gpu: GpuHardware) -> None:
        self._findings = findings
        self._command = command
        self._keeper = keeper
        self._ask = ask
        self._gpu = gpu

    def run(self) -> None:
        """Group after group."""
        identity, known = self._gpu.identity, self._gpu.capabilities()
        self._findings.section(f"Writing to {identity.name} ({identity.uuid})")
        groups: tuple[tuple[str, bool, str, Callable[[], None]], ...] = (
            (POWER, known.power_limit.support == "supported",
             "set the power limit 10 W away from what it is, then to the least that the card takes", self._power_limit),
            (OFFSETS, any(each.support in SETTABLE for each in known.offsets.values()),
             "lower the clock offsets a little (an offset that your driver does not report is lost)", self._offsets),
            (LOCKS, known.locked_clocks["graphics"].support in SETTABLE,
             "lock the graphics clock for a second (a lock that is set now cannot be seen, and is lost)", self._lock),
            (PERSISTENCE, known.persistence.support == "supported",
             "write the persistence mode that is set", self._persistence),
            (FANS, known.fans.support == "supported",
             "set each fan to a fixed speed, kill the process that did, and give the fans back", self._fans),
        )  # fmt: skip
        for name, possible, question, work in groups:
            if not possible:
                self._findings.unproved(name, "this card does not take it: see its settings above")
            elif not self._ask(question):
                self._findings.unproved(name, "you did not want it tried")
            else:
                self._keeper.touch(name)
                with self._failures_told(name):
                    work()

    @contextlib.contextmanager
    def _failures_told(self, name: str) -> Iterator[None]:
        try:
            yield
        except DriverError as error:
            if error.error_class == "permission":
                self._findings.unproved(name, f"{error}: run this as root")
            elif error.error_class == "unsupported":  # which only trying tells
                self._findings.unproved(name, f"this card or driver does not take it: {error}")
            else:
                self._findings.expect(name, "can be set", error, False)

    def _power_limit(self) -> None:
        before, allowed = self._gpu.power_limit(), self._gpu.capabilities().power_limit
        least = allowed.minimum or 0
        wanted = before - STEP if before - STEP >= least else before + STEP
        accepted = self._gpu.set_power_limit(wanted)
        self._findings.expect(
            "power limit read back", f"{wanted} mW within 1 W", f"{accepted} mW", abs(accepted - wanted) <= WATT
        )
        self._findings.fact("power limit enforced", f"{self._gpu.enforced_power_limit()} mW")
        clamped = self._gpu.set_power_limit(1)
        self._findings.expect("a limit of 1 mW", f"becomes {least} mW", f"{clamped} mW", clamped == least)
        again = self._gpu.set_power_limit(before)
        self._findings.expect("power limit set back", f"{before} mW", f"{again} mW", again == before)

    def _offsets(self) -> None:
        for domain, allowed in self._gpu.capabilities().offsets.items():
            if allowed.support not in SETTABLE:
                continue
            before = self._gpu.offset(domain)
            wanted = max(before + GENTLE[domain], allowed.minimum or 0)
            accepted = self._gpu.set_offset(domain, wanted)
            if accepted is None:
                self._findings.fact(f"offset {domain} read back", "not reported by this driver: unverifiable")
            else:
                near = abs(accepted - wanted) <= LARGEST_STEP
                self._findings.expect(
                    f"offset {domain} read back", f"{wanted} MHz within a step", f"{accepted} MHz", near
                )
            again = self._gpu.set_offset(domain, before)
            self._findings.expect(f"offset {domain} set back", f"{before} MHz", again, again in (None, before))

    def _lock(self) -> None:
        highest = self._gpu.capabilities().locked_clocks["graphics"].maximum or 0
        _, upper = self._gpu.set_locked_clocks("graphics", highest // 4, highest // 2)
        kept = until(lambda: (self._gpu.clock("graphics") or 0) <= upper + LARGEST_STEP, 5)
        self._findings.expect(
            "locked graphics clock", f"at most {upper} MHz", f"{self._gpu.clock('graphics')} MHz", kept
        )
        told = "locked-clocks" in self._gpu.clock_event_reasons()
        self._findings.fact("the lock as an event reason", "told" if told else "not told (an idle card may not)")
        self._gpu.reset_locked_clocks("graphics")
        free = until(lambda: "locked-clocks" not in self._gpu.clock_event_reasons(), 5)
        self._findings.expect("the lock taken away", "no event reason", "free" if free else "still told", free)

    def _persistence(self) -> None:
        before = self._gpu.persistence()
        after = self._gpu.set_persistence(before)
        self._findings.expect("persistence read back", str(before), after, after == before)

    def _fans(self) -> None:
        allowed = self._gpu.capabilities().fans
        for fan in self._gpu.fans():
            low, high = allowed.minimum or 0, allowed.maximum or 100
            wanted = min(max(fan.percent or 0, low) + NEAR, high)
            target = self._gpu.set_fan(fan.index, wanted)
            self._findings.expect(f"fan {fan.index} target read back", f"{wanted} %", f"{target} %", target == wanted)
            self._expect_policy(fan.index, "manual")
            reached = until(partial(self._is_near, fan.index, wanted))
            speed = self._gpu.fans()[fan.index].percent
            self._findings.expect(f"fan {fan.index} follows", f"about {wanted} %", f"{speed} %", reached)
            self._gpu.set_fan_automatic(fan.index)
            self._expect_policy(fan.index, "automatic")
        self._killed()

    def _is_near(self, index: int, wanted: int) -> bool:
        return abs((self._gpu.fans()[index].percent or 0) - wanted) <= NEAR // 2

    def _expect_policy(self, index: int, policy: str) -> None:
        seen = self._gpu.fans()[index].policy
        if seen == "unknown":
            self._findings.unproved(f"fan {index} is {policy}", "this driver does not tell a fan's policy")
        else:
            self._findings.expect(f"fan {index} policy", policy, seen, seen == policy)

    def _killed(self) -> None:
        """A process that holds the fans is killed; the one that systemd runs after it gives them back."""
        with tempfile.TemporaryDirectory(prefix="gpusupervisor-prove-") as directory:
            child = start(self._command, "take-fans", self._gpu.identity.uuid, directory)
            assert child.stdin is not None
            assert child.stdout is not None
            said = child.stdout.readline().strip()
            self._findings.expect("another process holds the fans", "controlling", said, said == "controlling")
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
            left = [fan.policy for fan in self._gpu.fans()]
            self._findings.fact("fans after SIGKILL", f"{', '.join(left)}: why they must be given back by another")
            marks = len(find_marks(Path(directory)))
            self._findings.expect("the mark that it left", "1", marks, marks == 1)
            restorer = start(self._command, "restore-fans", directory)
            restorer.communicate(timeout=60)
            code = restorer.returncode
            self._findings.expect("restore_fans", "ends with 0", code, code == 0)
        for index in range(len(left)):
            self._expect_policy(index, "automatic")
