"""What the processes of container runtimes say."""

import pytest

from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.containers import ContainerProxy, container_proxy
from gpusupervisor.processes.identity import PublishedPort

HEX = "0123456789abcdef" * 4
LINE = "docker-proxy -proto tcp -host-ip 127.0.0.1 -host-port 80 -container-ip 172.17.0.2 -container-port 8080"


def test_a_docker_proxy_says_both_ends() -> None:
    assert container_proxy(LINE.split()) == ContainerProxy("172.17.0.2", PublishedPort(8080, 80, "127.0.0.1"))
    anywhere = LINE.replace("127.0.0.1", "0.0.0.0").replace("docker-proxy", "/usr/libexec/docker/docker-proxy")
    assert container_proxy(anywhere.split()) == ContainerProxy("172.17.0.2", PublishedPort(8080, 80))


@pytest.mark.parametrize(
    "line", ["", "docker-proxy", "sh -c docker-proxy", LINE.replace("tcp", "udp"), LINE.replace("8080", "x")]
)
def test_others_say_nothing(line: str) -> None:
    assert container_proxy(line.split()) is None


@pytest.mark.parametrize(
    "content",
    [
        f"9:name=systemd:/docker/{HEX}\n1:cpu:/docker/{HEX}\n0::/docker/{HEX}",
        f"9:name=systemd:/libpod_parent/libpod-{HEX}\n0::/libpod_parent/libpod-{HEX}",
        f"1:name=systemd:/system.slice/containerd.service\n0::/k8s.io/{HEX}",
        f"1:name=systemd:/\n3:memory:/docker/{HEX}\n0::/",
    ],
)
def test_in_hybrid_mode_a_container_is_found_in_whichever_hierarchy_has_it(content: str) -> None:
    assert parse_cgroup(content).container == HEX


def test_in_hybrid_mode_the_unit_is_systemds() -> None:
    place = parse_cgroup(f"1:name=systemd:/system.slice/ollama.service\n0::/docker/{HEX}")
    assert (place.unit, place.container) == ("ollama.service", HEX)
