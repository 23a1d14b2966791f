"""`top`: the live screen."""

import sys

from gpusupervisor.cli.exits import WRONG_USE, CommandFailed
from gpusupervisor.cli.registry import Command
from gpusupervisor.cli.session import Session

_ELSEWHERE = "Scripts can use gpusupervisorctl status --json, and monitor --json to follow what happens."


async def show(session: Session) -> int | None:
    """Until it is quit."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not session.console.is_dumb_terminal
    if session.json or not on_terminal:
        raise CommandFailed(f"top is a live screen and needs a terminal that can show one. {_ELSEWHERE}", WRONG_USE)
    from gpusupervisor.cli.top.board import Board
    from gpusupervisor.cli.top.feed import Feed

    board = Board()
    feed = Feed(session.client, board)
    await feed.begin()
    from gpusupervisor.cli.top.app import Top

    top = Top(board, feed, unicode=session.canvas.unicode, host=session.client.place.host)
    await top.run_async()
    return top.return_code


COMMANDS = (Command("top", "show the same live, with keys to plan and release", show),)
