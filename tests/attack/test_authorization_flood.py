"""Questions that nobody answers cost the user who has them asked, and nobody else."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from dbus_fast import Message, MessageType

from gpusupervisor.bus import names, questions
from gpusupervisor.bus.authority import PolkitAuthority
from gpusupervisor.bus.service import BusService
from tests.attack.conftest import Enter
from tests.attack.raw import HONEST, RawPeer, call_of
from tests.bus.conftest import PrivateBus, Starter, as_nobody
from tests.bus.fakes import FakePolkit

INTERACTIVE = 4
LIMITS_EXCEEDED = "org.freedesktop.DBus.Error.LimitsExceeded"


class AgentThatNeverAnswers(FakePolkit):
    """polkit asks a person where it may, and waits for ever; everything else it allows."""

    def _take(self, message: Message) -> Message | bool:
        if message.member == "CheckAuthorization" and message.body[3] == 1:
            self.received.append(message)
            self.arrived.set()
            return True
        return super()._take(message)


@pytest.fixture
async def polkit(shared_bus: PrivateBus) -> AsyncIterator[FakePolkit]:
    fake = await AgentThatNeverAnswers.start(shared_bus.address, "allow")
    yield fake
    await fake.stop()


@pytest.fixture
async def service(start: Starter, polkit: FakePolkit) -> BusService:
    return await start(PolkitAuthority)


def release(*, interactive: bool) -> Message:
    call = call_of(names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "Release", "s", "comfyui")
    if interactive:
        call.flags = call.flags.__class__(INTERACTIVE)
    return call


@as_nobody
async def test_one_users_unanswered_questions_leave_everybody_else_theirs(
    service: BusService, polkit: FakePolkit, enter: Enter
) -> None:
    peers = [await enter() for _ in range(40)]
    refused: list[Message] = []
    for peer in peers:  # 160 in all, as many as once blocked everybody
        await peer.send(*(release(interactive=True) for _ in range(4)))
    async with asyncio.timeout(60):
        for peer in peers:
            refused += await refusals(peer)
    assert len(polkit.received) == questions.OF_ONE_WITH_A_PERSON
    assert {answer.error_name for answer in refused} == {LIMITS_EXCEEDED}
    honest = await enter(HONEST)
    async with asyncio.timeout(30):
        answer = await honest.ask(release(interactive=False))
    assert answer.message_type is MessageType.METHOD_RETURN, answer.body
    await honest.send(release(interactive=True))
    async with asyncio.timeout(30):
        while len(polkit.received) <= questions.OF_ONE_WITH_A_PERSON + 1:
            polkit.arrived.clear()
            await polkit.arrived.wait()


async def refusals(peer: RawPeer) -> list[Message]:
    """The answers to all but those that are still being asked about."""
    found: list[Message] = []
    try:
        async with asyncio.timeout(0.5):
            while len(found) < 4:
                found += await peer.answers(1)
    except TimeoutError:
        pass
    return found


@as_nobody
async def test_a_user_whose_caller_leaves_may_have_others_asked_about(
    service: BusService, polkit: FakePolkit, enter: Enter
) -> None:
    for number in range(questions.OF_ONE_WITH_A_PERSON * 3):
        peer = await enter()
        await peer.send(release(interactive=True))
        async with asyncio.timeout(30):
            while sum(each.member == "CheckAuthorization" for each in polkit.received) <= number:
                polkit.arrived.clear()
                await polkit.arrived.wait()
            peer.die()
            while sum(each.member == "CancelCheckAuthorization" for each in polkit.received) <= number:
                polkit.arrived.clear()
                await polkit.arrived.wait()


async def test_polkit_is_asked_on_a_connection_of_its_own(
    service: BusService, polkit: FakePolkit, enter: Enter
) -> None:
    peer = await enter()
    await peer.ask(release(interactive=False))
    senders = {each.sender for each in polkit.received if each.member == "CheckAuthorization"}
    assert service.connection.unique_name not in senders


async def test_what_one_polkit_said_is_not_held_against_the_next(
    service: BusService, polkit: FakePolkit, enter: Enter, shared_bus: PrivateBus
) -> None:
    polkit.mood = "error"
    peer = await enter()
    assert (await peer.ask(release(interactive=False))).message_type is MessageType.ERROR
    if not polkit.received:
        pytest.skip("the caller is root, of whom polkit is not asked")
    assert (await service.authority_seen()).state == "refusing"
    await polkit.stop()
    successor = await FakePolkit.start(shared_bus.address, "allow")
    assert (await service.authority_seen()).state == "answers"
    await successor.stop()
