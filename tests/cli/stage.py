"""The live screen on a stage: textual's pilot presses keys, a service on a real bus answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gpusupervisor.cli.client import Client
from gpusupervisor.cli.top.app import Top
from gpusupervisor.cli.top.board import Board
from gpusupervisor.cli.top.feed import Feed

PATIENCE = 15.0


class Stage:
    """A screen that runs."""

    def __init__(self, top: Top, board: Board, pilot: Pilot[None]) -> None:
        self.top = top
        self.board = board
        self._pilot = pilot

    @property
    def text(self) -> str:
        """What is on the screen."""
        return screen_text(self.top)

    async def press(self, *keys: str) -> None:
        """Keys, one after the other, each answered before the next."""
        for key in keys:
            await self._pilot.press(key)
            await self._pilot.pause()

    async def resize(self, columns: int, rows: int) -> None:
        await self._pilot.resize_terminal(columns, rows)
        await self._pilot.pause()

    async def until(self, *parts: str) -> str:
        """Wait until all of that is on the screen; returns it."""
        return await self.until_true(lambda: all(part in self.text for part in parts), f"{parts} in:\n{self.text}")

    async def until_true(self, holds: Callable[[], bool], what: str) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what}\nnow:\n{self.text}") from None
        return self.text


def screen_text(top: Top) -> str:
    """The screen as lines, without blanks at their ends."""
    return "\n".join(strip.text.rstrip() for strip in top.screen._compositor.render_strips())


@asynccontextmanager
async def stage(columns: int = 80, rows: int = 24, *, unicode: bool = True) -> AsyncIterator[Stage]:
    """A screen of the service on the bus that the environment names."""
    async with Client() as client:
        board = Board()
        feed = Feed(client, board)
        await feed.begin()
        top = Top(board, feed, unicode=unicode)
        async with top.run_test(size=(columns, rows)) as pilot:
            one = Stage(top, board, pilot)
            await one.until("Overview")
            yield one
