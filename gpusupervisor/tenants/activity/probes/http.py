"""Probe `http`: a JMESPath expression over JSON that the tenant answers."""

from gpusupervisor.engine_http import HttpError
from gpusupervisor.tenants.activity.probes.base import ProbeContext, ask, unanswered
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec
from gpusupervisor.tenants.json_query import query


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
