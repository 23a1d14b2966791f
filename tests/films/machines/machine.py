"""A generated machine: cards and engines with a hidden truth, and a referee who knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.stage import Stage, StagedGpu
from gpusupervisor.films.virtual_time import ORIGIN, VirtualClock
from tests.films.machines.comfyui import ComfyUi
from tests.films.machines.engine import GIB, MIB, NEVER, Cards, Engine
from tests.films.machines.ollama import KEEP_ALIVE, Ollama
from tests.films.machines.others import LlamaServer, Worker

STEP = SECOND // 2
NOTICED = 10 * SECOND
"""So long after an engine began to lack memory somebody must have been asked."""
CALM = 35 * SECOND
"""Who has rested for so long, in every way that can be seen, can be known to rest."""
ASKED_LATELY = 120 * SECOND
TRIES_AGAIN = 60 * SECOND
"""After a load that failed for lack of memory its client may try again."""
LACKED_LATELY = 4 * SECOND
"""A request that comes so shortly after the lack has ended was on its way."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What was true when somebody was asked."""

    at: int
    """Microseconds after the beginning."""
    tenant: str
    works: bool
    lacking: Mapping[str, int]
    """Who lacked memory then, or a moment before, and when last."""
    began: Mapping[str, int]
    """Since when whoever lacks memory then does so."""
    full_by_chance: frozenset[str]
    """Who works, has grown, and has the card full, without lacking anything: nobody could tell."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Somebody lacked memory, somebody rested, and nobody was asked."""

    at: int
    lacking: str
    resting: str
    size: int


@dataclass(slots=True)
class Referee:
    """Takes down what is true at the moments that count."""

    truths: list[Truth] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    lacked_at: dict[str, int] = field(default_factory=dict)
    judged: dict[str, int] = field(default_factory=dict)
    """By engine: the lack that has been judged, by its beginning."""


class Machine:
    """See `Script`."""

    def __init__(self, seed: int, clock: VirtualClock, stage: Stage) -> None:
        """stage: an empty one."""
        self.random = Random(seed)
        self.stage = stage
        self.referee = Referee()
        self._clock = clock
        self._time = 0
        self._shown: dict[str, object] = {}
        cards = Cards(self.stage)
        for number in range(self.random.choices((1, 2, 3), (70, 24, 6))[0]):
            total = self.random.choice((8, 12, 16, 24, 24, 24, 32, 48)) * GIB
            other = self.random.randint(100, 1200) * MIB if not number else 50 * MIB
            uuid = f"GPU-{number:08}-0000-0000-0000-{seed % 10**12:012}"
            self.stage.gpus[str(number)] = StagedGpu(uuid, total=total, other=other)
        self.engines = cards.engines = self._engines(cards)
        for engine in self.engines:
            engine.refresh(0)

    def _engines(self, cards: Cards) -> list[Engine]:
        random = self.random
        kinds = random.sample(
            ("comfyui", "ollama", "painter", "llama-server"), random.choices((2, 3, 4), (45, 40, 15))[0]
        )
        if not {"comfyui", "ollama", "painter"} & set(kinds):
            kinds.append("ollama")
        made: list[Engine] = []
        names = list(self.stage.gpus)
        for kind in sorted(kinds, key=("llama-server", "comfyui", "ollama", "painter").index):
            home = (random.choice(names),)
            if kind == "comfyui":
                made.append(ComfyUi(kind, 200, 8188, cards, home, random))
            elif kind == "ollama":
                homes = tuple(names) if random.random() < 0.5 else home
                made.append(ollama := Ollama(kind, 100, 11434, cards, homes, random))
                ollama.epoch = self._clock.realtime(ORIGIN) / SECOND
            elif kind == "painter":
                made.append(Worker(kind, 700, 9000, cards, home, random))
            elif cards.free(home[0]) > 3 * GIB:
                made.append(LlamaServer(kind, 300, 8080, cards, home, random))
        return made

    def advance(self, now: int) -> None:
        """See `Script`."""
        until = now - ORIGIN
        while self._time < until:
            before, self._time = self._time, self._next(until)
            for engine in self.engines:
                self._go_on(engine, min(STEP, self._time - before))
            self._watch()

    def _next(self, until: int) -> int:
        """The end of the next step: short while anybody is active."""
        if any(engine.is_active for engine in self.engines):
            return min(until, self._time + STEP)
        return min([until, *(_due(engine, self._time) for engine in self.engines)])

    def _go_on(self, engine: Engine, span: int) -> None:
        now = self._time
        for due in [each for each in engine.pending if each[0] <= now]:
            engine.pending.remove(due)
            engine.released(now)
        engine.step(now, span)
        if not engine.works and engine.calm_since == now and self.random.random() < 0.05:
            engine.silent_until = engine.calm_since = now + self.random.randint(10, 60) * SECOND
        shown = (engine.shows, now < engine.silent_until)
        if self._shown.get(engine.name) != shown:
            self._shown[engine.name] = shown
            engine.refresh(now)

    def rests_until(self, now: int) -> int | None:
        """See `Script`."""
        if any(engine.is_active for engine in self.engines):
            return None
        return min(_due(engine, self._time) for engine in self.engines) + ORIGIN

    def asked(self, now: int, address: str, question: str, body: bytes) -> None:
        """See `Script`."""
        for engine in self.engines:
            if engine.address == address and engine.asks_release(question):
                at = now - ORIGIN
                self.referee.truths.append(self._truth(engine, at))
                engine.asked(at, self.random.randint(100, 1500) * 1000)

    def _truth(self, engine: Engine, at: int) -> Truth:
        lacking = {
            name: lacked_at for name, lacked_at in self.referee.lacked_at.items() if at - lacked_at < LACKED_LATELY
        }
        by_chance = frozenset(
            other.name
            for other in self.engines
            if other.works and other.grown >= MIB * 64 and other.room() < 1100 * MIB
        )
        lacking |= {other.name: at for other in self.engines if other.will_lack or at - other.ran_out_at < TRIES_AGAIN}
        began = {other.name: other.lack.since for other in self.engines if other.lack}
        return Truth(at, engine.name, engine.works, lacking, began, by_chance)

    def _watch(self) -> None:
        """Whoever lacks memory must have been helped by now, if anybody could have helped."""
        now, referee = self._time, self.referee
        for engine in self.engines:
            if engine.lack is None:
                continue
            referee.lacked_at[engine.name] = now
            if now - engine.lack.since < NOTICED or referee.judged.get(engine.name) == engine.lack.since:
                continue
            referee.judged[engine.name] = engine.lack.since
            asked = any(at >= engine.lack.since - ASKED_LATELY // 2 for each in self.engines for at in each.asked_at)
            resting = next((each for each in self.engines if self._could_help(each, engine)), None)
            if resting is not None and not asked:
                referee.missed.append(Missed(now, engine.name, resting.name, engine.lack.size))

    def _could_help(self, giver: Engine, engine: Engine) -> bool:
        now = self._time
        if giver is engine or not giver.releases or not giver.is_calm_for(now, CALM + NOTICED):
            return False
        if any(now - at < ASKED_LATELY for at in giver.asked_at) or len(giver.asked_at) > 2:
            return False
        if isinstance(giver, ComfyUi) and (giver.keeps or giver.does != "rest"):
            return False
        process = giver.process
        return process is not None and any(process.vram.get(card, 0) > 3 * GIB // 2 for card in engine.homes)


def _due(engine: Engine, now: int) -> int:
    """When something of it changes by itself next."""
    times = [engine.next_at, engine.until, engine.silent_until, *(at for at, _ in engine.pending)]
    if isinstance(engine, Ollama) and engine.state == "loaded":
        times.append(engine.used_at + KEEP_ALIVE)
    return min((at for at in times if at > now), default=NEVER)
