"""`gpusupervisorctl fans` and `profile`: what is set, whether it stands, and why something cannot be."""

import json
from dataclasses import replace
from pathlib import Path

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli import signals
from gpusupervisor.cli.screens.controls import fans, profiles
from gpusupervisor.controls import Controls, FanWish
from tests.bus.builders import CARD, make_controls, make_state
from tests.bus.fakes import FakeHardware
from tests.cli.conftest import Run
from tests.cli.screens import NASTY, drawn, is_harmless


async def test_fans_are_listed_with_what_is_wanted_of_them(ctl: Run, service: BusService) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    lines = (await ctl("fans")).output.splitlines()
    assert lines[0] == "NVIDIA GeForce RTX 4090  controlling"
    assert lines[2].split() == [
        "0",
        "30",
        "%",
        "at",
        "40",
        "°C,",
        "100",
        "%",
        "at",
        "80",
        "°C",
        "48",
        "%",
        "1500",
        "ok",
    ]
    assert lines[3].split() == ["1", "automatic", "35", "%", "?", "ok"]


async def test_a_profile_is_shown_setting_by_setting(ctl: Run, service: BusService) -> None:
    service.publish(replace(make_state(), controls=make_controls(distrust="the machine went down")))
    shown = (await ctl("profile")).output
    assert "NVIDIA GeForce RTX 4090  settled, drifted" in shown
    assert "! the machine went down" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("power-limit"))
    assert line.split()[:5] == ["power-limit", "300", "W", "drifted", "supported"]
    assert "150 to 480 W" in line
    assert "this driver does not report it" in shown


async def test_without_the_helper_both_say_so(ctl: Run, service: BusService) -> None:
    service.publish(replace(make_state(), controls=Controls({}, "the helper is not there")))
    for command in ("fans", "profile"):
        shown = await ctl(command)
        assert shown.status == 0
        assert "the helper is not there" in shown.output


def test_without_a_gpu_that_is_said() -> None:
    assert drawn(fans([])) == drawn(profiles([])) == "No GPU is known."


def test_events_are_one_line_each_and_harmless() -> None:
    for member, body in (
        ("DriftDetected", ["power-limit", {"detail": NASTY}]),
        ("DriftRepaired", ["power-limit", {"accepted": "300 W"}]),
        ("DriftContested", ["power-limit", {"detail": NASTY}]),
        ("DriftEnded", ["power-limit", {"cause": "restored", "detail": NASTY}]),
        ("TrialEnded", ["timed-out", NASTY, []]),
        ("Alert", ["critical", NASTY]),
    ):
        line = signals.event(member, body)
        assert is_harmless(line)
        assert "\n" not in line
        assert "{" not in line


async def test_a_gpu_is_named_by_index_name_or_the_beginning_of_its_uuid(ctl: Run, service: BusService) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    assert "controlling" in (await ctl("fans", "--gpu", CARD[:8])).output
    assert "controlling" in (await ctl("fans", "--gpu", CARD[4:12])).output, "as top names it"
    assert "controlling" in (await ctl("fans", "--gpu", "0")).output
    assert "controlling" in (await ctl("fans", "--gpu", "rtx 4090")).output
    shown = await ctl("profile", "--gpu", "GPU-9")
    assert (shown.status, shown.output) == (2, "")
    assert shown.errors.startswith("No GPU matches 'GPU-9';")
    assert CARD in shown.errors


async def test_a_profile_is_tried_confirmed_reverted_applied_and_reset(
    ctl: Run, service: BusService, hardware: FakeHardware, tmp_path: Path
) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    file = tmp_path / "profile.json"
    file.write_text('{"power-limit": "300W"}')
    tried = await ctl("profile", "try", file, "--within", "1min")
    assert tried.status == 0, tried.errors
    assert "is reverted unless you confirm" in tried.output
    assert "power-limit  ok      300 W" in tried.output
    for action in ("confirm", "revert", "reset"):
        assert (await ctl("profile", action, "--gpu", CARD)).status == 0
    assert (await ctl("profile", "apply", file)).status == 0
    text = file.read_text()
    assert hardware.calls == [
        ("try_profile", CARD, text, 60_000_000), ("confirm", CARD), ("revert", CARD), ("reset_profile", CARD),
        ("apply_profile", CARD, text),
    ]  # fmt: skip


async def test_what_is_no_profile_file_says_so(ctl: Run, service: BusService, tmp_path: Path) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    shown = await ctl("profile", "apply", tmp_path / "nowhere.json")
    assert shown.status == 1
    assert "cannot be read" in shown.errors


async def test_without_a_gpu_nothing_can_be_set(ctl: Run, service: BusService) -> None:
    shown = await ctl("profile", "reset")
    assert (shown.status, shown.errors) == (1, "No GPU is known; gpusupervisorctl health says why.\n")


async def test_fans_are_set_all_or_one_with_what_it_comes_to_shown_first(
    ctl: Run, service: BusService, hardware: FakeHardware
) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    preview = await ctl("fans", "set", "5", "--preview")
    assert (preview.status, hardware.calls) == (0, [])
    low = next(each.minimum for each in make_controls().gpus[CARD].abilities if each.item == "fans")
    assert f"{low} %" in preview.output
    assert "the card accepts" in preview.output
    done = await ctl("fans", "set", "60", "--gpu", CARD)
    assert done.status == 0, done.errors
    assert "Set until the helper ends" in done.output
    assert hardware.calls == [("set_fan", CARD, fan, FanWish("fixed", 60)) for fan in (0, 1)]
    hardware.calls.clear()
    assert (await ctl("fans", "auto", "--fan", "1")).status == 0
    assert hardware.calls == [("set_fan", CARD, 1, FanWish("automatic"))]


async def test_a_curve_is_given_in_points(ctl: Run, service: BusService, hardware: FakeHardware) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    words = ("fans", "curve", "40:30", "60:45%", "80:100", "--fan", "0", "--zero-rpm-below", "35")
    done = await ctl(*words, "--spin-down-delay", "8s")
    assert done.status == 0, done.errors
    assert "30 % at 40 °C, 45 % at 60 °C, 100 % at 80 °C" in done.output
    ((_, gpu, fan, wish),) = hardware.calls
    assert (gpu, fan, getattr(wish, "points", None)) == (CARD, 0, ((40, 30), (60, 45), (80, 100)))
    assert getattr(wish, "options", None) == {"zero-rpm-below": 35, "spin-down-delay": 8_000_000}
    shown = json.loads((await ctl(*words, "--preview", "--json")).output)
    assert shown["fans"][0]["points"] == [[40, 30], [60, 45], [80, 100]]


async def test_what_cannot_be_set_of_a_fan_says_why(ctl: Run, service: BusService, hardware: FakeHardware) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    nowhere = await ctl("fans", "set", "60", "--fan", "7")
    assert (nowhere.status, "has no fan 7: it has 0, 1" in nowhere.errors) == (2, True)
    nonsense = await ctl("fans", "curve", "warm:30", "80:100")
    assert (nonsense.status, "no point of a curve" in nonsense.errors) == (2, True)
    service.publish(replace(make_state(), controls=make_controls(abilities=(), fans=(), detail="no fans here")))
    passive = await ctl("fans", "set", "60")
    assert (passive.status, "no fans here" in passive.errors) == (1, True)
    assert hardware.calls == []
