"""What units declare is in force at the look after it is known, and what is wrong with it is told."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.clock import SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.configured import Unit
from gpusupervisor.gpu.sample import GpuSample, Sample
from gpusupervisor.observatory import Observatory
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from tests.http_peer import Peer
from tests.tenants.people import GIB, USER, gpu, sample, who


class Machine:
    """In place of the GPU and of /proc."""

    def __init__(self, *identities: ProcessIdentity, holding: int = GIB) -> None:
        self.identities = identities
        self.holding = holding
        self.proc = Procfs(Path("/nonexistent"))
        self.sees = Sight("unasked")

    async def sample(self, **_: bool) -> Sample:
        held = {each.key.pid: self.holding for each in self.identities} if self.holding else {}
        return sample(gpu(processes=held))

    async def sample_gpu(self, uuid: str) -> GpuSample:
        return gpu(uuid)

    def identify(self, pids: Sequence[int]) -> dict[int, ProcessIdentity]:
        return {each.key.pid: each for each in self.identities}

    def sight(self) -> Sight:
        return self.sees

    async def close(self) -> None: ...


class Units:
    """What is known of units, and which were seen."""

    def __init__(self) -> None:
        self.known: Mapping[str, Mapping[str, str]] = {}
        self.seen: frozenset[str] = frozenset()
        self.units: Mapping[str, Unit] = {}

    def want(self, patterns: frozenset[str]) -> None: ...

    def declared(self, present: frozenset[str]) -> Mapping[str, Mapping[str, str]]:
        self.seen = present
        return self.known


@pytest.fixture
def units() -> Units:
    return Units()


async def observe(machine: Machine, units: Units, http: EngineHttp) -> Observatory:
    catalog = await asyncio.to_thread(load_catalog, [SHIPPED])
    return Observatory(machine, machine, http, catalog, SystemClock(), units)  # type: ignore[arg-type]


async def test_a_unit_is_its_tenant_from_the_look_on_at_which_it_is_known(units: Units, http: EngineHttp) -> None:
    machine = Machine(who(7, "python train.py", cgroup="/system.slice/trainer.service"))
    observatory = await observe(machine, units, http)
    seen = await observatory.look(needed=True)
    assert "trainer" not in seen.census.tenants
    assert units.seen == {"trainer.service"}
    units.known = {"trainer.service": {"GPUSUPERVISOR_TENANT": "trainer", "GPUSUPERVISOR_PRIORITY": "80"}}
    seen = await observatory.look(needed=True)
    assert seen.definitions["trainer"].priority == 80
    assert seen.census.tenants["trainer"].holdings == {"GPU-1": GIB}
    assert "priority = 80" in observatory.catalog.explain("trainer")
    units.known = {"trainer.service": {"GPUSUPERVISOR_TENANT": "trainer", "GPUSUPERVISOR_PRIORITY": "high"}}
    seen = await observatory.look(needed=True)
    assert seen.definitions["trainer"].protected
    (problem,) = observatory.declaration_problems()
    assert problem.startswith("unit trainer.service: GPUSUPERVISOR_PRIORITY: is ")
    units.known = {}
    assert "trainer" not in (await observatory.look(needed=True)).census.tenants
    assert observatory.declaration_problems() == ()
    await observatory.close()


async def test_only_services_of_the_systems_own_manager_are_asked_about(units: Units, http: EngineHttp) -> None:
    machine = Machine(
        who(7, "x", cgroup="/system.slice/a.service"), who(8, "x", cgroup=f"{USER}/b.service"),
        who(9, "x", cgroup="/user.slice/user-1000.slice/session-3.scope"), who(10, "x", cgroup="/init.scope"),
    )  # fmt: skip
    observatory = await observe(machine, units, http)
    await observatory.look(needed=True)
    assert units.seen == {"a.service"}
    await observatory.close()


async def test_measuring_one_gpu_says_nothing_of_the_services_on_others(units: Units, http: EngineHttp) -> None:
    observatory = await observe(Machine(who(7, cgroup="/system.slice/trainer.service")), units, http)
    await observatory.look(needed=True)
    await observatory.measure("ollama", ["GPU-2"])
    assert units.seen == {"trainer.service"}


async def test_a_declaration_outlives_a_reload_of_the_configuration(units: Units, http: EngineHttp) -> None:
    machine = Machine(who(7, "python train.py", cgroup="/system.slice/trainer.service"))
    observatory = await observe(machine, units, http)
    units.known = {"trainer.service": {"GPUSUPERVISOR_TENANT": "trainer"}}
    await observatory.look(needed=True)
    observatory.use(await asyncio.to_thread(load_catalog, [SHIPPED]))
    assert "trainer" in observatory.catalog.definitions
    await observatory.close()


async def test_a_users_units_mistake_is_told_while_it_is_there(units: Units, http: EngineHttp) -> None:
    said = {"GPUSUPERVISOR_PRIORITY": "99", "GPUSUPERVISOR_TITLE": "Mine"}
    machine = Machine(who(7, "python main.py", cgroup=f"{USER}/comfyui.service", variables=said))
    observatory = await observe(machine, units, http)
    seen = await observatory.look(needed=True)
    assert (seen.definitions["comfyui"].title, seen.definitions["comfyui"].priority) == ("Mine", 50)
    assert len(observatory.users_declaration_problems()) == 1
    assert said.keys() <= observatory.variables()
    machine.identities = ()
    await observatory.look(needed=True)
    assert observatory.users_declaration_problems() == ()
    await observatory.close()


def _is_at(seen: Seen, tenant: str, peer: Peer) -> bool:
    return seen.census.tenants[tenant].endpoint == peer.url


@pytest.mark.parametrize(
    ("command", "path", "answer", "status"),
    [
        ("/opt/tabbyAPI/main.py", "/health", {"status": "healthy"}, 200),
        ("/opt/tabbyAPI/main.py", "/health", {"detail": "no key"}, 401),
        ("/opt/text-generation-webui/server.py", "/v1/internal/model/info", {"model_name": "a model"}, 200),
        ("/opt/ComfyUI/main.py", "/prompt", {"exec_info": {}}, 200),
        ("/opt/ComfyUI/main.py", "/prompt", "nonsense", 500),
    ],
)
async def test_an_engine_that_does_not_tell_whether_it_works_is_reachable_all_the_same(
    units: Units, http: EngineHttp, peer: Peer, command: str, path: str, answer: object, status: int
) -> None:
    peer.says(path, answer, status)
    line = f"python {command} --port {peer.port} --api-port {peer.port}"
    observatory = await observe(Machine(who(7, line)), units, http)
    seen = await observatory.look(needed=True)
    async with asyncio.timeout(60):  # an answer that comes after the grace of one look is used by the next
        while not any(seen.activities[each].answered for each in seen.activities if _is_at(seen, each, peer)):
            await asyncio.sleep(0.01)
            seen = await observatory.look(needed=True)
    [engine] = [each for each in observatory.engines(seen).values() if each.endpoint == peer.url]
    assert (engine.reachable, engine.detail) == (True, ""), seen.activities[engine.id]
    assert seen.activities[engine.id].state == "unknown"
    await peer.stop()
    await observatory.close()
    gone = await observe(Machine(who(7, line)), units, http)
    for _ in range(3):
        seen = await gone.look(needed=True)
    assert not gone.engines(seen)[engine.id].reachable
    await gone.close()


async def test_an_idle_server_that_no_probe_asks_is_reachable_when_it_answers_what_it_is_asked(
    units: Units, http: EngineHttp, peer: Peer
) -> None:
    """Speaches does not tell whether it works, and holds no VRAM while nothing is loaded."""
    peer.says("/api/ps", {"models": []})
    server = who(
        7, f"python -m uvicorn speaches.main:create_app --port {peer.port}", cgroup="/system.slice/speaches.service"
    )
    units.units = {"speaches.service": Unit("speaches.service", True, 7, ())}
    observatory = await observe(Machine(server, holding=0), units, http)
    async with asyncio.timeout(10):
        while not (engine := observatory.engines(await observatory.look(needed=True))["speaches"]).reachable:
            await asyncio.sleep(0.01)
    assert (engine.endpoint, engine.detail) == (peer.url, "")
    assert engine.settings_checked_against == "v0.9"
    await observatory.close()


async def test_of_an_engine_whose_process_is_not_found_that_is_said_and_what_keeps_it_from_being_found(
    units: Units, http: EngineHttp, peer: Peer, tmp_path: Path
) -> None:
    peer.says("/prompt", {"exec_info": {"queue_remaining": 0}})
    (tmp_path / "comfyui.toml").write_text(f'[endpoint]\nurl = "{peer.url}"\n')
    catalog = await asyncio.to_thread(load_catalog, [SHIPPED, tmp_path])
    machine = Machine(holding=0)
    observatory = Observatory(machine, machine, http, catalog, SystemClock(), units)  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        while not (engine := observatory.engines(await observatory.look(needed=True))["comfyui"]).reachable:
            await asyncio.sleep(0.01)
    assert engine.settings_problem.startswith("it answers, but its process was not found")
    assert "reader" not in engine.settings_problem
    machine.sees = Sight("missing")
    engine = observatory.engines(await observatory.look(needed=True))["comfyui"]
    assert engine.settings_problem.endswith("; the reader does not tell of other users' processes")
    await observatory.close()
