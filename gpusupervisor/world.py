"""The world as execution sees it: looking, asking, measuring, on the real machine."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.arbitration.execute import ReleaseReply
from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import SupervisorError
from gpusupervisor.observatory import Observatory
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ReleaseMethod, TenantDefinition
from gpusupervisor.tenants.release.http_release import Place, request_release
from gpusupervisor.tenants.speakers import uid_of

StopUnit = Callable[[str], Awaitable[tuple[str, str]]]
"""Takes a tenant's id; returns the unit and what was done with it. Raises SupervisorError."""


class LiveWorld:
    """What a plan's execution may do."""

    def __init__(
        self,
        observatory: Observatory,
        http: EngineHttp,
        situation_of: Callable[[Seen], Situation],
        stop: StopUnit | None = None,
    ) -> None:
        """stop: has the helper stop or restart a tenant's unit; None where there is no helper."""
        self._stop = stop
        self._observatory = observatory
        self._http = http
        self._situation_of = situation_of
        self._seen: Seen | None = None

    async def look(self, tenant: str) -> Situation:
        """The situation with the GPUs measured now and, where a tenant is named, a fresh look at its activity."""
        self._seen = await self._observatory.look_closely(tenant)
        return self._situation_of(self._seen)

    async def request(self, tenant: str) -> ReleaseReply:
        """Ask by each rung of its ladder, until one is accepted."""
        reply = ReleaseReply("refused", "it has no way to be asked")
        presence = self._seen.census.tenants.get(tenant) if self._seen else None
        place = Place("")
        if presence is not None:
            place = Place(presence.endpoint, presence.headers, presence.endpoint_is_written, presence.peer)
        for rung in self._rungs(tenant):
            if rung.method == "unit":
                reply = await self._release_unit(tenant, rung, presence)
                if reply.outcome == "accepted":
                    return reply
                continue
            answer = await request_release(rung, place, self._http)
            if answer.accepted:
                return ReleaseReply("accepted", answer.detail)
            if answer.was_heard:  # asking by the next rung as well could do more than is needed
                return ReleaseReply("failed", answer.detail)
            reply = ReleaseReply("failed" if answer.outcome == "failed" else "refused", answer.detail)
        return reply

    async def _release_unit(self, tenant: str, rung: ReleaseMethod, presence: TenantPresence | None) -> ReleaseReply:
        """Have the unit stopped or restarted, if all that the tenant holds is held by processes of it."""
        if self._stop is None:
            return ReleaseReply("refused", "there is no helper that could stop its unit")
        holders = presence.holders if presence else ()
        unit = rung.unit or rung.user_unit
        where = await asyncio.to_thread(_place_of, rung)
        elsewhere = [each for each in holders if each.identity is None or _place(each.identity) != where]
        if not holders or elsewhere:
            why = f"process {elsewhere[0].pid} does not run in it" if elsewhere else "it holds nothing"
            return ReleaseReply("refused", f"{unit} is left alone: {why}")
        try:
            unit, action = await self._stop(tenant)
        except SupervisorError as error:
            return ReleaseReply("failed", f"{unit} could not be released: {error}")
        return ReleaseReply("accepted", f"systemd was asked to {action} {unit}")

    async def measure(self, tenant: str, gpus: tuple[str, ...]) -> Mapping[str, Measurement]:
        """Ask NVML now, for each GPU. Raises GpuUnavailable."""
        return await self._observatory.measure(tenant, gpus)

    def settle_time(self, tenant: str) -> int:
        """How long its memory may take to come back, in microseconds."""
        return max((rung.settle for rung in self._rungs(tenant)), default=0)

    def defers_when_busy(self, tenant: str) -> bool:
        """Whether its engine keeps the request until its work is done."""
        return any(rung.when_busy == "deferred" for rung in self._rungs(tenant))

    def cooldown(self, tenant: str) -> int:
        """How long it is left alone after a request, in microseconds."""
        definition = self._definition(tenant)
        return definition.cooldown if definition else 0

    def holdings(self, tenant: str) -> Mapping[str, int]:
        """What it held by GPU when it was last looked at, in bytes."""
        presence = self._seen.census.tenants.get(tenant) if self._seen else None
        return presence.holdings if presence else {}

    def _definition(self, tenant: str) -> TenantDefinition | None:
        """As it was seen last: a reload may have taken it out of the catalog while it is being released."""
        return self._seen.definitions.get(tenant) if self._seen else None

    def _rungs(self, tenant: str) -> tuple[ReleaseMethod, ...]:
        definition = self._definition(tenant)
        return definition.release if definition else ()


def _place_of(rung: ReleaseMethod) -> tuple[str, str]:
    """The system's and the user's unit in which processes of a rung's unit run; blocks."""
    if rung.unit:
        return rung.unit, ""
    uid = uid_of(rung.user)
    return ("" if uid is None else f"user@{uid}.service"), rung.user_unit


def _place(identity: ProcessIdentity) -> tuple[str, str]:
    return identity.unit, identity.user_unit
