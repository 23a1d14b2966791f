"""Short hands for what checks may look at."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.situation import GpuSituation, Situation, UnmanagedHolder
from gpusupervisor.controls import Controls
from gpusupervisor.health.facts import Facts, Key
from gpusupervisor.health.remembered import figures_of
from gpusupervisor.models.fit import ceiling_of
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.settings import Settings
from gpusupervisor.state import Check, EngineStatus
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census, GpuAccount, Holder
from tests.arbitration.builders import CARD, GIB, NOW
from tests.arbitration.seen import seen

SECOND = 1_000_000


def engine(name: str = "ollama", **more: Any) -> EngineStatus:
    """An engine that answers."""
    return replace(EngineStatus(name, name, name.title(), "http://127.0.0.1:1", True, "", ""), **more)


def facts(
    *processes: Holder,
    tenants: Mapping[str, Activity] | None = None,
    unattributed: float = 0,
    ghosts: tuple[Holder, ...] = (),
    lasted: Mapping[Key, int] | None = None,
    **more: Any,
) -> Facts:
    """One 24 GiB card with these processes. lasted: microseconds for which something has been so."""
    found = seen(*processes, tenants=tenants)
    account = found.census.gpus[CARD]
    account = GpuAccount(CARD, account.tenants, account.unmanaged, round(unattributed * GIB), ghosts)
    census = Census(found.census.tenants, {CARD: account})
    unmanaged = tuple(UnmanagedHolder(each.pid, "x", each.used) for each in account.unmanaged)
    card = GpuSituation(CARD, "RTX 4090", 24 * GIB, 0, unmanaged, round(unattributed * GIB))
    base = Facts(
        now=NOW,
        sample=found.sample,
        census=census,
        situation=Situation(NOW, {CARD: card}, {}),
        definitions=found.definitions,
        activities=found.activities,
        engines={},
        controls=Controls(),
        sight=Sight("ok"),
        settings=Settings(),
        since={key: NOW - lasting for key, lasting in (lasted or {}).items()},
        steady=figures_of(census, "desktop"),
    )
    ceiling = ceiling_of(base.situation, CARD)
    base = replace(base, cards={CARD: CardFit(ceiling.size, "", ceiling.limit, ceiling.taken)})
    return replace(base, **more)


def complains(check: Check, state: str = "degraded") -> bool:
    """It is bad, and says what is wrong, what that breaks and what to do."""
    return check.state == state and all((check.summary, check.impact, check.remedy))
