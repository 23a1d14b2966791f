"""`gpusupervisorctl setup` on a booted machine: units of a real systemd, the card simulated, files in its /etc."""

import json
from typing import Any

from tests.system.machine import Machine
from tests.system.test_simulated_card import CARD, card, hold_a_model, start_engine

__all__ = ["card"]
FOLDER = "/etc/gpusupervisor/tenants.d"


def set_up(machine: Machine, *arguments: str) -> dict[str, Any]:
    done = machine.run("gpusupervisorctl", "setup", "--json", *arguments)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_a_card_it_says_so_and_proposes_nothing(service: Machine) -> None:
    found = set_up(service, "--yes")
    assert found["gpus"] == []
    assert found["driver"]["state"] == "failed"
    assert found["proposals"] == []
    told = service.output("gpusupervisorctl", "setup", "--dry-run")
    assert found["driver"]["summary"] in told
    assert "systemd does not answer" not in told


def test_a_unit_that_nothing_describes_gets_a_file_after_a_yes_and_only_once(card: Machine) -> None:
    hold_a_model(card)
    start_engine(card, "mystery.service", "third_app", "--port=9191", "--hold=4G")
    try:
        card.wait_until("it holds memory", lambda: set_up(card, "--dry-run")["strangers"], "gpusupervisor.service")
        found = set_up(card, "--dry-run")
        assert ("ollama.service", "ollama") in {(unit["unit"], unit["tenant"]) for unit in found["units"]}
        (proposal,) = found["proposals"]
        assert card.run("test", "-e", proposal["file"], check=False).returncode == 1, "nothing is written by --dry-run"

        (written,) = set_up(card, "--yes")["proposals"]
        assert (written["outcome"], written["file"]) == ("written", f"{FOLDER}/mystery.toml")
        assert "mystery.service" in card.output("cat", written["file"])
        assert f"# from {FOLDER}/mystery.toml" in card.output("gpusupervisorctl", "cat", "mystery")
        card.wait_until("it is a tenant", lambda: not set_up(card, "--dry-run")["strangers"], "gpusupervisor.service")
        assert set_up(card, "--yes")["proposals"] == [], "safe to run again"
    finally:
        card.run("systemctl", "stop", "mystery.service", check=False)
        card.run("rm", "-f", f"{FOLDER}/mystery.toml")
        card.run("systemctl", "reload", "gpusupervisor.service")


def test_an_ordinary_user_sees_it_and_is_told_who_may_write(card: Machine) -> None:
    seen = card.run("gpusupervisorctl", "setup", "--dry-run", user="nobody")
    assert CARD not in seen.stdout
    assert "ollama" in seen.stdout
    assert "Nothing to propose" in seen.stdout
