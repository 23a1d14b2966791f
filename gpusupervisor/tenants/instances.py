"""Instances: which tenant of a per-instance definition a process belongs to.

A label outlives restarts: it is a unit's name, a container's id or a port, never a PID.
"""

import hashlib
import re

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.listening import port_of_url

_FOREIGN = re.compile(r"[^A-Za-z0-9._:@-]")
_HEX_ID = re.compile(r"[0-9a-f]{64}")
_LONGEST_ID = 64
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
    """The service unit's name, else the container's, else the port, else the container's id; empty for the plain
    tenant. port: on this machine."""
    if not definition.per_instance:
        return ""
    unit = service_name(identity)
    listens = "" if port is None else str(port)
    label = unit or identity.container_name or listens or _container_label(identity.container)
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
