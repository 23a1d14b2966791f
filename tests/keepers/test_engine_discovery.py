"""Engines are found with or without VRAM, looked up when they change, and asked without being waited for."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.configured import Unit
from gpusupervisor.engines.setting import Setting
from gpusupervisor.keepers.engine_discovery import ASKED_EVERY, FIRST_RETRY, EngineDiscovery
from gpusupervisor.keepers.engine_scan import EVERY, EngineScan
from gpusupervisor.peers.unit_client import UnitClient
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.matching import Recognition
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.signs import signs_of
from gpusupervisor.tenants.take_census import take_census
from gpusupervisor.unit_environment import Given
from tests.gpu.machine import HandClock
from tests.http_peer import Peer
from tests.tenants.people import GIB, HEX, SESSION, USER, gpu, sample, who

HOSTS = frozenset({"OLLAMA_HOST"})
SLICE = "/system.slice/ollama.service"
DROP_IN = "/etc/systemd/system/ollama.service.d/a.conf"
CATALOG = load_catalog([SHIPPED])


def unit(pid: int, *, active: bool = True, members: tuple[int, ...] = (), **variables: str) -> Unit:
    environment = {name: Given(value, DROP_IN) for name, value in variables.items()}
    command = (("/usr/local/bin/ollama", "serve"),)
    return Unit("ollama.service", active, pid, members, command, environment, fragment="/etc/ollama.service")


def ollama(
    pid: int = 50, *, hidden: bool = False, cgroup: str = SLICE, ports: tuple[int, ...] = (), **variables: str
) -> ProcessIdentity:
    one = who(
        pid, "/usr/local/bin/ollama serve", executable="/usr/local/bin/ollama", cgroup=cgroup, variables=variables,
        ports=ports,
    )  # fmt: skip
    return replace(one, hidden=frozenset({"environment"} if hidden else ()))


class Machine:
    """A discovery, and the processes that it sees."""

    def __init__(self, http: EngineHttp) -> None:
        self.clock = HandClock()
        self.catalog = CATALOG
        self.units = UnitClient()
        self.people: dict[int, ProcessIdentity] = {}
        scan = EngineScan(self, self.clock)  # type: ignore[arg-type]
        scan.use(signs_of(CATALOG.definitions.values()))
        self.discovery = EngineDiscovery(http, self.clock, self.units, scan)
        self.holding: dict[int, int] = {}
        self._recognizer = Recognizer()

    def runs(self, *people: ProcessIdentity, holding: Mapping[int, int] = MappingProxyType({})) -> None:
        self.people = {each.key.pid: each for each in people}
        self.holding = dict(holding)

    def has(self, *units: Unit) -> None:
        self.units.units = {each.name: each for each in units}

    def pids(self) -> frozenset[int]:
        """In the place of /proc, as the two below."""
        return frozenset(self.people)

    def command_line(self, pid: int) -> tuple[str, ...]:
        return self.people[pid].command_line

    def cgroup(self, pid: int) -> str:
        return f"0::{self.people[pid].cgroup}"

    def uid(self, pid: int) -> int:
        return self.people[pid].uid

    def look(self) -> Census:
        """One look, as the observatory does it, with a scan."""
        self.clock.instant += EVERY
        assert self.discovery.scan.is_due()
        wanted = self.discovery.servers() | self.holding.keys() | self.discovery.scan.look()
        chain = {key.pid for pid in wanted if pid in self.people for key in self.people[pid].ancestors}
        seen = {pid: self.people[pid] for pid in wanted | chain if pid in self.people}
        identities = self.discovery.informed(seen, HOSTS)
        machine = sample(gpu(processes=dict(self.holding)))

        def recognize(identity: ProcessIdentity) -> Recognition | None:
            return self._recognizer.recognize(self.catalog, identity, frozenset(), identities)

        servers = self.discovery.found_servers(identities, recognize, self.catalog.resolve)
        census = take_census(machine, identities, self.catalog, self._recognizer, servers)
        definitions = {tenant: self.catalog.resolve(tenant) for tenant in census.tenants}
        self.discovery.look(census, identities, definitions, recognize)
        return census

    def settings(self, tenant: str = "ollama") -> dict[str, Setting]:
        return {setting.name: setting for setting in self.discovery.reading(tenant).settings}

    async def until(self, predicate: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not predicate():
                await asyncio.sleep(0.005)


@pytest.fixture
async def machine(http: EngineHttp) -> AsyncIterator[Machine]:
    one = Machine(http)
    yield one
    await one.discovery.close()


async def test_an_idle_server_without_vram_is_found_by_its_unit(machine: Machine, peer: Peer) -> None:
    peer.says("/api/version", {"version": "0.33.0"})
    machine.has(unit(50, OLLAMA_KEEP_ALIVE="1h"))
    machine.runs(ollama(OLLAMA_HOST=f"127.0.0.1:{peer.port}", OLLAMA_KEEP_ALIVE="1h"))
    assert 50 in machine.discovery.servers()
    census = machine.look()
    assert census.tenants["ollama"].endpoint == peer.url
    assert census.tenants["ollama"].holdings == {}
    assert machine.settings()["OLLAMA_KEEP_ALIVE"].source == DROP_IN
    await machine.until(lambda: machine.discovery.reading("ollama").version)
    assert machine.discovery.reading("ollama").version == "0.33.0"
    assert machine.settings()["OLLAMA_NUM_PARALLEL"].source == "default"


async def test_the_units_word_tells_the_endpoint_of_a_server_that_cannot_be_looked_into(machine: Machine) -> None:
    machine.has(unit(50, OLLAMA_HOST="127.0.0.1:4321", OLLAMA_NUM_PARALLEL="1"))
    machine.runs(ollama(hidden=True))
    assert machine.look().tenants["ollama"].endpoint == "http://127.0.0.1:4321"
    assert machine.settings()["OLLAMA_NUM_PARALLEL"].value == "1"
    assert machine.discovery.reading("ollama").hidden == ("the environment of its process",)


async def test_a_steady_engine_is_looked_up_once_and_asked_every_few_minutes(machine: Machine, peer: Peer) -> None:
    peer.says("/api/version", {"version": "0.33.0"})
    machine.has(unit(50))
    machine.runs(ollama(OLLAMA_HOST=f"127.0.0.1:{peer.port}"))
    machine.look()
    await machine.until(lambda: machine.discovery.reading("ollama").version)
    reading = machine.discovery.reading("ollama")
    for _ in range(10):
        machine.look()
    await asyncio.sleep(0)
    assert machine.discovery.reading("ollama") is reading
    assert len(peer.asked) == 1
    machine.clock.instant += ASKED_EVERY
    machine.look()
    await machine.until(lambda: len(peer.asked) == 2)


async def test_a_changed_unit_is_pending_at_the_next_look_and_in_force_after_a_restart(machine: Machine) -> None:
    machine.has(unit(50, OLLAMA_KEEP_ALIVE="1h"))
    machine.runs(ollama(OLLAMA_KEEP_ALIVE="1h"))
    machine.look()
    machine.has(unit(50, OLLAMA_KEEP_ALIVE="-1"))
    machine.look()
    assert machine.discovery.reading("ollama").pending == ("OLLAMA_KEEP_ALIVE",)
    machine.has(unit(60, OLLAMA_KEEP_ALIVE="-1"))
    machine.runs(ollama(60, OLLAMA_KEEP_ALIVE="-1"))
    machine.look()
    assert machine.discovery.reading("ollama").pending == ()
    assert machine.settings()["OLLAMA_KEEP_ALIVE"].value == "-1"


async def test_a_server_above_its_runner_is_what_has_the_settings(machine: Machine) -> None:
    server = ollama(
        cgroup="/user.slice/user-1000.slice/session-3.scope", OLLAMA_KEEP_ALIVE="2h", CUDA_VISIBLE_DEVICES="1"
    )
    runner = who(
        51, "/usr/local/lib/ollama/llama-server --model x", executable="/usr/local/lib/ollama/llama-server",
        parents=[server],
        variables={"OLLAMA_KEEP_ALIVE": "2h", "CUDA_VISIBLE_DEVICES": "GPU-abc"},
    )  # fmt: skip
    machine.runs(server, runner, holding={51: GIB})
    machine.look()
    assert machine.settings()["CUDA_VISIBLE_DEVICES"].value == "1"
    assert 50 in machine.discovery.servers(), "so that what is hidden of it is looked up"


async def test_a_server_that_was_started_by_hand_stays_known_when_it_has_given_its_vram_back(machine: Machine) -> None:
    comfyui = who(80, "python3 /opt/ComfyUI/main.py --port 8189 --lowvram")
    machine.runs(comfyui, holding={80: GIB})
    machine.look()
    machine.runs(comfyui)
    census = machine.look()
    assert (census.tenants["comfyui@8189"].holders, census.tenants["comfyui@8189"].servers) == ((), (comfyui,))
    assert "--lowvram" in machine.settings("comfyui@8189")
    machine.runs()
    machine.look()
    assert "comfyui@8189" not in machine.look().tenants


async def test_the_engine_that_a_units_script_started_is_found_among_its_processes(machine: Machine) -> None:
    script = who(50, "/bin/sh /opt/start", executable="/usr/bin/dash", cgroup=SLICE)
    child = replace(ollama(51, OLLAMA_KEEP_ALIVE="3h"), ancestors=(script.key,), parent_pid=50)
    machine.has(unit(50, members=(50, 51), OLLAMA_KEEP_ALIVE="1h"))
    machine.runs(script, child)
    machine.look()
    found = machine.settings()["OLLAMA_KEEP_ALIVE"]
    assert (found.value, found.source, found.pending) == ("3h", "environment", "")
    machine.runs(script)  # the child ended
    machine.look()
    machine.runs(script, child)
    machine.look()
    assert machine.settings()["OLLAMA_KEEP_ALIVE"].value == "3h"


async def test_a_stopped_unit_shows_what_it_will_start_with(machine: Machine) -> None:
    machine.has(unit(0, active=False, OLLAMA_KEEP_ALIVE="0"))
    machine.look()
    assert machine.settings()["OLLAMA_KEEP_ALIVE"].value == "0"
    machine.has()
    machine.look()
    assert machine.settings() == {}


async def test_an_engine_that_is_still_starting_is_asked_again_soon(machine: Machine, peer: Peer) -> None:
    machine.has(unit(50))
    machine.runs(ollama(OLLAMA_HOST=f"127.0.0.1:{peer.port}"))
    machine.look()
    await machine.until(lambda: len(peer.asked) == 1)
    peer.says("/api/version", {"version": "0.33.0"})

    def asked_again() -> bool:
        machine.clock.instant += FIRST_RETRY
        machine.look()
        return machine.discovery.reading("ollama").version == "0.33.0"

    await machine.until(asked_again)
    machine.clock.instant += ASKED_EVERY
    peer.answers.clear()
    asked = len(peer.asked)
    machine.look()
    await machine.until(lambda: len(peer.asked) > asked)
    assert machine.discovery.reading("ollama").version == "0.33.0", "what it said before stands"


async def test_a_silent_engine_delays_neither_looks_nor_others(machine: Machine, peer: Peer, http: EngineHttp) -> None:
    other = Peer()
    await other.start()
    peer.silent.add("/api/version")
    other.says("/props", {"build_info": "b9000-abc", "is_sleeping": False})
    llama = who(70, f"/usr/bin/llama-server --port {other.port}", executable="/usr/bin/llama-server")
    machine.has(unit(50))
    machine.runs(ollama(OLLAMA_HOST=f"127.0.0.1:{peer.port}"), llama, holding={70: GIB})
    async with asyncio.timeout(2):
        machine.look()
        await machine.until(lambda: machine.discovery.reading(f"llama-server@{other.port}").version)
    assert machine.discovery.reading(f"llama-server@{other.port}").version == "b9000-abc"
    assert machine.discovery.reading("ollama").version == ""
    machine.runs()
    machine.has()
    machine.look()  # ollama is gone: it is asked no more
    peer.released.set()
    await other.stop()


async def test_an_engine_elsewhere_is_not_asked(machine: Machine) -> None:
    catalog_definition = CATALOG.definitions["ollama"]
    assert catalog_definition.endpoint is not None
    machine.has(unit(50))
    machine.runs(ollama())
    census = machine.look()
    remote = replace(census.tenants["ollama"], endpoint="http://192.0.2.1:11434")
    definitions = {"ollama": catalog_definition}
    await machine.discovery.close()
    machine.discovery.look(Census({"ollama": remote}, {}), machine.people, definitions, lambda _: None)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_engines_that_come_move_and_go_are_logged(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    machine.has(unit(50))
    machine.runs(ollama(OLLAMA_HOST=":4321"))
    machine.look()
    machine.look()
    machine.has()
    machine.runs()
    machine.look()
    assert [record.getMessage() for record in caplog.records] == [
        "the server of ollama is process 50, at http://127.0.0.1:4321",
        "the server of ollama, process 50, has ended",
    ]


async def test_systemd_is_asked_about_units_of_definitions_and_of_holders(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[frozenset[str]] = []
    monkeypatch.setattr(machine.units, "want", wanted.append)
    cgroup = "/system.slice/my-models.service"
    machine.runs(who(70, "/usr/bin/llama-server", executable="/usr/bin/llama-server", cgroup=cgroup), holding={70: GIB})
    machine.look()
    assert {"ollama.service", "comfyui@*.service", "my-models.service"} <= wanted[-1]
    assert "gdm.service" not in wanted[-1]


async def test_an_idle_engine_that_was_started_by_hand_is_found_where_it_listens(machine: Machine) -> None:
    machine.runs(ollama(cgroup=SESSION, OLLAMA_KEEP_ALIVE="1h", ports=(11500,)))
    presence = machine.look().tenants["ollama@11500"]
    assert (presence.endpoint, presence.holders) == ("http://127.0.0.1:11500", ())
    found = machine.settings("ollama@11500")["OLLAMA_KEEP_ALIVE"]
    assert (found.value, found.source) == ("1h", "environment")
    assert machine.discovery.reading("ollama@11500").problem == ""


async def test_an_idle_engine_in_a_users_unit_or_a_container_is_found(machine: Machine) -> None:
    """A container has a network of its own, where it is not known on which port it is reached."""
    mine = ollama(cgroup=f"{USER}/ollama.service", OLLAMA_NUM_PARALLEL="4", ports=(11434,))
    contained = who(60, "/app/llama-server -c 4096", cgroup=f"/system.slice/docker-{HEX}.scope")
    machine.runs(mine, replace(contained, listens_elsewhere=True))
    census = machine.look()
    assert census.tenants["ollama"].endpoint == "http://127.0.0.1:11434"
    assert machine.settings()["OLLAMA_NUM_PARALLEL"].value == "4"
    label = f"llama-server@{HEX[:12]}"
    assert census.tenants[label].servers[0].key.pid == 60
    assert machine.settings(label)["--ctx-size"].value == "4096"


async def test_what_does_not_listen_is_no_server(machine: Machine) -> None:
    client = who(51, "/usr/local/bin/ollama run qwen", executable="/usr/local/bin/ollama")
    hidden = replace(ollama(52, cgroup=SESSION), hidden=frozenset({"environment", "listening_ports"}))
    machine.runs(client, hidden, who(53, "vim /opt/ComfyUI/main.py"))
    census = machine.look()
    assert not any(each.servers for each in census.tenants.values())
    assert machine.discovery.servers() == {51, 52}, "it may listen later"


async def test_what_listens_elsewhere_than_it_says_is_no_server(machine: Machine) -> None:
    """A client has the address of the server that it speaks to; what it listens on itself is for something else."""
    server = ollama(50, cgroup=SESSION, OLLAMA_HOST="127.0.0.1:11500", ports=(11500,))
    client = ollama(40, cgroup=SESSION, OLLAMA_HOST="127.0.0.1:11500", ports=(6060,))
    machine.runs(client, server)
    census = machine.look()
    assert [each.key.pid for each in census.tenants["ollama@11500"].servers] == [50]
    assert "ollama@6060" not in census.tenants


async def test_a_worker_with_a_port_of_its_own_is_not_the_server(machine: Machine) -> None:
    server = ollama(50, cgroup=SESSION, ports=(11434,))
    runner = who(
        51, "/usr/local/bin/ollama runner --port 40001", executable="/usr/local/bin/ollama", parents=[server],
        ports=(40001,),
    )  # fmt: skip
    unseen = replace(server, listening_ports=(), hidden=frozenset({"environment", "listening_ports"}))
    machine.runs(unseen, runner)
    assert not machine.look().tenants["ollama"].servers, "its parent may turn out to be the server"
    machine.runs(server, runner)
    census = machine.look()
    assert [each.key.pid for each in census.tenants["ollama"].servers] == [50]
    assert census.tenants["ollama"].endpoint == "http://127.0.0.1:11434"
    machine.runs(replace(runner, ancestors=(), parent_pid=1))
    machine.look()
    assert not machine.look().tenants["ollama"].servers, "an orphan serves nobody"


async def test_two_engines_of_one_kind_are_two_instances(machine: Machine) -> None:
    lines = {80: "python3 /opt/ComfyUI/main.py --lowvram", 81: "python3 /opt/ComfyUI/main.py --port 8189 --highvram"}
    machine.runs(*(who(pid, line, ports=(8188 + pid - 80,)) for pid, line in lines.items()))
    census = machine.look()
    assert census.tenants["comfyui"].endpoint == "http://127.0.0.1:8188"
    assert census.tenants["comfyui@8189"].endpoint == "http://127.0.0.1:8189"
    assert "--lowvram" in machine.settings("comfyui")
    assert "--highvram" in machine.settings("comfyui@8189")


async def test_a_system_unit_wins_over_what_else_runs_in_it_and_beside_it(machine: Machine) -> None:
    machine.has(unit(50, members=(50, 52)))
    other = ollama(40, cgroup=SESSION, ports=(11434,))
    exporter = ollama(52, ports=(9100,))
    machine.runs(ollama(50, OLLAMA_HOST=":4321"), other, exporter)
    census = machine.look()
    presence = census.tenants["ollama"]
    assert (presence.servers[0].key.pid, presence.endpoint) == (50, "http://127.0.0.1:4321")
    assert 52 not in [each.key.pid for each in presence.servers]


async def test_who_was_found_first_stays_the_server_and_at_the_start_the_program_counts(machine: Machine) -> None:
    """Of what runs in one user unit, the port of a container may be handed on by another program."""
    cgroup = f"{USER}/ollama.service"
    handing_on = who(40, "rootlessport", executable="/usr/bin/rootlessport", cgroup=cgroup, ports=(11434,))
    engine = replace(ollama(50, cgroup=cgroup, OLLAMA_KEEP_ALIVE="1h"), listens_elsewhere=True)
    machine.runs(handing_on, engine)
    assert machine.look().tenants["ollama"].servers[0].key.pid == 50
    assert machine.settings()["OLLAMA_KEEP_ALIVE"].value == "1h"
    second = ollama(30, cgroup=cgroup, ports=(11434,))
    machine.runs(handing_on, engine, second)
    assert machine.look().tenants["ollama"].servers[0].key.pid == 50


async def test_where_a_file_says_where_the_engine_is_only_who_listens_there_is_it(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "ollama.toml").write_text('[endpoint]\nurl = "http://127.0.0.1:7000"\n')
    machine.catalog = await asyncio.to_thread(load_catalog, [SHIPPED, tmp_path])
    machine.runs(ollama(50, cgroup=SESSION, ports=(11434,)), ollama(51, cgroup=SESSION, ports=(7000,)))
    assert [each.key.pid for each in machine.look().tenants["ollama"].servers] == [51]
    (tmp_path / "ollama.toml").write_text('[endpoint]\nurl = "http://192.0.2.1:7000"\n')
    machine.catalog = await asyncio.to_thread(load_catalog, [SHIPPED, tmp_path])
    machine.runs(ollama(52, cgroup=SESSION, ports=(7000,)))
    machine.look()
    assert not machine.look().tenants["ollama"].servers, "it is on another machine"
