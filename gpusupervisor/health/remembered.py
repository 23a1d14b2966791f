"""What is remembered from look to look: how long something has been so, and figures that stand still. Pure."""

from collections.abc import Iterable, Mapping

from gpusupervisor.gpu.sample import Sample
from gpusupervisor.health.facts import Key
from gpusupervisor.health.surroundings import Surroundings
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census

BAND = 256 << 20
"""Bytes by which a figure has to move before a text shows another."""


def still(before: Mapping[Key, int], now: int, keys: Iterable[Key]) -> dict[Key, int]:
    """Since when each of these has been so."""
    return {key: before.get(key, now) for key in keys}


def steadied(before: Mapping[Key, int], figures: Mapping[Key, int]) -> dict[Key, int]:
    """Each figure, or what was shown before while it is near that. What vanishes is 0 at once."""
    return {
        key: before[key] if key in before and value and abs(value - before[key]) < BAND else value
        for key, value in figures.items()
    }


def figures_of(census: Census, desktop: str) -> dict[Key, int]:
    """Bytes that texts name: by GPU of the unmanaged, of nobody and of the desktop, and of each of their processes."""
    figures: dict[Key, int] = {}
    for uuid, account in census.gpus.items():
        figures["unmanaged", uuid] = sum(each.used or 0 for each in account.unmanaged)
        figures["unattributed", uuid] = account.unattributed
        figures["desktop", uuid] = 0
    holders = [each for account in census.gpus.values() for each in account.unmanaged]
    for presence in census.tenants.values():
        if presence.definition_id == desktop:
            holders += presence.holders
            for uuid, size in presence.holdings.items():
                figures["desktop", uuid] = figures.get(("desktop", uuid), 0) + size
    for holder in holders:
        if holder.used:
            figures["held", holder.gpu, str(holder.pid)] = holder.used
    return figures


def lasting(
    sample: Sample,
    census: Census,
    activities: Mapping[str, Activity],
    surroundings: Surroundings,
    much: Iterable[Key],
) -> Iterable[Key]:
    """What is so now and is of interest once it has lasted. much: figures that are near their thresholds or above."""
    yield from much
    for account in census.gpus.values():
        for holder in account.unmanaged:
            yield "held", holder.gpu, str(holder.pid)
        for holder in account.unattributed_holders:
            yield "unseen", holder.gpu, str(holder.pid)
    for tenant, activity in activities.items():
        if activity.trouble:
            yield "api", tenant  # whatever the trouble: it may be slow now and unreachable then
    used = {gpu.identity.pci_bus_id for gpu in sample.gpus if gpu.state != "asleep" and not gpu.is_unused}
    for device in surroundings.power:
        if device.managed and not device.asleep and device.pci_bus_id not in used:
            yield "awake", device.pci_bus_id
