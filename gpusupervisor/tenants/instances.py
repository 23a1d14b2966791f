"""Instances: which tenant of a per-instance definition a process belongs to, and at which port it listens.

A label outlives restarts: it is a unit's name, a container's id or a port, never a PID.
"""

import hashlib
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from gpusupervisor.engine_http import is_local
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.definition import Endpoint, TenantDefinition

_FOREIGN = re.compile(r"[^A-Za-z0-9._:@-]")
_HEX_ID = re.compile(r"[0-9a-f]{64}")
_LONGEST_ID = 64
_HOST_AND_PORT = re.compile(r"(?:[^:\[\]]*|\[[^\]]*\]):([0-9]+)", re.ASCII)
"""A bare IPv6 address has no port."""
_CONTAINER_MANAGERS = re.compile(
    r"(docker|containerd|crio|cri-o|podman|k3s|kubelet|lxc|lxd|incus)\.service|systemd-nspawn@.*\.service"
)
"""Units in which other programs' containers run: their name says nothing about the tenant."""


def base_and_label(tenant_id: str) -> tuple[str, str]:
    """ "comfyui@8189" is ("comfyui", "8189"); without a label the second is empty."""
    base, _, label = tenant_id.partition("@")
    return base, label


def tenant_id(definition: TenantDefinition, label: str) -> str:
    """The tenant's id for an instance label; no label is the plain tenant. Within the id alphabet and length."""
    if not label:
        return definition.id
    clean = _FOREIGN.sub("_", label)
    whole = f"{definition.id}@{clean}"
    if len(whole) <= _LONGEST_ID:
        return whole
    digest = hashlib.sha256(label.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{whole[: _LONGEST_ID - 9]}-{digest}"


def instance_label(definition: TenantDefinition, identity: ProcessIdentity, port: int | None) -> str:
    """The service unit's name, else the container, else the port; empty for the plain tenant."""
    if not definition.per_instance:
        return ""
    unit = service_name(identity)
    label = unit or _container_label(identity.container) or ("" if port is None else str(port))
    if label == definition.id or f"{label}.service" in definition.match.units + definition.match.user_units:
        return ""
    if not unit and definition.endpoint is not None and label == str(port_of_url(definition.endpoint.url)):
        return ""
    return label.removeprefix(f"{definition.id}@")


def service_name(identity: ProcessIdentity) -> str:
    """Name of the service (not scope) that the process is in, user services first; empty when there is none."""
    for unit in (identity.user_unit, identity.unit):
        if unit.endswith(".service") and not unit.startswith("user@") and not _CONTAINER_MANAGERS.fullmatch(unit):
            return unit.removesuffix(".service")
    return ""


def _container_label(container: str) -> str:
    return container[:12] if _HEX_ID.fullmatch(container) else container


def port_on_command_line(endpoint: Endpoint | None, command_line: Sequence[str]) -> int | None:
    """The port that "--port 8189" or "--port=8189" names; the last one wins."""
    found = None
    for flag in endpoint.port_flags if endpoint else ():
        for index, argument in enumerate(command_line):
            name, separator, value = argument.partition("=")
            if name == flag:
                text = value if separator else "".join(command_line[index + 1 : index + 2])
                found = _port(text) or found
    return found


def port_in_environment(endpoint: Endpoint | None, environment: Sequence[tuple[str, str]]) -> int | None:
    """The port of the address that the endpoint's variable names: "0.0.0.0:8189", or "https://host", which is 443."""
    value = dict(environment).get(endpoint.host_variable, "") if endpoint else ""
    scheme, separator, rest = value.strip(" \"'").rpartition("://")
    named = _HOST_AND_PORT.fullmatch(rest.partition("/")[0])
    if named:
        return _port(named[1])
    return {"http": 80, "https": 443}.get(scheme.lower()) if separator else None


def port_it_listens_on(endpoint: Endpoint | None, ports: Sequence[int]) -> int | None:
    """The endpoint's own port where the process listens on that, else the only one it listens on.

    Of an endpoint on another machine this machine's ports say nothing.
    """
    if endpoint is None or not is_local(endpoint.url) or not ports:
        return None
    usual = port_of_url(endpoint.url)
    if usual in ports:
        return usual
    return ports[0] if len(ports) == 1 else None


def _port(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 1 << 16 else None


def port_of_url(url: str) -> int:
    """The port of an endpoint's URL, the scheme's own when it names none."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def with_port(url: str, port: int) -> str:
    """The URL with another port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
