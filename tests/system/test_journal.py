"""The journal as people use it: journalctl's fields and explanations, and `systemctl service-log-level`."""

import json
import re

import pytest

from gpusupervisor.journal.messages.hardware import TrialEnded
from gpusupervisor.journal.messages.plans import PlanMade, PlanSatisfied, PlanStarted, ReleaseDone
from gpusupervisor.journal.messages.service import ConfigurationReloaded, ServiceReady, ServiceStopping
from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT, USER
from tests.system.machine import Machine, make
from tests.system.test_controls import call, path
from tests.system.test_simulated_card import LONG, card, hold_a_model, tenant  # noqa: F401  (card is a fixture)

CATALOG = "/usr/local/lib/systemd/catalog/gpusupervisor.catalog"
LEVEL = ("busctl", "set-property", "--", BUS_NAME, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1",
         "LogLevel", "s")  # fmt: skip


def entries(machine: Machine, *matches: str) -> list[dict[str, object]]:
    """What the journal has, oldest first, with all fields."""
    written = machine.output("journalctl", "--boot", "--no-pager", "--output=json", "--all", *matches)
    return [json.loads(line) for line in written.splitlines()]


def one(machine: Machine, *matches: str, unit: str = UNIT) -> dict[str, object]:
    """The last entry that matches, as soon as there is one."""
    return machine.wait_until(f"the journal has {matches}", lambda: entries(machine, *matches), unit)[-1]


@pytest.fixture
def released(card: Machine) -> str:  # noqa: F811
    """A plan that released Ollama."""
    hold_a_model(card)
    card.wait_until("Ollama is idle", lambda: tenant(card, "ollama").get("Activity") == "idle", UNIT, within=LONG)
    answer = card.output("busctl", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "Release", "s", "ollama")
    (plan,) = re.findall(r'"(plan-\d+)"', answer)[:1]
    return str(plan)


def test_every_entry_of_a_plan_is_found_by_its_plan(card: Machine, released: str) -> None:  # noqa: F811
    one(card, f"GPUSUPERVISOR_PLAN={released}", f"MESSAGE_ID={PlanSatisfied.message_id}")
    story = entries(card, f"GPUSUPERVISOR_PLAN={released}", "-n", "4")
    kinds = (PlanMade, PlanStarted, ReleaseDone, PlanSatisfied)
    assert [entry["MESSAGE_ID"] for entry in story] == [kind.message_id for kind in kinds]
    assert {entry["GPUSUPERVISOR_TENANT"] for entry in story} == {"ollama"}
    assert {entry["_SYSTEMD_UNIT"] for entry in story} == {UNIT}
    assert {entry["SYSLOG_IDENTIFIER"] for entry in story} == {"gpusupervisord"}
    assert {entry["PRIORITY"] for entry in story} == {"6"}
    step = story[2]
    assert int(str(step["GPUSUPERVISOR_FREED"])) > 7 << 30
    assert int(str(step["GPUSUPERVISOR_DURATION_USEC"])) > 0
    assert step["GPUSUPERVISOR_ENGINE"] == "ollama"
    assert str(step["CODE_FILE"]).endswith(".py")


def test_journalctl_explains_an_entry(card: Machine, released: str) -> None:  # noqa: F811
    match = f"MESSAGE_ID={PlanMade.message_id}"
    text = card.output("journalctl", "--boot", "--no-pager", "--catalog", match, f"GPUSUPERVISOR_PLAN={released}")
    assert f"Subject: Release plan {released} was made" in text
    assert "Defined-By: gpusupervisor" in text
    assert "Documentation: man:gpusupervisor.service(8)" in text
    assert "enough memory: yes." in text
    assert "GPUSUPERVISOR_CAUSE" not in text, "a field that was not replaced"


def test_the_journal_shows_a_start_and_a_stop(service: Machine) -> None:
    service.run("systemctl", "restart", UNIT)
    pid = service.property(UNIT, "MainPID")
    ready = one(service, f"MESSAGE_ID={ServiceReady.message_id}", f"_PID={pid}")
    assert str(ready["MESSAGE"]).startswith("gpusupervisor ")
    assert one(service, f"MESSAGE_ID={ServiceStopping.message_id}")["_PID"] != pid


def test_the_log_level_of_the_service_can_be_set_while_it_runs(service: Machine) -> None:
    pid = service.property(UNIT, "MainPID")
    assert service.output("systemctl", "service-log-level", UNIT) == "info"
    assert service.output("systemctl", "service-log-target", UNIT) == "journal"
    try:
        service.run("systemctl", "service-log-level", UNIT, "warning")
        assert service.output("systemctl", "service-log-level", UNIT) == "warning"
        before = len(entries(service, f"MESSAGE_ID={ConfigurationReloaded.message_id}"))
        reload = ("busctl", "call", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Reload")
        service.run(*reload)
        service.run("systemctl", "service-log-level", UNIT, "debug")
        service.run(*reload)
        told = one(service, f"MESSAGE_ID={ConfigurationReloaded.message_id}", f"_PID={pid}")
        assert told["PRIORITY"] == "6"
        assert len(entries(service, f"MESSAGE_ID={ConfigurationReloaded.message_id}")) == before + 1
        service.wait_until(
            "there is debugging", lambda: entries(service, "--priority=debug..debug", f"_PID={pid}"), UNIT
        )
    finally:
        service.run("systemctl", "service-log-level", UNIT, "info")
    assert service.property(UNIT, "MainPID") == pid


def test_only_root_sets_the_log_level_and_everybody_reads_it(service: Machine) -> None:
    for user in (USER, "gpusupervisor"):
        assert service.run(*LEVEL, "debug", user=user, check=False).returncode != 0
    assert service.output("systemctl", "service-log-level", UNIT, user=USER) == "info"


def test_the_helper_writes_in_its_own_journal_and_has_its_own_level(card: Machine) -> None:  # noqa: F811
    call(card, "Profile", "Try", "st", '{"power-limit": "300W"}', "60000000")
    call(card, "Profile", "Revert")
    ended = one(card, f"MESSAGE_ID={TrialEnded.message_id}", unit=HELPER_UNIT)
    assert (ended["_SYSTEMD_UNIT"], ended["SYSLOG_IDENTIFIER"]) == (HELPER_UNIT, "gpusupervisor-helper")
    assert ended["GPUSUPERVISOR_END"] == "reverted"
    assert path(card).endswith(str(ended["GPUSUPERVISOR_GPU"]).replace("-", "_2d"))
    assert call(card, "Fans", "SetFixed", "uu", "0", "60") == "", "which keeps it running"
    try:
        assert card.output("systemctl", "service-log-level", HELPER_UNIT) == "info"
        card.run("systemctl", "service-log-level", HELPER_UNIT, "debug")
        assert card.output("systemctl", "service-log-level", HELPER_UNIT) == "debug"
        refused = card.run("systemctl", "service-log-level", HELPER_UNIT, "info", user="gpusupervisor", check=False)
        assert refused.returncode != 0
    finally:
        call(card, "Fans", "SetAutomatic", "u", "0")


def test_uninstall_takes_the_explanations_away(bare_machine: Machine) -> None:
    make(bare_machine, "install")
    assert PlanMade.message_id in bare_machine.output("journalctl", "--list-catalog")
    assert bare_machine.run("test", "-e", CATALOG).returncode == 0
    make(bare_machine, "uninstall")
    assert PlanMade.message_id not in bare_machine.output("journalctl", "--list-catalog")
    assert "systemd" in bare_machine.output("journalctl", "--list-catalog")
