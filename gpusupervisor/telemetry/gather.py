"""From the published state to points: a figure is noted when it has moved, and once a minute."""

from collections.abc import Iterator

from gpusupervisor.state import State
from gpusupervisor.telemetry.records import ACTIVITIES, HEARTBEAT, Point, Series

BAND = 32 << 20
"""Bytes of change that are worth a row."""
BANDS = {"power": 10_000, "temperature": 3, "utilization": 10}
"""The same in mW, degrees Celsius and percent."""


class Gatherer:
    """Remembers what was noted last of each series."""

    def __init__(self) -> None:
        self._noted: dict[Series, Point] = {}

    def points(self, state: State, at: int) -> list[Point]:
        """What is worth noting of a state. at: realtime."""
        now = dict(figures(state))
        ended: dict[Series, int | None] = {
            series: 0 if series.name == "holding" else None for series in self._noted if series not in now
        }
        points = []
        for series, value in (now | ended).items():
            if self._is_worth_it(series, value, at):
                points.append(Point(series, at, value))
        for point in points:
            self._noted[point.series] = point
        for series in ended:
            del self._noted[series]
        return points

    def _is_worth_it(self, series: Series, value: int | None, at: int) -> bool:
        last = self._noted.get(series)
        if last is None:
            return value is not None
        if last.value != value and _moved(series, last.value, value):
            return True
        return not _rests(series, value) and not 0 <= at - last.at < HEARTBEAT


def _moved(series: Series, before: int | None, now: int | None) -> bool:
    if series.name == "activity" or before is None or now is None:
        return True
    if series.name in BANDS:
        return abs(now - before) >= BANDS[series.name]
    return not before or not now or abs(now - before) >= BAND  # to and from nothing, too


def _rests(series: Series, value: int | None) -> bool:
    """Nothing is to be said of it until it changes."""
    return value is None or (value == 0 and series.name in ("holding", "activity"))


def figures(state: State) -> Iterator[tuple[Series, int | None]]:
    """Every series there is now."""
    for gpu in state.sample.gpus:
        uuid, memory = gpu.identity.uuid, gpu.memory
        account = state.census.gpus.get(uuid)
        yield Series("used", uuid), memory.used if memory else None
        yield Series("free", uuid), memory.free if memory else None
        yield Series("unattributed", uuid), account.unattributed if memory and account else None
        for name in BANDS:
            value: int | None = getattr(gpu.sensors, name)
            yield Series(name, uuid), value
    for tenant in state.situation.tenants.values():
        for gpu_uuid, size in tenant.holdings.items():
            yield Series("holding", gpu_uuid, tenant.id), None if gpu_uuid in tenant.unknown_on else size
        yield Series("activity", "", tenant.id), ACTIVITIES.index(tenant.activity)
        if tenant.activity == "absent":
            continue
        if tenant.need is not None:
            need = tenant.need
            yield Series("need", "", tenant.id), need.low if need.is_open else need.figure
        assessment = state.assessments.get(tenant.id)
        if assessment is not None and assessment.gpu:
            yield Series("shortfall", assessment.gpu, tenant.id), assessment.shortfall
