"""An honest client in a process of its own: `python -m tests.attack.honest ADDRESS`; ends, with figures, at SIGTERM."""

import asyncio
import json
import os
import signal
import sys

from tests.attack.raw import RawPeer, Watch

PAUSE = 0.05
PATIENCE = 25.0
"""Seconds after which a call counts as unanswered: as long as libdbus waits."""


async def ask(address: str) -> Watch:
    """Ask until told to end."""
    watch, ended = Watch(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    peer = await RawPeer.connect(address)
    asking = asyncio.create_task(watch.ask_for_ever(peer, PAUSE, PATIENCE))
    over = asyncio.create_task(ended.wait())
    await asyncio.wait({asking, over}, return_when=asyncio.FIRST_COMPLETED)
    for task in (asking, over):
        task.cancel()
    await asyncio.gather(asking, over, return_exceptions=True)
    peer.die()
    return watch


def main() -> None:
    """Entry point."""
    address, uid = sys.argv[1], int(sys.argv[2])
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(uid)
    watch = asyncio.run(ask(address))
    json.dump({"waits": watch.waits, "failures": watch.failures}, sys.stdout)


if __name__ == "__main__":
    main()
