"""The reader's methods about the page cache. Callers say which tenant and which model, never which file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from dbus_fast import Variant

from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.wire import details
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.foreign_text import harmless
from gpusupervisor.memory import read_memory
from gpusupervisor.reader.page_cache.definitions import model_folders
from gpusupervisor.reader.page_cache.measure import Gauge
from gpusupervisor.reader.page_cache.residency import ModelSeen, Residency, measure_all, measure_one
from gpusupervisor.reader.page_cache.warm_up import WarmUps
from gpusupervisor.reader.threads import Threads

Answer = TypeVar("Answer")


class PageCacheCalls:
    """Callers have been admitted already. One question at a time, away from the event loop."""

    def __init__(self, layers: Sequence[Path], proc: Path) -> None:
        """layers: of tenant files. proc: where memory is read from."""
        self._layers = layers
        self._warm_ups = WarmUps(lambda: read_memory(proc))
        self._alone = asyncio.Lock()
        self._threads = Threads("The model files")

    def handlers(self) -> Handlers:
        """By method."""
        return {"Residency": self._residency, "BeginWarmUp": self._begin_warm_up, "WarmPart": self._warm_part}

    async def _residency(self, _call: Call, tenant: str) -> list[object]:
        def look() -> tuple[Residency, str]:
            gauge = Gauge()
            return measure_all(model_folders(self._layers, tenant), gauge), gauge.method

        residency, method = await self._do(look)
        about = details(method=("s", method), problems=("as", residency.problems))
        return [[_entry(model) for model in residency.models], about]

    async def _begin_warm_up(self, _call: Call, tenant: str, model: str) -> list[object]:
        return [await self._do(lambda: self._begin(tenant, model))]

    async def _warm_part(self, _call: Call, tenant: str, model: str, position: int, most: int) -> list[object]:
        progress = await self._do(lambda: self._warm_ups.go_on(tenant, model, position, most))
        return [progress.position, progress.stopped]

    def _begin(self, tenant: str, model: str) -> int:
        seen = measure_one(model_folders(self._layers, tenant), model, Gauge())
        if seen is None:
            asked = harmless(model)
            raise InvalidArgument(f"{harmless(tenant, 64)} has no model files called {asked!r}; Residency lists them")
        return self._warm_ups.begin(tenant, seen)

    async def _do(self, work: Callable[[], Answer]) -> Answer:
        async with self._alone:
            return await self._threads.run(work)


def _entry(model: ModelSeen) -> Mapping[str, Variant]:
    entry = details(
        model=("s", model.name), size=("t", model.size), files=("u", len(model.files)), problem=("s", model.problem)
    )
    return entry if model.cached is None else entry | details(cached=("t", model.cached))
