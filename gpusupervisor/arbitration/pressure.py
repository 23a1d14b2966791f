"""Pressure: which tenants have grown into a full card, and which ran out of memory there. Pure but for remembering.

A tenant is pressed when it works, has grown, and stopped growing because the card was full. It ran out of memory when
its engine says so, or when it grew until the card was full and fell right then. How much it lacks is not known in
either case, so such a session is no measurement of what it needs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.tenants.activity.verdict import Placement

STEP = 16 << 20
"""Bytes by which a tenant grows from one look to the next; less is noise."""
FULL = 512 << 20
"""Bytes: a card with less free is full. An allocator gives up before the last byte. Of small cards a sixteenth."""
EXHAUSTED = 64 << 20
"""Bytes: with less free nothing can grow any more, so that no second look is needed to see that it has stopped."""
STOPPED = MICROSECONDS // 2
"""Without growth for so long, a tenant has stopped growing."""
FALL_WITHIN = 3 * MICROSECONDS
"""A tenant that falls so soon after it grew until the card was full has run out of memory."""
UNUSED_AFTER = 10 * MICROSECONDS
"""Room that has been there for so long and was not grown into is not needed."""
REMEMBERED = 60 * MICROSECONDS
"""How long a tenant that ran out of memory is a beneficiary without being seen to work: its client tries again."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """A tenant that is seen to lack memory; how much is not known."""

    kind: Literal["pressed", "out-of-memory"]
    since: int
    """Microseconds of the domain clock."""
    held: int
    """Bytes that it held at most, or that it could have held when it ran out of memory: more than this is needed."""
    grown: int
    """Bytes by which it had grown."""
    said: bool = False
    """The engine said itself that it ran out of memory."""


@dataclass(frozen=True, slots=True)
class Look:
    """One tenant at one look. Bytes, over the set of cards that it uses."""

    now: int
    measured_at: int
    """When the memory was measured; the same measurement again changes nothing."""
    works: bool
    """Its activity is `busy`."""
    rests: bool
    """Its activity is `idle` or `absent`."""
    held: int | None
    """None when that is not known."""
    free: int
    """On the card with most free."""
    available: int
    """Free, less the reserve and what is kept for others, over all of its cards."""
    is_full: bool
    """Every card of the set is."""
    placement: Placement | None = None
    out_of_memory_at: int | None = None
    """When its engine last said that it ran out of memory."""
    is_asked: bool = False
    """A release of it is under way: that it falls is our doing."""


@dataclass(slots=True)
class _Session:
    """What is remembered of one tenant since it last rested."""

    base: int
    """The least that it has held."""
    top: int
    """The most that it has held since it last fell."""
    mark: int
    """What it held when it was last seen to have grown."""
    held: int
    measured_at: int
    said_at: int
    """Of the engine's words about memory that were taken in, the last."""
    grew_at: int = 0
    into_full: bool = False
    """When it last grew, the card was full afterwards."""
    roomy_since: int | None = None
    pressed_since: int | None = None
    ran_out: Pressure | None = None
    placement: Placement | None = None
    placed_at: int = 0
    offered: int = 0


class PressureWatch:
    """Of every tenant."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self.unused = 0
        """How often room was there for a tenant that had been pressed and did not grow into it."""

    def of(self, tenant: str) -> Pressure | None:
        """What a tenant suffers from at the last look; None when nothing shows that it lacks memory."""
        session = self._sessions.get(tenant)
        if session is None:
            return None
        if session.ran_out is not None:
            return session.ran_out
        if session.pressed_since is None:
            return None
        return Pressure("pressed", session.pressed_since, session.held, session.held - session.base)

    def offered(self, tenant: str) -> int:
        """The most bytes that were available to a tenant since its models are placed as they are."""
        session = self._sessions.get(tenant)
        return session.offered if session else 0

    def keep_only(self, tenants: Iterable[str]) -> None:
        """Forget every other tenant."""
        wanted = set(tenants)
        for gone in self._sessions.keys() - wanted:
            del self._sessions[gone]

    def observe(self, tenant: str, look: Look) -> None:
        """Take in one look at a tenant."""
        held = look.held if look.held is not None else 0
        session = self._sessions.get(tenant)
        if session is None:
            heard = look.now - REMEMBERED
            session = self._sessions[tenant] = _Session(held, held, held, held, look.measured_at, heard)
        if look.measured_at > session.measured_at and look.held is not None:
            _follow_memory(session, look, held)
        _follow_placement(session, look)
        _hear(session, look)
        self._judge(session, look)
        if look.rests and session.ran_out is None:
            session.base = session.top = session.mark = session.held
            session.into_full = False

    def _judge(self, session: _Session, look: Look) -> None:
        """Whether it is pressed now, and whether it still counts as out of memory."""
        ran_out = session.ran_out
        if ran_out and (look.now - ran_out.since >= REMEMBERED or session.held >= ran_out.held + STEP):
            session.ran_out = None
        stopped = session.measured_at - session.grew_at >= STOPPED or look.free < EXHAUSTED
        grown = session.held - session.base >= WORTHWHILE
        if look.works and session.into_full and look.is_full and grown and stopped and not look.is_asked:
            session.pressed_since = session.pressed_since or look.now
            session.roomy_since = None
            return
        was_pressed, session.pressed_since = session.pressed_since, None
        if look.is_full or not session.into_full:
            return
        if was_pressed is not None or session.roomy_since is None:
            session.roomy_since = look.now
        elif look.now - session.roomy_since >= UNUSED_AFTER:
            session.into_full, session.roomy_since = False, None
            self.unused += 1


def is_full(free: int, total: int) -> bool:
    """Whether a card has too little free for an allocator to go on."""
    return free < min(FULL, total // 16)


def _follow_memory(session: _Session, look: Look, held: int) -> None:
    """Growth is counted from the last step and a fall from the top, so that no cadence of looks hides either."""
    if held - session.mark >= STEP:
        session.grew_at, session.into_full, session.roomy_since = look.measured_at, look.is_full, None
        session.mark = held
        session.top = max(session.top, held)
    elif session.top - held >= max(WORTHWHILE, (session.top - session.base) // 2):
        soon = look.measured_at - session.grew_at <= FALL_WITHIN
        if session.into_full and soon and not look.is_asked:
            session.ran_out = Pressure("out-of-memory", look.now, session.top, session.top - session.base)
        session.into_full = False
        session.mark = session.top = held
    session.base = min(session.base, held)
    session.mark = min(session.mark, held)
    session.held, session.measured_at = held, look.measured_at


def _follow_placement(session: _Session, look: Look) -> None:
    """How much room was there for what spilled. Room of the first seconds counts only when it stays: a load that has
    just ended may be measured a moment late."""
    if look.placement != session.placement:
        session.placement, session.placed_at, session.offered = look.placement, look.now, 0
    elif look.placement is not None and look.now - session.placed_at >= FALL_WITHIN:
        session.offered = max(session.offered, look.available)


def _hear(session: _Session, look: Look) -> None:
    """Take in what the engine says about memory, each word once, and only a fresh one."""
    said_at = look.out_of_memory_at
    if said_at is None or said_at <= session.said_at:
        return
    session.said_at = said_at
    if look.now - said_at < REMEMBERED and not look.is_asked:
        enough = max(session.top, session.held + max(0, look.available))  # would have been, for what was there then
        session.ran_out = Pressure("out-of-memory", look.now, enough, session.top - session.base, said=True)
