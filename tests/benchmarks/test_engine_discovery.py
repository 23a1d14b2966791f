"""What it costs to find out what 15 engines are set to: real HTTP, and the servers' own work is counted too."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.configured import Unit
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.keepers.engine_discovery import EngineDiscovery
from gpusupervisor.keepers.engine_scan import EngineScan
from gpusupervisor.peers.unit_client import UnitClient
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.census import Census, TenantPresence
from gpusupervisor.tenants.definition import Match, TenantDefinition
from gpusupervisor.unit_environment import Given
from tests.benchmarks.conftest import Report
from tests.engines.answers import BY_ENGINE, VERSIONS
from tests.http_peer import Peer, reply
from tests.tenants.people import who

pytestmark = pytest.mark.benchmark_suite

TICKS = 1000
LINE = "/opt/engine/bin/engine serve --model /srv/m.gguf -c 8192 --highvram --api --gpu-memory-utilization 0.5"
VARIABLES = {"OLLAMA_KEEP_ALIVE": "1h", "CUDA_VISIBLE_DEVICES": "0", "LLAMA_ARG_N_PARALLEL": "2", "STT_MODEL_TTL": "60"}


async def test_cpu_of_discovering_all_engines_and_of_a_steady_look(figure: Report, http: EngineHttp) -> None:
    """The first look with all answers, and looks at engines that stay as they are."""
    peers = {engine: Peer() for engine in BY_ENGINE}
    for engine, peer in peers.items():
        await peer.start()
        peer.answers = {path: reply(json.dumps(answer).encode()) for path, answer in BY_ENGINE[engine].items()}
    units = UnitClient()
    units.units = {f"{engine}.service": _unit(engine, pid) for pid, engine in enumerate(TABLES, 100)}
    census = Census({engine: _presence(engine, pid, peers) for pid, engine in enumerate(TABLES, 100)}, {})
    definitions = {engine: TenantDefinition(engine, engine, Match(), engine=engine) for engine in TABLES}
    discovery = EngineDiscovery(http, SystemClock(), units, EngineScan(Procfs(Path("/proc")), SystemClock()))
    before = time.process_time()
    discovery.look(census, {}, definitions, lambda _: None)
    async with asyncio.timeout(10):
        while any(discovery.reading(engine).version != version for engine, version in VERSIONS.items()):
            await asyncio.sleep(0.001)
    spent = (time.process_time() - before) * 1000
    assert all(discovery.reading(engine).settings for engine in TABLES)
    before = time.process_time()
    for _ in range(TICKS):
        discovery.look(census, {}, definitions, lambda _: None)
    steady = (time.process_time() - before) / TICKS * 1000
    await discovery.close()
    for peer in peers.values():
        await peer.stop()
    figure("CPU of discovering 15 engines", spent, "ms", 100)
    figure("CPU of a steady look at 15 engines", steady, "ms", 0.2)


def _unit(engine: str, pid: int) -> Unit:
    environment = {name: Given(value, "/etc/engine.conf") for name, value in VARIABLES.items()}
    return Unit(
        f"{engine}.service", active=True, main_pid=pid, commands=(tuple(LINE.split()),), environment=environment
    )


def _presence(engine: str, pid: int, peers: Mapping[str, Peer]) -> TenantPresence:
    server = who(
        pid, LINE, executable="/opt/engine/bin/engine", cgroup=f"/system.slice/{engine}.service", variables=VARIABLES
    )
    url = peers[engine].url if engine in peers else "http://127.0.0.1:1"
    return TenantPresence(engine, engine, url, servers=(server,))
