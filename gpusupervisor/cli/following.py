"""A job followed to its end: a progress bar on a terminal, plain lines elsewhere, and Ctrl-C that cancels it."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, FAILED, INTERRUPTED, NOT_RUNNING, CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.text import safe, sentence

Draw = Callable[[shapes.Shape], None]

_CANCELLING = "Cancelling: {}. Ctrl-C once more leaves it alone and does not wait."
UNDOING = "it first undoes what has to be undone"
_LEAVING = "No longer waiting; the job goes on to its end. See: gpusupervisorctl job {}"
_STOPPED = "gpusupervisor has stopped, and the job with it."


async def follow(session: Session, path: str, meanwhile: str = UNDOING) -> tuple[shapes.Shape, int]:
    """Show the job at `path` until it has ended; returns it as shapes.job has it, and the exit code that tells how.

    The first Ctrl-C cancels the job and waits for its end, the second leaves it. Standard error tells how it ended
    where it did not succeed; what it made until then is in the job. Raises CommandFailed when it is left and when the
    service stops. meanwhile: what is told of cancelling it, without a full stop.
    """
    following = asyncio.ensure_future(_to_the_end(session, path))
    cancelling: list[asyncio.Future[object]] = []

    def interrupted() -> None:
        if cancelling:
            following.cancel()
            return
        session.note(_CANCELLING.format(meanwhile))
        cancelling.append(asyncio.ensure_future(session.client.call("Cancel", path=path, interface=_interface())))

    with _on_interrupt(interrupted):
        await asyncio.wait({following})
    if following.cancelled():
        raise CommandFailed(_LEAVING.format(path.rsplit("/", 1)[-1]), INTERRUPTED)
    job = following.result()
    for refusal in await asyncio.gather(*cancelling, return_exceptions=True):
        if isinstance(refusal, CommandFailed) and job["state"] != "cancelled":
            session.note(refusal)
    return job, _told(session, job, bool(cancelling))


def _told(session: Session, job: shapes.Shape, interrupted: bool) -> int:
    """Say how it ended where it did not succeed; the exit code."""
    if job["state"] == "succeeded":
        return DONE
    session.note(sentence(job["detail"]) if job["state"] == "failed" else f"Job {job['id']} was cancelled.")
    return INTERRUPTED if job["state"] == "cancelled" and interrupted else FAILED


async def _to_the_end(session: Session, path: str) -> shapes.Shape:
    client = session.client
    with _progress(session) as draw:
        async with client.signals(path) as signals:
            job = shapes.job(await client.properties(path, _interface()))
            draw(job)
            while job["state"] == "running":
                news = await anext(signals)
                if news.service_left:
                    raise CommandFailed(_STOPPED, NOT_RUNNING)
                if news.member == "PropertiesChanged":
                    job |= shapes.properties(news.body[1])
                    draw(job)
            return shapes.job(await client.properties(path, _interface()))  # with its result, which no signal carries


def _interface() -> str:
    from gpusupervisor.cli.client import BUS_NAME

    return f"{BUS_NAME}.Job"


@contextmanager
def _on_interrupt(handler: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `handler` for as long as the context lasts."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(session: Session) -> Iterator[Draw]:
    """A bar on standard error, or a line for each thing that is done."""
    if not sys.stderr.isatty():
        yield _plainly(session)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.theme import Theme

    from gpusupervisor.cli.terminal import console

    errors = console(sys.stderr)
    errors.push_theme(Theme({"bar.back": "dim", "progress.elapsed": "dim"}))
    columns = (
        TextColumn("{task.fields[kind]}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        TextColumn("{task.percentage:3.0f} %", "bold"), TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=errors, refresh_per_second=4) as bar:
        task = bar.add_task("", total=100, kind="")
        yield lambda job: bar.update(
            task, completed=job["progress"], description=safe(job["detail"]), kind=safe(job["kind"])
        )


def _plainly(session: Session) -> Draw:
    told = ""

    def draw(job: shapes.Shape) -> None:
        nonlocal told
        if job["state"] == "running" and job["detail"] not in ("", told):
            told = job["detail"]
            session.note(f"{job['progress']} %: {told}")

    return draw
