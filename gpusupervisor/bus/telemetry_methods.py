"""The methods of the telemetry object."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dbus_fast import DBusError, ErrorType, Variant

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.wire import details, document, size, text
from gpusupervisor.telemetry.records import Series, StoredEvent
from gpusupervisor.telemetry.service import TelemetryAnswers

QUESTIONS_PER_SENDER = 2
"""Questions of one connection that are answered at the same time."""


class TelemetryMethods:
    """Handlers of the one object."""

    def __init__(self, telemetry: TelemetryAnswers, admission: Admission) -> None:
        self._telemetry = telemetry
        self._admission = admission
        self._asking: Counter[str] = Counter()

    def telemetry(self) -> Handlers:
        """Of the telemetry object."""
        return {
            "Query": self._query,
            "Series": self._series,
            "Events": self._events,
            "Learned": self._learned,
            "Forget": self._forget,
        }

    async def _query(
        self, call: Call, series: str, gpu: str, tenant: str, start: int, end: int, points: int
    ) -> list[object]:
        with self._question(call):
            found = await self._telemetry.query(Series(series, gpu, tenant), start, end, points)
        return [[[size(each) for each in point] for point in found]]

    async def _series(self, call: Call) -> list[object]:
        with self._question(call):
            found = await self._telemetry.series()
        return [[[*map(text, span.series), size(span.first), size(span.last)] for span in found]]

    async def _events(self, call: Call, start: int, end: int, kind: str, limit: int) -> list[object]:
        with self._question(call):
            found = await self._telemetry.events(start, end, kind, limit)
        return [[_event(event) for event in found]]

    async def _learned(self, _call: Call) -> list[object]:
        return [[_fact(fact, self._telemetry.is_stored(fact)) for fact in self._telemetry.learned()]]

    async def _forget(self, call: Call, tenant: str, kind: str) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_FORGET, tenant=text(tenant)):
            return [await self._telemetry.forget(tenant, kind)]

    @contextmanager
    def _question(self, call: Call) -> Iterator[None]:
        """One caller cannot keep the others waiting."""
        if self._asking[call.sender] >= QUESTIONS_PER_SENDER:
            raise DBusError(
                ErrorType.LIMITS_EXCEEDED,
                f"{QUESTIONS_PER_SENDER} questions of yours are still being answered: wait for one of them to return",
            )
        self._asking[call.sender] += 1
        try:
            yield
        finally:
            self._asking -= Counter([call.sender])  # drops the entry at zero


def _event(event: StoredEvent) -> dict[str, Variant]:
    shown = details(
        kind=("s", event.kind),
        at=("t", event.at),
        tenant=("s", event.tenant),
        gpu=("s", event.gpu),
        plan=("s", event.plan),
    )
    return shown | {"details": Variant("s", document(event.details))}


def _fact(fact: Fact, stored: bool) -> dict[str, Variant]:
    return details(
        kind=("s", fact.kind),
        tenant=("s", fact.tenant),
        gpu=("s", fact.gpu),
        model=("s", fact.model),
        value=("t", fact.value),
        learned_at=("t", fact.learned_at),
        source=("s", fact.source),
        application=("s", fact.application),
        stored=("b", stored),
    )
