"""What every simulated engine does alike: its options, telling that it is ready, ending."""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpusupervisor.quantities import parse_bytes, parse_duration


def seconds(text: str) -> float:
    """A duration such as "300ms", in seconds."""
    return parse_duration(text) / 1_000_000


def size(text: str) -> int:
    """Bytes, such as "13G"."""
    return parse_bytes(text)


def options(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--card", type=Path, required=True, metavar="DIR", help="directory of the simulated card")
    parser.add_argument("--gpu", default="", metavar="UUID", help="the GPU; the first one by default")
    parser.add_argument(
        "--return-delay",
        type=seconds,
        default=0.3,
        metavar="TIME",
        help="how long memory takes to come back after it was given up (default: 300ms)",
    )
    return parser


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` until it ends or SIGTERM or SIGINT comes, which cancels it."""

    async def supervised() -> None:
        task = asyncio.ensure_future(main())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    asyncio.run(supervised())


def announce(text: str) -> None:
    """Tell whoever started this process that it is ready."""
    print(text, flush=True)


async def for_ever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
