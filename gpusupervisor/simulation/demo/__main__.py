"""The entry point of the demo."""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from gpusupervisor.simulation.demo.stage import Stage, StageError
from gpusupervisor.simulation.demo.story import Narrator, Story, things_to_try
from gpusupervisor.simulation.demo.witness import LOOK_AGAIN, PATIENCE, DidNotHappenError, Witness
from gpusupervisor.simulation.worlds import WORLDS


async def _play(told: asyncio.Event, *, once: bool) -> None:
    """told: set when the whole story has happened."""
    task = asyncio.current_task()
    assert task is not None
    # as asyncio does for Ctrl-C: it ends where it waits, so that nothing is left behind
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    narrator = Narrator()
    started = time.monotonic()
    narrator.says("Setting up: a private bus, a simulated RTX 4090, Ollama, ComfyUI, a desktop, the supervisor.")
    async with Stage() as stage:
        witness = Witness(stage.bus_address, narrator.signal)
        await witness.connect()
        try:
            await Story(stage, witness, narrator).play()
        finally:
            witness.leave()
        told.set()
        narrator.scene(
            f"Everything above really happened, in {time.monotonic() - started:.0f} s. The card is simulated;"
        )
        narrator.says("processes, HTTP, D-Bus and the supervisor are the real ones.")
        if not once:
            narrator.scene("It keeps running until Ctrl-C. In another terminal:")
            narrator.code(things_to_try(stage))
            await asyncio.Event().wait()


async def _show(world: str, *, once: bool) -> None:
    """A machine of another kind, as the command line shows it."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    narrator = Narrator()
    narrator.says(f"Setting up: a private bus, the simulated machine {world}, engines, the supervisor, its helper.")
    async with Stage(world) as stage:
        witness = Witness(stage.bus_address, narrator.signal)
        await witness.connect()
        try:
            await witness.sees("/health", "Health", "the first look", Checks=bool)
            async with asyncio.timeout(PATIENCE):
                while "temperature" not in await stage.command("profile"):  # noqa: ASYNC110  (the helper tells nobody)
                    await asyncio.sleep(LOOK_AGAIN)
            for command in ("status", "health", "fans", "profile"):
                narrator.scene(f"$ gpusupervisorctl {command}")
                narrator.code(await stage.command(command))
        finally:
            witness.leave()
        if not once:
            narrator.scene("It keeps running until Ctrl-C. In another terminal:")
            narrator.code(things_to_try(stage))
            await asyncio.Event().wait()


def _world(name: str) -> str:
    if name in WORLDS or Path(name).is_file():
        return name
    raise argparse.ArgumentTypeError(f"{name!r} is neither a file nor one of {', '.join(WORLDS)}")


def main() -> None:
    """Entry point; exit code 0 only when every step of the story happened."""
    parser = argparse.ArgumentParser(
        prog="gpusupervisor-demo", description="Tells what gpusupervisor does, by doing it."
    )
    parser.add_argument("--once", action="store_true", help="end after the story")
    parser.add_argument(
        "--card",
        metavar="NAME|FILE",
        type=_world,
        help=f"show another machine instead of the story: {', '.join(WORLDS)}, or a file of record-card",
    )
    options = parser.parse_args()
    told = asyncio.Event()
    try:
        if options.card:
            asyncio.run(_show(options.card, once=options.once))
        else:
            asyncio.run(_play(told, once=options.once))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(0 if told.is_set() else 130)
    except (StageError, DidNotHappenError, TimeoutError) as error:
        print(f"\nThe story ended: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
