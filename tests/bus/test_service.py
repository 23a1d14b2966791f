import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.arbitration.events import PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.bus import names
from gpusupervisor.bus import objects as objects_module
from gpusupervisor.bus.presence import BusUnavailable
from gpusupervisor.bus.service import BusService
from tests.bus.builders import CARD, EPOCH, GIB, MIB, FakeClock, make_plan, make_result, make_state, no_jobs
from tests.bus.conftest import PERMISSIVE, Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

PROPERTIES = "org.freedesktop.DBus.Properties"


def changes(client: Client, path: str) -> list[Message]:
    return [s for s in client.signals if s.member == "PropertiesChanged" and s.path == path]


async def test_before_the_first_tick_it_says_that_it_is_starting(start: Starter, shared_bus: PrivateBus) -> None:
    await start()
    for name, value in {"Version": "1.2.3", "Status": "starting", "Driver": "starting", "Automatic": False}.items():
        shown = await shared_bus.busctl("get-property", names.BUS_NAME, names.ROOT, f"{names.BUS_NAME}.Manager", name)
        assert shown.json == value
    health = await shared_bus.busctl(
        "get-property", names.BUS_NAME, names.HEALTH_PATH, f"{names.BUS_NAME}.Health", "State"
    )
    assert health.json == "degraded"


async def test_properties_show_the_last_published_state(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(make_state())
    shown = await shared_bus.call(names.gpu_path(CARD), PROPERTIES, "GetAll", "s", f"{names.BUS_NAME}.Gpu")
    [properties] = shown.json
    assert properties["MemoryTotal"] == {"type": "t", "data": 24 * GIB}
    assert properties["TenantHoldings"]["data"] == {"ollama": 12 * GIB, "comfyui": 5 * GIB}
    assert properties["Unmanaged"]["data"][0]["name"]["data"] == "train.py"
    assert properties["MemorySampledAt"]["data"] - (EPOCH + 4_900_000_000) in range(50)


async def test_a_taken_name_is_a_clear_error(start: Starter, shared_bus: PrivateBus) -> None:
    await start()
    with pytest.raises(BusUnavailable, match=r"org\.gpusupervisor1 is taken by another process"):
        await BusService.start(
            shared_bus.address,
            FakeController(),
            FakeHardware(),
            no_jobs(),
            "1",
            FakeClock(),
            lambda _bus: FixedAuthority(),
        )


async def test_no_bus_is_a_clear_error() -> None:
    with pytest.raises(BusUnavailable, match="Cannot connect to the system bus"):
        await BusService.start(None, FakeController(), FakeHardware(), no_jobs(), "1", FakeClock())


async def test_a_name_that_the_policy_withholds_is_a_clear_error() -> None:
    bus = PrivateBus(PERMISSIVE.replace('<allow own="*"/>', '<deny own="*"/>'))
    try:
        with pytest.raises(BusUnavailable, match=r"org\.gpusupervisor1\.conf"):
            await BusService.start(bus.address, FakeController(), FakeHardware(), no_jobs(), "1", FakeClock())
    finally:
        bus.stop()


async def test_nothing_is_sent_while_nothing_changes(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state())
    await client.settle()
    client.signals.clear()
    for tick in range(60):
        service.publish(make_state(sampled_at=4_900_000_000 + tick * 1_000_000))
    await client.settle()
    assert client.signals == []


async def test_a_change_is_sent_at_once_with_new_values_and_invalidated_lists(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state())
    await client.settle()
    client.signals.clear()
    service.publish(make_state({"ollama": 12 * GIB, "comfyui": 1 * GIB}))
    await client.settle()
    [signal] = changes(client, names.tenant_path("comfyui"))
    interface, changed, invalidated = signal.body
    assert interface == "org.gpusupervisor1.Tenant"
    assert {name: value.value for name, value in changed.items()} == {
        "Holding": GIB, "Holdings": {CARD: GIB}, "Reclaimable": GIB - 512 * MIB,
    }  # fmt: skip
    assert invalidated == ["Processes"]
    assert changes(client, names.tenant_path("ollama")) == []


async def test_changes_within_a_second_are_sent_together_when_it_is_over(
    start: Starter, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "SIGNAL_INTERVAL", 0.2)
    service = await start()
    service.publish(make_state(status="one"))
    await client.settle()
    client.signals.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(20):
        service.publish(make_state(status=f"status {number}"))
    await client.wait_for(lambda _: changes(client, names.ROOT))
    assert loop.time() - began >= 0.19
    [signal] = changes(client, names.ROOT)
    assert signal.body[1]["Status"].value == "status 19"
    assert objects_module.SIGNAL_INTERVAL == 0.2


def test_the_interval_is_a_second() -> None:
    assert objects_module.SIGNAL_INTERVAL == 1.0


async def test_events_are_signals_of_the_manager(start: Starter, client: Client) -> None:
    service = await start()
    await client.settle()
    client.signals.clear()
    plan, result = make_plan(), make_result()
    for event in (PlanMade(plan), PlanStarted(plan), StepFinished(plan, result.steps[0]), PlanFinished(result)):
        service.emit(event)
    await client.settle()
    assert [signal.member for signal in client.signals] == [
        "ReleasePlanned", "ReleaseStarted", "ReleaseStep", "ReleaseFinished",
    ]  # fmt: skip
    planned, _, step, finished = (signal.body for signal in client.signals)
    assert planned[0] == "p1"
    [blocker] = planned[1]["blockers"].value
    assert (blocker["holder"].value, blocker["reason"].value) == ("train.py (pid 4242)", "unmanaged")
    assert blocker["held"].value == 2**64 - 1
    assert step[1:4] == ["comfyui", "freed", 4 * GIB]
    assert finished[1:3] == ["satisfied", 4 * GIB]
    assert finished[3]["available"].value == 9 * GIB
    assert {signal.path for signal in client.signals} == {names.ROOT}


async def test_a_killed_bus_is_noticed_and_publishing_goes_on_harmlessly(
    start: Starter, mortal_bus: PrivateBus
) -> None:
    service = await start(bus=mortal_bus)
    service.publish(make_state())
    waiting = asyncio.create_task(service.wait_lost())
    mortal_bus.process.kill()
    async with asyncio.timeout(5):
        assert "connection" in await waiting
    service.publish(make_state({"ollama": GIB}))
    service.emit(PlanMade(make_plan()))


async def test_a_lost_name_is_noticed(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    waiting = asyncio.create_task(service.wait_lost())
    await service.connection.release_name(names.BUS_NAME)
    async with asyncio.timeout(5):
        assert names.BUS_NAME in await waiting


async def test_waiting_for_the_loss_can_be_cancelled(start: Starter, client: Client) -> None:
    service = await start()
    waiting = asyncio.create_task(service.wait_lost())
    await client.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (
        await client.call(names.ROOT, "org.freedesktop.DBus.Peer", "Ping")
    ).message_type is MessageType.METHOD_RETURN


async def test_stopping_answers_what_is_being_served_and_gives_the_name_back(
    start: Starter, client: Client, controller: FakeController, shared_bus: PrivateBus
) -> None:
    controller.gate.clear()
    service = await start()
    pending = asyncio.create_task(client.call(names.ROOT, "org.gpusupervisor1.Manager", "MakeRoom", "sst", "", "", 1))
    async with asyncio.timeout(5):
        while not controller.calls:
            await client.settle()
    await service.stop()
    reply = await pending
    assert reply.error_name == "org.freedesktop.DBus.Error.Failed"
    assert "stopping" in reply.body[0]
    again = await start()
    assert again is not service


async def test_a_tenant_that_vanished_and_came_back_is_the_same_object_again(start: Starter, client: Client) -> None:
    service = await start()
    for state in (make_state(), make_state({}), make_state()):
        service.publish(state)
    reply = await client.call(names.tenant_path("ollama"), PROPERTIES, "Get", "ss", "", "Holding")
    assert reply.body[0].value == 12 * GIB


async def test_hostile_names_are_shown_harmless(start: Starter, client: Client) -> None:
    service = await start()
    state = make_state()
    hostile = replace(state, status="ok\x1b[2J\udcff" + "x" * 5000)
    service.publish(hostile)
    reply = await client.call(names.ROOT, PROPERTIES, "GetAll", "s", "")
    status = reply.body[0]["Status"].value
    assert status.startswith("ok [2J x")
    assert len(status) == 1024


async def test_the_bus_keeps_file_descriptors_away_from_us(start: Starter, shared_bus: PrivateBus) -> None:
    await start()
    sender = await MessageBus(shared_bus.address, negotiate_unix_fd=True).connect()
    read_end, write_end = os.pipe()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        call = Message(
            names.BUS_NAME, names.ROOT, "org.gpusupervisor1.Manager", "Reload",
            signature="h", body=[0], unix_fds=[read_end],
        )  # fmt: skip
        reply = await sender.call(call)
        assert reply is not None
        assert reply.message_type is MessageType.ERROR
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.close(read_end)
    os.close(write_end)
    sender.disconnect()
    await sender.wait_for_disconnect()  # type: ignore[no-untyped-call]
