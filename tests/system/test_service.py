"""The installed service under a real systemd, a real bus and its own hardened unit, on a machine without a driver."""

import json

from tests.system.conftest import BUS_NAME, ROOT, UNIT, USER
from tests.system.machine import Machine

MANAGER = f"{BUS_NAME}.Manager"
CALL = ("busctl", "call", BUS_NAME)


def main_pid(machine: Machine) -> str:
    return machine.property(UNIT, "MainPID")


def owner(machine: Machine) -> str:
    """The PID of the owner of our bus name; empty when nobody owns it."""
    arguments = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
    asked = machine.run("busctl", "call", *arguments, "GetConnectionUnixProcessID", "s", BUS_NAME, check=False)
    return asked.stdout.removeprefix("u ").strip()


def restarted(machine: Machine, old_pid: str) -> str:
    """The new main PID once the service is up again and owns its name."""

    def new_pid() -> str:
        up = machine.property(UNIT, "ActiveState") == "active" and main_pid(machine) != old_pid
        return main_pid(machine) if up and owner(machine) == main_pid(machine) else ""

    return machine.wait_until("the service is up again", new_pid, UNIT)


def test_systemctl_status_tells_the_state_in_one_line(service: Machine) -> None:
    status = service.output("systemctl", "status", "--no-pager", UNIT)
    assert "Active: active (running)" in status
    line = service.wait_until(
        "the missing driver is reported",
        lambda: text if "nvidia" in (text := service.property(UNIT, "StatusText")).lower() else "",
        UNIT,
    )
    assert f'Status: "{line}"' in service.output("systemctl", "status", "--no-pager", UNIT)


def test_of_a_machine_without_a_driver_that_alone_is_wrong_and_told_once(service: Machine) -> None:
    service.run("systemctl", "restart", UNIT)
    asked = ("busctl", "--json=short", "call", BUS_NAME, f"{ROOT}/health", f"{BUS_NAME}.Health", "Check")

    def bad() -> list[str]:
        told = json.loads(service.output(*asked))["data"][0]
        return [each["id"]["data"] for each in told if each["state"]["data"] in ("failed", "degraded")]

    service.wait_until("the driver is looked for", lambda: bad() == ["driver"], UNIT)
    match = (f"_PID={main_pid(service)}", "--priority=warning", "--output=cat")
    told = service.output("journalctl", "--boot", "--no-pager", *match).splitlines()
    assert [line.split(":")[0] for line in told] == ["the driver is missing"]


def test_the_service_is_ready_only_when_it_owns_its_name(service: Machine) -> None:
    service.run("systemctl", "restart", UNIT)
    assert owner(service) == main_pid(service)


def test_the_process_has_no_privilege(service: Machine) -> None:
    status = dict(
        line.split(":\t", 1) for line in service.output("cat", f"/proc/{main_pid(service)}/status").splitlines()
    )
    assert status["Uid"].split() == [service.output("id", "--user", "gpusupervisor")] * 4
    none = "0" * 16
    capabilities = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert capabilities == dict.fromkeys(capabilities, none)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_the_running_unit_is_as_closed_as_promised(service: Machine) -> None:
    measured = service.run("systemd-analyze", "security", "--no-pager", "--threshold=15", UNIT, check=False)
    assert measured.returncode == 0, measured.stdout


def test_configuration_stays_roots_and_state_is_the_services(service: Machine) -> None:
    folders = (
        "/etc/gpusupervisor",
        "/etc/gpusupervisor/tenants.d",
        "/run/gpusupervisor/tenants.d",
        "/var/lib/gpusupervisor",
    )
    owners = service.output("stat", "--format=%U %a %n", *folders).splitlines()
    assert owners == [
        "root 755 /etc/gpusupervisor",
        "root 755 /etc/gpusupervisor/tenants.d",
        "root 755 /run/gpusupervisor/tenants.d",
        "gpusupervisor 750 /var/lib/gpusupervisor",
    ]


def test_everyone_may_look_with_busctl(service: Machine) -> None:
    for user in ("root", USER):
        tree = service.output("busctl", "tree", "--list", BUS_NAME, user=user).splitlines()
        assert {ROOT, f"{ROOT}/tenants", f"{ROOT}/engines", f"{ROOT}/health"} <= set(tree)
        introspected = service.output("busctl", "introspect", BUS_NAME, ROOT, user=user)
        assert ".PlanRelease" in introspected
        assert "org.freedesktop.DBus.ObjectManager" in introspected
        assert service.output("busctl", "get-property", BUS_NAME, ROOT, MANAGER, "Version", user=user).startswith("s ")
        listed = service.output(*CALL, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "List", user=user)
        assert '"ollama"' in listed
        assert '"comfyui"' in listed


def test_everyone_may_look_with_gdbus(service: Machine) -> None:
    gdbus = ("gdbus", "call", "--system", f"--dest={BUS_NAME}")
    for user in ("root", USER):
        asked = service.output(
            *gdbus, f"--object-path={ROOT}", "--method=org.freedesktop.DBus.ObjectManager.GetManagedObjects", user=user
        )
        assert f"'{ROOT}/tenants/ollama'" in asked
        health = service.output(
            *gdbus, f"--object-path={ROOT}/health", "--method=org.freedesktop.DBus.Properties.GetAll",
            f"{BUS_NAME}.Health", user=user,
        )  # fmt: skip
        assert "'State'" in health


def test_an_unknown_tenant_is_an_error_with_a_name_of_ours(service: Machine) -> None:
    asked = service.run(
        "gdbus", "call", "--system", f"--dest={BUS_NAME}", f"--object-path={ROOT}/tenants",
        f"--method={BUS_NAME}.Tenants.Get", "nosuch", user=USER, check=False,
    )  # fmt: skip
    assert asked.returncode != 0
    assert f"{BUS_NAME}.Error.NoSuchTenant" in asked.stderr


def test_the_command_line_tool_works_for_everyone(service: Machine) -> None:
    for user in ("root", USER):
        assert "ollama" in service.output("gpusupervisorctl", "tenants", user=user)


def test_a_call_starts_a_stopped_service(service: Machine) -> None:
    service.run("systemctl", "stop", UNIT)
    assert service.property(UNIT, "Result") == "success"
    version = service.output("busctl", "get-property", BUS_NAME, ROOT, MANAGER, "Version", user=USER)
    assert version.startswith("s ")
    service.wait_until(
        "systemd heard that it is ready", lambda: service.property(UNIT, "ActiveState") == "active", UNIT
    )


def test_a_user_may_not_own_the_name(service: Machine) -> None:
    service.run("systemctl", "stop", UNIT)
    arguments = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
    taken = service.run("busctl", "call", *arguments, "RequestName", "su", BUS_NAME, "4", user=USER, check=False)
    assert taken.returncode != 0
    assert "Access denied" in taken.stderr


def test_a_killed_service_comes_back(service: Machine) -> None:
    old = main_pid(service)
    service.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", UNIT)
    assert restarted(service, old) != old


def test_a_service_that_hangs_is_restarted_by_the_watchdog(service: Machine) -> None:
    drop_in = f"/run/systemd/system/{UNIT}.d/watchdog.conf"
    service.write(drop_in, "[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n")
    service.run("systemctl", "daemon-reload")
    try:
        service.run("systemctl", "restart", UNIT)
        old = main_pid(service)
        service.run("systemctl", "kill", "--signal=SIGSTOP", "--kill-whom=main", UNIT)
        restarted(service, old)
        assert "Watchdog timeout" in service.output("journalctl", "--boot", "--no-pager", f"UNIT={UNIT}")
    finally:
        service.run("rm", drop_in)
        service.run("systemctl", "daemon-reload")
        service.run("systemctl", "restart", UNIT)


def test_the_service_comes_back_after_the_bus_was_restarted(service: Machine) -> None:
    old = main_pid(service)
    try:
        service.run("systemctl", "restart", "dbus.service")
        restarted(service, old)
    finally:
        service.run("systemctl", "restart", "systemd-logind.service")  # 257 does not come back by itself


def test_a_good_configuration_is_taken_over_at_reload(service: Machine) -> None:
    old = main_pid(service)
    path = "/etc/gpusupervisor/tenants.d/third.toml"
    service.write(path, 'title = "A third application"\n[match]\nexecutables = ["*/third"]\n')
    try:
        service.run("systemctl", "reload", UNIT)
        service.wait_until("the third application is a tenant", lambda: "third" in tenants(service), UNIT)
    finally:
        service.run("rm", path)
        service.run("systemctl", "reload", UNIT)
    service.wait_until("the third application is gone again", lambda: "third" not in tenants(service), UNIT)
    assert main_pid(service) == old


def test_a_bad_configuration_leaves_the_old_one_and_is_reported(service: Machine) -> None:
    old = main_pid(service)
    path = "/etc/gpusupervisor/tenants.d/ollama.toml"
    service.write(path, "priority = 77\n")
    try:
        service.run("systemctl", "reload", UNIT)
        service.wait_until("the good value counts", lambda: priority(service) == "u 77", UNIT)
        service.write(path, 'priority = "high"\nnosuch = 1\n')
        assert service.run("systemctl", "reload", UNIT, check=False).returncode != 0
        assert priority(service) == "u 77"
        assert f"stays in force: {path}: priority" in service.journal(UNIT)
        assert path in service.run("gpusupervisorctl", "health", check=False).stdout
    finally:
        service.run("rm", path)
        service.run("systemctl", "reload", UNIT)
    assert path not in service.run("gpusupervisorctl", "health", check=False).stdout
    assert main_pid(service) == old


def test_no_traceback_was_ever_logged(service: Machine) -> None:
    assert "Traceback" not in service.journal(UNIT)


def tenants(machine: Machine) -> str:
    return machine.output(*CALL, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "List")


def priority(machine: Machine) -> str:
    return machine.output(
        "busctl", "get-property", BUS_NAME, f"{ROOT}/tenants/ollama", f"{BUS_NAME}.Tenant", "Priority"
    )


def test_a_reload_of_a_broken_file_fails_says_why_and_keeps_what_runs(service: Machine) -> None:
    broken = "/etc/gpusupervisor/tenants.d/broken.toml"
    service.write(broken, "priority = \n")
    pid = service.property(UNIT, "MainPID")
    try:
        failed = service.run("systemctl", "reload", UNIT, check=False)
        assert failed.returncode != 0
        assert "broken.toml" in service.journal(UNIT)
        assert (service.property(UNIT, "ActiveState"), service.property(UNIT, "MainPID")) == ("active", pid)
    finally:
        service.run("rm", broken)
    service.run("systemctl", "reload", UNIT)


def test_a_stopped_service_is_started_by_no_users_command(service: Machine) -> None:
    service.run("systemctl", "stop", UNIT)
    for command in ("status", "tenants", "health", "models"):
        shown = service.run("gpusupervisorctl", command, user=USER, check=False)
        assert shown.returncode == 3, shown
        assert "Start it with: systemctl enable --now gpusupervisor" in shown.stderr
    assert service.property(UNIT, "ActiveState") == "inactive"
    service.run("systemctl", "mask", "--runtime", "--quiet", UNIT)
    try:
        shown = service.run("gpusupervisorctl", "status", user=USER, check=False)
        assert "systemctl unmask gpusupervisor" in shown.stderr
    finally:
        service.run("systemctl", "unmask", "--runtime", "--quiet", UNIT)
    service.run("systemctl", "start", UNIT)
