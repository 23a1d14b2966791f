"""Probe `prometheus`: the sum of some metrics that count running and waiting work."""

import asyncio
import math
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from gpusupervisor.engine_http import BadAnswer, HttpError
from gpusupervisor.tenants.activity.probes.base import ProbeContext, fetch, unanswered
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec

MAX_WANTED = 64 << 10
"""Characters of metric lines that are parsed."""
PARSER = "prometheus_client.parser"


class PrometheusProbe:
    """Busy when the metrics add up to more than nothing; unknown when none of them is there."""

    def __init__(self, spec: ProbeSpec) -> None:
        self.kind = spec.kind
        self.timeout = spec.timeout
        self._path = spec.get
        self._line = re.compile(rf"(?:{'|'.join(map(re.escape, spec.busy_metrics))})[{{\s]")

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        try:
            values = await self._values(context)
        except HttpError as error:
            return unanswered(self.kind, error, context)
        if not values:
            return Observation(self.kind, "unknown", "its metrics do not tell whether it is working", context.now)
        if sum(values) > 0:
            return Observation(self.kind, "busy", "its metrics count work", context.now)
        return Observation(self.kind, "idle", "its metrics count no work", context.now)

    async def _values(self, context: ProbeContext) -> Sequence[float]:
        answer = await fetch(context, self._path, self.timeout)
        # Only the wanted lines are parsed: engines answer thousands, and the parser is slow.
        wanted = [line for line in answer.text().split("\n") if self._line.match(line)]
        if not wanted:
            return ()
        exposition = "\n".join(wanted) + "\n"
        if len(exposition) > MAX_WANTED:
            raise BadAnswer("answered implausibly many lines of its busy metrics")
        if PARSER not in sys.modules:
            await asyncio.to_thread(import_module, PARSER)
        return _parse(exposition)


def _parse(exposition: str) -> tuple[float, ...]:
    """Raises BadAnswer."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        values = tuple(
            sample.value for family in text_string_to_metric_families(exposition) for sample in family.samples
        )
    except (ValueError, IndexError, KeyError):
        raise BadAnswer("answered metrics that cannot be read") from None
    if any(value < 0 or not math.isfinite(value) for value in values):
        raise BadAnswer("answered metrics whose values are not numbers")
    return values
