"""Every way in which a connection can fail reads as what it is."""

import asyncio
import errno
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpusupervisor.engine_http import (
    BadCertificate,
    Blocked,
    EngineHttp,
    HttpError,
    NoRoute,
    NotAllowed,
    NotTls,
    Peer,
    TimedOut,
    Unreachable,
)
from gpusupervisor.engine_http import connection as connection_module
from gpusupervisor.engine_http.failures import connect_failure, slow_connect
from tests.http_peer import Peer as Server

SOON = 5_000_000


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp()
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ECONNREFUSED, Unreachable, "nothing listens at 10.0.0.5:8188"),
        (errno.EHOSTUNREACH, NoRoute, "cannot be reached at 10.0.0.5:8188: No route to host"),
        (errno.ENETUNREACH, NoRoute, "Network is unreachable"),
        (errno.ETIMEDOUT, TimedOut, "did not accept a connection at 10.0.0.5:8188 in time"),
        (errno.EPERM, Blocked, "IPAddressAllow=10.0.0.5"),
        (errno.EACCES, Blocked, "IPAddressAllow=10.0.0.5"),
    ],
)
def test_each_error_of_connect_has_its_own_meaning(number: int, kind: type[HttpError], says: str) -> None:
    failure = connect_failure(OSError(number, os.strerror(number)), "10.0.0.5", 8188)
    assert type(failure) is kind
    assert says in str(failure)
    assert ("nothing listens" in str(failure)) == (kind is Unreachable)


def test_a_name_that_does_not_resolve_is_no_server_that_is_down() -> None:
    failure = connect_failure(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "gpu-box", 80)
    assert isinstance(failure, NoRoute)
    assert "name gpu-box does not resolve" in str(failure)


@pytest.mark.parametrize(("refuses", "kind"), [(True, Blocked), (False, TimedOut)])
def test_silence_is_the_units_own_filter_if_that_refuses_a_datagram(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, kind: type[HttpError]
) -> None:
    class Datagram(socket.socket):
        def send(self, *_: object) -> int:
            if refuses:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return 0

    monkeypatch.setattr("gpusupervisor.engine_http.failures.socket.socket", Datagram)
    assert type(slow_connect("127.0.0.1", 8188)) is kind


async def test_a_connection_that_is_not_accepted_in_time_is_not_an_answer_that_is_late(
    http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> socket.socket:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(connection_module, "_connect_one", never)
    with pytest.raises(TimedOut, match=r"did not accept a connection at 127\.0\.0\.1:9 in time"):
        await http.get("http://127.0.0.1:9", "/x", timeout=50_000)


@pytest.fixture
def certificate(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a self-signed certificate for an address."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl to make a certificate")

    def make(name: str) -> Path:
        path = tmp_path / f"{name}.pem"
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-out", path,
             "-addext", f"subjectAltName=IP:{name}", "-keyout", path.with_suffix(".key")],
            check=True, capture_output=True,
        )  # fmt: skip
        return path

    return make


@pytest.fixture
async def secure(certificate: Callable[[str], Path]) -> AsyncIterator[tuple[Server, Path]]:
    """A server with TLS at 127.0.0.1, and its certificate."""
    path = certificate("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, path.with_suffix(".key"))
    server = Server()
    await server.start(tls=context)
    server.says("/x", {"secure": True})
    yield server, path
    await server.stop()


def https(server: Server) -> str:
    return f"https://127.0.0.1:{server.port}"


def fingerprint(path: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


async def test_plain_http_to_a_server_with_tls_says_so(http: EngineHttp, secure: tuple[Server, Path]) -> None:
    with pytest.raises(NotTls, match="speaks TLS: its address has to begin with https"):
        await http.get(secure[0].url, "/x", timeout=SOON)


async def test_tls_to_a_plain_server_says_so(http: EngineHttp) -> None:
    server = Server()
    await server.start()
    with pytest.raises(NotTls, match="speak TLS"):
        await http.get(https(server), "/x", timeout=500_000)
    await server.stop()


async def test_certificates_of_this_machine_need_no_authority(http: EngineHttp, secure: tuple[Server, Path]) -> None:
    assert (await http.get(https(secure[0]), "/x", timeout=SOON)).json() == {"secure": True}


async def test_those_of_another_machine_do(
    http: EngineHttp, secure: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loopback address taken for another machine's."""
    server, path = secure
    monkeypatch.setattr(connection_module, "is_own_address", lambda _: False)
    monkeypatch.setattr("gpusupervisor.engine_http.client.is_local", lambda _: False)
    with pytest.raises(BadCertificate, match="cannot be trusted"):
        await http.get(https(server), "/x", timeout=SOON, remote=True)
    assert not server.asked
    for peer in (Peer(ca=str(path)), Peer(fingerprint=fingerprint(path))):
        assert (await http.get(https(server), "/x", timeout=SOON, remote=True, peer=peer)).ok


@pytest.mark.parametrize("remote", [True, False])
async def test_a_pinned_certificate_is_that_one_and_no_other(
    http: EngineHttp, secure: tuple[Server, Path], remote: bool
) -> None:
    server, path = secure
    with pytest.raises(BadCertificate, match=f"another certificate .*{fingerprint(path)}"):
        await http.get(https(server), "/x", timeout=SOON, remote=remote, peer=Peer(fingerprint="0" * 64))
    assert not server.asked


async def test_an_authority_that_cannot_be_read_is_named(http: EngineHttp, secure: tuple[Server, Path]) -> None:
    with pytest.raises(NotAllowed, match=r"tls-ca file /nowhere/ca\.pem cannot be used: No such file"):
        await http.get(https(secure[0]), "/x", timeout=SOON, peer=Peer(ca="/nowhere/ca.pem"))


async def test_a_server_at_a_unix_socket_is_asked(http: EngineHttp, tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    path = tmp_path / "llama.sock"
    listening.bind(str(path))
    listening.listen()
    server = Server()
    await server.start_on(listening)
    server.says("/health", {"status": "ok"})
    assert (await http.get(f"unix:{path}", "/health", timeout=SOON)).json() == {"status": "ok"}
    assert "host: localhost" in server.asked[0].head.lower()
    await server.stop()
    path.unlink()
    await http.aclose()
    with pytest.raises(Unreachable, match="nothing listens at /"):
        await http.get(f"unix:{path}", "/health", timeout=SOON)
