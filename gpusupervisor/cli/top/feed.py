"""The connection of the live screen: signals as they come, at most one call a second, and back again by itself."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.client import BUS_NAME, MANAGER, ROOT, Client, Signal
from gpusupervisor.cli.exits import NOT_RUNNING, CommandFailed
from gpusupervisor.cli.screens.events import told
from gpusupervisor.cli.top.board import TELEMETRY_PATH, Board, Figure, Happening, Of, now
from gpusupervisor.cli.top.trace import COUNT, SPAN

APART = 1.05
"""Seconds between two calls to the service: never more than one in a second there, whatever holds one up on its way."""
RETRY = (1.0, 2.0, 5.0)
"""Seconds before the connection is tried again; the last from then on."""
MANY = 4
"""More outdated lists than this are got all at once."""
RECALLED = 200
"""Events that the service is asked for at the beginning."""
STOPPED = "gpusupervisor has stopped; waiting until it is back"
TELEMETRY = f"{BUS_NAME}.Telemetry"
ENGINES = f"{BUS_NAME}.Engines"
WARM_PLAN: Of = (f"{ROOT}/engines", ENGINES)
"""Wanted like a list: asked for when it is looked at."""

Call = Callable[[Client], Awaitable[object]]


class Feed:
    """Keeps a board up to date."""

    def __init__(self, client: Client, board: Board) -> None:
        self._client = client
        self._board = board
        self._signals: AbstractAsyncContextManager[AsyncIterator[Signal]]
        self._stream: AsyncIterator[Signal]
        self._asked: deque[Call] = deque()
        self._missing: deque[Call] = deque()
        """What has to be known anew since the service came."""
        self._seeded: set[tuple[Figure, str]] = set()
        """Figures with the UUIDs of cards, of which the past was asked for."""
        self._answering: set[asyncio.Future[object]] = set()
        self._own_call: asyncio.Future[object] | None = None
        """What was asked for by ourselves and is not answered yet: one at a time."""
        self._own = False
        """Whether the connection was made here, and not given to us."""
        self._news = asyncio.Event()
        self._called = float("-inf")
        self.wanted: Callable[[], Iterable[Of]] = tuple
        """Whose lists are on the screen: only these are got."""
        self.traced: Callable[[], Iterable[Figure]] = tuple
        """Whose sparklines are on the screen."""

    async def begin(self) -> None:
        """Listen, and get what there is. Raises CommandFailed when the service cannot be reached."""
        await self._listen()
        self._called = asyncio.get_running_loop().time()
        self._board.take_objects(await self._client.objects())
        self._missing.extend((self._get_manager, self._get_events))

    async def run(self) -> None:
        """For ever: keep the board up to date; connect again when the connection is lost."""
        while True:
            calls = asyncio.ensure_future(self._make_calls())
            try:
                async for signal in self._stream:
                    self._take(signal)
            except CommandFailed as lost:
                self._board.tell(str(lost))
                self._board.lose(f"{lost} Connecting again.")
            finally:
                calls.cancel()
                with suppress(asyncio.CancelledError):
                    await calls
            await self._connect_again()

    async def ask(self, member: str, signature: str = "", body: Iterable[object] = (), **where: str) -> Any:  # noqa: ANN401  (a D-Bus value)
        """A call that a person asked for: the next one that is made. Raises CommandFailed as the service words it."""
        if self._board.gone:
            raise CommandFailed(self._board.gone, NOT_RUNNING)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        arguments = tuple(body)

        async def call(client: Client) -> None:
            try:
                found = await client.call(member, signature, arguments, **where)
            except CommandFailed as failure:
                if not reply.done():
                    reply.set_exception(failure)
            else:
                if not reply.done():
                    reply.set_result(found)

        self._asked.append(call)
        self.nudge()
        return await reply

    def nudge(self) -> None:
        """Something else may be wanted now."""
        self._news.set()

    # --- Signals ---

    def _take(self, signal: Signal) -> None:
        if signal.member != "NameOwnerChanged":
            self._board.take_signal(signal)
            if self._board.outdated:
                self.nudge()
        elif signal.service_left:
            self._board.tell("gpusupervisor has stopped")
            self._board.lose(STOPPED)
        else:
            self._board.tell("gpusupervisor has started")
            self._came_back()

    def _came_back(self) -> None:
        self._board.regain()
        self._missing.clear()
        self._missing.extend((self._get_objects, self._get_manager))
        self.nudge()

    async def _listen(self) -> None:
        self._signals = self._client.signals()
        self._stream = await self._signals.__aenter__()

    async def _connect_again(self) -> None:
        """Returns once there is a connection."""
        host = self._client.place.host
        await self.close()
        tries = 0
        while True:
            await asyncio.sleep(RETRY[min(tries, len(RETRY) - 1)])
            tries += 1
            self._client = Client(host, unattended=True)
            try:
                await self._client.__aenter__()
            except CommandFailed:
                continue
            self._own = True
            try:
                await self._listen()
            except CommandFailed:
                await self.close()
                continue
            self._came_back()
            return

    async def close(self) -> None:
        """Stop listening, and hang up a connection that was made here."""
        await self._signals.__aexit__(None, None, None)
        if self._own:
            self._own = False
            await self._client.__aexit__(None, None, None)

    # --- Calls ---

    async def _make_calls(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            if (left := self._called + APART - loop.time()) > 0:
                await asyncio.sleep(left)
            elif self._asked:
                self._make(self._asked.popleft())
            elif not self._board.gone and not self._own_call and (call := self._next()):
                self._own_call = self._make(self._forgiving(call))
                self._own_call.add_done_callback(self._own_call_done)
            else:
                await self._news.wait()

    def _make(self, call: Call) -> "asyncio.Future[object]":
        self._called = asyncio.get_running_loop().time()
        answer: asyncio.Future[object] = asyncio.ensure_future(call(self._client))
        self._answering.add(answer)
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, answer: "asyncio.Future[object]") -> None:
        """A call that was held up on its way came there no later than now."""
        self._answering.discard(answer)
        self._called = asyncio.get_running_loop().time()

    def _own_call_done(self, _: "asyncio.Future[object]") -> None:
        self._own_call = None
        self.nudge()

    def _forgiving(self, call: Call) -> Call:
        """What we ask by ourselves may fail: it is asked again when something changes, and nothing depends on it."""

        async def made(client: Client) -> None:
            with suppress(CommandFailed):
                await call(client)

        return made

    def _next(self) -> Call | None:
        """What is to be got next; None while nothing is."""
        if self._missing:
            return self._missing.popleft()
        wanted = set(self.wanted())
        if WARM_PLAN in wanted and self._board.warm_plan is None:
            return self._get_warm_plan
        outdated = [of for of in self._board.outdated if of in wanted]
        if len(outdated) > MANY:
            return self._get_objects
        if outdated:
            return self._getter(outdated[0])
        return next((self._seeder(*each) for each in self._unseeded()), None)

    async def _get_objects(self, client: Client) -> None:
        try:
            objects = await client.objects()
        except CommandFailed as failure:
            self._board.lose(f"{str(failure).splitlines()[0].removesuffix('.')}; waiting until it is back")
            raise
        self._board.take_objects(objects)

    async def _get_manager(self, client: Client) -> None:
        self._board.take_manager(await client.properties(ROOT, MANAGER))

    async def _get_warm_plan(self, client: Client) -> None:
        self._board.warm_plan = []  # not asked for again where that is not known
        path, interface = WARM_PLAN
        self._board.take_warm_plan(shapes.known(await client.call("WarmPlan", path=path, interface=interface)))

    def _getter(self, of: Of) -> Call:
        async def get(client: Client) -> None:
            self._board.outdated.pop(of, None)
            self._board.take_properties(of, await client.properties(*of))

        return get

    # --- What was before ---

    async def _get_events(self, client: Client) -> None:
        if not self._board.remembers:
            return
        arguments = (0, 0, "", RECALLED)
        stored = await client.call("Events", "ttsu", arguments, path=TELEMETRY_PATH, interface=TELEMETRY)
        events = [shapes.event(each) for each in reversed(stored)]
        self._board.recall(Happening(event["at"], told(event)) for event in events)

    def _seeder(self, figure: Figure, card: str) -> Call:
        async def seed(client: Client) -> None:
            self._seeded.add((figure, card))
            tenant = figure[1]
            query = ("holding" if tenant else "used", card, tenant, now() - SPAN, 0, COUNT)
            points = await client.call("Query", "sssttu", query, path=TELEMETRY_PATH, interface=TELEMETRY)
            self._board.seed(figure, points)

        return seed

    def _unseeded(self) -> Iterable[tuple[Figure, str]]:
        """Figures on the screen, and cards, that were not asked for yet: a tenant's is the sum over its cards."""
        if not self._board.remembers:
            return
        for figure in self.traced():
            for card in self._board.cards_of(figure):
                if (figure, card) not in self._seeded:
                    yield figure, card
