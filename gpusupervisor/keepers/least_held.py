"""The least that tenants have held lately, as telemetry stored it: asked for in the background, known at once."""

import asyncio
from collections.abc import Callable

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import SupervisorError
from gpusupervisor.telemetry.service import Telemetry

LATELY = 86_400 * MICROSECONDS
"""How far back it is looked: a day has its quiet hours."""
EVERY = 600.0
"""Seconds between two questions."""
FIRST = 30.0
"""Seconds after the start until the first."""


class LeastHeld:
    """By tenant and GPU."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._known: dict[tuple[str, str], int] = {}

    def of(self, tenant: str, gpu: str) -> int | None:
        """Bytes; None when nobody has watched."""
        return self._known.get((tenant, gpu))

    async def keep_up_for_ever(self, situation: Callable[[], Situation | None]) -> None:
        """Ask again and again about whoever holds something."""
        await asyncio.sleep(FIRST)
        while True:
            await self.refresh(situation())
            await asyncio.sleep(EVERY)

    async def refresh(self, situation: Situation | None) -> None:
        """Ask about whoever holds something; what was known stays where no answer comes."""
        since = self._clock.realtime(self._clock.now()) - LATELY
        known = {}
        for tenant in situation.tenants.values() if situation else ():
            for gpu in tenant.holdings:
                try:
                    least = await self._telemetry.least_held(tenant.id, gpu, since)
                except SupervisorError:
                    least = self.of(tenant.id, gpu)
                if least is not None:
                    known[tenant.id, gpu] = least
        self._known = known
