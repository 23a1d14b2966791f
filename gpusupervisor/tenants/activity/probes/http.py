"""Probe `http`: a JMESPath expression over JSON that the tenant, or each of its processes, answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from gpusupervisor.engine_http import HttpError, without_keys
from gpusupervisor.tenants.activity.probes.base import ProbeContext, ask, unanswered
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import Endpoint, ProbeSpec
from gpusupervisor.tenants.json_query import query
from gpusupervisor.tenants.listening import address_on_command_line

MAX_WORKERS = 16


class HttpProbe:
    """true = busy, false = idle, anything else = unknown."""

    asks_engine = True
    wants_cpu = False

    def __init__(self, spec: ProbeSpec) -> None:
        self.kind = spec.kind
        self.timeout = spec.timeout * (2 if spec.first else 1)
        self._spec = spec

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        return await (self._ask_workers(context) if self._spec.worker_port_flag else self._ask(context))

    async def _ask(self, context: ProbeContext) -> Observation:
        spec = self._spec
        try:
            if spec.first and await self._asleep(context):
                return Observation(self.kind, "idle", "asleep", context.now)
            busy = query(spec.busy_when, await ask(context, spec.get, spec.timeout))
        except HttpError as error:
            return unanswered(self.kind, error, context)
        if busy is True:
            return Observation(self.kind, "busy", "its API says that it works", context.now)
        if busy is False:
            return Observation(self.kind, "idle", "its API says that it does not work", context.now)
        return Observation(self.kind, "unknown", "its API does not say whether it works", context.now)

    async def _asleep(self, context: ProbeContext) -> bool:
        """Whether `get` would wake it. When this cannot be asked, `get` is not sent either."""
        answer = await ask(context, self._spec.first, self._spec.timeout)
        return query(self._spec.asleep_when, answer) is True

    async def _ask_workers(self, context: ProbeContext) -> Observation:
        """Busy when any of its processes is; idle only when all of them say so."""
        presence = context.presence
        if not presence.holders:
            return Observation(self.kind, "absent", "none of its processes holds VRAM", context.now)
        places = worker_addresses(presence, self._spec.worker_port_flag)
        if None in places or len(places) > MAX_WORKERS:
            return Observation(self.kind, "unknown", "where its processes listen is not known", context.now)
        # At an address that a process has named no key is sent, and nobody but this machine is asked.
        headers = without_keys(presence.headers)
        workers = [
            replace(
                context, presence=replace(presence, endpoint=place or "", endpoint_is_written=False, headers=headers)
            )
            for place in places
        ]
        seen = await asyncio.gather(*(self._ask(worker) for worker in workers))
        for state in ("busy", "unknown", "absent"):
            found = next((each for each in seen if each.state == state), None)
            if found is not None:
                return found if state == "busy" else replace(found, state="unknown")
        return seen[0]


def worker_addresses(presence: TenantPresence, flag: str) -> Sequence[str | None]:
    """Where each of the tenant's processes listens, by its own command line; None for one that does not say."""
    lines = {holder.pid: holder.identity.command_line if holder.identity else () for holder in presence.holders}
    named = Endpoint("http://127.0.0.1:1", port_flags=(flag,))
    ports = [address_on_command_line(named, line).port for line in lines.values()]
    return [f"http://127.0.0.1:{port}" if port else None for port in ports]
