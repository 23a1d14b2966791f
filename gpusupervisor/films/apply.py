"""Changes of a film put on the stage. What may be written in them is checked here, and nowhere else."""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import get_args

from gpusupervisor.films import checks
from gpusupervisor.films.checks import FilmError, Line
from gpusupervisor.films.shorthands import expand
from gpusupervisor.films.stage import UNKNOWN_SIZE, Reply, Stage, StagedGpu, StagedProcess, StagedUnit
from gpusupervisor.films.values import Picture
from gpusupervisor.gpu.sample import GpuState, MemorySource, ProcessKind

_GPU_STATES: tuple[GpuState, ...] = get_args(GpuState)
_SOURCES: tuple[MemorySource, ...] = get_args(MemorySource)
_KINDS: tuple[ProcessKind, ...] = get_args(ProcessKind)
FAULTS = ("silent", "refused", "closed")
"""What happens in the place of an answer."""
_NOBODYS: Mapping[str, int] = {}


class Applier:
    """Puts changes on a stage."""

    def __init__(self, stage: Stage, answers: Mapping[str, object], realtime: Callable[[int], int] = int) -> None:
        """answers: those that have a name. realtime: the wall-clock time of an instant."""
        self._stage = stage
        self._answers = answers
        self._realtime = realtime

    def apply(self, picture: Picture, line_number: int, now: int) -> None:
        """Raises FilmError."""
        for alias, entry in checks.table(picture.get("gpus", {})).items():
            self._gpu(alias, entry, line_number)
        for pid, entry in checks.table(picture.get("processes", {})).items():
            self._process(pid, entry, line_number, now)
        for address, entry in checks.table(picture.get("http", {})).items():
            self._http(address, entry, line_number, now)
        for name, entry in checks.table(picture.get("units", {})).items():
            self._unit(name, entry, line_number)

    def _gpu(self, alias: str, entry: object, number: int) -> None:
        if entry is None:
            self._stage.gpus.pop(alias, None)
            return
        gpu = self._stage.gpus.setdefault(alias, StagedGpu(f"GPU-{alias:0>8}-0000-0000-0000-000000000000"))
        line = Line(_table(entry, number, f"gpus.{alias}"), number, f"gpus.{alias}")
        gpu.uuid = line.take("uuid", checks.text, gpu.uuid)
        gpu.name = line.take("name", checks.text, gpu.name)
        gpu.total = line.take("total", checks.size, gpu.total)
        gpu.used = line.take("used", lambda value: None if value is None else checks.size(value), gpu.used)
        gpu.other = line.take("other", checks.size, gpu.other)
        gpu.reserved = line.take("reserved", checks.size, gpu.reserved)
        gpu.state = line.take("state", checks.one_of(_GPU_STATES), gpu.state)
        gpu.detail = line.take("detail", checks.text, gpu.detail)
        gpu.problem = line.take("problem", checks.text, gpu.problem)
        gpu.source = line.take("source", checks.one_of(_SOURCES), gpu.source)
        gpu.power = line.take("power", checks.whole, gpu.power)
        gpu.temperature = line.take("temperature", checks.whole, gpu.temperature)
        gpu.utilization = line.take("utilization", checks.whole, gpu.utilization)
        line.end()

    def _process(self, pid: str, entry: object, number: int, now: int) -> None:
        if not pid.isdecimal():
            raise FilmError(f"line {number}: processes.{pid}: is no PID; allowed: a number in quotes")
        if entry is None:
            self._stage.processes.pop(int(pid), None)
            return
        process = self._stage.processes.get(int(pid))
        if process is None:
            process = self._stage.processes[int(pid)] = StagedProcess(int(pid), cpu_since=now)
        line = Line(_table(entry, number, f"processes.{pid}"), number, f"processes.{pid}")
        _identity(process, line)
        process.kind = line.take("kind", checks.one_of(_KINDS), process.kind)
        process.sm = line.take("sm", _percent, process.sm)
        process.zombie = line.take("zombie", checks.flag, process.zombie)
        used = line.take("cpu-time", checks.time, -1)
        if used >= 0:
            process.cpu_used, process.cpu_since, process.cpu_rate = used, now, 0.0
        process.use_cpu(now, line.take("cpu", checks.number, process.cpu_rate * 100) / 100)
        over = line.take("over", checks.time, 0)
        for alias, size in line.take("vram", self._sizes, _NOBODYS).items():
            process.hold(alias, size, now, over)
        line.end()

    def _sizes(self, value: object) -> dict[str, int]:
        """By GPU: "21G" (of the only, or the first GPU), or {"0": "21G"}; null is nothing, "unknown" unknown."""
        if not isinstance(value, dict):
            if not self._stage.gpus:
                raise checks.Unfit("is on no GPU: an earlier line, or this one, has to name one under gpus")
            value = {next(iter(self._stage.gpus)): value}
        if strangers := value.keys() - self._stage.gpus.keys():
            raise checks.Unfit(f"names the GPU {sorted(strangers)[0]!r}; there are {checks.words(self._stage.gpus)}")
        return {alias: _vram(size) for alias, size in value.items()}

    def _http(self, place: str, entry: object, number: int, now: int) -> None:
        address = place if ":" in place else f"127.0.0.1:{place}"
        if entry is None:
            self._stage.answers.pop(address, None)
            return
        known = self._stage.answers.setdefault(address, {})
        for question, answer in _table(entry, number, f"http.{place}").items():
            key = f"GET {question}" if question.startswith("/") else question
            if " " not in key and key != "*":
                path = f"http.{place}.{question}"
                known |= expand(key, Line(_table(answer, number, path), number, path), self._realtime(now))
            elif answer is None:
                known.pop(key, None)
            else:
                known[key] = self._reply(answer, number, f"http.{place}.{question}")

    def _reply(self, answer: object, number: int, path: str) -> Reply:
        if isinstance(answer, str) and answer in self._answers:
            answer = self._answers[answer]
        if isinstance(answer, str):
            if answer in FAULTS:
                return Reply(fault=answer)
            names = checks.words([*FAULTS, *self._answers])
            raise FilmError(f"line {number}: {path}: is {answer!r}; allowed: an object, or one of {names}")
        line = Line(_table(answer, number, path), number, path)
        delay = line.take("after", checks.time, 0)
        status = line.take("status", checks.whole, 200)
        fault = line.take("fault", checks.one_of(("", *FAULTS)), "")
        if line.has("text"):
            body, kind = line.take("text", checks.text, "").encode(), "text/plain"
        else:
            body, kind = json.dumps(line.take("json", lambda value: value, None)).encode(), "application/json"
        line.end()
        return Reply(status, body, kind, delay, fault)

    def _unit(self, name: str, entry: object, number: int) -> None:
        if entry is None:
            self._stage.units.pop(name, None)
            return
        line = Line(_table(entry, number, f"units.{name}"), number, f"units.{name}")
        self._stage.units[name] = StagedUnit(_variables(line, "declares"), _variables(line, "environment"))
        line.end()


def _identity(process: StagedProcess, line: Line) -> None:
    command = line.take("command", _command, process.command_line)
    if command != process.command_line:
        process.command_line = command
        first = "".join(command[:1])
        process.executable = first if first.startswith("/") else f"/usr/bin/{first}"
        process.comm = first.rsplit("/", 1)[-1][:15]
    process.executable = line.take("executable", checks.text, process.executable)
    process.comm = line.take("comm", checks.text, process.comm)
    process.directory = line.take("directory", checks.text, process.directory)
    process.parent = line.take("parent", checks.whole, process.parent)
    process.uid = line.take("uid", checks.whole, process.uid)
    process.started = line.take("started", checks.whole, process.started)
    process.elsewhere = line.take("elsewhere", checks.flag, process.elsewhere)
    process.ports = line.take("ports", _ports, process.ports)
    process.environment = tuple(sorted(_variables(line, "environment").items())) or process.environment
    unit, user_unit = line.take("unit", checks.text, ""), line.take("user-unit", checks.text, "")
    container = line.take("container", checks.text, "")
    if unit:
        process.cgroup = f"/system.slice/{unit}"
    if user_unit:
        service = f"user@{process.uid}.service"
        process.cgroup = f"/user.slice/user-{process.uid}.slice/{service}/app.slice/{user_unit}"
    if container:
        process.cgroup = f"/system.slice/docker-{container.encode().hex()[:64]:0<64}.scope"
    process.cgroup = line.take("cgroup", checks.text, process.cgroup)


def _table(value: object, number: int, path: str) -> Mapping[str, object]:
    try:
        return checks.table(value)
    except ValueError as error:
        raise FilmError(f"line {number}: {path}: {error}") from None


def _variables(line: Line, key: str) -> dict[str, str]:
    return {name: str(value) for name, value in line.take(key, checks.table, checks.NOTHING).items()}


def _command(value: object) -> tuple[str, ...]:
    return tuple(shlex.split(value)) if isinstance(value, str) else checks.texts(value)


def _ports(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise checks.Unfit("allowed: a list of ports")
    return tuple(checks.whole(each) for each in value)


def _percent(value: object) -> Mapping[str, int] | int | None:
    if isinstance(value, dict):
        return {alias: checks.whole(each) for alias, each in value.items()}
    return None if value is None else checks.whole(value)


def _vram(value: object) -> int:
    if value is None:
        return 0
    return UNKNOWN_SIZE if value == "unknown" else checks.size(value)
