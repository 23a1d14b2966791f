"""Fans and profiles on the bus: what an applet can grey out, who may, and what reaches the helper."""

import os
from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.bus import names
from gpusupervisor.bus.control_views import fans_view, profile_view
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.controls import Controls, FanWish, TuningWish
from gpusupervisor.errors import NotSupported
from gpusupervisor.jobs import Jobs
from gpusupervisor.state import State
from tests.bus.builders import CARD, EPOCH, make_controls, make_state
from tests.bus.conftest import Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

GPU = names.gpu_path(CARD)
CALLS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("Gpu", "Detach", (), names.ACTION_DETACH),
    ("Gpu", "Attach", (), names.ACTION_DETACH),
    ("Fans", "SetAutomatic", ("u", "0"), names.ACTION_CONTROL_FANS),
    ("Fans", "SetFixed", ("uu", "0", "60"), names.ACTION_CONTROL_FANS),
    ("Fans", "SetCurve", ("ua(uu)a{sv}", "0", "2", "40", "30", "80", "100", "0"), names.ACTION_CONTROL_FANS),
    ("Profile", "Try", ("st", "{}", "30000000"), names.ACTION_CONTROL_PROFILE),
    ("Profile", "Confirm", (), names.ACTION_CONTROL_PROFILE),
    ("Profile", "Revert", (), names.ACTION_CONTROL_PROFILE),
    ("Profile", "Apply", ("s", "{}"), names.ACTION_CONTROL_PROFILE),
    ("Profile", "Reset", (), names.ACTION_CONTROL_PROFILE),
    ("Profile", "CheckDrift", (), names.ACTION_CONTROL_PROFILE),
    ("Profile", "Autotune", ("sa{sv}", "ollama", "0"), names.ACTION_CONTROL_PROFILE),
)


def with_controls(controls: Controls) -> State:
    return replace(make_state(), controls=controls)


def test_what_can_be_set_is_told_one_by_one() -> None:
    fans, profile = fans_view(make_controls(), CARD), profile_view(make_controls(), CARD)
    assert (fans["Support"], fans["SupportReason"], fans["Minimum"], fans["Maximum"]) == ("supported", "", 30, 100)
    assert (profile["Support"], profile["SupportReason"]) == ("supported", "")
    capabilities: Any = profile["Capabilities"]
    by_item = {each["item"].value: {key: value.value for key, value in each.items()} for each in capabilities}
    assert by_item["power-limit"]["maximum"] == 480_000
    assert by_item["offset-graphics"]["support"] == "unverifiable"
    assert by_item["offset-graphics"]["minimum"] == -500


def test_without_the_helper_all_is_unsupported_and_it_says_why() -> None:
    missing = Controls({}, "the helper is not there")
    for view in (fans_view(missing, CARD), profile_view(missing, CARD)):
        assert (view["Support"], view["SupportReason"]) == ("unsupported", "the helper is not there")
    assert fans_view(missing, CARD)["Minimum"] is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"condition": "given-away"}, "the GPU is detached: call Attach first"),
        ({"condition": "unavailable", "detail": "it is lost", "abilities": ()}, "it is lost"),
        ({"condition": "asleep", "abilities": ()}, "not known yet"),
    ],
)
def test_a_gpu_that_cannot_be_set_now_says_why(changes: dict[str, object], reason: str) -> None:
    for view in (fans_view(make_controls(**changes), CARD), profile_view(make_controls(**changes), CARD)):
        assert view["Support"] == "unsupported"
        assert reason in str(view["SupportReason"])


def test_a_card_that_takes_nothing_gives_each_reason_once() -> None:
    bare = make_controls().gpus[CARD].abilities
    refusing = tuple(replace(each, support="unsupported", reason="a laptop") for each in bare)
    view = profile_view(make_controls(abilities=refusing), CARD)
    assert (view["Support"], view["SupportReason"]) == ("unsupported", "a laptop")


def test_the_worst_verdict_stands_for_all() -> None:
    assert profile_view(make_controls(), CARD)["DriftState"] == "drifted"
    assert profile_view(make_controls(drift=()), CARD)["DriftState"] == ""


async def test_all_is_there_to_be_read(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    get_all = ("org.freedesktop.DBus.Properties", "GetAll", "s")
    [fans] = (await shared_bus.call(GPU, *get_all, "org.gpusupervisor1.Fans")).json
    assert fans["Fans"]["data"][0]["points"]["data"] == [[40, 30], [80, 100]]
    assert fans["Fans"]["data"][0]["hysteresis"]["data"] == 3
    [profile] = (await shared_bus.call(GPU, *get_all, "org.gpusupervisor1.Profile")).json
    assert profile["Profile"]["data"] == '{"power-limit": "300W"}'
    assert profile["AppliedAt"]["data"] == EPOCH
    assert profile["TrialDeadline"]["data"] == UNKNOWN


async def test_every_method_asks_first_and_then_does_it(
    start: Starter, shared_bus: PrivateBus, hardware: FakeHardware, controller: FakeController
) -> None:
    authority = FixedAuthority()
    service = await start(lambda _bus: authority)
    service.publish(with_controls(make_controls()))
    for interface, member, arguments, action in CALLS:
        done = await shared_bus.call(GPU, interface, member, *arguments)
        assert done.status == 0, (member, done.errors)
        assert authority.asked[-1] == (action, {"gpu": CARD})
    assert hardware.calls[3] == ("set_fan", CARD, 0, FanWish("fixed", 60))
    assert hardware.calls[4] == ("set_fan", CARD, 0, FanWish("curve", points=((40, 30), (80, 100))))
    assert hardware.calls[5] == ("try_profile", CARD, "{}", 30_000_000)
    assert len(hardware.calls) == len(CALLS) - 1
    assert controller.calls == [("autotune", CARD, TuningWish("ollama"))]


async def test_who_may_not_gets_no_further(
    start: Starter, shared_bus: PrivateBus, hardware: FakeHardware, controller: FakeController
) -> None:
    service = await start(lambda _bus: FixedAuthority(allow=False))
    service.publish(with_controls(make_controls()))
    for interface, member, arguments, _ in CALLS:
        refused = await shared_bus.call(GPU, interface, member, *arguments)
        assert refused.status != 0, member
    nonsense = ("SetCurve", "ua(uu)a{sv}", "0", "0", "1", "file", "s", "/etc/shadow")
    assert "denied" in (await shared_bus.call(GPU, "Fans", *nonsense)).errors, "not even told what is wrong with it"
    assert hardware.calls == controller.calls == []


async def test_an_option_that_there_is_not_is_refused(
    start: Starter, shared_bus: PrivateBus, hardware: FakeHardware
) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    call = ("SetCurve", "ua(uu)a{sv}", "0", "2", "40", "30", "80", "100", "1")
    assert "allowed: hysteresis" in (await shared_bus.call(GPU, "Fans", *call, "file", "s", "/etc/shadow")).errors
    assert hardware.calls == []
    assert (await shared_bus.call(GPU, "Fans", *call, "hysteresis", "u", "5")).status == 0
    assert hardware.calls[0][3] == FanWish("curve", points=((40, 30), (80, 100)), options={"hysteresis": 5})


async def test_a_sweep_is_a_job_of_whoever_asks_for_it(
    start: Starter, shared_bus: PrivateBus, controller: FakeController, jobs: Jobs
) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    controller.gate.clear()
    options = ("5", "model", "s", "llama3", "steps", "u", "3", "tokens", "u", "64", "tolerance", "u", "10")
    begun = await shared_bus.call(
        GPU, "Profile", "Autotune", "sa{sv}", "ollama", *options, "clock-offsets", "ai", "2", "0", "50"
    )
    assert begun.json == [names.job_path(1)]
    assert controller.calls == [("autotune", CARD, TuningWish("ollama", "llama3", 3, 64, 10, (0, 50)))]
    [job] = jobs.list()
    assert (job.kind, job.target, job.owner, job.state) == ("autotune", CARD, os.getuid(), "running")
    controller.gate.set()


@pytest.mark.parametrize("option", [("speed", "s", "fast"), ("steps", "s", "3"), ("clock-offsets", "au", "1", "5")])
async def test_an_option_of_a_sweep_that_there_is_not_is_refused(
    option: tuple[str, ...], start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    refused = await shared_bus.call(GPU, "Profile", "Autotune", "sa{sv}", "ollama", "1", *option)
    assert "allowed: model (s), steps (u), tokens (u), tolerance (u), clock-offsets (ai)" in refused.errors
    long = await shared_bus.call(GPU, "Profile", "Autotune", "sa{sv}", "ollama", "1", "model", "s", "x" * 257)
    assert "256 printable characters" in long.errors
    assert controller.calls == []


async def test_the_helpers_error_is_the_callers(start: Starter, client: Client, hardware: FakeHardware) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    hardware.failure = NotSupported("The fans cannot be set, as on laptops")
    reply = await client.call(GPU, "org.gpusupervisor1.Fans", "SetFixed", "uu", 0, 50)
    assert reply.error_name == "org.gpusupervisor1.Error.NotSupported"
    assert reply.body == ["The fans cannot be set, as on laptops."]


async def test_events_are_signals_of_the_gpu(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(with_controls(make_controls()))
    service.emit_control(CARD, "DriftDetected", ["power-limit", {}])
    service.emit_control(CARD, "FanAlert", ["critical", "it is hot"])
    service.emit_control("GPU-of-nobody", "DriftDetected", ["power-limit", {}])
    await client.settle()
    told = [(s.path, s.interface, s.member, s.body) for s in client.signals if s.member in ("DriftDetected", "Alert")]
    assert told == [
        (GPU, "org.gpusupervisor1.Profile", "DriftDetected", ["power-limit", {}]),
        (GPU, "org.gpusupervisor1.Fans", "Alert", ["critical", "it is hot"]),
    ]
