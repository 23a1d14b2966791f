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
from gpusupervisor.bus.unread import MOST_UNREAD, Unread
from gpusupervisor.bus.users import Users

ROOT = 0
MOST_WAITING = 256
"""Calls of one user that wait for their turn; messages of one connection that wait for us to learn whose it is."""
MOST_SERVED = 64
"""Calls of one user that are being served at the same time."""
MOST_UNSENT = 256 << 10
"""Bytes of answers to one user that have not left when its next call is begun: others' stand behind them."""
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
    unsent: int = 0
    """Bytes of answers that have not left for the bus."""
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
        self._unread = Unread(bus)
        self._doubted: dict[int, list[Message]] = {}
        """Calls of users of whom it is being looked up how much they have not read."""
        self._looks: set[asyncio.Task[None]] = set()
        self._turns: deque[int] = deque()
        """Users with calls that wait."""
        self._turn: asyncio.Handle | None = None
        bus.accept = self.accept
        bus.charge = self._charge

    def accept(self, frame: Frame) -> bool:
        """Whether a message is looked into; one that is not is answered here, when somebody waits for an answer."""
        sender = frame.sender
        if sender == DRIVER_NAME or not sender:  # no honest message has a header that we cannot read
            return bool(sender)
        uid = self._users.of(sender)
        if uid is None:
            return self._accept_of_stranger(frame)
        if uid == ROOT:
            return True
        allowance, now = self._user(uid).allowance, self._loop.time()
        if wait := allowance.wait(now):
            if frame.wants_answer and not self._unread.is_doubtful(uid):
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
            self._admit(uid, call)

    def _charge(self, destination: str, size: int, done: "asyncio.Future[None]") -> None:
        """A message of so many bytes goes to a peer."""
        uid = self._users.of(destination)
        if uid is None:
            return
        user = self._user(uid)
        user.unsent += size
        done.add_done_callback(lambda _done: self._left(user, size))
        if uid != ROOT:
            user.allowance.spend(size / BYTES_PER_POINT, self._loop.time())
            self._unread.sent(uid, destination, size)

    async def close(self) -> None:
        """Nobody is served any more."""
        if self._turn:
            self._turn.cancel()
        self._turns.clear()
        self._bus.accept = accept_all
        self._bus.charge = charge_nobody
        await self._users.close()
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)

    def _learned(self, sender: str, uid: int | None) -> None:
        """Whose a connection is; None: it has left, or the bus does not answer."""
        self._signals.pop(sender, None)
        for call in self._strangers.pop(sender, ()):
            if uid is None:
                self._refuse(call, DBusError(ErrorType.ACCESS_DENIED, "The bus cannot tell who is calling"))
            else:
                self._admit(uid, call)

    def _user(self, uid: int) -> _User:
        if uid not in self._known:
            now = self._loop.time()
            if len(self._known) >= MOST_USERS:
                self._forget(now)
            self._known[uid] = _User(Allowance(now))
        return self._known[uid]

    def _forget(self, now: float) -> None:
        for uid, user in list(self._known.items()):
            if not (user.waiting or user.served or user.unsent) and user.allowance.is_full(now):
                del self._known[uid]

    def _admit(self, uid: int, call: Message) -> None:
        """Line up a call, unless its user may not read what is answered: then that is looked up first."""
        if uid == ROOT or not (uid in self._doubted or self._unread.is_doubtful(uid)):
            self._line_up(uid, call)
        elif uid not in self._doubted:
            self._doubted[uid] = [call]
            look = self._loop.create_task(self._look(uid))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        elif len(self._doubted[uid]) < MOST_WAITING:
            self._doubted[uid].append(call)

    async def _look(self, uid: int) -> None:
        await self._unread.look(uid)
        unread, deaf = self._unread.is_doubtful(uid), self._unread.is_deaf(uid)
        for call in self._doubted.pop(uid):
            if deaf:
                continue
            if unread:
                text = f"User {uid} has not read {MOST_UNREAD >> 20} MiB of answers: read them first"
                self._refuse(call, DBusError(ErrorType.LIMITS_EXCEEDED, text))
            else:
                self._line_up(uid, call)

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
        self._go_on()

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
            if self._may_begin(uid):
                self._begin(uid, self._known[uid])
                break
            self._turns.append(uid)
        self._go_on()

    def _may_begin(self, uid: int) -> bool:
        user = self._known[uid]
        return user.unsent <= MOST_UNSENT and (user.served < MOST_SERVED or uid == ROOT)

    def _go_on(self) -> None:
        if self._turn is None and any(self._may_begin(uid) for uid in self._turns):
            self._turn = self._loop.call_soon(self._next)

    def _left(self, user: _User, size: int) -> None:
        user.unsent -= size
        self._go_on()

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
        self._go_on()


def _too_often(uid: int, wait: float) -> str:
    return f"Too many calls of user {uid}: try again in {math.ceil(wait)} s"
