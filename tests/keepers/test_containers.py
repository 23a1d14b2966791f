"""An engine in a container: its addresses are not the machine's, and it is one tenant, found by its published port."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.processes.identity import OwnNetwork, ProcessIdentity, ProcessKey
from gpusupervisor.tenants.census import TenantPresence
from tests.keepers.test_engine_discovery import Machine, ollama
from tests.tenants.people import GIB, HEX, who

OTHER_HEX = "f" * 64


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    http = EngineHttp()
    machine = Machine(http)
    yield machine
    await machine.discovery.close()
    await http.aclose()


def contained(
    pid: int, address: str = "172.17.0.2", *, container: str = HEX, variables: str = "0.0.0.0:11434", above: int = 0
) -> ProcessIdentity:
    """Ollama in a docker container with a network of its own."""
    one = ollama(pid, cgroup=f"/system.slice/docker-{container}.scope", OLLAMA_HOST=variables)
    inner = OwnNetwork((address,), (int(variables.rpartition(":")[2]),))
    ancestors = (ProcessKey(above, above * 10),) if above else ()
    return replace(one, network=inner, listens_elsewhere=True, listening_ports=(), ancestors=ancestors)


def proxy(pid: int, port: int, address: str = "172.17.0.2", inner: int = 11434, uid: int = 0) -> ProcessIdentity:
    line = f"/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port {port} -container-ip {address}"
    return replace(who(pid, f"{line} -container-port {inner} -use-listen-fd"), uid=uid)


def present(machine: Machine) -> dict[str, TenantPresence]:
    """The tenants that hold memory or have a server."""
    return {name: each for name, each in machine.look().tenants.items() if each.holders or each.servers}


async def test_what_a_container_says_of_its_address_is_not_the_machines(machine: Machine) -> None:
    """The case of the public report: the host's own Ollama must not be asked for the container's memory."""
    machine.runs(ollama(50, ports=(11434,)), contained(60), holding={60: 13 * GIB})
    seen = present(machine)
    assert seen["ollama"].endpoint == "http://127.0.0.1:11434"
    assert not seen["ollama"].holders
    other = seen[f"ollama@{HEX[:12]}"]
    assert (other.endpoint, other.is_elsewhere, len(other.holders)) == ("", True, 1)


async def test_an_address_is_not_taken_while_the_network_is_not_known(machine: Machine) -> None:
    hidden = replace(contained(60), network=None, hidden=frozenset({"environment", "listening_ports"}))
    machine.runs(hidden, holding={60: GIB})
    (only,) = present(machine).values()
    assert (only.endpoint, only.is_elsewhere) == ("", True)


async def test_a_published_port_makes_one_tenant_of_it(machine: Machine) -> None:
    machine.runs(contained(60), proxy(70, 11434), holding={60: 13 * GIB})
    seen = present(machine)
    assert list(seen) == ["ollama"]
    assert seen["ollama"].endpoint == "http://127.0.0.1:11434"


async def test_two_containers_with_the_same_inner_port_are_told_apart_by_the_published_one(machine: Machine) -> None:
    one, other = contained(60), contained(61, "172.17.0.3", container=OTHER_HEX)
    machine.runs(one, other, proxy(70, 11500), proxy(71, 11600, "172.17.0.3"), holding={60: GIB, 61: 2 * GIB})
    seen = present(machine)
    assert {name: each.endpoint for name, each in seen.items()} == {
        "ollama@11500": "http://127.0.0.1:11500",
        "ollama@11600": "http://127.0.0.1:11600",
    }
    assert sum(seen["ollama@11600"].holdings.values()) == 2 * GIB


async def test_the_next_container_at_the_same_port_is_the_same_tenant(machine: Machine) -> None:
    machine.runs(contained(60), proxy(70, 11500), holding={60: GIB})
    before = set(present(machine))
    machine.runs(contained(80, "172.17.0.9", container=OTHER_HEX), proxy(90, 11500, "172.17.0.9"), holding={80: GIB})
    assert set(present(machine)) == before


async def test_a_proxy_of_another_container_another_port_or_another_user_leads_nowhere(machine: Machine) -> None:
    strangers = (proxy(70, 11500, "172.17.0.9"), proxy(71, 11501, inner=8080), proxy(72, 11502, uid=1000))
    machine.runs(contained(60), *strangers, holding={60: GIB})
    (only,) = present(machine).values()
    assert only.endpoint == ""


def podman(pid: int, *ports: int) -> ProcessIdentity:
    line = f"/usr/bin/conmon --api-version 1 -c {HEX} -u {HEX} -r /usr/bin/runc -n my-llm --exit-dir /run"
    return replace(who(pid, line, ports=ports), comm="conmon", uid=0)


async def test_podmans_monitor_tells_name_and_port(machine: Machine) -> None:
    inside = contained(60, "10.88.0.4", variables="0.0.0.0:9000", above=40)
    machine.runs(podman(40, 11999), inside, holding={60: GIB})
    present(machine)
    seen = present(machine)
    assert list(seen) == ["ollama@my-llm"]
    assert seen["ollama@my-llm"].endpoint == "http://127.0.0.1:11999"


@pytest.mark.parametrize("ports", [(), (11999, 12000)])
async def test_a_monitor_with_none_or_several_ports_is_not_certain(machine: Machine, ports: tuple[int, ...]) -> None:
    machine.runs(podman(40, *ports), contained(60, "10.88.0.4", above=40), holding={60: GIB})
    present(machine)
    (only,) = present(machine).values()
    assert (only.id, only.endpoint) == ("ollama@my-llm", "")


async def test_an_absent_tenant_is_not_asked_where_another_of_its_kind_is(machine: Machine) -> None:
    inside = contained(60, "10.88.0.4", above=40)
    machine.runs(podman(40, 11434), inside, holding={60: GIB})
    present(machine)
    tenants = machine.look().tenants
    assert tenants["ollama@my-llm"].endpoint == "http://127.0.0.1:11434"
    assert tenants["ollama"].endpoint == ""
