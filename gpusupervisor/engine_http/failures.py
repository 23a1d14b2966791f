"""Why no connection came about: each cause its own error, with its own remedy."""

import errno
import ipaddress
import socket
import ssl

from gpusupervisor.engine_http.answer import BadCertificate, Blocked, HttpError, NoRoute, NotTls, TimedOut, Unreachable


def place(host: str, port: int) -> str:
    """An address as a person writes it: "127.0.0.1:8188", "[::1]:8188"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_failure(error: OSError, host: str, port: int) -> HttpError:
    """Return what a failed connect(2), or a failed look-up of a name, means."""
    where = place(host, port)
    if isinstance(error, socket.gaierror):
        return NoRoute(f"cannot be reached: the name {host} does not resolve")
    if isinstance(error, PermissionError):
        return blocked(host, port)
    if error.errno == errno.ETIMEDOUT:
        return TimedOut(f"did not accept a connection at {where} in time")
    if isinstance(error, ConnectionRefusedError | ConnectionResetError | ConnectionAbortedError):
        return Unreachable(f"nothing listens at {where}")
    return NoRoute(f"cannot be reached at {where}: {error.strerror or error}")


def unix_failure(error: OSError, path: str) -> HttpError:
    """The same of a Unix socket."""
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return Unreachable(f"nothing listens at {path}")
    if isinstance(error, PermissionError):
        return Blocked(f"cannot be asked: the user gpusupervisor may not open the socket {path}")
    return NoRoute(f"cannot be reached at {path}: {error.strerror or error}")


def tls_failure(error: ssl.SSLError, where: str) -> HttpError:
    """Return what a failed TLS handshake means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return BadCertificate(f"has a certificate at {where} that cannot be trusted: {error.verify_message}")
    return NotTls(f"does not speak TLS at {where}, though its address begins with https")


def slow_connect(host: str, port: int) -> HttpError:
    """Return what it means that a connection was neither accepted nor refused in time.

    A packet filter of this unit (IPAddressDeny=) drops the SYN in silence, but refuses to send a datagram: an empty
    one to the discard port says which it was.
    """
    try:
        address = ipaddress.ip_address(host)
        with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.setblocking(False)
            probe.connect((host, 9))
            probe.send(b"")
    except PermissionError:
        return blocked(host, port)
    except (OSError, ValueError):
        pass  # a name, or no route: the timeout itself is what is known
    return TimedOut(f"did not accept a connection at {place(host, port)} in time")


def blocked(host: str, port: int) -> Blocked:
    """The unit's own filter keeps us from there."""
    return Blocked(
        f"cannot be asked at {place(host, port)}: the service's own IPAddressDeny= forbids it; run systemctl edit "
        f"gpusupervisor.service and add IPAddressAllow={host} under [Service], then restart it"
    )
