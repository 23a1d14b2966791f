"""What a tenant needs, learned from what it held while it worked.

Its need is the most that it held in any of its last sessions of work. A session is a time of work whose pauses are
short. So a job that was unusually large is forgotten after some sessions, or after a month. A session in which the
card was full teaches only upwards: nobody knows what the tenant would have taken. When the application changes
(another program, other options on its command line), the first session of the new one that ends replaces what the
old one taught; until then the old need stands, for too much is asked for rather than too little.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from gpusupervisor.arbitration.eligibility import WORTHWHILE
from gpusupervisor.arbitration.learned import Fact, LearnedFacts, Measured
from gpusupervisor.arbitration.situation import Situation, TenantSituation
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.census import Census, TenantPresence

SESSIONS = 10
"""Of the last so many counts the largest."""
MONTH = 30 * 86_400 * MICROSECONDS
"""An older session counts only where there is no younger one."""
PAUSE = 600 * MICROSECONDS
"""A longer one ends a session."""
FULL = 512 << 20
"""Bytes: with less free beside the reserve, a tenant may have taken less than it wanted."""


@dataclass(slots=True)
class _Session:
    peak: int
    worked_at: int
    """When it was seen working last, in realtime microseconds."""
    application: str
    pressed: bool
    """The card was full meanwhile."""


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

    def __init__(self, learned: LearnedFacts) -> None:
        self._learned = learned
        self._sessions: dict[str, _Session] = {}

    def observe(self, state: Look, at: int) -> None:
        """One look. at: realtime."""
        for tenant in state.situation.tenants.values():
            if tenant.activity == "busy" and not tenant.protected and (held := _held(state, tenant)):
                self._work(state, tenant, held, at)
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
            session = self._sessions[tenant.id] = _Session(0, at, "", pressed=False)
        session.worked_at = at
        session.pressed |= any(
            state.situation.available(gpu, tenant.id) < FULL for gpu in tenant.holdings if gpu in state.situation.gpus
        )
        if held > session.peak:
            session.peak, session.application = held, application(state.census.tenants.get(tenant.id))
        known = self._learned.get("need", tenant.id)
        if known is None or session.peak - known.value >= WORTHWHILE:
            source = "the most that it held while it worked, in a session that has not ended"
            same = known.evidence if known and known.application == session.application else ()
            self._learned.learn(Fact("need", tenant.id, "", session.peak, at, source, session.application, same))

    def _end(self, tenant: str, session: _Session) -> None:
        known = self._learned.get("need", tenant)
        if known is None or (session.pressed and session.peak < known.value):
            return
        same = known.evidence if known.application == session.application else ()
        young = tuple(each for each in same if session.worked_at - each.at < MONTH)
        evidence = (*young, Measured(session.worked_at, session.peak))[-SESSIONS:]
        need = max(each.value for each in evidence)
        source = f"the most that it held while it worked, over its last {len(evidence)} sessions"
        learned_at = next(each.at for each in evidence if each.value == need)
        fact = Fact("need", tenant, "", need, learned_at, source, session.application, evidence)
        if replace(fact, learned_at=known.learned_at) != known:
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
