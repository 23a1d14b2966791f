"""The tape: takes down what the service sees of the machine, for as long as somebody takes the lines away.

While nobody does, each look costs one comparison.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import Answer, HttpError, TimedOut, Unreachable
from gpusupervisor.errors import Busy, InvalidArgument
from gpusupervisor.films.sanitize import harmless_answer, harmless_command
from gpusupervisor.films.values import VERSION
from gpusupervisor.gpu.sample import GpuSample, Sample
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.procfs import Procfs

FORGOTTEN = 15 * MICROSECONDS
"""A recording that nobody has asked for in this time has ended."""
MOST_LINES = 4096
"""Lines that wait to be taken away."""
FIRST = 2
"""Number of the first line after the header."""
Tree = dict[str, object]


class Tape:
    """One for the whole service; whoever records reads the same lines."""

    def __init__(self, clock: Clock, proc: Procfs) -> None:
        self._clock = clock
        self._proc = proc
        self._asked_at: int | None = None
        self._began_at = 0
        self._picture: Tree = {}
        self._http: Tree = {}
        """What engines have answered since the last line."""
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._first = FIRST
        """Number of the oldest line that is kept."""

    @property
    def on(self) -> bool:
        """Whether anybody records."""
        return self._asked_at is not None and self._clock.now() - self._asked_at < FORGOTTEN

    def read(self, after: int, header: Callable[[], Mapping[str, object]]) -> tuple[list[str], int]:
        """The lines after a number, and the number of the last one. 0 begins with the header and all that is known.

        Raises Busy when lines have been lost, InvalidArgument for a recording that has ended.
        """
        was_on, self._asked_at = self.on, self._clock.now()
        if not was_on:
            self._begin()
        last = self._first + len(self._lines) - 1
        if after == 0:
            start = {"film": VERSION, "start": _moment(self._clock), **header()}
            return [json.dumps(start), *self._whole()], last
        if after > last:
            raise InvalidArgument("That recording has ended, because its lines were not taken away: begin a new one.")
        if after < self._first - 1:
            raise Busy("Lines were lost, because they were not taken away in time: begin a new recording.")
        return list(self._lines)[after - self._first + 1 :], last

    async def saw(self, sample: Sample, identities: Mapping[int, ProcessIdentity]) -> None:
        """Take down one look."""
        if not self.on:
            return
        cpu = await asyncio.to_thread(self._cpu_times, sample)
        aliases = _aliases(self._picture, sample)
        gpus = {aliases[gpu.identity.uuid]: _gpu(gpu) for gpu in sample.gpus}
        picture: Tree = {"gpus": gpus, "processes": _processes(sample, identities, aliases, cpu)}
        picture["http"] = _merged(self._picture.get("http"), self._http)
        self._http = {}
        changed = _changes(self._picture, picture)
        self._picture = picture
        if changed:
            self._put({"t": self._t(), **changed})

    def heard(self, verb: str, base: str, path: str, outcome: Answer | HttpError) -> None:
        """Take down what an engine answered."""
        if not self.on:
            return
        parts = urlsplit(base)
        address = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        plain = path.partition("?")[0]
        question = plain if verb == "GET" else f"{verb} {plain}"
        of_address = self._http.setdefault(address, {})
        assert isinstance(of_address, dict)
        of_address[question] = (
            harmless_answer(plain, outcome) if isinstance(outcome, Answer) else {"fault": _fault(outcome)}
        )

    def _begin(self) -> None:
        self._lines.clear()
        self._first, self._picture, self._http = FIRST, {}, {}
        self._began_at = self._clock.now()

    def _whole(self) -> list[str]:
        return [json.dumps({"t": self._t(), **self._picture})] if self._picture else []

    def _put(self, line: Tree) -> None:
        if len(self._lines) == MOST_LINES:
            self._first += 1
        self._lines.append(json.dumps(line))

    def _t(self) -> float:
        return round((self._clock.now() - self._began_at) / MICROSECONDS, 3)

    def _cpu_times(self, sample: Sample) -> dict[int, int]:
        pids = {process.pid for gpu in sample.gpus for process in gpu.processes}
        stats = {pid: self._proc.stat(pid) for pid in pids}
        return {pid: stat.cpu_time for pid, stat in stats.items() if stat is not None}


def header_of(
    settings: Mapping[str, object], tenants: Mapping[str, object], facts: tuple[Fact, ...]
) -> Mapping[str, object]:
    """The rest of a film's first line. settings, tenants: as their files have them."""
    learned = [
        {"kind": fact.kind, "tenant": fact.tenant, "value": fact.value}
        | ({"gpu": fact.gpu} if fact.gpu else {})
        | ({"model": fact.model} if fact.model else {})
        for fact in facts
        if fact.kind != "model-use"
    ]
    return {"settings": settings, "tenants": tenants, "learned": learned, "acts": False}


def _moment(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.realtime(clock.now()) / MICROSECONDS, UTC).isoformat()


def _aliases(picture: Tree, sample: Sample) -> dict[str, str]:
    """By UUID: the GPU's number, which it keeps for as long as it is recorded."""
    known = picture.get("gpus")
    names = {str(gpu["uuid"]): alias for alias, gpu in known.items() if gpu} if isinstance(known, dict) else {}
    for gpu in sample.gpus:
        names.setdefault(gpu.identity.uuid, str(len(names)))
    return names


def _gpu(gpu: GpuSample) -> Tree:
    identity = gpu.identity
    shown: Tree = {"uuid": identity.uuid, "name": identity.name.partition(" (GPU-")[0], "state": gpu.state}
    if gpu.memory is not None:
        memory = gpu.memory
        shown |= {"total": memory.total, "used": memory.used, "reserved": memory.reserved, "source": memory.source}
    if gpu.attribution_problem:
        shown["problem"] = gpu.attribution_problem
    return shown


def _processes(
    sample: Sample, identities: Mapping[int, ProcessIdentity], aliases: Mapping[str, str], cpu: Mapping[int, int]
) -> Tree:
    found: dict[int, Tree] = {pid: _identity(identity) for pid, identity in identities.items()}
    for gpu in sample.gpus:
        alias = aliases[gpu.identity.uuid]
        for process in gpu.processes:
            shown = found.setdefault(process.pid, {"zombie": True})
            held = shown.setdefault("vram", {})
            assert isinstance(held, dict)
            held[alias] = "unknown" if process.used is None else process.used
            sm = shown.setdefault("sm", {})
            assert isinstance(sm, dict)
            if process.sm_utilization is not None:
                sm[alias] = process.sm_utilization
            shown["kind"] = min(process.kinds)
            if process.pid in cpu:
                shown["cpu-time"] = cpu[process.pid] / MICROSECONDS
    for shown in found.values():
        if not shown.get("sm", True):
            shown["sm"] = None
    return {str(pid): shown for pid, shown in found.items()}


def _identity(identity: ProcessIdentity) -> Tree:
    shown: Tree = {
        "command": harmless_command(identity.command_line),
        "executable": identity.executable,
        "comm": identity.comm,
        "cgroup": identity.cgroup,
        "parent": identity.parent_pid,
        "uid": identity.uid,
        "started": identity.key.start_time,
    }
    optional: Tree = {
        "directory": identity.working_directory,
        "ports": list(identity.listening_ports),
        "elsewhere": identity.listens_elsewhere,
        "environment": dict(identity.environment),
    }
    return shown | {key: value for key, value in optional.items() if value}


def _fault(error: HttpError) -> str:
    if isinstance(error, Unreachable):
        return "refused"
    return "silent" if isinstance(error, TimedOut) else "closed"


def _merged(before: object, after: Tree) -> Tree:
    """What every address has answered last."""
    merged: Tree = dict(before) if isinstance(before, dict) else {}
    for address, answers in after.items():
        known = merged.get(address)
        assert isinstance(answers, dict)
        merged[address] = {**(known if isinstance(known, dict) else {}), **answers}
    return merged


def _changes(before: object, after: Tree, depth: int = 0) -> Tree:
    """What is different, as a film writes it: null for what is gone."""
    if not isinstance(before, dict):
        return after
    gone: Tree = dict.fromkeys(before.keys() - after.keys()) if depth else {}
    return {**gone, **dict(_different(before, after, depth))}


def _different(before: Mapping[str, object], after: Tree, depth: int) -> Iterator[tuple[str, object]]:
    """depth: 0 for the picture, 1 for GPUs, PIDs and addresses, 2 for what is said of one."""
    for key, value in after.items():
        old = before.get(key)
        if value == old:
            continue
        if key == "vram" and isinstance(old, dict) and isinstance(value, dict):
            yield key, {**dict.fromkeys(old.keys() - value.keys()), **value}
        elif depth < 2 and isinstance(value, dict) and isinstance(old, dict):
            yield key, _changes(old, value, depth + 1)
        else:
            yield key, value
