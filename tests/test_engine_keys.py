"""Keys that engines ask for: read when they are needed, sent to nobody else, shown nowhere."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpusupervisor.engine_http import EngineHttp, KeyFile, NotAllowed
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ProbeSpec, ReleaseMethod
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.release.http_release import Place, request_release
from gpusupervisor.tenants.take_census import take_census
from tests.http_peer import Peer, reply
from tests.tenants.activity.builders import context
from tests.tenants.people import GIB, gpu, sample, who

SOON = 2_000_000
SECRET = "s3cr3t-of-the-engine"


def tabby(key: Path) -> str:
    """A tenant file that names a key."""
    return f'[endpoint]\nheaders = {{ x-admin-key = {{ file = "{key}" }}, X-From = "us" }}\n'


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp(key_owner=os.geteuid())
    yield client
    await client.aclose()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o640)
    return path


async def test_a_key_is_read_anew_for_every_request(peer: Peer, http: EngineHttp, key: Path) -> None:
    headers = (("Authorization", KeyFile(str(key), "Bearer ")), ("X-From", "us"))
    await http.get(peer.url, "/x", timeout=SOON, headers=headers)
    assert f"Authorization: Bearer {SECRET}\r\n" in peer.asked[-1].head
    assert "X-From: us\r\n" in peer.asked[-1].head
    key.write_text("another")
    await http.get(peer.url, "/x", timeout=SOON, headers=headers)
    assert "Authorization: Bearer another\r\n" in peer.asked[-1].head
    assert SECRET not in repr(headers)


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        ("", 0o640, "does not hold one key"),
        (f"{SECRET}\nand more", 0o640, "does not hold one key"),
        (f"{SECRET} {SECRET}", 0o640, "does not hold one key"),
        (f"{SECRET}\r\nHost: evil", 0o640, "does not hold one key"),
        ("schl\u00fcssel", 0o640, "does not hold one key"),
        (SECRET * 100, 0o640, "does not hold one key"),
        (SECRET, 0o660, "only root can have written"),
        (SECRET, 0o646, "only root can have written"),
    ],
)
async def test_a_file_that_holds_no_key_is_named_and_nothing_is_sent(
    peer: Peer, http: EngineHttp, key: Path, content: str, mode: int, complaint: str
) -> None:
    key.write_text(content)
    key.chmod(mode)
    with pytest.raises(NotAllowed, match=complaint) as problem:
        await http.get(peer.url, "/x", timeout=SOON, headers=(("Authorization", KeyFile(str(key))),))
    assert str(key) in str(problem.value)
    assert SECRET not in str(problem.value)
    assert peer.asked == []


async def test_a_file_of_somebody_else_a_folder_or_none_is_no_key(peer: Peer, key: Path, tmp_path: Path) -> None:
    http = EngineHttp(key_owner=os.geteuid() + 1)
    for path in (key, tmp_path, tmp_path / "absent"):
        with pytest.raises(NotAllowed, match=str(path)):
            await http.get(peer.url, "/x", timeout=SOON, headers=(("Authorization", KeyFile(str(path))),))
    assert peer.asked == []


def presence_of(
    folder: Path, *, line: str = "python3 /srv/tabbyAPI/main.py", tenant: str = "tabbyapi"
) -> TenantPresence:
    identity = who(7, line)
    census = take_census(sample(gpu(processes={7: GIB})), {7: identity}, load_catalog([SHIPPED, folder]), Recognizer())
    return census.tenants[tenant]


def test_a_key_goes_only_to_the_address_that_its_file_names(tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "tenants.d"
    folder.mkdir()
    (folder / "tabbyapi.toml").write_text(tabby(key))
    at_home = presence_of(folder)
    assert (at_home.endpoint, at_home.endpoint_is_written) == ("http://127.0.0.1:5000", True)
    assert ("x-admin-key", KeyFile(str(key))) in at_home.headers

    named = presence_of(folder, line="python3 /srv/tabbyAPI/main.py --port 6666", tenant="tabbyapi@6666")
    assert (named.endpoint, named.endpoint_is_written) == ("http://127.0.0.1:6666", False)
    assert named.headers == (("X-From", "us"),), "a process that names its own port gets no key"

    (folder / "tabbyapi@6666.toml").write_text("priority = 60\n")
    written = presence_of(folder, line="python3 /srv/tabbyAPI/main.py --port 6666", tenant="tabbyapi@6666")
    assert written.endpoint_is_written, "a file of root's names the port"
    assert ("x-admin-key", KeyFile(str(key))) in written.headers


async def test_a_key_that_is_not_accepted_is_named(tmp_path: Path, peer: Peer, http: EngineHttp, key: Path) -> None:
    folder = tmp_path / "tenants.d"
    folder.mkdir()
    (folder / "tabbyapi.toml").write_text(tabby(key) + f'url = "{peer.url}"\n')
    peer.answers["/health"] = reply(b"{}", 401)
    probe = HttpProbe(ProbeSpec("http", get="/health", busy_when="busy"))
    seen = await probe.observe(context(http, await asyncio.to_thread(presence_of, folder)))
    assert seen.state == "unknown"
    assert seen.reason.endswith(f"answered /health with status 401: it does not accept the key in {key}")
    assert f"x-admin-key: {SECRET}\r\n" in peer.asked[0].head


async def test_a_release_with_a_key_is_not_sent_where_only_a_process_says_so(
    peer: Peer, http: EngineHttp, key: Path
) -> None:
    unload = ReleaseMethod("http", "POST", "/unload", headers=(("x-admin-key", KeyFile(str(key))),))
    peer.answers["/unload"] = reply(b"")
    refused = await request_release(unload, Place(peer.url, takes_keys=False), http)
    assert (refused.outcome, peer.asked) == ("refused", [])
    assert "its key is not sent to an address" in refused.detail
    assert (await request_release(unload, Place(peer.url, (("X-From", "us"),)), http)).accepted
    assert f"x-admin-key: {SECRET}\r\n" in peer.asked[0].head
    assert "X-From: us\r\n" in peer.asked[0].head


async def test_a_release_whose_key_cannot_be_read_is_refused(peer: Peer, http: EngineHttp, tmp_path: Path) -> None:
    unload = ReleaseMethod("http", "POST", "/unload", headers=(("x-admin-key", KeyFile(str(tmp_path / "none"))),))
    answer = await request_release(unload, Place(peer.url), http)
    assert (answer.accepted, peer.asked) == (False, [])
    assert "cannot be read: No such file" in answer.detail


def test_what_is_in_force_shows_the_file_and_never_the_key(tmp_path: Path, key: Path) -> None:
    (tmp_path / "tabbyapi.toml").write_text(tabby(key))
    shown = load_catalog([SHIPPED, tmp_path]).explain("tabbyapi")
    assert f'file = "{key}"' in shown
    assert SECRET not in shown


@pytest.mark.parametrize("name", ["Authorization", "x-admin-key", "X-API-Key", "Cookie", "X-Auth-Token", "api_secret"])
def test_a_key_written_into_a_definition_would_be_shown_to_everybody_and_is_refused(name: str) -> None:
    problems = load_catalog([SHIPPED]).check_text("tabbyapi.toml", f'[endpoint.headers]\n{name} = "Bearer x"\n')
    assert [problem.key for problem in problems] == [f"endpoint.headers.{name}"]
    assert "everybody could read" in problems[0].message
    assert "x" not in problems[0].message.partition("everybody")[0].split()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('Authorization = { prefix = "Bearer " }', "is missing, e.g. { file"),
        ('Authorization = { file = "keys/x" }', "is no absolute path"),
        ('Authorization = { file = "/etc/../x" }', "is no absolute path"),
        ('Authorization = { file = "/x", key = "y" }', "unknown key"),
        ('Authorization = { file = "/x", prefix = "B\u00e4rer " }', "plain ASCII"),
        ('Host = { file = "/x" }', "written by the HTTP client"),
        ('Content-Length = "3"', "written by the HTTP client"),
        ('X-From = ["a"]', "allowed: a text"),
    ],
)
def test_a_header_that_is_not_right_is_refused(text: str, complaint: str) -> None:
    (problem, *_) = load_catalog([SHIPPED]).check_text("tabbyapi.toml", f"[endpoint.headers]\n{text}\n")
    assert complaint in problem.message
