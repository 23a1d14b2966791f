"""Another user listens where a tenant is asked: it gets no key and no request, and nothing is believed of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpusupervisor.engine_http import EngineHttp, ForeignSocket, KeyFile, NotAllowed, Peer
from gpusupervisor.engine_http.client import SHUNNED_FOR
from gpusupervisor.tenants.definition import Endpoint
from gpusupervisor.tenants.speakers import peer_of
from tests.http_peer import Peer as Server
from tests.processes.builders import process
from tests.strangers import ATTACKER, TENANT, listener, needs_root

pytestmark = needs_root

SOON = 5_000_000
MINE = Peer(users=frozenset({TENANT}), key_users=frozenset({TENANT}))


@asynccontextmanager
async def serving(uid: int, port: int = 0) -> AsyncIterator[Server]:
    """A server of another user."""
    server = Server()
    await server.start_on(listener(uid, port=port))
    server.says("/x", {"queue_remaining": 2})
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp()
    yield client
    await client.aclose()


@pytest.fixture
def key(tmp_path: Path) -> KeyFile:
    path = tmp_path / "key"
    path.write_text("secret-of-vllm")
    return KeyFile(str(path), "Bearer ")


async def test_the_tenant_itself_is_asked_and_sent_its_key(http: EngineHttp, key: KeyFile) -> None:
    async with serving(TENANT) as server:
        answer = await http.get(server.url, "/x", timeout=SOON, headers=(("Authorization", key),), peer=MINE)
        assert answer.json() == {"queue_remaining": 2}
        assert "secret-of-vllm" in server.asked[0].head


@pytest.mark.parametrize("peer", [MINE, Peer()])
async def test_who_took_its_port_hears_nothing(http: EngineHttp, key: KeyFile, peer: Peer) -> None:
    async with serving(ATTACKER) as server:
        for headers in ((("Authorization", key),), ()):
            with pytest.raises(ForeignSocket, match=r"belongs to user .* nothing was sent"):
                await http.get(server.url, "/x", timeout=SOON, headers=headers, peer=peer)
        with pytest.raises(ForeignSocket):
            await http.request("POST", server.url, "/x", timeout=SOON, body=b"{}", peer=peer)
        assert not server.asked


async def test_a_stranger_is_not_even_connected_to_again_for_a_while(http: EngineHttp) -> None:
    async with serving(ATTACKER) as server:
        for _ in range(25):
            with pytest.raises(ForeignSocket):
                await http.get(server.url, "/x", timeout=SOON, peer=MINE)
        assert server.connections <= 2, f"asked more than once within {SHUNNED_FOR} s"


async def test_a_key_goes_to_no_user_whom_root_has_not_named(http: EngineHttp, key: KeyFile) -> None:
    """A user's program that looks like the tenant is asked, but it is not the one that the key is for."""
    look_alike = Peer(users=frozenset({ATTACKER}))
    async with serving(ATTACKER) as server:
        with pytest.raises(NotAllowed, match=f'set user = "{ATTACKER}" under'):
            await http.get(server.url, "/x", timeout=SOON, headers=(("Authorization", key),), peer=look_alike)
        assert not server.asked
        assert (await http.get(server.url, "/x", timeout=SOON, peer=look_alike)).ok


async def test_a_connection_to_one_is_not_used_for_another(http: EngineHttp) -> None:
    async with serving(ATTACKER) as server:
        assert (await http.get(server.url, "/x", timeout=SOON, peer=Peer(users=frozenset({ATTACKER})))).ok
        with pytest.raises(ForeignSocket):
            await http.get(server.url, "/x", timeout=SOON, peer=MINE)


async def test_the_port_is_taken_while_the_tenant_restarts(http: EngineHttp, key: KeyFile) -> None:
    async with serving(TENANT) as server:
        port = server.port
        await http.get(server.url, "/x", timeout=SOON, peer=MINE)
    async with serving(ATTACKER, port) as thief:
        with pytest.raises(ForeignSocket):
            await http.get(thief.url, "/x", timeout=SOON, headers=(("Authorization", key),), peer=MINE)
        assert not thief.asked


async def test_a_users_look_alike_does_not_become_the_voice_of_a_system_service() -> None:
    service = process(uid=TENANT, unit="vllm.service", cgroup="/system.slice/vllm.service")
    look_alike = process(uid=ATTACKER, unit="user@61002.service", cgroup="/user.slice/user-61002.slice/x.scope")
    peer = peer_of(Endpoint("http://127.0.0.1:8000"), (service, look_alike))
    assert peer.users == peer.key_users == {TENANT}
    alone = peer_of(Endpoint("http://127.0.0.1:8000"), (look_alike,))
    assert alone.users == {ATTACKER}
    assert not alone.key_users
    named = peer_of(Endpoint("http://127.0.0.1:8000", user=str(ATTACKER)), ())
    assert named.key_users == {ATTACKER}


async def test_no_request_goes_to_a_private_port_that_a_look_alike_names(http: EngineHttp) -> None:
    """OLLAMA_HOST=127.0.0.1:7777 of one user's program, and another user's server behind it."""
    async with serving(TENANT) as private:
        with pytest.raises(ForeignSocket):
            await http.get(private.url, "/api/ps", timeout=SOON, peer=Peer(users=frozenset({ATTACKER})))
        assert not private.asked


async def test_a_listener_that_never_accepts_is_known_too(http: EngineHttp) -> None:
    with listener(ATTACKER) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ForeignSocket):
            await http.get(f"http://127.0.0.1:{port}", "/x", timeout=SOON, peer=MINE)
        silent.setblocking(False)
        accepted, _ = silent.accept()
        with accepted:
            accepted.setblocking(True)
            accepted.settimeout(5)
            assert accepted.recv(1) == b"", "something was sent"
