"""A proxy in front of an engine that cannot give memory back, so that its unit can be stopped while it rests. Pure.

systemd listens where the engine did, the engine listens at another port of this machine only, and the next request
starts it again: gpusupervisor-tenant(5), "Method unit".
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpusupervisor.cli.setup.findings import Tenant, Unit
from gpusupervisor.cli.setup.toml_text import CannotExtend, Change, comment, extended, quoted
from gpusupervisor.cli.text import safe

LOOPBACK = "127.0.0.1"
FURTHER = 10_000
"""The engine's new port is so far above its old one, if that is free."""
HIGHEST = 65_535
_ANYWHERE = frozenset({"", "*", "0.0.0.0", "::", "[::]"})  # noqa: S104  (names of it; nothing is bound)
_UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,100}\.service")
_PLAIN = re.compile(r"[A-Za-z0-9_/.,:=+@-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class _Server:
    """How an engine's server is had to listen, with --port and --host."""

    host: str
    """Where it listens when nothing says so; empty for everywhere."""
    ready: str
    """What answers with success once a request can be served, without a key."""
    host_variable: str = ""


_SERVERS: Mapping[str, _Server] = {
    "llama.cpp": _Server(LOOPBACK, "/health", "LLAMA_ARG_HOST"),
    "vllm": _Server("", "/health"),
    "sglang": _Server(LOOPBACK, "/health"),
    "koboldcpp": _Server("", "/api/extra/version"),
    "whisper.cpp": _Server(LOOPBACK, "/health"),
}


@dataclass(frozen=True, slots=True)
class Front:
    """What would be put in front of one unit."""

    tenant: str
    unit: str
    runs_now: str
    """What the tenant does at the moment: its activity."""
    listen: str
    """Of the socket, as ListenStream= has it."""
    port: int
    """The engine's new one."""
    ready: str
    """The address that is asked before the first request is let through."""
    command: tuple[str, ...]
    """The engine's new command, variables not filled in."""

    @property
    def inner(self) -> str:
        """Where the engine listens then."""
        return f"{urlsplit(self.ready).scheme}://{LOOPBACK}:{self.port}"

    @property
    def name(self) -> str:
        """Of the proxy's units, without suffix."""
        return f"{self.unit.removesuffix('.service').replace('@', '-')}-proxy"

    @property
    def reason(self) -> str:
        """Why it is proposed, and what it changes."""
        return (
            f"{safe(self.tenant)} cannot give memory back while it runs. Behind a proxy, {safe(self.unit)} can be"
            f" stopped while it is idle, and the next request starts it again. It moves from {self.listen} to port"
            f" {self.port}; who uses it goes on asking {self.listen}."
        )

    def unit_files(self, proxyd: Path) -> dict[str, str]:
        """The files of units, by their paths below the folder of units. proxyd: the proxy's program."""
        head = f"# Written by gpusupervisorctl setup, for {self.unit}: see gpusupervisor-tenant(5).\n"
        is_bound = not self.listen.isdigit()
        return {
            f"{self.name}.socket": f"""\
{head}[Unit]
Description=Socket of {self.unit}
[Socket]
ListenStream={self.listen}
{"FreeBind=yes" + chr(10) if is_bound else ""}[Install]
WantedBy=sockets.target
""",
            f"{self.name}.service": f"""\
{head}[Unit]
Description=Proxy of {self.unit}
Requires={self.unit}
After={self.unit}
[Service]
ExecStartPre=/usr/bin/curl --silent --insecure --fail --output /dev/null --retry 600 \\
    --retry-delay 1 --retry-all-errors {_word(self.ready)}
ExecStart={proxyd} {LOOPBACK}:{self.port}
TimeoutStartSec=infinity
""",
            f"{self.unit}.d/50-gpusupervisor-proxy.conf": f"""\
{head}[Service]
ExecStart=
ExecStart={" ".join(map(_word, self.command))}
""",
        }

    def tenant_text(self, before: str | None) -> str:
        """The tenant's file as it will be. before: as it is, None for no file. Raises CannotExtend."""
        reason = f"{safe(self.unit)} listens here, behind {self.name}.socket"
        text = extended(before or "", [Change(("endpoint", "url"), self.inner, reason)])
        if re.search(r"^\s*(\[\[?\s*)?release\b", text, re.MULTILINE):
            raise CannotExtend("it has a release already")
        why = comment(f"The next request through {self.name}.socket starts it again.")
        return f'{text}\n{why}\n[[release]]\nmethod = "unit"\nunit = {quoted(self.unit)}\n'


def front_of(unit: Unit, tenant: Tenant, taken: Collection[int]) -> Front | None:
    """The proxy for a unit, or None where there is nothing to gain, or no sure way.

    taken: ports that something has already. The caller must ask the service whether it is recognised at the new port.
    """
    server = _SERVERS.get(tenant.engine)
    is_tried = unit.runs and not unit.of_user and unit.command and _UNIT.fullmatch(unit.name)
    if server is None or not is_tried or tenant.definition.get("release") or tenant.protected:
        return None
    where = urlsplit(unit.endpoint)
    if where.scheme not in ("http", "https") or where.port is None or any("llama_cpp" in each for each in unit.command):
        return None
    host = _option(unit.command_line, "--host") or unit.environment.get(server.host_variable, "") or server.host
    listen, port = _listen(host, where.port), _free_port(where.port, taken)
    if not listen or port is None:
        return None
    command = _with_option(_with_option(unit.command, "--port", str(port)), "--host", LOOPBACK)
    ready = f"{where.scheme}://{LOOPBACK}:{port}{where.path.rstrip('/')}{server.ready}"
    return Front(tenant.id, unit.name, tenant.activity, listen, port, ready, command)


def _option(command: Sequence[str], flag: str) -> str:
    """The value of a flag; the last one counts."""
    found = ""
    for number, word in enumerate(command):
        if word == flag:
            found = command[number + 1] if number + 1 < len(command) else ""
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found


def _with_option(command: Sequence[str], flag: str, value: str) -> tuple[str, ...]:
    """The command with a flag's value, in the place where it was, else at the end."""
    words: list[str] = []
    is_value = is_there = False
    for word in command:
        if is_value:
            words.append(value)
            is_value = False
        elif word.startswith(f"{flag}="):
            words.append(f"{flag}={value}")
            is_there = True
        else:
            words.append(word)
            is_value = word == flag
            is_there = is_there or is_value
    return tuple(words) if is_there else (*words, flag, value)


def _listen(host: str, port: int) -> str:
    """As ListenStream= has it; empty for a name, which systemd does not look up."""
    if host in _ANYWHERE:
        return str(port)
    try:
        address = ipaddress.ip_address(LOOPBACK if host == "localhost" else host.strip("[]"))
    except ValueError:
        return ""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _free_port(port: int, taken: Collection[int]) -> int | None:
    first = port + FURTHER if port + FURTHER <= HIGHEST else port - FURTHER
    return next((each for each in range(first, min(first + 100, HIGHEST + 1)) if each not in taken), None)


def _word(text: str) -> str:
    """A word of an ExecStart= line; variables in it stay variables."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'
