"""What is proved by looking alone."""

import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpusupervisor.clock import SystemClock
from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.memory import MEMORY_V2
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES, find_devices, read_power
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import GpuSample, Sample
from gpusupervisor.gpu.session import DriverSession
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import Capability
from tests.hardware.children import start
from tests.hardware.findings import Findings
from tests.hardware.holders import Holders
from tests.hardware.keep import DOMAINS, take
from tests.hardware.machine import stranger, system_calls

MIB = 1 << 20
HELD = 256 * MIB
CONTEXT = 1536 * MIB
"""More than any CUDA context takes."""
TIMES = 20
PATIENCE = 20.0
UUID = re.compile(r"(GPU-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CALLS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("nvmlDeviceGetMemoryInfo", (MEMORY_V2,)),
    ("nvmlDeviceGetComputeRunningProcesses", ()),
    ("nvmlDeviceGetGraphicsRunningProcesses", ()),
    ("nvmlDeviceGetMPSComputeRunningProcesses", ()),
    ("nvmlDeviceGetProcessUtilization", (0,)),
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetTemperatureV", (0,)),
    ("nvmlDeviceGetFanSpeed_v2", (0,)),
    ("nvmlDeviceGetTargetFanSpeed", (0,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetPowerManagementLimit", ()),
)


class Reads:
    """One pass over the machine."""

    def __init__(self, findings: Findings, command: Sequence[str]) -> None:
        """command: how this script is started again for its children."""
        self._findings = findings
        self._command = command
        self._reader = NvmlReader(SystemClock())
        self._session = DriverSession(self._reader, SystemClock(), SYSFS_PCI_DEVICES)
        self.sample: Sample | None = None
        """The first one, when there is a driver to look at."""

    def run(self) -> Sample | None:
        """Everything; None when there is no driver to look at."""
        self._power_management()
        sample = self._sample()
        driver = sample.driver
        self._findings.section("Driver")
        if driver.state != "ok" or not sample.gpus:
            self._findings.unproved("no driver" if driver.state == "missing" else driver.state, driver.detail)
            self._session.close()
            return None
        self.sample = sample
        self._driver(sample)
        for gpu in sample.gpus:
            self._findings.section(f"Samples of {gpu.identity.name} ({gpu.identity.uuid})")
            if gpu.state == "asleep":
                self._findings.unproved("samples", "it sleeps, and is left to")
                continue
            self._gpu(gpu)
            if gpu.state == "ok":
                self._costs(gpu)
            if gpu.state == "ok" and not gpu.attribution_problem:
                self._accounting(gpu.identity.uuid)
                Holders(
                    self._findings, self._command, gpu.identity.uuid, partial(self._look_at, gpu.identity.uuid)
                ).run()
        self._hardware()
        stranger(self._findings, self._command, self._sample())
        system_calls(self._findings, self._command)
        self._restricted([gpu.identity.uuid for gpu in sample.gpus])
        self._session.close()
        return sample

    def _sample(self) -> Sample:
        return self._session.sample(fresh_processes=True, utilization=True, needed=True)

    def _look_at(self, uuid: str) -> GpuSample:
        return next(gpu for gpu in self._sample().gpus if gpu.identity.uuid == uuid)

    def _power_management(self) -> None:
        """Before NVML is opened, for that wakes what sleeps."""
        self._findings.section("Runtime power management")
        devices = find_devices()
        if not devices:
            self._findings.unproved("sysfs", f"{SYSFS_PCI_DEVICES} shows no GPU that the nvidia driver has")
        for pci in devices:
            power = read_power(SYSFS_PCI_DEVICES, pci)
            self._findings.fact(f"{pci} control", power.control or "not readable")
            if not power.asleep:
                self._findings.unproved(
                    f"{pci} sleeps on", f"it is {power.runtime_status or 'not readable'}, so reading wakes nothing"
                )
                continue
            time.sleep(1)
            after = read_power(SYSFS_PCI_DEVICES, pci)
            self._findings.expect(f"{pci} sleeps on", "looking at sysfs does not wake it", after, after.asleep)

    def _driver(self, sample: Sample) -> None:
        version, library = sample.driver.version, self._reader.library_version()
        self._findings.expect("version", "the library's", f"{version}, library {library}", version == library)
        self._findings.expect("GPUs reached", "all", len(sample.gpus), not self._reader.unreachable)
        took = [_microseconds(self._open_and_close) for _ in range(3)]
        self._findings.fact("nvmlInit and nvmlShutdown", f"{min(took):.0f} to {max(took):.0f} µs (beside an open one)")

    @staticmethod
    def _open_and_close() -> None:
        ask("nvmlInit")
        ask("nvmlShutdown")

    def _gpu(self, gpu: GpuSample) -> None:
        findings, memory = self._findings, gpu.memory
        findings.expect("state", "ok", f"{gpu.state} {gpu.detail}", gpu.state == "ok")
        findings.expect("UUID", "as NVIDIA writes them", gpu.identity.uuid, bool(UUID.fullmatch(gpu.identity.uuid)))
        if devices := find_devices():
            findings.expect("PCI id", "one of sysfs's", gpu.identity.pci_bus_id, gpu.identity.pci_bus_id in devices)
        if memory is None:
            return
        whole = memory.reserved + memory.used + memory.free
        findings.fact("memory is told by", memory.source)
        findings.expect("memory", "total = reserved + used + free", f"{memory.total} = {whole}", memory.total == whole)
        if gpu.attribution_problem:
            findings.unproved("process list", gpu.attribution_problem)
            return
        known = sum(process.used or 0 for process in gpu.processes)
        silent = sum(process.used is None for process in gpu.processes)
        findings.fact("processes", f"{len(gpu.processes)}, of which {silent} without a size")
        findings.expect("unattributed", "not negative", memory.used - known, known <= memory.used)
        gone = [process.pid for process in gpu.processes if not Path(f"/proc/{process.pid}").exists()]
        if gone:
            findings.unproved("PIDs are ours", f"not in /proc: {gone} (ended just now, or this is a container)")
        elif gpu.processes:
            findings.expect("PIDs are ours", "all in /proc", f"{len(gpu.processes)} are", True)
        told = [process.sm_utilization for process in gpu.processes]
        findings.fact("utilisation by process", "told" if any(each is not None for each in told) else "not told")

    def _costs(self, gpu: GpuSample) -> None:
        sample = [_microseconds(self._sample) for _ in range(TIMES)]
        self._findings.fact(
            "cost of a sample, all GPUs", f"{statistics.median(sample):.0f} µs, at most {max(sample):.0f}"
        )
        for function, arguments in CALLS:
            try:
                handle = ask("nvmlDeviceGetHandleByUUID", gpu.identity.uuid)
                took = [_microseconds(ask, function, handle, *arguments) for _ in range(TIMES)]
            except DriverError as error:
                self._findings.fact(f"cost of {function[10:]}", f"answers {error.text}")
            else:
                text = f"{statistics.median(took):.0f} µs, at most {max(took):.0f}"
                self._findings.fact(f"cost of {function[10:]}", text)

    def _accounting(self, uuid: str) -> None:
        """A process that takes memory is listed with what it took, and is gone with it."""
        before = self._memory_of(uuid)
        if before is None or before[1] < 2 * CONTEXT:
            self._findings.unproved("accounting", "the memory cannot be read, or too little of it is free to take some")
            return
        child = start(self._command, "hold", uuid, str(HELD), CUDA_VISIBLE_DEVICES=uuid)
        assert child.stdin is not None
        assert child.stdout is not None
        problem = json.loads(child.stdout.readline() or '{"problem": "the process crashed"}')["problem"]
        if problem:
            self._findings.unproved("accounting", f"no process could take memory: {problem}")
        else:
            self._accounting_of(uuid, child.pid, before[0])
        child.stdin.close()
        child.kill()
        child.wait()
        child.stdout.close()
        if not problem:
            gone = until(lambda: self._held_by(uuid, child.pid) is None)
            self._findings.expect("a process that ended", "is not listed any more", "gone" if gone else "listed", gone)

    def _accounting_of(self, uuid: str, pid: int, used_before: int) -> None:
        until(lambda: (self._held_by(uuid, pid) or 0) >= HELD)
        held, memory = self._held_by(uuid, pid), self._memory_of(uuid)
        grown = memory[0] - used_before if memory else 0
        shown = "not at all (in a container it has another PID)" if held is None else f"{held:,} bytes"
        self._findings.expect(
            "a process that took 256 MiB",
            "listed with 256 MiB to 1.75 GiB",
            shown,
            HELD <= (held or 0) <= HELD + CONTEXT,
        )
        self._findings.expect("memory in use meanwhile", "at least 256 MiB more", f"{grown:,} bytes", grown >= HELD)

    def _held_by(self, uuid: str, pid: int) -> int | None:
        gpu = self._session.sample_gpu(uuid)
        return next((process.used or 0 for process in gpu.processes if process.pid == pid), None)

    def _memory_of(self, uuid: str) -> tuple[int, int] | None:
        """Used and free bytes."""
        memory = self._session.sample_gpu(uuid).memory
        return None if memory is None else (memory.used, memory.free)

    def _hardware(self) -> None:
        session = HardwareSession(may_write=False)
        try:
            session.open()
            before = take(session)
            for identity in session.identities():
                self._findings.section(f"Settings of {identity.name} ({identity.uuid})")
                self._settings(session.gpu(identity.uuid))
            self._findings.expect("looking", "changes nothing", "as before", take(session) == before)
        except DriverError as error:
            self._findings.expect("settings", "can be read", error, False)
        finally:
            session.close()

    def _settings(self, gpu: GpuHardware) -> None:
        findings, known = self._findings, gpu.capabilities()
        named = {"fans": known.fans, "temperature": known.temperature, "power limit": known.power_limit,
                 "persistence": known.persistence}  # fmt: skip
        named |= {f"offset {domain}": known.offsets[domain] for domain in DOMAINS}
        named |= {f"locked clocks {domain}": known.locked_clocks[domain] for domain in DOMAINS}
        for name, capability in named.items():
            findings.fact(name, shown(capability))
        limit = known.power_limit
        if limit.minimum is not None and limit.maximum is not None:
            now, enforced = gpu.power_limit(), gpu.enforced_power_limit()
            findings.expect("power limit now", "in its range", f"{now} mW", limit.minimum <= now <= limit.maximum)
            findings.expect("enforced", "no more than that", f"{enforced} mW", enforced is None or enforced <= now)
        degrees = gpu.temperatures()
        findings.expect("temperature now", "can be true", degrees.gpu, degrees.gpu is not None)
        if degrees.slowdown is not None and degrees.shutdown is not None:
            ordered = degrees.slowdown <= degrees.shutdown and (degrees.gpu or 0) < degrees.shutdown
            findings.expect("its limits", "slowdown, then shutdown", f"{degrees.slowdown}, {degrees.shutdown}", ordered)
        else:
            findings.fact("its limits", f"slowdown {degrees.slowdown}, shutdown {degrees.shutdown}")
        findings.expect("power now", "told", f"{gpu.power_usage()} mW", gpu.power_usage() is not None)
        findings.fact(
            "clocks now", f"{gpu.clock('graphics')} and {gpu.clock('memory')} MHz, P{gpu.performance_state()}"
        )
        findings.fact("held down by", ", ".join(sorted(gpu.clock_event_reasons())) or "nothing")
        for fan in gpu.fans():
            text = f"{fan.percent} % of {fan.target} %, {fan.rpm} rpm, {fan.policy}"
            plausible = fan.percent is not None and 0 <= fan.percent <= 150 and fan.policy != "unknown"
            findings.expect(f"fan {fan.index}", "a speed and a policy", text, plausible)

    def _restricted(self, uuids: list[str]) -> None:
        self._findings.section("MemoryDenyWriteExecute=")
        child = start(self._command, "mdwe")
        output, _ = child.communicate(timeout=PATIENCE)
        told = json.loads(output or "{}")
        if not told:
            self._findings.expect("NVML under it", "works", f"the process ended with {child.returncode}", False)
        elif told["refused"]:
            self._findings.unproved("NVML under it", f"this kernel cannot do it: {told['refused']} (Linux 6.3 can)")
        else:
            seen = told.get("error") or f"{len(told['gpus'])} GPUs"
            works = sorted(told.get("gpus", ())) == sorted(uuids) and "error" not in told
            self._findings.expect("NVML under it", "the same GPUs", seen, works)


def shown(capability: Capability) -> str:
    """A capability in a line."""
    span = "" if capability.minimum is None else f", {capability.minimum} to {capability.maximum}"
    usual = "" if capability.default is None else f", usually {capability.default}"
    return f"{capability.support}{span}{usual}" + (f" ({capability.reason})" if capability.reason else "")


def until(condition: Callable[[], bool], within: float = PATIENCE) -> bool:
    """Wait until something is so; whether it became so."""
    deadline = time.monotonic() + within
    while not (so := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return so


def _microseconds(work: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter_ns()
    work(*arguments)
    return (time.perf_counter_ns() - begun) / 1000
