"""The HTTP client against peers that behave and peers that do not."""

import asyncio
import errno
import gzip
import json
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import psutil
import pytest

from gpusupervisor.engine_http import (
    MAX_BODY,
    Answer,
    BadAnswer,
    EngineHttp,
    HttpError,
    NotAllowed,
    TimedOut,
    Unreachable,
    connectable,
    is_local,
)
from gpusupervisor.engine_http.client import MAX_IDLE
from tests.http_peer import HTML, REDIRECT, Peer, reply

SOON = 2_000_000
AT_ONCE = 150_000


async def test_a_json_answer_is_read_whole(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {"jobs": 0})
    answer = await http.get(peer.url, "/x", timeout=SOON)
    assert answer.ok
    assert answer.json() == {"jobs": 0}


async def test_connections_are_kept_for_the_next_request(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {})
    for _ in range(5):
        await http.get(peer.url, "/x", timeout=SOON)
    assert peer.connections == 1


async def test_a_connection_that_the_peer_has_closed_is_not_used_again(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {})
    await http.get(peer.url, "/x", timeout=SOON)
    port = peer.port
    await peer.stop()
    again = Peer()
    await again.start(port)
    again.says("/x", {"new": True})
    try:
        assert (await http.get(again.url, "/x", timeout=SOON)).json() == {"new": True}
    finally:
        await again.stop()


async def test_a_read_on_a_connection_that_closes_just_then_is_sent_again(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {})
    await http.get(peer.url, "/x", timeout=SOON)
    peer.answers["/once"] = b""
    with pytest.raises(BadAnswer):
        await http.get(peer.url, "/once", timeout=SOON)
    assert peer.paths == ["/x", "/once", "/once"]


async def test_a_request_that_changes_something_is_never_sent_twice(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {})
    await http.get(peer.url, "/x", timeout=SOON)
    peer.answers["/drop"] = b""
    with pytest.raises(BadAnswer, match="without an answer"):
        await http.request("POST", peer.url, "/drop", timeout=SOON)
    assert peer.paths == ["/x", "/drop"]


async def test_a_chunked_answer_and_one_until_the_end_are_read(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/chunked"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n"
    peer.answers["/ended"] = b"HTTP/1.0 200 OK\r\n\r\n[3]"
    peer.answers["/continued"] = b"HTTP/1.1 103 Early Hints\r\n\r\n" + reply(b"[4]")
    paths = ("/chunked", "/ended", "/continued")
    assert [(await http.get(peer.url, path, timeout=SOON)).json() for path in paths] == [[1, 2], [3], [4]]


async def test_idle_connections_are_bounded(http: EngineHttp) -> None:
    peers = [Peer() for _ in range(MAX_IDLE + 5)]
    for peer in peers:
        await peer.start()
        peer.says("/x", {})
        await http.get(peer.url, "/x", timeout=SOON)
    assert len(http._idle) == MAX_IDLE
    await asyncio.gather(*(peer.stop() for peer in peers))


async def test_an_endpoint_with_a_base_path_keeps_it(peer: Peer, http: EngineHttp) -> None:
    peer.says("/comfy/prompt", {})
    assert (await http.get(f"{peer.url}/comfy/", "/prompt", timeout=SOON)).ok


async def test_an_engine_with_a_certificate_of_its_own_is_asked(http: EngineHttp, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl to make a certificate")
    made = tmp_path / "made.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=comfyui", "-out", made,
         "-keyout", made.with_suffix(".key")],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, made.with_suffix(".key"))
    peer = Peer()
    await peer.start(tls=context)
    peer.says("/x", {"secure": True})
    url = peer.url.replace("http:", "https:")
    assert (await http.get(url, "/x", timeout=SOON)).json() == {"secure": True}
    await http.aclose()
    await peer.stop()


async def test_a_peer_that_does_not_speak_tls_gives_no_answer(peer: Peer, http: EngineHttp) -> None:
    with pytest.raises(HttpError):
        await http.get(peer.url.replace("http:", "https:"), "/x", timeout=AT_ONCE)


async def test_a_request_carries_verb_body_and_headers(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {})
    await http.request("POST", peer.url, "/x?a=b", timeout=SOON, body=b"{}", headers=[("X-Key", "secret")])
    (asked,) = peer.asked
    assert (asked.verb, asked.target, asked.body) == ("POST", "/x?a=b", b"{}")
    assert "X-Key: secret\r\n" in asked.head
    assert "Accept-Encoding: identity\r\n" in asked.head


async def test_an_error_status_is_an_answer_that_is_not_ok(peer: Peer, http: EngineHttp) -> None:
    peer.says("/x", {"error": "model 'x' not found"}, 404)
    answer = await http.get(peer.url, "/x", timeout=SOON)
    assert (answer.status, answer.ok) == (404, False)


async def test_a_redirect_is_not_followed(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/x"] = REDIRECT
    with pytest.raises(BadAnswer, match="redirect"):
        await http.get(peer.url, "/x", timeout=SOON)
    assert len(peer.asked) == 1


async def test_nobody_listening_is_unreachable(http: EngineHttp) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=f"nothing listens at 127.0.0.1:{port}"):
            await http.get(f"http://127.0.0.1:{port}", "/x", timeout=SOON)


async def test_a_peer_that_hangs_up_before_anything_is_sent_is_unreachable(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: socket.socket) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(socket.socket, "getpeername", nobody)
    with pytest.raises(Unreachable, match=f"nothing listens at 127.0.0.1:{peer.port}"):
        await http.get(peer.url, "/x", timeout=SOON)


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_a_name_that_no_host_can_have_is_not_asked(http: EngineHttp, host: str) -> None:
    with pytest.raises(NotAllowed, match="not a name that a host can have"):
        await http.get(f"http://{host}:80", "/", timeout=SOON, remote=True)


async def test_a_peer_that_never_answers_times_out(peer: Peer, http: EngineHttp) -> None:
    peer.silent.add("/x")
    with pytest.raises(TimedOut, match="/x in time"):
        await http.get(peer.url, "/x", timeout=AT_ONCE)


async def test_a_body_that_trickles_is_held_to_the_same_deadline(peer: Peer, http: EngineHttp) -> None:
    peer.trickling.add("/x")
    with pytest.raises(TimedOut):
        await http.get(peer.url, "/x", timeout=AT_ONCE)


async def test_an_answer_beyond_the_limit_is_an_error(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/x"] = reply(b'"' + b"x" * MAX_BODY + b'"')
    with pytest.raises(BadAnswer, match="more than 1 MiB"):
        await http.get(peer.url, "/x", timeout=SOON)


async def test_the_largest_allowed_answer_is_read(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/x"] = reply(b'"' + b"x" * (MAX_BODY - 2) + b'"')
    answer = await http.get(peer.url, "/x", timeout=SOON)
    assert len(answer.body) == MAX_BODY


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="closed at once"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", id="cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="bad chunk"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", id="endless head"),
    ],
)
async def test_a_broken_answer_is_a_bad_answer(peer: Peer, http: EngineHttp, raw: bytes) -> None:
    peer.answers["/x"] = raw
    with pytest.raises(BadAnswer):
        await http.get(peer.url, "/x", timeout=SOON)


async def test_compression_that_was_not_asked_for_is_refused(peer: Peer, http: EngineHttp) -> None:
    body = gzip.compress(b"0" * 1000)
    peer.answers["/x"] = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with pytest.raises(BadAnswer, match="compression"):
        await http.get(peer.url, "/x", timeout=SOON)


@pytest.mark.parametrize(
    "body", [b"", HTML, b'{"models": [', b"[" * 100_000, b'{"size": NaN}', b"\xff\xfe", b"9" * 5000]
)
async def test_what_is_not_json_is_a_bad_answer(peer: Peer, http: EngineHttp, body: bytes) -> None:
    peer.answers["/x"] = reply(body)
    answer = await http.get(peer.url, "/x", timeout=SOON)
    with pytest.raises(BadAnswer):
        answer.json()


async def test_another_machine_is_asked_only_when_that_is_allowed(http: EngineHttp) -> None:
    with pytest.raises(NotAllowed, match="not on this machine"):
        await http.get("http://192.0.2.1:11434", "/api/ps", timeout=AT_ONCE)
    with pytest.raises((TimedOut, Unreachable)):
        await http.get("http://192.0.2.1:11434", "/api/ps", timeout=AT_ONCE, remote=True)


async def test_a_path_that_cannot_be_sent_is_not_sent(peer: Peer, http: EngineHttp) -> None:
    with pytest.raises(HttpError):
        await http.request("GET", peer.url, "/x\r\nHost: evil", timeout=SOON, headers=[("X", "a\r\nb")])
    assert peer.asked == []


async def test_cancelling_a_request_leaves_the_client_usable(peer: Peer, http: EngineHttp) -> None:
    peer.silent.add("/slow")
    peer.says("/x", {})
    task = asyncio.create_task(http.get(peer.url, "/slow", timeout=SOON))
    await peer.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await http.get(peer.url, "/x", timeout=SOON)).ok


async def test_proxies_of_the_environment_are_not_used(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    monkeypatch.setenv("ALL_PROXY", "http://192.0.2.1:3128")
    peer.says("/x", {})
    assert (await http.get(peer.url, "/x", timeout=SOON)).ok


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:11434/", "http://127.0.0.1:11434"),
        ("http://[::]:8188/base/", "http://[::1]:8188/base"),
        ("http://LOCALHOST:80", "http://localhost:80"),
        ("http://localhost", "http://localhost"),
        ("https://192.168.1.5:8188", "https://192.168.1.5:8188"),
    ],
)
def test_an_address_is_made_connectable(url: str, address: str) -> None:
    assert connectable(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:11434", "file:///etc/passwd", "unix:///run/x", "http://", "http://a b", "http://h:99999",
        "http://127.0.0.1@evil.example", "http://127.0.0.1\\@evil.example", "http://h/?q=1", "http://[::1",
        "http://h/a b", "http://-h", "http://hé",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NotAllowed):
        connectable(url)
    assert not is_local(url)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.8.7:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://0.0.0.0:1", True),
        ("http://127.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://192.0.2.5:1", False),
        ("http://[::ffff:192.0.2.5]:1", False),
        ("http://255.255.255.255:1", False),
        ("http://LOCALHOST:1", True),
        ("http://[fe80::1]:1", False),
    ],
)
def test_this_machine_is_told_from_others(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_every_address_and_the_name_of_this_machine_are_this_machine() -> None:
    families = {socket.AF_INET, socket.AF_INET6}
    own = {each.address for every in psutil.net_if_addrs().values() for each in every if each.family in families}
    for address in own:
        shown = f"[{address}]" if ":" in address else address
        assert "%" in address or is_local(f"http://{shown}:1"), address
    assert own
    assert is_local(f"http://{socket.gethostname()}:1")


async def test_a_name_of_this_machine_that_leads_to_another_is_not_asked(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusupervisor.engine_http.connection.is_own_address", lambda _: False)
    for remote in (False, True):
        with pytest.raises(NotAllowed, match="resolves to another"):
            await http.get(f"http://localhost:{peer.port}", "/x", timeout=SOON, remote=remote)
    assert peer.asked == []


async def test_json_of_any_content_type_is_read(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/x"] = reply(json.dumps([1]).encode(), content_type="text/plain")
    assert (await http.get(peer.url, "/x", timeout=SOON)).json() == [1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "cudaMalloc failed: out of memory"}', "cudaMalloc failed: out of memory"),
        (b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}', "Loading model"),
        (b'{"detail": "Model is in use"}', "Model is in use"),
        (b'{"error": "", "message": "no\\u001b[2J such"}', "no [2J such"),
        (b'{"error": 5}', '{"error": 5}'),
        (b"[1, 2]", "[1, 2]"),
        (b"Internal\nServer \xff Error", "Internal Server \ufffd Error"),
        (b"", ""),
    ],
)
def test_a_refusal_is_told_in_the_engines_words(body: bytes, words: str) -> None:
    assert Answer(500, body, "application/json").words() == words
    assert len(Answer(500, body * 100_000, "").words()) <= 120
