"""A generated ComfyUI: squeezes itself into what is free, waits for services, loses its worker, serves web pages."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.stage import Reply, StagedProcess
from tests.films.machines.engine import GIB, MIB, Cards, Engine, answer

Does = Literal["rest", "job", "wait", "dead", "page"]
COMMAND = ("python3", "/opt/ComfyUI/main.py")


class ComfyUi(Engine):
    """Keeps what it has loaded until it is asked."""

    def __init__(self, name: str, pid: int, port: int, cards: Cards, homes: tuple[str, ...], random: Random) -> None:
        super().__init__(name, pid, port, cards, homes, random)
        total = cards.stage.gpus[homes[0]].total
        self.context = random.randint(250, 600) * MIB
        self.needs = sorted(random.randint(2 * GIB, total * 4 // 5) for _ in range(2))
        """Of its workflows."""
        self.keeps = random.choices((0.0, 0.0, 0.35, 1.0), (70, 15, 8, 7))[0]
        """Share of its memory that does not come back."""
        self.does: Does = "rest"
        self._start(0)
        self.next_at = random.randint(5, 120) * SECOND

    def _start(self, now: int) -> None:
        stage = self.cards.stage
        stage.processes[self.pid] = StagedProcess(
            self.pid,
            started=now // 10_000,
            comm="python3",
            executable="/usr/bin/python3",
            command_line=COMMAND,
            cgroup=f"/system.slice/{self.name}.service",
            ports=(int(self.address.rpartition(":")[2]),),
            cpu_since=now,
            cpu_rate=0.005,
        )
        self.does = "rest"
        stage.processes[self.pid].hold(self.homes[0], min(self.context, self.cards.free(self.homes[0])), now)

    @property
    def shows(self) -> object:
        """See `Engine`."""
        return self.does

    def show(self) -> Mapping[str, Reply]:
        """See `Engine`."""
        runs = self.does in ("job", "wait", "dead")
        return {
            "GET /prompt": answer({"exec_info": {"queue_remaining": int(runs)}}),
            "GET /queue": answer({"queue_running": [[0, "p"]] if runs else [], "queue_pending": []}),
            "POST /free": Reply(200, b""),
        }

    def step(self, now: int, span: int) -> None:
        """See `Engine`."""
        if self.does == "job":
            self.fits = self.grow(self.need, span, now)
            self.feel(now, 0 if self.fits else self.need - self.held)
            self.until += 0 if self.fits else span // 2  # with less memory it takes longer
            if now >= self.until:
                self._end(now)
        elif now >= self.next_at:
            self._go_on(now)

    def _go_on(self, now: int) -> None:
        if self.does == "dead":
            del self.cards.stage.processes[self.pid]
            self.pid += 1
            self._start(now)
            self.rest(now)
        elif self.does in ("wait", "page"):
            self._end(now)
        else:
            self._begin(now)

    def _begin(self, now: int) -> None:
        self.need = self.random.choice(self.needs)
        if not self.is_clear(self.need):
            self.rest(now)
            return
        self.does = self.random.choices(("job", "wait", "dead", "page"), (70, 10, 5, 15))[0]
        match self.does:
            case "job":
                self.works, self.fits = True, False
                self.until = now + self.random.randint(8, 60) * SECOND
                self.computes(now, self.random.uniform(0.3, 1.0), self.random.randint(15, 99))
            case "wait":
                self.works, self.next_at = True, now + self.random.randint(8, 40) * SECOND
            case "dead":
                self.works, self.next_at = True, now + self.random.randint(90, 400) * SECOND
            case _:
                self.next_at = now + self.random.randint(1, 8) * SECOND
                self.computes(now, 1.0, 0)
        self.calm_since = now

    def _end(self, now: int) -> None:
        self.does = "rest"
        self.rest(now)

    def asks_release(self, question: str) -> bool:
        """See `Engine`."""
        return question == "POST /free"

    def released(self, now: int) -> None:
        """Its worker does it when it has time."""
        if self.does == "dead":
            return
        if self.does != "rest":
            self.pending.append((now + SECOND // 2, "release"))
            return
        process = self.process
        if process is not None:
            for card, held in list(process.vram.items()):
                floor = self.context if card == self.homes[0] else 0
                process.hold(card, floor + int(max(0, held - floor) * self.keeps), now)
