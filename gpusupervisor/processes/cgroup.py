"""What a process's cgroup says of it: unit, user unit, container (pure parse of /proc/PID/cgroup).

The path's grammar is systemd's (slices, then one unit; below a user manager again slices, then one unit) and the
container runtimes': docker, podman, containerd and CRI-O write the container's 64 hex digits into the path,
LXC and systemd-nspawn its name.
"""

import re
from dataclasses import dataclass

_UNIT = re.compile(r".+\.(service|scope)", re.DOTALL)
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_HEX = r"([0-9a-f]{64})"
_CONTAINERS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:docker|nerdctl|cri-containerd|crio|libpod|buildkit)-(?:payload-)?{_HEX}(?:\.scope)?",
        rf"[^/]*:(?:cri-containerd|docker|nerdctl):{_HEX}",
        _HEX,
        r"lxc\.payload\.(.+)",
        r"systemd-nspawn@(.+)\.service",
        r"machine-(.+)\.scope",
    )
)


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """Where a process is in the cgroup tree."""

    path: str = ""
    unit: str = ""
    user_unit: str = ""
    container: str = ""


def parse_cgroup(content: str) -> CgroupPlace:
    """The place that a /proc/PID/cgroup text names; empty for what it does not say."""
    path = _path(content)
    components = _components(path)
    unit, rest = _first_unit(components)
    user_unit = ""
    if unit.startswith("user@") and unit.endswith(".service"):
        user_unit, _ = _first_unit(rest)
    container = _container(components) or next(filter(None, map(_container_of, _paths(content).values())), "")
    return CgroupPlace(path, unit, user_unit, container)


def _paths(content: str) -> dict[str, str]:
    """By hierarchy ("" for v2's, "name=systemd", "cpu,cpuacct"), the path in it."""
    fields = (line.split(":", 2) for line in content.split("\n"))
    return {each[1]: each[2].removesuffix(" (deleted)") for each in fields if len(each) == 3 and each[2][:1] == "/"}


def _path(content: str) -> str:
    """The v2 path, or the named systemd hierarchy's of v1: that is where systemd works in hybrid mode, in which v2's is
    the root, or one of a container runtime without a unit."""
    paths = _paths(content)
    unified, named = paths.get("", ""), paths.get("name=systemd", "")
    has_unit = _first_unit(_components(unified))[0]
    return named if named not in ("", "/") and not has_unit else unified or named


def _components(path: str) -> list[str]:
    return [_unescaped(part) for part in path.split("/") if part not in ("", "..")]


def _container_of(path: str) -> str:
    return _container(_components(path))


def _unescaped(component: str) -> str:
    """systemd puts "_" before a name that would clash with a cgroup file or begins with "_" or "."."""
    return component[1:] if component.startswith("_") else component


def _first_unit(components: list[str]) -> tuple[str, list[str]]:
    """The first service or scope below the slices, and what is below that."""
    for index, component in enumerate(components):
        if component.endswith(".slice"):
            continue
        if _UNIT.fullmatch(component):
            return component, components[index + 1 :]
        break
    return "", []


def _container(components: list[str]) -> str:
    """The innermost container's id, or its name where the runtime writes only that."""
    for index in range(len(components) - 1, -1, -1):
        for pattern in _CONTAINERS:
            found = pattern.fullmatch(components[index])
            if found:
                return _ESCAPE.sub(lambda byte: chr(int(byte[1], 16)), found[1])
        if index and components[index - 1] in ("lxc", "lxc.payload"):
            return components[index]
    return ""
