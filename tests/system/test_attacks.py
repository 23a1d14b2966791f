"""An ordinary user attacks the installed service through the system's own bus, policies and units."""

import subprocess
import threading

from tests.system.conftest import BUS_NAME, ROOT, UNIT, USER
from tests.system.machine import SOURCE, Machine
from tests.system.test_service import main_pid, restarted

PYTHON = "/usr/local/lib/gpusupervisor/venv/bin/python"
SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
LIST = ("busctl", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "List")
KILLED = 14
"""Times; ten deaths within five minutes were the end of it once."""


def test_no_attack_on_the_bus_stops_the_service_or_makes_others_wait(service: Machine) -> None:
    before = (main_pid(service), service.property(UNIT, "NRestarts"))
    over = threading.Event()
    ended: list[subprocess.CompletedProcess[str]] = []

    def attack() -> None:
        command = f"cd {SOURCE} && exec {PYTHON} -B -m tests.attack.attackers {SYSTEM_BUS} once"
        ended.append(service.run("sh", "-c", command, user=USER, check=False, timeout=240))
        over.set()

    attacker = threading.Thread(target=attack)
    attacker.start()
    asked = 0
    while not over.wait(0.2):
        assert '"ollama"' in service.run("timeout", "20", *LIST, user="nobody").stdout
        asked += 1
    attacker.join()
    assert ended[0].returncode == 0, ended[0].stderr
    assert asked > 1
    assert (main_pid(service), service.property(UNIT, "NRestarts")) == before
    assert service.property(UNIT, "ActiveState") == "active"


def test_a_service_that_dies_again_and_again_is_always_started_again(service: Machine) -> None:
    drop_in = f"/run/systemd/system/{UNIT}.d/quick.conf"
    service.write(drop_in, "[Service]\nRestartSec=100ms\n")
    service.run("systemctl", "daemon-reload")
    try:
        for _ in range(KILLED):
            old = main_pid(service)
            service.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
            restarted(service, old)
    finally:
        service.run("rm", drop_in)
        service.run("systemctl", "daemon-reload")
    assert service.property(UNIT, "Result") == "success"
    assert '"ollama"' in service.wait_until("it looks again", lambda: service.output(*LIST), UNIT)


def test_the_service_may_ask_the_bus_what_its_callers_have_not_read(service: Machine) -> None:
    """And nobody else may: the policy lets this one user do it."""
    question = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.Debug.Stats")
    asked = ("busctl", "call", *question, "GetConnectionStats", "s", BUS_NAME)
    assert "OutgoingBytes" in service.output(*asked, user="gpusupervisor")
    assert service.run(*asked, user=USER, check=False).returncode != 0
