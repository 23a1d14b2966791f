"""Many generated machines, one after the other, and the score of the judgement against their truth."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

from gpusupervisor.clock import MICROSECONDS as SECOND
from gpusupervisor.films.evaluate import thrash
from gpusupervisor.films.projector import catalog_with
from gpusupervisor.films.replay import Ask, Production, Record, replay
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.virtual_time import VirtualClock
from gpusupervisor.quantities import format_bytes, format_duration
from gpusupervisor.tenants.catalog import Catalog
from tests.films.machines.machine import Machine
from tests.films.machines.others import PAINTER

MINUTES = 100
"""Of one machine."""
PLAYED = frozenset({"comfyui", "ollama", "llama-server", "painter", "desktop"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one machine was judged."""

    seed: int
    minutes: int
    wrong: tuple[str, ...]
    missed: tuple[str, ...]
    waits: tuple[int, ...]
    asks: int
    thrash: int


def play(seed: int, minutes: int = MINUTES, *, shown: bool = False) -> tuple[Machine, Record]:
    """Run the judgement over one machine. shown: also what is only shown, so that it can be looked at."""
    made: list[Machine] = []
    stage = Stage()

    def script(clock: VirtualClock) -> Machine:
        made.append(Machine(seed, clock, stage))
        return made[0]

    production = Production(
        stage=stage,
        script=script,
        catalog=_catalog(),
        lasts=minutes * 60 * SECOND,
        acts=True,
        shown_every=5 * SECOND if shown else 0,
        leaps=True,
    )
    record = replay(production)
    return made[0], record


def judge(seed: int, minutes: int = MINUTES) -> Verdict:
    """Run one machine, and hold what was done against its truth."""
    machine, record = play(seed, minutes)
    referee = machine.referee
    wrong = tuple(_wrongs(record.asks, machine))
    missed = tuple(
        f"{_time(each.at)}: {each.lacking} lacks {format_bytes(each.size)}, {each.resting} rests, and nobody was asked"
        for each in referee.missed
    )
    waits = tuple(wait for ask in record.asks if (wait := _wait(ask, machine)) is not None)
    return Verdict(seed, minutes, wrong, missed, waits, len(record.asks), thrash(record.asks))


def _wrongs(asks: Sequence[Ask], machine: Machine) -> Iterator[str]:
    """Requests that took memory from one that works, or for one that lacked nothing."""
    truths = {(truth.at, truth.tenant): truth for truth in machine.referee.truths}
    for ask in asks:
        truth = truths.get((ask.at, ask.tenant))
        if truth is None:
            continue
        told = f"{_time(ask.at)}: {ask.tenant} was asked for {ask.beneficiary or ask.cause}"
        if truth.works:
            yield f"{told}, and it works"
        elif ask.beneficiary and ask.beneficiary not in truth.lacking and ask.beneficiary not in truth.full_by_chance:
            yield f"{told}, which lacks nothing"


def _wait(ask: Ask, machine: Machine) -> int | None:
    """Microseconds from when the beneficiary began to lack memory to the request."""
    for truth in machine.referee.truths:
        if (truth.at, truth.tenant) == (ask.at, ask.tenant) and ask.beneficiary in truth.began:
            return max(0, ask.at - truth.began[ask.beneficiary])
    return None


@cache
def _catalog() -> Catalog:
    return catalog_with({"painter": PAINTER}, PLAYED)


def report(minutes: int, seed: int, workers: int) -> tuple[list[str], bool]:
    """The lines to print, and whether the score is perfect."""
    begun = time.monotonic()
    seeds = range(seed, seed + max(1, round(minutes / MINUTES)))
    each = min(minutes, MINUTES)
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            verdicts = list(pool.map(partial(judge, minutes=each), seeds, chunksize=4))
    else:
        verdicts = [judge(number, each) for number in seeds]
    lines = [
        f"machine {verdict.seed}, {kind}: {text}"
        for verdict in verdicts
        for kind, texts in (("wrong eviction", verdict.wrong), ("missed hand-off", verdict.missed))
        for text in texts
    ]
    waits = sorted(wait for verdict in verdicts for wait in verdict.waits)
    total = sum(verdict.minutes for verdict in verdicts)
    asks = sum(verdict.asks for verdict in verdicts)
    lines += [
        f"{len(verdicts)} generated machines, {total} machine-minutes, {time.monotonic() - begun:.1f} s; {asks} asked",
        f"wrong evictions    {sum(len(verdict.wrong) for verdict in verdicts)}",
        f"missed hand-offs   {sum(len(verdict.missed) for verdict in verdicts)}",
    ]
    if waits:
        median, worst = (format_duration(wait, 10_000) for wait in (waits[len(waits) // 2], waits[-1]))
        lines.append(f"time to room       median {median}, worst {worst}")
    lines.append(f"thrash             {sum(verdict.thrash for verdict in verdicts)}")
    return lines, not any(verdict.wrong or verdict.missed for verdict in verdicts)


def _time(at: int) -> str:
    return format_duration(at, 10_000)
