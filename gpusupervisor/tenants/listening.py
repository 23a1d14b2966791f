"""Where a process says that it listens: by its flags, its environment, or its sockets."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpusupervisor.engine_http import UNIX, is_local
from gpusupervisor.tenants.definition import Endpoint

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNIX_SOCKET = re.compile(r"/(?!/)[!-~]{1,100}\.sock", re.ASCII)
"""llama-server takes a host that ends so for the path of a Unix socket."""
_PREFIX = re.compile(r"/[A-Za-z0-9._~/-]{0,200}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """What is known of where it listens."""

    host: str = ""
    """Empty: any of this machine's addresses, or not known."""
    port: int | None = None
    tls: bool = False
    """It speaks TLS."""
    prefix: str = ""
    """What every path of its API begins with, e.g. "/llama"."""
    unix: str = ""
    """Path of the Unix socket on which it listens, in the place of host and port."""
    is_elsewhere: bool = False
    """It listens in a network of its own, to which no port of this machine is known to lead."""


def parse_listen_address(text: str, default_port: int) -> Address:
    """An address as Ollama reads OLLAMA_HOST: [SCHEME://][HOST][:PORT][/PATH], blanks and quotes around it ignored.

    Go's net.SplitHostPort decides what the port is: "::1" is a host, ":1" a port, "1" a host. A scheme of http or https
    brings 80 or 443 as the port where none is named; a port that is none counts as not named.
    """
    scheme, separator, rest = text.strip().strip("\"'").strip().partition("://")
    if separator:
        default_port = _DEFAULT_PORTS.get(scheme, default_port)
    else:
        rest = scheme
    place = rest.partition("/")[0]
    host, port = _split(place)
    if port is None:
        return Address(_host(place.strip("[]")), default_port)
    # Go's ParseInt takes a sign; what is negative or too large is then replaced.
    number = int(port) if re.fullmatch(r"[+-]?[0-9]{1,9}", port, re.ASCII) else -1
    return Address(_host(host), number if 0 < number <= 65535 else default_port)


def _split(place: str) -> tuple[str, str | None]:
    """Host and port as Go's net.SplitHostPort tells them apart; no port where it reports an error."""
    bracketed = re.fullmatch(r"\[([^\[\]]*)\]:([^:\[\]]*)", place)
    plain = bracketed or re.fullmatch(r"([^:\[\]]*):([^:\[\]]*)", place)
    return (plain[1], plain[2]) if plain else (place, None)


def _host(text: str) -> str:
    """A host that can be connected to; empty for a wildcard, and for what is no host."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text if _HOST.fullmatch(text) else ""
    return "" if address.is_unspecified and address.version == 4 else str(address)


def address_on_command_line(endpoint: Endpoint, command_line: Sequence[str]) -> Address:
    """What "--port 8189", "--host=10.0.0.5" and "--listen :9292" say; of each kind the last one wins."""
    found = Address()
    unix = ""
    for text in _values(endpoint.host_flags, command_line):
        unix = text if _UNIX_SOCKET.fullmatch(text) else ""
        if unix:
            continue
        # ComfyUI takes several, with commas between.
        named = parse_listen_address(text.partition(",")[0], 0)
        found = Address(named.host, named.port or found.port)
    ports = [port for text in _values(endpoint.port_flags, command_line) if (port := as_port(text)) is not None]
    prefixes = [text for text in _values(endpoint.prefix_flags, command_line) if _PREFIX.fullmatch(text)]
    return Address(
        host=found.host,
        port=ports[-1] if ports else found.port,
        tls=any(argument.partition("=")[0] in endpoint.tls_flags for argument in command_line),
        prefix=prefixes[-1].rstrip("/") if prefixes else "",
        unix=unix,
    )


def _values(flags: Sequence[str], command_line: Sequence[str]) -> Iterator[str]:
    """The values of these flags, in the order of the command line; a flag that is followed by another has none."""
    for index, argument in enumerate(command_line):
        name, separator, value = argument.partition("=")
        if name in flags:
            text = value if separator else "".join(command_line[index + 1 : index + 2])
            if text and not text.startswith("-"):
                yield text


def address_in_environment(endpoint: Endpoint, environment: Sequence[tuple[str, str]]) -> Address:
    """What the endpoint's variables say."""
    variables: Mapping[str, str] = dict(environment)
    host, port = variables.get(endpoint.host_variable, ""), as_port(variables.get(endpoint.port_variable, ""))
    tls, prefix = bool(variables.get(endpoint.tls_variable, "")), variables.get(endpoint.prefix_variable, "")
    prefix = prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else ""
    if not host.strip(" \"'"):
        return Address("", port, tls, prefix)
    named = parse_listen_address(host, 0 if port else port_of_url(endpoint.url))
    return Address(named.host, named.port or port, tls, prefix)


def port_it_listens_on(endpoint: Endpoint, ports: Sequence[int]) -> int | None:
    """The endpoint's own port where the process listens on that, else the only one it listens on.

    Of an endpoint on another machine this machine's ports say nothing.
    """
    if not is_local(endpoint.url) or not ports:
        return None
    usual = port_of_url(endpoint.url)
    if usual in ports:
        return usual
    return ports[0] if len(ports) == 1 else None


def as_port(text: str) -> int | None:
    """A port's number; None for what is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 1 << 16 else None


def port_of_url(url: str) -> int:
    """The port of an endpoint's URL, the scheme's own when it names none."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def with_address(url: str, address: Address) -> str:
    """The URL with another port and, where they are known, another host, scheme and prefix; or a Unix socket's."""
    if address.unix:
        return f"{UNIX}{address.unix}"
    parts = urlsplit(url)
    host = address.host or parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if address.tls else parts.scheme
    return f"{scheme}://{shown}:{address.port or port_of_url(url)}{address.prefix}"
