"""An honest client in a process of its own: `python -m tests.attack.honest ADDRESS UID`; prints figures at SIGTERM.

It asks the bus itself as well: how long that takes is what the machine and the bus are to blame for.
"""

import asyncio
import json
import os
import signal
import sys
import time

from gpusupervisor.bus.connection import driver_call
from tests.attack.raw import RawPeer, Watch

PAUSE = 0.05
PATIENCE = 25.0
"""Seconds after which a call counts as unanswered: as long as libdbus waits."""


async def ask_the_bus(address: str, waits: list[float]) -> None:
    """Ask what has nothing to do with the service, again and again."""
    peer = await RawPeer.connect(address)
    try:
        while True:
            began = time.monotonic()
            await peer.ask(driver_call("GetId"))
            waits.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)
    finally:
        peer.die()


async def ask(address: str, bus_waits: list[float]) -> Watch:
    """Ask until told to end."""
    watch, ended = Watch(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    peer = await RawPeer.connect(address)
    asking = asyncio.create_task(watch.ask_for_ever(peer, PAUSE, PATIENCE))
    tasks = (asking, asyncio.create_task(ask_the_bus(address, bus_waits)), asyncio.create_task(ended.wait()))
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    peer.die()
    return watch


def main() -> None:
    """Entry point."""
    address, uid = sys.argv[1], int(sys.argv[2])
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(uid)
    bus_waits: list[float] = []
    watch = asyncio.run(ask(address, bus_waits))
    json.dump({"waits": watch.waits, "failures": watch.failures, "bus": bus_waits}, sys.stdout)


if __name__ == "__main__":
    main()
