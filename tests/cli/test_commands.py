"""Every command, against a service that is real but for what it decides: output and exit codes."""

import asyncio
import json
import signal
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from dbus_fast import DBusError, ErrorType

from gpusupervisor.arbitration.events import PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.situation import ReleasePlan
from gpusupervisor.bus.service import BusService
from gpusupervisor.cli import main
from gpusupervisor.cli.registry import Command
from gpusupervisor.cli.session import Session
from gpusupervisor.errors import InvalidConfiguration
from gpusupervisor.state import Check
from tests.bus.builders import CARD, GIB, FakeClock, make_plan, make_result, make_state, no_jobs
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority
from tests.cli.conftest import COMMAND, Run


async def test_status_is_the_default(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    shown = await ctl()
    assert shown.status == 0, shown.errors
    assert shown.output == (await ctl("status")).output
    assert shown.output.startswith("gpusupervisor 1.2.3, automatic, driver 580.95.05, healthy\n")
    for part in ("NVIDIA GeForce RTX 4090", "ollama", "pid 4242; never touched", "as its API says"):
        assert part in shown.output


async def test_status_imports_only_what_it_draws_with(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    shown = await bus.run(COMMAND[0], "-X", "importtime", *COMMAND[1:], "status")
    imported = {line.rpartition("|")[2].strip() for line in shown.errors.splitlines()}
    assert {"asyncio", "dbus_fast", "rich.console"} <= imported
    needless = {"json", "pathlib", "plotext", "sqlite3", "tempfile", "textual", "urllib.request"}
    assert not needless & imported


def test_a_signal_wakes_the_loop_that_waits() -> None:
    async def waked_by_signals(_: Session) -> int:
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        return descriptor

    options = Namespace(command=Command("wait", "", waked_by_signals, connects=False))
    assert asyncio.run(main._run(options)) > 0


async def test_status_before_the_first_look_is_no_error(ctl: Run, service: BusService) -> None:
    shown = await ctl("status")
    assert shown.status == 0, shown.errors
    assert "nothing has been checked yet" in shown.output


async def test_tenants_lists_all_of_them(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    rows = (await ctl("tenants")).output.splitlines()
    assert [row.split()[:2] for row in rows] == [["TENANT", "ACTIVITY"], ["ollama", "busy"], ["comfyui", "idle"]]


async def test_plan_shows_what_would_be_done(ctl: Run, service: BusService, controller: FakeController) -> None:
    service.publish(make_state())
    shown = await ctl("plan", "ollama", "--size", "13G", "--gpu", CARD[:8])
    assert shown.status == 0, shown.errors
    assert shown.output.startswith("comfyui is asked for 4.0 GiB\n")
    assert "train.py (pid 4242)" in shown.output
    assert controller.calls == [("plan_release", CARD, "ollama", 13 * GIB)]


async def test_a_plan_that_does_not_suffice_is_shown_and_ends_with_one(
    ctl: Run, service: BusService, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(*_: object) -> ReleasePlan:
        return make_plan(sufficient=False)

    monkeypatch.setattr(controller, "plan_release", blocked)
    shown = await ctl("plan")
    assert (shown.status, shown.errors) == (1, "")
    assert "train.py" in shown.output


async def test_make_room_tells_what_came_back(ctl: Run, service: BusService, controller: FakeController) -> None:
    shown = await ctl("make-room", "--size", "600M")
    assert shown.status == 0, shown.errors
    assert shown.output.startswith("satisfied: 4.0 GiB came back\n")
    assert controller.calls == [("make_room", "", "", 600 << 20)]


async def test_a_refusal_of_the_service_is_told_in_its_words_and_ends_with_one(ctl: Run, service: BusService) -> None:
    shown = await ctl("make-room", "too-big")
    assert (shown.status, shown.output) == (1, "")
    assert shown.errors == "train.py (pid 4242) is in the way and matches no tenant.\n"


async def test_release_tells_what_came_back(ctl: Run, service: BusService, controller: FakeController) -> None:
    shown = await ctl("release", "comfyui")
    assert shown.status == 0, shown.errors
    assert "memory back within 0.8 s" in shown.output
    assert controller.calls == [("release", "comfyui")]
    assert (await ctl("release", "nobody")).status == 1


async def test_cat_prints_the_effective_definition(ctl: Run, service: BusService) -> None:
    shown = await ctl("cat", "ollama")
    assert (shown.status, shown.output) == (0, "title = 'Ollama'  # shipped\npriority = 50\n")


async def test_automatic_is_switched(ctl: Run, service: BusService, controller: FakeController) -> None:
    assert (await ctl("automatic", "off")).output.startswith("Observe-only: ")
    assert (await ctl("automatic", "on")).output.startswith("Automatic: ")
    assert controller.calls == [("set_automatic", False), ("set_automatic", True)]


async def test_reload_says_so_or_what_is_wrong(ctl: Run, service: BusService, controller: FakeController) -> None:
    assert (await ctl("reload")).output == "The configuration was read again.\n"
    controller.failure = InvalidConfiguration("a.toml: title is missing")
    shown = await ctl("reload")
    assert (shown.status, shown.errors) == (1, "a.toml: title is missing.\n")


@pytest.mark.parametrize("command", [("make-room", "ollama"), ("release", "ollama"), ("reload",), ("automatic", "off")])
async def test_what_the_caller_may_not_ends_with_four(
    command: tuple[str, ...], ctl: Run, service: BusService, authority: FixedAuthority, controller: FakeController
) -> None:
    authority.allow = False
    shown = await ctl(*command)
    assert (shown.status, shown.errors) == (4, "no.\n")
    assert not controller.calls


@pytest.mark.parametrize(
    "arguments",
    [("dance",), ("release",), ("automatic", "perhaps"), ("plan", "--size", "a lot"), ("make-room", "a", "b")],
    ids=" ".join,
)
async def test_wrong_use_ends_with_two_and_needs_no_service(arguments: tuple[str, ...], ctl: Run) -> None:
    shown = await ctl(*arguments)
    assert (shown.status, shown.output) == (2, "")
    assert "usage: gpusupervisorctl" in shown.errors
    assert "Traceback" not in shown.errors


@pytest.mark.parametrize(
    "command", [(), ("tenants",), ("plan",), ("release", "x"), ("cat", "x"), ("lint",), ("reload",)], ids=" ".join
)
async def test_a_service_that_does_not_run_ends_with_three_and_says_how_to_start_it(
    command: tuple[str, ...], ctl: Run
) -> None:
    shown = await ctl(*command)
    assert (shown.status, shown.output) == (3, "")
    assert shown.errors.startswith("gpusupervisor is not running.\n")
    assert "systemctl" in shown.errors


async def test_a_service_that_cannot_be_activated_ends_with_three(tmp_path: Path) -> None:
    (tmp_path / "org.gpusupervisor1.service").write_text("[D-BUS Service]\nName=org.gpusupervisor1\nExec=/bin/false\n")
    activating = PrivateBus(PERMISSIVE.replace("<type>", f"<servicedir>{tmp_path}</servicedir><type>"))
    try:
        shown = await activating.run(*COMMAND, "tenants")
        assert shown.status == 3
        assert "is not running" in shown.errors
    finally:
        activating.stop()


async def test_no_bus_ends_with_three(mortal_bus: PrivateBus) -> None:
    mortal_bus.process.kill()
    mortal_bus.process.wait()
    shown = await mortal_bus.run(*COMMAND, "status")
    assert shown.status == 3
    assert shown.errors.startswith("No system bus to talk to")


async def test_a_bus_that_dies_during_a_call_ends_with_three_and_no_traceback(
    mortal_bus: PrivateBus, controller: FakeController
) -> None:
    service = await BusService.start(
        mortal_bus.address, controller, FakeHardware(), no_jobs(), "1", FakeClock(), lambda _bus: FixedAuthority()
    )
    controller.gate.clear()
    waiting = await mortal_bus.spawn(*COMMAND, "release", "ollama")
    async with asyncio.timeout(10):
        while not controller.calls:
            await asyncio.sleep(0.01)
    mortal_bus.process.kill()
    _, errors = await waiting.communicate()
    await service.stop()
    assert (waiting.returncode, errors.decode()) == (3, "The connection to the system bus is lost.\n")


async def test_lint_of_files_tells_every_problem_and_needs_no_service(ctl: Run, tmp_path: Path) -> None:
    files = [tmp_path / "a.toml", tmp_path / "b.json"]
    files[0].write_text("priority = 1\n")
    files[1].write_text('{"colour": 3}')
    shown = await ctl("lint", *files)
    assert (shown.status, shown.errors) == (1, "")
    assert "a.toml: title: is missing" in shown.output
    assert "b.json: colour: " in shown.output
    files[0].write_text('title = "A"\n[match]\nexecutables = ["/opt/a"]\n')
    assert (await ctl("lint", files[0])).output == "No problems found.\n"


async def test_lint_of_a_file_that_cannot_be_parsed_in_time_says_so(ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a." * 100_000 + "a = 1")
    shown = await ctl("lint", tmp_path / "a.toml")
    assert shown.status == 1
    assert shown.errors == "a.toml cannot be checked: it takes too long\n"


async def test_lint_of_a_file_that_is_none_says_so(ctl: Run, service: BusService, tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.toml").write_bytes(b"#" * (257 * 1024))
    for name, problem in {
        "nowhere.toml": "cannot be read",
        "binary.toml": "cannot be read",
        "huge.toml": "too large",
    }.items():
        shown = await ctl("lint", tmp_path / name)
        assert shown.status == 1
        assert problem in shown.errors
        assert "Traceback" not in shown.errors


async def test_lint_of_what_is_installed_tells_every_problem(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    assert (await ctl("lint")).output == "No problems found.\n"
    wrong = tuple(Check(f"configuration-{n}", "degraded", f"{n}.toml: wrong", "", "") for n in (1, 2))
    service.publish(make_state(checks=(Check("driver", "failed", "no driver"), *wrong)))
    shown = await ctl("lint")
    assert (shown.status, shown.output) == (1, "1.toml: wrong\n2.toml: wrong\n")


async def test_monitor_shows_signals_as_they_come_and_ends_on_interrupt(bus: PrivateBus, service: BusService) -> None:
    monitor = await bus.spawn(*COMMAND, "monitor")
    assert monitor.stdout is not None
    plan = make_plan("plan-7")

    async def lines() -> list[str]:
        """Say hello until the first line shows that it listens; then tell a story."""
        assert monitor.stdout is not None
        service.publish(make_state())
        hello = asyncio.ensure_future(monitor.stdout.readline())
        while not hello.done():
            service.emit(PlanMade(plan))
            await asyncio.wait({hello}, timeout=0.05)
        for event in (
            PlanStarted(plan), StepFinished(plan, make_result().steps[0]), PlanFinished(make_result(plan)),
        ):  # fmt: skip
            service.emit(event)
        service.publish(make_state({"ollama": 3 * GIB, "newcomer": GIB}))
        found: list[str] = [(await hello).decode()]
        while not any(line.startswith("tenant newcomer is new") for line in found):
            found.append((await monitor.stdout.readline()).decode())
        return found

    async with asyncio.timeout(20):
        shown = await lines()
    assert "plan-7 planned: comfyui is asked for 4.0 GiB\n" in shown
    assert "plan-7 started\n" in shown
    assert "plan-7 comfyui freed: memory back within 0.8 s\n" in shown
    assert "plan-7 finished, satisfied: 4.0 GiB came back\n" in shown
    assert "tenant comfyui is gone\n" in shown
    monitor.send_signal(signal.SIGINT)
    _, errors = await monitor.communicate()
    assert (monitor.returncode, errors) == (130, b"")


async def test_monitor_ends_when_the_bus_does(mortal_bus: PrivateBus, controller: FakeController) -> None:
    service = await BusService.start(
        mortal_bus.address, controller, FakeHardware(), no_jobs(), "1", FakeClock(), lambda _bus: FixedAuthority()
    )
    monitor = await mortal_bus.spawn(*COMMAND, "monitor")
    assert monitor.stdout is not None
    async with asyncio.timeout(20):
        hello = asyncio.ensure_future(monitor.stdout.readline())
        while not hello.done():
            service.emit(PlanMade(replace(make_plan(), id="plan-1")))
            await asyncio.wait({hello}, timeout=0.05)
        mortal_bus.process.kill()
        _, errors = await monitor.communicate()
    await service.stop()
    assert (monitor.returncode, errors.decode()) == (3, "The connection to the system bus is lost.\n")


async def test_a_reader_that_hangs_up_is_no_traceback(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    piped = await bus.spawn("sh", "-c", '"$0" -m gpusupervisor.cli.main tenants | true; echo done', COMMAND[0])
    _, errors = await piped.communicate()
    assert errors.decode() == ""


async def test_names_that_steer_a_terminal_do_not_reach_it(ctl: Run, service: BusService) -> None:
    check = Check("tenant-x", "degraded", "x \x1b[2J is stuck", "\x07", "\x1b]0;owned\x07restart")
    service.publish(make_state(checks=(check,), status="\x1b[31m"))
    shown = await ctl("status")
    assert shown.status == 0
    assert all(char.isprintable() or char == "\n" for char in shown.output)


async def test_monitor_tells_json_lines_and_goes_on_over_a_restart(bus: PrivateBus, controller: FakeController) -> None:
    async def start() -> BusService:
        return await BusService.start(
            bus.address, controller, FakeHardware(), no_jobs(), "1", FakeClock(), lambda _bus: FixedAuthority()
        )

    service = await start()
    monitor = await bus.spawn(*COMMAND, "monitor", "--json")
    assert monitor.stdout is not None
    async with asyncio.timeout(20):
        hello = asyncio.ensure_future(monitor.stdout.readline())
        while not hello.done():
            service.emit(PlanFinished(make_result(make_plan("plan-7"))))
            await asyncio.wait({hello}, timeout=0.05)
        told = json.loads(await hello)
        assert (told["signal"], told["plan_id"], told["freed"]) == ("ReleaseFinished", "plan-7", 4 * GIB)
        assert abs(told["received_at"] - time.time() * 1e6) < 60e6
        await service.stop()
        service = await start()
        running: list[bool] = []
        while running != [False, True]:
            news = json.loads(await monitor.stdout.readline())
            running += [news["running"]] if news["signal"] == "NameOwnerChanged" else []
    monitor.send_signal(signal.SIGINT)
    assert await monitor.wait() == 130
    await service.stop()


async def test_health_ends_with_one_unless_all_is_well(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    assert (await ctl("health")).status == 0
    service.publish(make_state(checks=(Check("driver", "failed", "no driver", "nothing is seen", "install it"),)))
    shown = await ctl("health")
    assert shown.status == 1
    for part in ("failed: no driver", "impact: nothing is seen", "remedy: install it"):
        assert part in shown.output
    assert (await ctl("status")).status == 0


async def test_health_is_looked_at_anew_for_who_asks(ctl: Run, service: BusService, controller: FakeController) -> None:
    service.publish(make_state())
    assert (await ctl("health")).status == 0
    assert controller.calls == []
    assert (await ctl("health", "--now")).status == 0
    assert controller.calls == [("check",)]


async def test_one_tenant_is_shown_whole(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    shown = await ctl("tenant", "ollama")
    assert shown.status == 0
    for part in ("Ollama  ollama", "http: busy: as its API says", "unit ollama.service", "14.0 GiB (needs-vram)"):
        assert part in shown.output
    missing = await ctl("tenant", "nobody")
    assert (missing.status, missing.output) == (1, "")
    assert "nobody" in missing.errors


async def test_what_would_need_a_password_where_nobody_can_be_asked_says_how(
    ctl: Run, service: BusService, authority: FixedAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*_: object) -> None:
        raise DBusError(ErrorType.INTERACTIVE_AUTHORIZATION_REQUIRED, "polkit wants a password")

    monkeypatch.setattr(authority, "require", ask)
    shown = await ctl("reload")
    assert shown.status == 4
    assert shown.errors == (
        "polkit wants a password.\nNo polkit agent could ask for a password here. Run it as root:\n"
        "sudo gpusupervisorctl reload\n"
    )
