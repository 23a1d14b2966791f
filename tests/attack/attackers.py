"""Attackers on a bus, in a process of their own: `python -m tests.attack.attackers ADDRESS`; go on until SIGTERM.

With `once` after the address each attack is made once, for 4 s at most, as the user who runs it.
"""

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Awaitable, Callable

from dbus_fast import Message, Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.connection import driver_call
from tests.attack.raw import ATTACKER, OBJECT_MANAGER, RawPeer, call_of, everything

AT_ONCE = 4
"""Attacks at the same time."""
LASTS = 20.0
"""Seconds of one attack at most."""
BRIEF = 4.0
UIDS = (ATTACKER, 2, 3)
"""nobody, bin and sys, which every system has."""
MANAGER, TENANTS = f"{names.BUS_NAME}.Manager", f"{names.BUS_NAME}.Tenants"

Attack = Callable[[RawPeer], Awaitable[object]]


async def burst(peer: RawPeer) -> None:
    """As much as the bus lets through, all at once."""
    await peer.send(*(everything() for _ in range(100)))
    await peer.answers(100)


async def silent_storm(peer: RawPeer) -> None:
    """Calls of which nobody wants the answer."""
    for _ in range(30):
        await peer.send(
            *(call_of(names.ROOT, OBJECT_MANAGER, "GetManagedObjects", silent=True) for _ in range(100))
        )  # fmt: skip


async def deafness(peer: RawPeer) -> None:
    """Ask, and never read."""
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            peer.sock.send(peer.packed(everything()))
        await asyncio.sleep(0.02)


async def deaf_listening(peer: RawPeer) -> None:
    """Subscribe to everything, and never read."""
    await peer.send(driver_call("AddMatch", "type='signal'"))
    await asyncio.sleep(10)


async def sudden_death(peer: RawPeer) -> None:
    """Gone with 80 answers outstanding."""
    await peer.send(*(everything() for _ in range(80)))


async def quadratic_definitions(peer: RawPeer) -> None:
    """What takes a parser hours."""
    for text in ("a." * 30_000 + "a = 1", "a = " + "[" * 60_000, "".join(f"[{'a.' * 40}b{n}]\n" for n in range(700))):
        await peer.ask(call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", "a.toml", text))
    duplicates = "{" + ",".join(f'"k{number}": 1' for number in range(5_000)) + "}"
    await peer.ask(call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", "a.json", duplicates))


async def long_processes(peer: RawPeer) -> None:
    """What is long to recognise."""
    process = {"command_line": Variant("as", ["a/" * 1000] * 30), "executable": Variant("s", "/a" * 1000)}
    for _ in range(20):
        await peer.ask(call_of(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", [process] * 7))


async def huge_call(peer: RawPeer) -> None:
    """16 MB."""
    await peer.ask(call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", "a.toml", "#" * (16 << 20)))


async def signal_flood(peer: RawPeer) -> None:
    """Signals that nobody wants."""
    signal_ = Message.new_signal("/x", "x.Y", "Z", "s", ["!" * 500])
    signal_.destination = names.BUS_NAME
    for _ in range(50):
        await peer.send(*[signal_] * 100)


async def every_open_method(peer: RawPeer) -> None:
    """All that is open, over and over."""
    calls = (
        (names.HEALTH_PATH, f"{names.BUS_NAME}.Health", "Check", "", ()),
        (names.ROOT, MANAGER, "PlanRelease", "sst", ("", "", 1 << 30)),
        (names.ENGINES_PATH, f"{names.BUS_NAME}.Engines", "WarmPlan", "", ()),
        (names.TELEMETRY_PATH, f"{names.BUS_NAME}.Telemetry", "Events", "ttsu", (0, 0, "", 1000)),
        (names.TELEMETRY_PATH, f"{names.BUS_NAME}.Telemetry", "Series", "", ()),
        (names.ROOT, "org.freedesktop.DBus.Introspectable", "Introspect", "", ()),
        ("/nowhere", "org.freedesktop.DBus.Properties", "GetAll", "s", ("x.Y",)),
    )
    for _ in range(30):
        path, interface, member, signature, body = random.choice(calls)
        await peer.ask(call_of(path, interface, member, signature, *body))


ATTACKS: tuple[Attack, ...] = (
    burst, silent_storm, deafness, deaf_listening, sudden_death, quadratic_definitions, long_processes, huge_call,
    signal_flood, every_open_method,
)  # fmt: skip


async def attack_for_ever(address: str) -> None:
    """One after the other, at random."""
    while True:
        peer = await RawPeer.connect(address, random.choice(UIDS))
        with contextlib.suppress(TimeoutError, OSError, EOFError):
            async with asyncio.timeout(LASTS):
                await random.choice(ATTACKS)(peer)
        peer.die()


async def attack_once(address: str) -> None:
    """Each in turn."""
    for one in ATTACKS:
        peer = await RawPeer.connect(address)
        with contextlib.suppress(TimeoutError, OSError, EOFError):
            async with asyncio.timeout(BRIEF):
                await one(peer)
        peer.die()


async def attack(address: str) -> None:
    """Until told to end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    attackers = [asyncio.create_task(attack_for_ever(address)) for _ in range(AT_ONCE)]
    over = asyncio.create_task(ended.wait())
    await asyncio.wait({over, *attackers}, return_when=asyncio.FIRST_COMPLETED)
    for task in attackers:
        task.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run((attack_once if sys.argv[2:] == ["once"] else attack)(sys.argv[1]))
