"""What a tenant needs, learned from what it held while it worked and lacked nothing.

The upper bound of its need is the most that it held in any of its last sessions of work. A session is a time of work
whose pauses are short. So a job that was unusually large is forgotten after some sessions, or after a month. A session
in which the tenant was pressed, or ran out of memory, is no measurement: it teaches only that a bound below what was
held is wrong. A session that left plenty of room on the card also teaches a lower bound, once there are several: an
allocator that takes whatever is free leaves no such room, so that its peak is never what others are asked for. When
the application changes (another program, other options on its command line), the first session of the new one that
ends replaces what the old one taught.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from gpusupervisor.arbitration.counters import Counters
from gpusupervisor.arbitration.learned import Fact, FactKind, LearnedFacts, Measured
from gpusupervisor.arbitration.pressure import is_full
from gpusupervisor.arbitration.situation import Situation, TenantSituation
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.census import Census, TenantPresence

SESSIONS = 10
"""Of the last so many counts the largest."""
MONTH = 30 * 86_400 * MICROSECONDS
"""An older session counts only where there is no younger one."""
PAUSE = 600 * MICROSECONDS
"""A longer one ends a session."""
PLENTY = (2 << 30, 8)
"""Bytes, or the part of a card, whichever is more: with so much left free all the time, what was taken was wanted."""
USUAL_AFTER = 3
"""Sessions with plenty of room from which on the least of them is a lower bound."""


@dataclass(slots=True)
class _Session:
    peak: int
    worked_at: int
    """When it was seen working last, in realtime microseconds."""
    application: str
    pressed: bool
    """It lacked memory at some time."""
    roomy: bool
    """Plenty of memory was left free all the time."""


def _nowhere(_fact: Fact) -> None:
    """Nothing is stored."""


class Look(Protocol):
    """What one look has seen."""

    @property
    def situation(self) -> Situation:
        """What decisions look at."""

    @property
    def census(self) -> Census:
        """Whose memory is whose."""


class NeedLearner:
    """Watches every tenant at work."""

    def __init__(
        self, learned: LearnedFacts, erase: Callable[[Fact], object] = _nowhere, counters: Counters | None = None
    ) -> None:
        """erase: removes a fact from the store."""
        self._learned = learned
        self._erase = erase
        self.counters = counters or Counters()
        self._sessions: dict[str, _Session] = {}

    def observe(self, state: Look, at: int) -> None:
        """One look. at: realtime."""
        for tenant in state.situation.tenants.values():
            if tenant.activity == "busy" and not tenant.protected and (held := _held(state, tenant)):
                self._work(state, tenant, held, at)
            elif tenant.id in self._sessions:
                self._pause(tenant)
        for name, session in list(self._sessions.items()):
            if not 0 <= at - session.worked_at <= PAUSE:
                del self._sessions[name]
                self._end(name, session)

    def forget(self, tenant: str) -> None:
        """Begin anew."""
        self._sessions.pop(tenant, None)

    def _work(self, state: Look, tenant: TenantSituation, held: int, at: int) -> None:
        session = self._sessions.get(tenant.id)
        if session is None:
            session = self._sessions[tenant.id] = _Session(0, at, "", pressed=False, roomy=True)
        session.worked_at = at
        cards = [state.situation.gpus[uuid] for uuid in tenant.holdings if uuid in state.situation.gpus]
        session.pressed |= tenant.pressure is not None or any(is_full(card.free, card.total) for card in cards)
        session.roomy &= all(card.free >= max(PLENTY[0], card.total // PLENTY[1]) for card in cards)
        if held > session.peak:
            session.peak, session.application = held, application(state.census.tenants.get(tenant.id))

    def _pause(self, tenant: TenantSituation) -> None:
        """It does not work now. A job that has come to its end without lacking anything is a measurement at once."""
        session = self._sessions[tenant.id]
        session.pressed |= tenant.pressure is not None
        known = self._learned.get("need", tenant.id)
        if session.pressed:
            if known is not None and session.peak - known.value >= WORTHWHILE:
                self._learned.drop(known)
                self._erase(known)
                self.counters.count("learned-up")
        elif tenant.activity == "idle" and (known is None or session.peak - known.value >= WORTHWHILE):
            source = "the most that it held while it worked, in a session that has not ended"
            same = known.evidence if known and known.application == session.application else ()
            self._learn(Fact("need", tenant.id, "", session.peak, session.worked_at, source, session.application, same))

    def _end(self, tenant: str, session: _Session) -> None:
        if session.pressed or not session.peak:
            return
        evidence = self._evidence("need", tenant, session)
        need = max(each.value for each in evidence)
        source = f"the most that it held while it worked, over its last {len(evidence)} sessions"
        learned_at = next(each.at for each in evidence if each.value == need)
        self._learn(Fact("need", tenant, "", need, learned_at, source, session.application, evidence))
        self._learn_usual(tenant, session)

    def _learn_usual(self, tenant: str, session: _Session) -> None:
        """The least of several sessions that took what they wanted; 0 while there are too few of them."""
        known = self._learned.get("need-usual", tenant)
        if not session.roomy and (known is None or session.peak >= known.value):
            return
        evidence = self._evidence("need-usual", tenant, session)
        least = min(each.value for each in evidence) if len(evidence) >= USUAL_AFTER else 0
        source = f"the least that it held at the height of its last {len(evidence)} sessions with plenty of room"
        self._learn(Fact("need-usual", tenant, "", least, session.worked_at, source, session.application, evidence))

    def _evidence(self, kind: FactKind, tenant: str, session: _Session) -> tuple[Measured, ...]:
        """What the last sessions of the same application have taught, with this one."""
        known = self._learned.get(kind, tenant)
        same = known.evidence if known is not None and known.application == session.application else ()
        young = tuple(each for each in same if session.worked_at - each.at < MONTH)
        return (*young, Measured(session.worked_at, session.peak))[-SESSIONS:]

    def _learn(self, fact: Fact) -> None:
        known = self._learned.get(fact.kind, fact.tenant)
        if known is not None and replace(fact, learned_at=known.learned_at) == known:
            return
        if known is None or known.value != fact.value:
            self.counters.count("learned-up" if known is None or known.value < fact.value else "learned-down")
        self._learned.learn(fact)


def _held(state: Look, tenant: TenantSituation) -> int:
    """Bytes on all GPUs; 0 when that is not known, or not its own doing."""
    blind = tenant.unknown_on or tenant.orphan_on or tenant.remote
    blind = blind or any(
        gpu.attribution_problem for uuid, gpu in state.situation.gpus.items() if uuid in tenant.holdings
    )
    return 0 if blind else sum(tenant.holdings.values())


def application(presence: TenantPresence | None) -> str:
    """What runs: the program of the largest process and the names of its options, never their values."""
    holders = [holder for holder in presence.holders if holder.identity] if presence else []
    largest = max(holders, key=lambda holder: (holder.used or 0, -holder.pid), default=None)
    if largest is None or largest.identity is None:
        return ""
    identity = largest.identity
    return harmless(" ".join([identity.executable or identity.comm, *_options(identity.command_line)]), 256)


def _options(command_line: tuple[str, ...]) -> Iterator[str]:
    yield from sorted({argument.partition("=")[0] for argument in command_line[1:] if argument.startswith("--")})
