"""Generated engines of which less is to be told: one that a file describes, and one that nobody can ask."""

from collections.abc import Mapping
from random import Random

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.stage import Reply, StagedProcess
from tests.films.machines.engine import GIB, MIB, Cards, Engine, answer

PAINTER: dict[str, object] = {
    "title": "Painter",
    "match": {"executables": ["*/painter"]},
    "endpoint": {"url": "http://127.0.0.1:9000"},
    "activity": {
        "probes": [
            {"kind": "http", "get": "/status", "busy-when": "busy"},
            {"kind": "sm-utilization", "idle-after": "10s"},
            {"kind": "vram", "idle-after": "10s"},
        ]
    },
    "release": [{"method": "http", "post": "/unload", "settle": "5s"}],
}


class Worker(Engine):
    """Takes what it needs for each job, and stops where the card is full."""

    executable = "/opt/painter"
    unit = "painter.service"

    def __init__(self, name: str, pid: int, port: int, cards: Cards, homes: tuple[str, ...], random: Random) -> None:
        super().__init__(name, pid, port, cards, homes, random)
        self.context = random.randint(150, 400) * MIB
        self.need = random.randint(1 * GIB, cards.stage.gpus[homes[0]].total // 2)
        process = StagedProcess(
            pid,
            comm=self.executable.rsplit("/", 1)[-1],
            executable=self.executable,
            command_line=(self.executable, "--port", str(port)),
            cgroup=f"/system.slice/{self.unit}",
            ports=(port,),
        )
        cards.stage.processes[pid] = process
        process.hold(homes[0], min(self.context, cards.free(homes[0])), 0)
        self.next_at = random.randint(5, 120) * SECOND

    @property
    def shows(self) -> object:
        """See `Engine`."""
        return self.works

    def show(self) -> Mapping[str, Reply]:
        """See `Engine`."""
        return {"GET /status": answer({"busy": self.works}), "POST /unload": answer({})}

    def step(self, now: int, span: int) -> None:
        """See `Engine`."""
        if self.works:
            self.fits = self.grow(self.need, span, now)
            self.feel(now, 0 if self.fits else self.need - self.held)
            if now >= self.until:
                self.rest(now)
        elif now >= self.next_at and not self.is_clear(self.need):
            self.rest(now)
        elif now >= self.next_at:
            self.works, self.fits, self.calm_since = True, False, now
            self.until = now + self.random.randint(8, 60) * SECOND
            self.computes(now, self.random.uniform(0.2, 1.0), self.random.randint(20, 99))

    def asks_release(self, question: str) -> bool:
        """See `Engine`."""
        return question == "POST /unload"

    def released(self, now: int) -> None:
        """At once, or when its work is done."""
        if self.works:
            self.pending.append((now + SECOND // 2, "release"))
        elif self.process is not None:
            self.process.hold(self.homes[0], self.context, now)


class LlamaServer(Worker):
    """Has its model from the beginning, and keeps it."""

    releases = False
    executable = "/usr/bin/llama-server"
    unit = "llama-server.service"

    def __init__(self, name: str, pid: int, port: int, cards: Cards, homes: tuple[str, ...], random: Random) -> None:
        super().__init__(name, pid, port, cards, homes, random)
        self.need = min(self.need // 2, cards.free(homes[0]) - GIB)
        assert self.process is not None
        self.process.hold(homes[0], self.need, 0)

    def show(self) -> Mapping[str, Reply]:
        """See `Engine`."""
        return {
            "GET /props": answer({"is_sleeping": False}),
            "GET /slots": answer([{"id": 0, "is_processing": self.works}]),
        }

    def step(self, now: int, span: int) -> None:
        """It computes, and never grows."""
        self.need = self.held
        super().step(now, span)
        self.lack = None

    def asks_release(self, question: str) -> bool:
        """See `Engine`."""
        return False
