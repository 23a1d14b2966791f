"""Short hands for what one tick has seen."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuMemory, GpuSample, Sample
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.activity.verdict import Activity, ActivityState
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from gpusupervisor.tenants.definition import Match, TenantDefinition
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW

RESERVED = GIB // 2


def definition(name: str, **more: Any) -> TenantDefinition:
    """A plain tenant."""
    return replace(TenantDefinition(name, name.title(), Match()), **more)


def doing(state: ActivityState, **more: Any) -> Activity:
    """An activity that has lasted for half an hour."""
    return replace(Activity(state, f"it is {state}", (), NOW, NOW - 30 * MINUTE), **more)


def process(pid: int, held: float | None, tenant: str = "", card: str = CARD, **more: Any) -> Holder:
    """A process that holds `held` GiB."""
    identity = ProcessIdentity(ProcessKey(pid, 1), 1, 1000, "x", executable=f"/opt/{tenant or 'stranger'}")
    size = None if held is None else round(held * GIB)
    return replace(Holder(card, pid, size, identity, tenant), **more)


def card(free: float, uuid: str = CARD, **more: Any) -> GpuSample:
    """A 24 GiB card that is awake."""
    size = round(free * GIB)
    memory = GpuMemory(24 * GIB, 24 * GIB - RESERVED - size, size, RESERVED, "nvml-v2")
    return replace(GpuSample(GpuIdentity(uuid, "RTX 4090", ""), "ok", NOW, memory), **more)


def seen(
    *processes: Holder,
    tenants: Mapping[str, Activity] | None = None,
    definitions: Mapping[str, TenantDefinition] | None = None,
    cards: tuple[GpuSample, ...] = (),
    free: float = 0,
    now: int = NOW,
    remote: frozenset[str] = frozenset(),
) -> Seen:
    """What a tick sees when these processes are on the card(s)."""
    activities = tenants or {}
    names = [*activities, *(d for d in definitions or {} if d not in activities)]
    known = {name: (definitions or {}).get(name) or definition(name) for name in names}
    cards = cards or (card(free),)
    presences = {name: _presence(name, processes) for name in names}
    accounts = {gpu.identity.uuid: _account(gpu.identity.uuid, processes) for gpu in cards}
    sample = Sample(now, DriverStatus("ok", version="580.95.05"), cards)
    return Seen(now, sample, Census(presences, accounts), activities, known, remote)


def _presence(name: str, processes: tuple[Holder, ...]) -> TenantPresence:
    own = tuple(each for each in processes if each.tenant == name)
    holdings: dict[str, int] = {}
    for each in own:
        if each.used is not None:
            holdings[each.gpu] = holdings.get(each.gpu, 0) + each.used
    unknown = frozenset(each.gpu for each in own if each.used is None)
    return TenantPresence(name, name, "http://127.0.0.1:1", own, holdings, unknown)


def _account(uuid: str, processes: tuple[Holder, ...]) -> GpuAccount:
    here = [each for each in processes if each.gpu == uuid]
    tenants: dict[str, int] = {}
    for each in here:
        if each.tenant:
            tenants[each.tenant] = tenants.get(each.tenant, 0) + (each.used or 0)
    return GpuAccount(uuid, tenants, tuple(each for each in here if not each.tenant), 0)
