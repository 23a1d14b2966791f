"""What units declare of themselves is known of those that were seen, and stays when they are gone."""

from collections.abc import Mapping

import pytest
from dbus_fast import Variant

from tests.peers.conftest import Follower
from tests.peers.fake_systemd import FakeSystemd

APP = frozenset({"app.service"})


def environment(*assignments: str) -> Variant:
    return Variant("as", list(assignments))


async def known(follower: Follower, expected: Mapping[str, Mapping[str, str]], present: frozenset[str] = APP) -> None:
    await follower.until(lambda: follower.client.declared(present) == expected)


async def test_only_what_a_unit_declares_is_told(follower: Follower, systemd: FakeSystemd) -> None:
    systemd.has("app.service", Environment=environment("PATH=/bin", "GPUSUPERVISOR_TENANT=a=b", "GPUSUPERVISOR_X"))
    assert follower.client.declared(APP) == {}, "nothing waits for it"
    await known(follower, {"app.service": {"GPUSUPERVISOR_TENANT": "a=b", "GPUSUPERVISOR_X": ""}})


async def test_an_answer_stays_the_same_object_and_is_not_asked_for_again(
    follower: Follower, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusupervisor.peers.unit_client.SETTLED", 60.0)
    systemd.has("app.service", Environment=environment("GPUSUPERVISOR_TENANT=a"))
    await known(follower, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}})
    before, asked = follower.client.declared(APP), len(systemd.asked)
    for _ in range(5):
        assert follower.client.declared(APP) is before
    await follower.settle(systemd.bus)
    assert len(systemd.asked) == asked


async def forget(follower: Follower, systemd: FakeSystemd) -> None:
    """A unit that declared a is one that systemd has forgotten, whose file says b."""
    systemd.has("app.service", Environment=environment("GPUSUPERVISOR_TENANT=a"))
    await known(follower, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}})
    systemd.files = {"app.service": systemd.units.pop("app.service")}
    systemd.files["app.service"]["Environment"] = environment("GPUSUPERVISOR_TENANT=b")
    await systemd.reloads()
    await known(follower, {"app.service": {"GPUSUPERVISOR_TENANT": "b"}}, frozenset())


async def test_what_systemd_has_forgotten_is_read_again_and_what_has_no_file_any_more_declares_nothing(
    follower: Follower, systemd: FakeSystemd
) -> None:
    await forget(follower, systemd)
    systemd.files.clear()
    await systemd.reloads()
    await known(follower, {}, frozenset())


async def test_reading_a_forgotten_unit_is_no_news_of_it(
    follower: Follower, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    await forget(follower, systemd)
    monkeypatch.setattr("gpusupervisor.peers.unit_client.SETTLED", 60.0)
    asked = systemd.asked.count("LoadUnit")
    await systemd.loads("app.service")  # as systemd says when it is asked to read it
    await follower.settle(systemd.bus)
    assert systemd.asked.count("LoadUnit") <= asked + 1, "at most the look that was due anyway"
    systemd.files["app.service"]["Environment"] = environment("GPUSUPERVISOR_TENANT=c")
    systemd.units = {"app.service": systemd.files.pop("app.service")}
    await systemd.changes("app.service")
    await known(follower, {"app.service": {"GPUSUPERVISOR_TENANT": "c"}}, frozenset())
