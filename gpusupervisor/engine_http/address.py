"""Addresses of engines: what is connected to, and whether it is this machine."""

import ipaddress
import re
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from gpusupervisor.engine_http.answer import NotAllowed
from gpusupervisor.foreign_text import harmless

UNIX = "unix:"
"""How the address of a Unix socket begins; its absolute path follows."""
_SOCKET_PATH = re.compile(r"/(?!/)[!-~]{1,105}")
"""The kernel takes 107 bytes."""
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@lru_cache(maxsize=256)
def connectable(url: str) -> str:
    """The address to connect to, e.g. "http://127.0.0.1:11434/base".

    Nothing but scheme, host, port and path; no trailing slash; wildcard addresses become loopback.
    A Unix socket is "unix:/run/llama.sock". Raises NotAllowed.
    """
    if not url:
        raise NotAllowed("no address is known")
    if url.startswith(UNIX):
        if not _SOCKET_PATH.fullmatch(url.removeprefix(UNIX)):
            raise NotAllowed(f"{harmless(url)!r} is not an address of the form unix:/PATH")
        return url
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise NotAllowed(f"{harmless(url)!r} is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise NotAllowed(f"{harmless(url)!r} is not an address of the form http://HOST:PORT")
    if not (parts.path + "/").isascii() or any(char <= " " for char in parts.path):
        raise NotAllowed(f"{harmless(url)!r} has a path that cannot be sent")
    host = _connectable_host(parts.hostname)
    suffix = f":{port}" if port is not None else ""
    return f"{parts.scheme}://{host}{suffix}{parts.path.rstrip('/')}"


def _connectable_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST_NAME.fullmatch(host):
            raise NotAllowed(f"{harmless(host)!r} is not a host") from None
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def is_local(url: str) -> bool:
    """Whether the address is this machine: loopback, a wildcard, an address or the name that it has now."""
    try:
        host = urlsplit(connectable(url)).hostname or ""
    except NotAllowed:
        return False
    if url.startswith(UNIX):
        return True
    if _is_address(host):
        return is_own_address(host)
    return host in _LOCAL_NAMES or host == socket.gethostname().lower()


_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def is_own_address(host: str) -> bool:
    """Whether an IP address is one of this machine's, as the kernel has it now.

    Asked by the way there: only to oneself one goes from the very address that one wants to reach. Nothing is sent.
    """
    if _is_loopback(host):
        return True
    address = ipaddress.ip_address(host)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.setblocking(False)
            probe.connect((host, 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # no way there, or no such kind of address here


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


@lru_cache(maxsize=256)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
