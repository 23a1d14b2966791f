"""A telemetry that remembers what a test says."""

import json

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.telemetry.downsample import SeriesPoint
from gpusupervisor.telemetry.records import Series, Span, StoredEvent
from tests.bus.builders import CARD, GIB

STEP = 60_000_000


class Past:
    """Answers the questions of org.gpusupervisor1.Telemetry, and notes them."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.asked: list[tuple[object, ...]] = []
        self.figures: dict[Series, list[int]] = {
            Series("used", CARD): [18, 18, 20, 18, 6],
            Series("holding", CARD, "ollama"): [12, 12, 12, 12, 0],
            Series("holding", CARD, "comfyui"): [5, 5, 7, 5, 5],
            Series("activity", "", "ollama"): [1, 2, 2, 1, 0],
            Series("power", CARD): [60_000, 210_400, 320_000, 250_000, 61_000],
        }
        """GiB of the last minutes, or places of activities, the oldest first."""
        self.happened = [
            StoredEvent(
                "plan", now - 3 * STEP, "comfyui", CARD, "plan-1",
                json.dumps({"summary": "ask ollama (8.0 GiB)", "sufficient": True}),
            ),
            StoredEvent(
                "step", now - 2 * STEP, "ollama", CARD, "plan-1",
                json.dumps({"outcome": "freed", "freed": 8 * GIB, "detail": "memory back within 0.8 s"}),
            ),
            StoredEvent(
                "load", now - STEP, "ollama", CARD, "",
                json.dumps({"model": "qwen3:8b", "size": 8 * GIB, "duration": 2_500_000, "source": "cold"}),
            ),
        ]  # fmt: skip
        """The oldest first."""

    async def query(self, series: Series, start: int, end: int, points: int) -> list[SeriesPoint]:
        self.asked.append(("query", series, start, end, points))
        unit = 1 if series.name in ("activity", "power") else GIB
        values = self.figures.get(series, [])
        begins = [self.now - (len(values) - place) * STEP for place in range(len(values))]
        return [SeriesPoint(at, v * unit, v * unit, v * unit) for at, v in zip(begins, values, strict=True)]

    async def series(self) -> list[Span]:
        return [Span(series, self.now - 5 * STEP, self.now) for series in self.figures]

    async def events(self, start: int, end: int, kind: str, limit: int) -> list[StoredEvent]:
        self.asked.append(("events", start, end, kind, limit))
        return [e for e in reversed(self.happened) if e.at >= start and kind in ("", e.kind)]

    def learned(self) -> tuple[Fact, ...]:
        return (
            Fact("need", "ollama", "", 13 * GIB, self.now, "the most that it held while it worked", "ollama --port"),
            Fact("floor", "comfyui", CARD, GIB // 2, self.now, "what it kept after a release"),
            Fact("load-warm", "ollama", CARD, 4 * GIB, self.now, "the median of its last 3 loads"),
        )

    def is_stored(self, fact: object) -> bool:
        return fact in self.learned()[1:]

    async def forget(self, tenant: str, kind: str) -> int:
        self.asked.append(("forget", tenant, kind))
        return sum(fact.tenant == tenant and kind in ("", fact.kind) for fact in self.learned())
