"""An engine of a generated machine: what it truly does, and what it shows of that.

Sizes in bytes, instants in microseconds of the virtual clock.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.stage import NOT_FOUND, Reply, Stage, StagedProcess

MIB = 1 << 20
GIB = 1 << 30
NEVER = 1 << 62
SILENT = Reply(fault="silent")
GROWTH = 5 * GIB // 2
"""Bytes a second that a load takes."""
ROOMY, SHORT = 1100 * MIB, 600 * MIB
"""A job that leaves so much has enough, and one that lacks so much has not."""
SHOWS = 128 * MIB
"""Growth that an observer can see."""


def answer(value: object, status: int = 200) -> Reply:
    """JSON."""
    return Reply(status, json.dumps(value).encode())


@dataclass(slots=True)
class Lack:
    """An engine truly lacks memory, and that can be seen."""

    since: int
    size: int


@dataclass(slots=True)
class Cards:
    """Who holds what on the cards of the machine."""

    stage: Stage
    engines: "list[Engine]" = field(default_factory=list)

    def free(self, card: str) -> int:
        """Bytes."""
        gpu = self.stage.gpus[card]
        held = sum(process.vram.get(card, 0) for process in self.stage.processes.values())
        return gpu.total - gpu.other - held


class Engine(ABC):
    """One engine on one card, or on several."""

    releases = True
    """It can be asked for its memory at all."""

    def __init__(self, name: str, pid: int, port: int, cards: Cards, homes: tuple[str, ...], random: Random) -> None:
        self.name, self.pid, self.address = name, pid, f"127.0.0.1:{port}"
        self.cards, self.homes, self.random = cards, homes, random
        self.margin = random.randint(20, 250) * MIB
        """What an allocator of it leaves when the card is full."""
        self.works = False
        """A job of it truly runs."""
        self.fits = True
        """It has all that its job needs."""
        self.need = 0
        """Of its job, in total."""
        self.until = NEVER
        """When its job ends."""
        self.grown = 0
        """In this job."""
        self.lack: Lack | None = None
        self.ran_out_at = -NEVER
        """When it last failed for lack of memory."""
        self.calm_since = 0
        """Since when it neither works nor shows life, and answers."""
        self.silent_until = 0
        self.next_at = 0
        """When it does the next thing; `NEVER` for nothing by itself."""
        self.asked_at: list[int] = []
        self.pending: list[tuple[int, str]] = []
        """What a request brings about, and when."""

    # What the machine asks of it

    @abstractmethod
    def step(self, now: int, span: int) -> None:
        """Go on for a span that ends now."""

    @abstractmethod
    def show(self) -> Mapping[str, Reply]:
        """What its API answers at present, by "GET /path"."""

    @abstractmethod
    def released(self, now: int) -> None:
        """The memory that a request asked for comes back now."""

    @abstractmethod
    def asks_release(self, question: str) -> bool:
        """Whether such a request asks for its memory."""

    @property
    def is_active(self) -> bool:
        """Whether time has to go in small steps for it."""
        return self.works and not self.fits

    @property
    @abstractmethod
    def shows(self) -> object:
        """Another value whenever its API answers something else."""

    @property
    def process(self) -> StagedProcess | None:
        """Who holds its memory; None while nobody does."""
        return self.cards.stage.processes.get(self.pid)

    @property
    def held(self) -> int:
        """Bytes on all cards."""
        return sum(self.process.vram.values()) if self.process else 0

    def is_calm_for(self, now: int, span: int) -> bool:
        """Whether an observer can know that it rests."""
        return not self.works and self.silent_until < self.calm_since and now - self.calm_since >= span

    def asked(self, now: int, delay: int) -> None:
        """Somebody asks it for its memory."""
        self.asked_at.append(now)
        self.pending.append((now + delay, "release"))

    def refresh(self, now: int) -> None:
        """Put what it answers on the stage."""
        shown = dict.fromkeys(self.show(), SILENT) if now < self.silent_until else dict(self.show())
        self.cards.stage.answers[self.address] = {**shown, "*": NOT_FOUND}

    def computes(self, now: int, cores: float, sm: int) -> None:
        """Its process works so much from now on."""
        if self.process is not None:
            self.process.use_cpu(now, cores)
            self.process.sm = sm

    def grow(self, target: int, span: int, now: int) -> bool:
        """Grow towards a size for as long as there is room; whether it is there."""
        process = self.process
        assert process is not None
        wanted = target - self.held
        if wanted <= 0:
            return True
        for card in self.homes:
            step = min(wanted, GROWTH * span // SECOND, self.cards.free(card) - self.margin)
            if step > 0:
                process.hold(card, process.vram.get(card, 0) + step, now)
                self.grown += step
                wanted -= step
        return wanted <= 0

    def room(self) -> int:
        """Bytes that it could still take."""
        return sum(max(0, self.cards.free(card) - self.margin) for card in self.homes)

    @property
    def will_lack(self) -> bool:
        """Whether its job needs more than there is, whether or not that can be seen yet."""
        return self.is_active and self.need - self.held > self.room()

    def feel(self, now: int, missing: int) -> None:
        """Note that it lacks memory, or no longer does."""
        if missing < 512 * MIB or self.room() >= min(missing, 512 * MIB) or self.grown < SHOWS:
            self.lack = None
        elif self.lack is None:
            self.lack = Lack(now, missing)
        else:
            self.lack.size = missing

    def rest(self, now: int, *, after: tuple[int, int] = (200, 1500)) -> None:
        """Its job is over; the next one comes in so many seconds."""
        self.works, self.fits, self.until, self.lack, self.grown = False, True, NEVER, None, 0
        self.calm_since = now
        self.computes(now, 0.005, 0)
        self.next_at = now + self.random.randint(*after) * SECOND

    def chance(self, share: float) -> bool:
        """Whether something happens that happens in such a share of cases."""
        return self.random.random() < share

    def is_clear(self, need: int) -> bool:
        """Whether a job that needs so much ends clearly before the card is full, or clearly after.

        Between them no observer can tell whether the engine has all that it wants.
        """
        left = self.room() + self.held - need
        return not -SHORT < left < ROOMY
