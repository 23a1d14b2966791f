"""How a container is reached from the machine, and what it is called, from the runtime's own processes (pure).

docker starts one docker-proxy for each published port, whose command line has both ends. podman's conmon, the parent of
what runs in the container, keeps the published ports reserved by listening on them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpusupervisor.processes.identity import ProcessIdentity, PublishedPort

MONITOR = "conmon"
_PROXY = "docker-proxy"
_WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104  (compared, not bound)


@dataclass(frozen=True, slots=True)
class ContainerProxy:
    """A port of the machine that leads to an address of a container's network."""

    address: str
    published: PublishedPort


def container_proxy(command_line: Sequence[str]) -> ContainerProxy | None:
    """Return what a docker-proxy forwards, or None for other programs and protocols."""
    if not command_line or command_line[0].rsplit("/", 1)[-1] != _PROXY:
        return None
    values = dict(pairwise(command_line))
    port, inner = values.get("-host-port", ""), values.get("-container-port", "")
    if values.get("-proto") != "tcp" or not port.isdecimal() or not inner.isdecimal():
        return None
    host = values.get("-host-ip", "")
    published = PublishedPort(int(inner), int(port), "" if host in _WILDCARDS else host)
    return ContainerProxy(values.get("-container-ip", ""), published)


def seen_from_outside(
    identity: ProcessIdentity, proxies: Iterable[ContainerProxy], above: Sequence[ProcessIdentity]
) -> ProcessIdentity:
    """Return the identity with what the runtime says about its container. above: its ancestors, parent first."""
    monitor = next((each for each in above if each.comm == MONITOR), None)
    name = _name(monitor.command_line) if monitor is not None else ""
    published: tuple[PublishedPort, ...] = ()
    if identity.network is not None:
        here = identity.network.addresses
        published = tuple(each.published for each in proxies if each.address in here)
        if not published and monitor is not None and len(monitor.listening_ports) == 1:
            published = (PublishedPort(0, monitor.listening_ports[0]),)
    return replace(identity, container_name=name, published=published)


def _name(command_line: Sequence[str]) -> str:
    """The value of conmon's -n."""
    values = dict(pairwise(command_line))
    return values.get("-n", values.get("--name", ""))
