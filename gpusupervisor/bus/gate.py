"""Who is served when: users in turn, one call each, and each within its allowance.

The bus vouches for the user of a connection. Root is served without limits, in turn with the others.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dbus_fast import DBusError, ErrorType, Message

from gpusupervisor.bus.allowance import (
    AUTHORIZED,
    BYTES_PER_POINT,
    COSTS,
    HEAVY,
    MOST_HEAVY,
    OTHERWISE,
    UNANSWERED,
    Allowance,
)
from gpusupervisor.bus.connection import DRIVER_NAME
from gpusupervisor.bus.frame import Frame
from gpusupervisor.bus.transport import BusConnection, accept_all, charge_nobody
from gpusupervisor.bus.users import Users

ROOT = 0
MOST_WAITING = 256
"""Calls of one user that wait for their turn; messages of one connection that wait for us to learn whose it is."""
MOST_SERVED = 64
"""Calls of one user that are being served at the same time."""
MOST_USERS = 256
"""Users of whom it is remembered what they spent; those that spent nothing lately are forgotten first."""

Serve = Callable[[Message], "asyncio.Task[None]"]
Refuse = Callable[[Message, DBusError], None]


@dataclass(slots=True)
class _User:
    """What a user asks of us."""

    allowance: Allowance
    waiting: deque[Message] = field(default_factory=deque)
    served: int = 0
    """Calls that are being served."""
    heavy: int = 0
    """Calls of `HEAVY`, those that wait included."""


class Gate:
    """Before the calls of one connection. `take` is handed every call that arrives."""

    def __init__(self, bus: BusConnection, serve: Serve, refuse: Refuse, guarded: frozenset[str]) -> None:
        """serve: begins to serve a call. guarded: the methods about which the authority is asked."""
        self._bus = bus
        self._serve = serve
        self._refuse = refuse
        self._guarded = guarded
        self._loop = asyncio.get_running_loop()
        self._users = Users(bus)
        self._strangers: dict[str, list[Message]] = {}
        """Calls of connections whose user is being looked up."""
        self._signals: Counter[str] = Counter()
        """What else came from those."""
        self._known: dict[int, _User] = {}
        self._turns: deque[int] = deque()
        """Users with calls that wait."""
        self._turn: asyncio.Handle | None = None
        bus.accept = self.accept
        bus.charge = self._charge

    def accept(self, frame: Frame) -> bool:
        """Whether a message is looked into; one that is not is answered here, when somebody waits for an answer."""
        sender = frame.sender
        if sender == DRIVER_NAME:
            return True
        uid = self._users.of(sender)
        if uid is None:
            return self._accept_of_stranger(frame)
        if uid == ROOT:
            return True
        allowance, now = self._user(uid).allowance, self._loop.time()
        if wait := allowance.wait(now):
            if frame.wants_answer:
                self._bus.refuse(frame, _too_often(uid, wait))
            return False
        if not frame.is_call:
            allowance.spend(UNANSWERED, now)
        return True

    def _accept_of_stranger(self, frame: Frame) -> bool:
        if frame.is_call:
            return len(self._strangers.get(frame.sender, ())) < MOST_WAITING
        self._signals[frame.sender] += 1
        self._users.look_up(frame.sender, self._learned)
        return self._signals[frame.sender] < MOST_WAITING

    def take(self, call: Message) -> None:
        """A call has arrived: serve it when its turn comes, or refuse it."""
        sender = call.sender or ""
        uid = self._users.of(sender)
        if uid is None:
            self._strangers.setdefault(sender, []).append(call)
            self._users.look_up(sender, self._learned)
        else:
            self._line_up(uid, call)

    def _charge(self, destination: str, size: int) -> None:
        """A message of so many bytes goes to a peer."""
        if uid := self._users.of(destination):
            self._user(uid).allowance.spend(size / BYTES_PER_POINT, self._loop.time())

    async def close(self) -> None:
        """Nobody is served any more."""
        if self._turn:
            self._turn.cancel()
        self._bus.accept = accept_all
        self._bus.charge = charge_nobody
        await self._users.close()

    def _learned(self, sender: str, uid: int | None) -> None:
        """Whose a connection is; None: it has left, or the bus does not answer."""
        self._signals.pop(sender, None)
        for call in self._strangers.pop(sender, ()):
            if uid is None:
                self._refuse(call, DBusError(ErrorType.ACCESS_DENIED, "The bus cannot tell who is calling"))
            else:
                self._line_up(uid, call)

    def _user(self, uid: int) -> _User:
        if uid not in self._known:
            now = self._loop.time()
            if len(self._known) >= MOST_USERS:
                self._forget(now)
            self._known[uid] = _User(Allowance(now))
        return self._known[uid]

    def _forget(self, now: float) -> None:
        for uid, user in list(self._known.items()):
            if not user.waiting and not user.served and user.allowance.is_full(now):
                del self._known[uid]

    def _line_up(self, uid: int, call: Message) -> None:
        user, now = self._user(uid), self._loop.time()
        if uid != ROOT:
            if problem := self._problem_of(uid, user, call.member or "", now):
                self._refuse(call, DBusError(ErrorType.LIMITS_EXCEEDED, problem))
                return
            user.allowance.spend(self._cost(call.member or ""), now)
        user.heavy += call.member in HEAVY
        user.waiting.append(call)
        if uid not in self._turns:
            self._turns.append(uid)
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next)

    def _problem_of(self, uid: int, user: _User, member: str, now: float) -> str:
        """Why a user is not served now; empty when nothing speaks against it."""
        if wait := user.allowance.wait(now):
            return _too_often(uid, wait)
        if len(user.waiting) + user.served >= MOST_WAITING:
            return f"{MOST_WAITING} calls of user {uid} wait to be served: wait for one of them to return"
        if member in HEAVY and user.heavy >= MOST_HEAVY:
            return f"{MOST_HEAVY} such calls of user {uid} are being served: wait for one of them to return"
        return ""

    def _cost(self, member: str) -> float:
        return AUTHORIZED if member in self._guarded else COSTS.get(member, OTHERWISE)

    def _next(self) -> None:
        """Begin one call, of the user whose turn it is; what it does at once is done before the next one begins."""
        self._turn = None
        for _ in range(len(self._turns)):
            uid = self._turns.popleft()
            user = self._known[uid]
            if uid != ROOT and user.served >= MOST_SERVED:
                self._turns.append(uid)
                continue
            self._begin(uid, user)
            break
        if any(self._known[uid].served < MOST_SERVED or uid == ROOT for uid in self._turns):
            self._turn = self._loop.call_soon(self._next)

    def _begin(self, uid: int, user: _User) -> None:
        call = user.waiting.popleft()
        task = self._serve(call)
        user.served += 1
        if user.waiting:
            self._turns.append(uid)
        task.add_done_callback(lambda _task: self._ended(user, call.member or ""))

    def _ended(self, user: _User, member: str) -> None:
        user.served -= 1
        user.heavy -= member in HEAVY
        if self._turns and self._turn is None:
            self._turn = self._loop.call_soon(self._next)


def _too_often(uid: int, wait: float) -> str:
    return f"Too many calls of user {uid}: try again in {math.ceil(wait)} s"
