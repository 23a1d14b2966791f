"""Reads models that are used daily into RAM by itself, for tenants whose file says warm = "auto"."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import cast

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import SupervisorError
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.engines import ModelWarmed
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.memory import Memory, read_memory
from gpusupervisor.models.auto_warm import next_to_warm
from gpusupervisor.models.warm_plan import Candidate, WarmedUp
from gpusupervisor.tenants.definition import TenantDefinition

FIRST = 60.0
"""Seconds until the first look, while the machine starts."""
LOOK = 900.0
"""Seconds between two looks: each starts the reader."""
RATE = 256 << 20
"""Bytes a second: others read from the disk, too."""
AGAIN = 6 * 3600 * MICROSECONDS
"""A model that was read is not read again sooner: if it did not stay, others need the RAM."""

_LOG = logging.getLogger(__name__)


class AutoWarmer:
    """Of all tenants."""

    def __init__(
        self,
        clock: Clock,
        residency: ResidencyKeeper,
        definitions: Callable[[], Mapping[str, TenantDefinition]],
        budget: Callable[[], int | None],
        may: Callable[[], bool],
        memory: Callable[[], Memory | None] = read_memory,
    ) -> None:
        """budget: `warm-budget`. may: whether anything is done without being asked. memory: may block."""
        self._clock = clock
        self._residency = residency
        self._definitions = definitions
        self._budget = budget
        self._may = may
        self._memory = memory
        self._tried: dict[tuple[str, str], int] = {}

    async def warm_for_ever(self) -> None:
        """Look now and then."""
        pause = FIRST
        while True:
            await asyncio.sleep(pause)
            await self.look()
            pause = LOOK

    async def look(self) -> None:
        """Read what is worth it now, one model after the other."""
        wanted = [each.id for each in self._definitions().values() if each.models and each.models.warm_by_itself]
        if not wanted or not self._may():
            return
        for tenant in wanted:
            await self._residency.refresh(tenant)
        while (candidate := await self._next(wanted)) is not None and self._may():
            await self._warm(candidate)

    async def _next(self, wanted: list[str]) -> Candidate | None:
        memory, now = await asyncio.to_thread(self._memory), self._clock.now()
        self._tried = {key: at for key, at in self._tried.items() if now - at < AGAIN}
        found = [
            each
            for each in self._residency.candidates(wanted)
            if each.model.is_warm or (each.engine, each.model.name) not in self._tried
        ]
        realtime, shared = self._clock.realtime(now), self._residency.shared
        return next_to_warm(found, memory, self._budget(), realtime, shared=shared)

    async def _warm(self, candidate: Candidate) -> None:
        tenant, model = candidate.engine, candidate.model.name
        self._tried[tenant, model] = self._clock.now()
        try:
            work = await self._residency.warm(tenant, model, RATE)
            done = cast("WarmedUp", await work(_unseen))
        except SupervisorError as error:
            _LOG.info("%s of %s, which is used daily, was not read into RAM: %s", model, tenant, error)
            return
        write(ModelWarmed(tenant, model, done.size, done.took))


def _unseen(progress: int, detail: str, result: object = None) -> None:
    """Nobody follows it: the journal has a line at its end."""
