"""A generated Ollama: places what fits, spills the rest, unloads by itself, says sizes that are too large."""

from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Literal

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.stage import Reply, StagedProcess
from tests.films.machines.engine import GIB, MIB, SHOWS, Cards, Engine, Lack, answer

State = Literal["empty", "loading", "loaded", "working", "failed"]
KEEP_ALIVE = 300 * SECOND
VISIBLE = 4 * SECOND
"""A load that lives shorter may come and go between two looks."""


class Ollama(Engine):
    """One model at a time."""

    def __init__(self, name: str, pid: int, port: int, cards: Cards, homes: tuple[str, ...], random: Random) -> None:
        super().__init__(name, pid, port, cards, homes, random)
        total = sum(cards.stage.gpus[home].total for home in homes)
        self.need = random.randint(2 * GIB, total * 17 // 20)
        self.lie = random.choices((1.0, 1.1, 1.45), (60, 25, 15))[0]
        """What it says of its size, when everything is placed, as a multiple of the truth."""
        self.dies = random.random() < 0.3
        """It does not spill: a load that does not fit dies."""
        self.state: State = "empty"
        self.runner = pid + 50
        self.placed = 0
        self.used_at = 0
        self.tries = 0
        self.began_at = 0
        """Its last load."""
        cards.stage.processes[pid] = self._process(pid, "/usr/bin/ollama", ("/usr/bin/ollama", "serve"), port, 0)
        self.next_at = random.randint(5, 120) * SECOND

    def _process(self, pid: int, executable: str, command: tuple[str, ...], port: int, now: int) -> StagedProcess:
        return StagedProcess(
            pid,
            started=now // 10_000,
            parent=1 if pid == self.pid else self.pid,
            comm="ollama",
            executable=executable,
            command_line=command,
            cgroup="/system.slice/ollama.service",
            ports=(port,),
            environment=(("CUDA_VISIBLE_DEVICES", ",".join(self.homes)),),
            cpu_since=now,
        )

    @property
    def process(self) -> StagedProcess | None:
        """Its runner."""
        return self.cards.stage.processes.get(self.runner)

    @property
    def is_active(self) -> bool:
        """See `Engine`."""
        return self.state == "loading" or (self.state == "working" and self.placed < self.need)

    @property
    def shows(self) -> object:
        """See `Engine`."""
        return self.state, self.runner, self.used_at, self.placed

    def show(self) -> Mapping[str, Reply]:
        """See `Engine`."""
        models = []
        if self.state in ("loaded", "working"):
            whole = self.placed >= self.need
            size = int(self.need * self.lie) if whole else self.need
            used = datetime.fromtimestamp((self.used_at + KEEP_ALIVE) / SECOND + self.epoch, UTC)
            models = [
                {
                    "name": "m",
                    "model": "m",
                    "size": size,
                    "size_vram": size if whole else self.placed,
                    "expires_at": used.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                }
            ]
        return {
            "GET /api/ps": answer({"models": models}),
            "GET /api/version": answer({"version": "0.30.0"}),
            "POST /api/generate": answer({"done_reason": "unload"}),
        }

    epoch = 0.0
    """Wall-clock seconds of instant 0."""

    def refresh(self, now: int) -> None:
        """See `Engine`; the runner answers too."""
        super().refresh(now)
        place = f"127.0.0.1:{40_000 + self.runner}"
        if self.process is None:
            self.cards.stage.answers.pop(place, None)
        elif self.state == "loading":
            self.cards.stage.answers[place] = {"GET /slots": answer({}, 503), "GET /health": answer({}, 503)}
        else:
            slots = [{"id": 0, "is_processing": self.state == "working"}]
            self.cards.stage.answers[place] = {"GET /slots": answer(slots), "GET /health": answer({})}

    def step(self, now: int, span: int) -> None:
        """See `Engine`."""
        if self.state == "loading":
            self._load(now, span)
        elif self.state == "working":
            self.feel(now, self.need - self.placed)
            if now >= self.until:
                self.state, self.used_at = "loaded", now
                self.rest(now)
        elif self.state == "loaded" and now - self.used_at >= KEEP_ALIVE:
            self._unload(now)
        elif now >= self.next_at:
            self._begin(now)

    def _begin(self, now: int) -> None:
        if self.state == "empty" and not self.is_clear(self.need):
            self.rest(now)
            return
        self.works, self.calm_since = True, now
        if self.state == "loaded":
            self._work(now)
            return
        self.runner += 1
        port = 40_000 + self.runner
        command = ("/usr/bin/ollama", "runner", "--model", "x", "--port", str(port))
        self.cards.stage.processes[self.runner] = self._process(self.runner, "/usr/bin/ollama", command, port, now)
        if self.state != "failed":
            self.tries = 0
        self.state, self.grown, self.began_at = "loading", 0, now
        self.lack = None
        fits = self.room() >= self.need
        self.placed = self.need if fits or self.dies else max(0, self.room() - 64 * MIB)
        self.computes(now, 0.9, 5)

    def _load(self, now: int, span: int) -> None:
        if self.grow(self.placed, span, now):
            self._work(now)
        elif self.room() <= 0:
            if self.dies:
                self._die(now)
            else:
                self.placed = self.held
                self._work(now)

    def _die(self, now: int) -> None:
        """Out of memory; its client tries again in a few seconds, and gives up some time."""
        grown, lived = self.grown, now - self.began_at
        self.ran_out_at = now
        del self.cards.stage.processes[self.runner]
        self.tries += 1
        self.state = "failed" if self.tries < 3 else "empty"
        self.rest(now, after=(9, 14) if self.state == "failed" else (200, 1500))
        if self.state == "failed" and grown >= SHOWS and lived >= VISIBLE:
            self.grown, self.lack = grown, Lack(now, self.need - self.room())

    def _work(self, now: int) -> None:
        self.state = "working"
        slow = 3 if self.placed < self.need else 1
        self.until = now + self.random.randint(4, 40) * slow * SECOND
        self.computes(now, 0.3 * slow, self.random.randint(30, 99) // slow)

    def _unload(self, now: int) -> None:
        self.cards.stage.processes.pop(self.runner, None)
        self.state = "empty"
        self.calm_since = now

    def asks_release(self, question: str) -> bool:
        """See `Engine`."""
        return question == "POST /api/generate"

    def released(self, now: int) -> None:
        """At once, or when its work is done."""
        if self.state == "loaded":
            self._unload(now)
        elif self.state in ("loading", "working"):
            self.pending.append((now + SECOND // 2, "release"))
