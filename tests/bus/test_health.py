"""The health object: Check, Changed, and how polkit is, on a real bus with the clients that people use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpusupervisor.bus import authority as authority_module
from gpusupervisor.bus import names
from gpusupervisor.bus.authority import POLKIT_NAME, PolkitAuthority
from gpusupervisor.bus.connection import disconnection
from gpusupervisor.bus.transport import BusConnection
from gpusupervisor.state import Check
from tests.bus.builders import EPOCH, bare, make_state
from tests.bus.conftest import NOBODY, PERMISSIVE, Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FakePolkit, FixedAuthority, Mood

GOOD = Check("driver", "ok", "driver 580 answers", since=1_000_000)
BAD = Check("driver", "failed", "it hangs", "nothing is known", "reboot", since=2_000_000)


async def test_anybody_may_have_everything_checked(
    start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    await start(lambda _bus: FixedAuthority(allow=False))
    result = await shared_bus.call(names.HEALTH_PATH, "Health", "Check", uid=NOBODY)
    [[check]] = result.json
    assert {name: each["data"] for name, each in check.items() if name != "since"} == {
        "id": "driver", "state": "ok", "summary": "driver 580 answers", "impact": "", "remedy": "",
    }  # fmt: skip
    assert check["since"]["data"] - (EPOCH + 4_000_000_000) in range(50)
    assert controller.calls == [("check",)]


async def test_gdbus_reads_the_checks(start: Starter, shared_bus: PrivateBus) -> None:
    await start()
    result = await shared_bus.run(
        "gdbus", "call", "--address", shared_bus.address, "--dest", names.BUS_NAME, "--object-path", names.HEALTH_PATH,
        "--method", "org.gpusupervisor1.Health.Check",
    )  # fmt: skip
    assert result.status == 0, result.errors
    assert "'driver 580 answers'" in result.output


def heard(client: Client) -> list[list[object]]:
    return [bare(each.body) for each in client.signals if each.member == "Changed"]


async def test_a_check_that_comes_into_another_state_is_signalled_once(start: Starter, client: Client) -> None:
    service = await start()
    for checks in ((GOOD,), (GOOD,), (BAD,), (BAD,), (replace(BAD, summary="it still hangs"),)):
        service.publish(make_state(checks=checks))
    await client.settle()
    [[name, old, new, check]] = heard(client)
    assert (name, old, new) == ("driver", "ok", "failed")
    assert isinstance(check, dict)
    assert (check["summary"], check["impact"], check["remedy"]) == ("it hangs", "nothing is known.", "reboot.")


async def test_a_check_that_comes_or_goes_is_signalled(start: Starter, client: Client) -> None:
    service = await start()
    stuck = Check("tenant-x", "degraded", "x is stuck", "y", "z")
    for checks in ((GOOD,), (GOOD, stuck), (GOOD,)):
        service.publish(make_state(checks=checks))
    await client.settle()
    assert [body[:3] for body in heard(client)] == [["tenant-x", "", "degraded"], ["tenant-x", "degraded", ""]]


async def test_what_is_found_at_the_start_is_no_change(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state(checks=(BAD,)))
    await client.settle()
    assert heard(client) == []


@asynccontextmanager
async def asking(bus: PrivateBus) -> AsyncIterator[PolkitAuthority]:
    """Somebody on the bus who may ask polkit."""
    connection = await BusConnection(bus.address, patience=10).connect()
    authority = PolkitAuthority(connection)
    yield authority
    await authority.close()
    connection.disconnect()
    await disconnection(connection)


@pytest.fixture
async def authority(shared_bus: PrivateBus) -> AsyncIterator[PolkitAuthority]:
    async with asking(shared_bus) as one:
        yield one


async def test_a_polkit_that_is_not_there_is_missing(authority: PolkitAuthority) -> None:
    assert (await authority.seen()).state == "missing"


async def test_a_polkit_that_the_bus_would_start_is_startable(tmp_path: Path) -> None:
    service = f"[D-BUS Service]\nName={POLKIT_NAME}\nExec=/bin/false\n"
    (tmp_path / f"{POLKIT_NAME}.service").write_text(service)
    bus = PrivateBus(PERMISSIVE.replace("<listen>", f"<servicedir>{tmp_path}</servicedir><listen>"))
    try:
        async with asking(bus) as authority:
            assert (await authority.seen()).state == "startable"
    finally:
        bus.stop()


@pytest.mark.parametrize(("mood", "state"), [("allow", "answers"), ("deny", "answers"), ("error", "refusing")])
async def test_a_polkit_that_runs_is_as_its_last_answer(
    start: Starter, shared_bus: PrivateBus, mood: Mood, state: str
) -> None:
    polkit = await FakePolkit.start(shared_bus.address, mood)
    try:
        service = await start(PolkitAuthority)
        assert (await service.authority_seen()).state == "answers"
        assert polkit.received == [], "nobody was asked about"
        await shared_bus.call(names.TENANTS_PATH, "Tenants", "Release", "s", "comfyui", uid=NOBODY)
        seen = await service.authority_seen()
        assert seen.state == state
        assert ("Only trusted callers" in seen.detail) == (state == "refusing")
        polkit.mood = "allow"
        await shared_bus.call(names.TENANTS_PATH, "Tenants", "Release", "s", "comfyui", uid=NOBODY)
        assert (await service.authority_seen()).state == "answers"
    finally:
        await polkit.stop()


async def test_a_polkit_that_does_not_answer_is_silent(
    shared_bus: PrivateBus, authority: PolkitAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority_module, "PATIENCE", 0.2)
    polkit = await FakePolkit.start(shared_bus.address, "hang")
    try:
        assert (await authority.seen()).state == "silent"
    finally:
        await polkit.stop()
