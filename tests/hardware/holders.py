"""What is proved with processes that hold memory of a card: two at once, giving back, dying, working beside another."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.sample import GpuSample
from tests.hardware.children import start
from tests.hardware.findings import Findings

MIB = 1 << 20
FIRST, SECOND = 512 * MIB, 256 * MIB
PATIENCE = 8.0
PAUSE = 0.02
WORK = 2.0
"""Seconds for which a holder works."""
ENERGY_TOLERANCE = 0.25
"""Share by which the energy counter and the integral of power may differ."""

Look = Callable[[], GpuSample]


class Holder:
    """A child that takes, gives back and uses memory when it is told to."""

    def __init__(self, command: Sequence[str], uuid: str) -> None:
        self.process = start(command, "holder", uuid, CUDA_VISIBLE_DEVICES=uuid)
        self.pid = self.process.pid

    def do(self, *words: object) -> str:
        """Tell it something and wait until it is done; why it could not, or empty."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return str(json.loads(self.process.stdout.readline() or '{"problem": "the process crashed"}')["problem"])

    def begin(self, *words: object) -> None:
        """Tell it something, and wait for nothing."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill it as the kernel does, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


class Holders:
    """Of one card."""

    def __init__(self, findings: Findings, command: Sequence[str], uuid: str, look: Look) -> None:
        """look: reads the card now, with its processes and their utilization."""
        self._findings = findings
        self._command = command
        self._uuid = uuid
        self._look = look

    def run(self) -> None:
        """Everything; both holders are gone afterwards, whatever happens."""
        first, second = Holder(self._command, self._uuid), Holder(self._command, self._uuid)
        try:
            problem = first.do("take", FIRST) or second.do("take", SECOND)
            if problem:
                self._findings.unproved("two holders at once", f"no process could take memory: {problem}")
                return
            self._both(first, second)
            self._work(first, second)
            self._give_back(first)
            self._kill(second)
        except subprocess.SubprocessError as error:
            self._findings.unproved("two holders at once", error)
        finally:
            first.end()
            second.end()

    def _held(self, holder: Holder) -> int | None:
        return next((process.used or 0 for process in self._look().processes if process.pid == holder.pid), None)

    def _both(self, first: Holder, second: Holder) -> None:
        took = _until(lambda: (self._held(first) or 0) >= FIRST and (self._held(second) or 0) >= SECOND)
        self._findings.expect("two holders at once", "both listed with what they took", _shown(took), took is not None)
        gpu = self._look()
        known = sum(process.used or 0 for process in gpu.processes)
        used = gpu.memory.used if gpu.memory else 0
        self._findings.expect(
            "memory in use", "at least the sum of the processes", f"{used:,} of {known:,}", used >= known
        )

    def _work(self, busy: Holder, idle: Holder) -> None:
        """Utilization by process, and the energy counter against the integral of power."""
        handle = ask("nvmlDeviceGetHandleByUUID", self._uuid)
        busy.begin("work", WORK)
        rows: list[tuple[float, int, int | None]] = []
        shares: dict[int, list[int]] = {busy.pid: [], idle.pid: []}
        ends = time.monotonic() + WORK
        try:
            while time.monotonic() < ends:
                power, energy = ask("nvmlDeviceGetPowerUsage", handle), _energy(handle)
                rows.append((time.monotonic(), int(power), energy))
                for process in self._look().processes:
                    if process.pid in shares and process.sm_utilization is not None:
                        shares[process.pid].append(process.sm_utilization)
                time.sleep(PAUSE)
        except DriverError as error:
            self._findings.unproved("energy", error)
        assert busy.process.stdout is not None
        busy.process.stdout.readline()
        self._utilization(shares[busy.pid], shares[idle.pid])
        if len(rows) > 1 and None not in (rows[0][2], rows[-1][2]):
            self._energy(rows)

    def _utilization(self, busy: list[int], idle: list[int]) -> None:
        if not busy or not max(busy):
            self._findings.unproved("utilization by process", "the driver told none of the process that worked")
            return
        text = f"{max(busy)} % and {max(idle, default=0)} %"
        self._findings.expect("utilization by process", "the idle holder has none", text, max(idle, default=0) == 0)

    def _energy(self, rows: list[tuple[float, int, int | None]]) -> None:
        counted = ((rows[-1][2] or 0) - (rows[0][2] or 0)) / 1000
        integral = sum((b[0] - a[0]) * (a[1] + b[1]) / 2000 for a, b in pairwise(rows))
        near = abs(counted - integral) <= ENERGY_TOLERANCE * max(integral, 1.0)
        self._findings.expect("energy", "the integral of power", f"{counted:.1f} J, {integral:.1f} J", near)

    def _give_back(self, holder: Holder) -> None:
        """How long a free takes to show, and what the context keeps."""
        before, begun = self._held(holder) or 0, time.monotonic()
        problem = holder.do("free")
        took = _until(lambda: (self._held(holder) or 0) <= before - FIRST)
        self._findings.expect("memory given back", "shows in the list", problem or _shown(took), took is not None)
        self._findings.fact("giving back took", f"{(time.monotonic() - begun) * 1000:.0f} ms")
        self._findings.fact("a context keeps", f"{(self._held(holder) or 0) / MIB:.0f} MiB")

    def _kill(self, holder: Holder) -> None:
        """How long the memory of a killed process takes to come back."""
        memory = self._look().memory
        before = memory.used if memory else 0
        holder.process.kill()
        back = _until(lambda: (seen := self._look().memory) is not None and seen.used <= before - SECOND)
        gone = _until(lambda: self._held(holder) is None)
        self._findings.expect("memory of a killed process", "comes back", _shown(back), back is not None)
        self._findings.expect("a killed process", "is not listed any more", _shown(gone), gone is not None)


def median(work: Callable[[], object], times: int) -> str:
    """How long a call takes, as text."""
    took = []
    for _ in range(times):
        begun = time.perf_counter_ns()
        work()
        took.append((time.perf_counter_ns() - begun) / 1000)
    return f"{statistics.median(took):.0f} µs, at most {max(took):.0f}"


def _energy(handle: object) -> int | None:
    try:
        return int(ask("nvmlDeviceGetTotalEnergyConsumption", handle))
    except DriverError:
        return None


def _until(condition: Callable[[], bool]) -> float | None:
    """Milliseconds until something is so; None when it never is."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > PATIENCE:
            return None
        time.sleep(PAUSE)
    return (time.monotonic() - begun) * 1000


def _shown(took: float | None) -> str:
    return "never" if took is None else f"after {took:.0f} ms"
