"""Work that hangs in the kernel costs its caller an error, and no one else anything."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gpusupervisor.errors import GpuUnavailable, InvalidArgument
from gpusupervisor.reader.threads import MOST_HANGING, Threads


@pytest.fixture
def answering() -> Iterator[threading.Event]:
    """Set when the file system answers."""
    event = threading.Event()
    yield event
    event.set()


async def test_what_work_returns_and_raises_reaches_the_caller() -> None:
    threads = Threads("The files")
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)

    def refuse() -> None:
        raise InvalidArgument("no such model")

    with pytest.raises(InvalidArgument, match="no such model"):
        await threads.run(refuse)


async def test_work_that_hangs_ends_in_an_error_and_others_go_on(answering: threading.Event) -> None:
    threads = Threads("The files", patience=0.05)
    with pytest.raises(GpuUnavailable, match="has not returned for"):
        await threads.run(answering.wait)
    assert await Threads("The files").run(lambda: 7) == 7


async def test_no_more_than_a_few_threads_hang_and_all_is_well_when_they_return(answering: threading.Event) -> None:
    threads = Threads("The files", patience=0.05)
    for _ in range(MOST_HANGING):
        with pytest.raises(GpuUnavailable, match="has not returned"):
            await threads.run(answering.wait)
    before = threading.active_count()
    with pytest.raises(GpuUnavailable, match="4 earlier attempts"):
        await threads.run(answering.wait)
    assert threading.active_count() == before
    answering.set()
    async with asyncio.timeout(30):
        while threads._hanging:
            await asyncio.sleep(0.01)
    assert await Threads("The files").run(lambda: 7) == 7
