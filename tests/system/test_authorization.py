"""Who may do what, decided by a real polkitd for real callers."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.system.conftest import BUS_NAME, ROOT, UNIT, USER
from tests.system.machine import Machine
from tests.system.test_controls import on_card, path
from tests.system.test_simulated_card import LONG, card, hold_a_model, properties, tenant  # noqa: F401  (a fixture)

GDBUS = ("gdbus", "call", "--system", f"--dest={BUS_NAME}")
RELEASE = (*GDBUS, f"--object-path={ROOT}/tenants", f"--method={BUS_NAME}.Tenants.Release", "ollama")
"""The person in front of the machine may. No Ollama runs here, so who may is told so, by an error of ours."""
OBSERVE_ONLY = (*GDBUS, f"--object-path={ROOT}", f"--method={BUS_NAME}.Manager.SetAutomatic", "false")
"""An administrator may."""
AUTOMATIC = ("busctl", "get-property", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Automatic")
NEEDS_PASSWORD = "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"
DENIED = "org.freedesktop.DBus.Error.AccessDenied"


RULE = "/etc/polkit-1/rules.d/40-test.rules"
TUNERS = f"""\
polkit.addRule(function(action, subject) {{
    if (action.id == "{BUS_NAME}.control-profile" && subject.user == "{USER}") return polkit.Result.YES;
    if (action.id.indexOf("{BUS_NAME}.") == 0 && subject.user == "nobody") return polkit.Result.NO;
}});
"""


@pytest.fixture
def no_polkit(service: Machine) -> Iterator[None]:
    """polkit is stopped and cannot be started by the bus."""
    service.run("systemctl", "mask", "--quiet", "--runtime", "--now", "polkit.service")
    yield
    service.run("systemctl", "unmask", "--quiet", "--runtime", "polkit.service")
    service.run("systemctl", "start", "polkit.service")


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The error that the caller got."""
    assert done.returncode != 0, f"no error: {done.stdout}"
    return done.stderr


def test_root_may(service: Machine) -> None:
    assert f"{BUS_NAME}.Error." in error_of(service.run(*RELEASE, check=False))
    service.run(*OBSERVE_ONLY)
    service.wait_until("it only observes", lambda: service.output(*AUTOMATIC) == "b false", UNIT)
    service.run(*OBSERVE_ONLY[:-1], "true")
    service.wait_until("it acts by itself again", lambda: service.output(*AUTOMATIC) == "b true", UNIT)


def test_the_user_in_front_of_the_machine_may_release_but_not_configure(service: Machine) -> None:
    assert f"{BUS_NAME}.Error." in error_of(service.in_session(USER, *RELEASE, seat="seat0"))
    assert NEEDS_PASSWORD in error_of(service.in_session(USER, *OBSERVE_ONLY, seat="seat0"))
    assert service.output(*AUTOMATIC) == "b true"


def test_a_user_logged_in_from_elsewhere_needs_a_password(service: Machine) -> None:
    assert NEEDS_PASSWORD in error_of(service.in_session(USER, *RELEASE))


@pytest.mark.parametrize("user", ["nobody", USER])
def test_a_user_without_a_session_needs_a_password(service: Machine, user: str) -> None:
    assert NEEDS_PASSWORD in error_of(service.run(*RELEASE, user=user, check=False))


def test_where_nobody_can_type_a_password_the_answer_is_no(service: Machine) -> None:
    asked = service.run(*GDBUS, "--interactive", *RELEASE[len(GDBUS) :], user=USER, check=False)
    assert DENIED in error_of(asked) or NEEDS_PASSWORD in error_of(asked)


@pytest.mark.usefixtures("no_polkit")
def test_without_polkit_only_root_may(service: Machine) -> None:
    refused = error_of(service.in_session(USER, *RELEASE, seat="seat0"))
    assert DENIED in refused
    assert "polkit gave no answer" in refused
    assert f"{BUS_NAME}.Error." in error_of(service.run(*RELEASE, check=False))


def test_planning_needs_no_authorization(service: Machine) -> None:
    plan = (*GDBUS, f"--object-path={ROOT}", f"--method={BUS_NAME}.Manager.PlanRelease", "", "ollama", "1000000000")
    told = service.run(*plan, user="nobody", check=False)
    assert DENIED not in told.stderr
    assert NEEDS_PASSWORD not in told.stderr


def test_jobs_can_be_listed_by_anybody_and_none_is_cancelled_that_is_not_there(service: Machine) -> None:
    jobs = (*GDBUS, f"--object-path={ROOT}/jobs")
    listed = service.run(*jobs, f"--method={BUS_NAME}.Jobs.List", user="nobody")
    assert listed.stdout.strip() == "(@au [],)"
    refused = service.run(*jobs, f"--method={BUS_NAME}.Jobs.Cancel", "1", user="nobody", check=False)
    assert f"{BUS_NAME}.Error.InvalidArgument" in error_of(refused)


def test_no_property_can_be_set_from_outside(service: Machine) -> None:
    write = ("busctl", "set-property", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Automatic", "b", "false")
    assert error_of(service.run(*write, user=USER, check=False))
    assert service.output(*AUTOMATIC) == "b true"


def test_polkit_knows_the_actions_as_the_services_own(service: Machine) -> None:
    ours = [action for action in service.output("pkaction").splitlines() if action.startswith(f"{BUS_NAME}.")]
    assert {
        f"{BUS_NAME}.make-room",
        f"{BUS_NAME}.release",
        f"{BUS_NAME}.set-automatic",
        f"{BUS_NAME}.cancel-job",
    } <= set(ours)
    for action in ours:
        described = service.output("pkaction", "--verbose", f"--action-id={action}")
        assert "org.freedesktop.policykit.owner -> unix-user:gpusupervisor" in described


def test_the_shipped_rule_for_machines_without_a_seat_works(service: Machine) -> None:
    example = "/usr/local/share/doc/gpusupervisor/49-gpusupervisor-headless.rules.example"
    rule = "/etc/polkit-1/rules.d/49-gpusupervisor-headless.rules"
    service.run("groupadd", "--force", "gpu-admin")
    service.run("usermod", "--append", "--groups", "gpu-admin", USER)
    service.run("cp", example, rule)
    try:
        service.wait_until(
            "a member of gpu-admin may release without a session",
            lambda: f"{BUS_NAME}.Error." in error_of(service.run(*RELEASE, user=USER, check=False)),
            "polkit.service",
        )
        assert NEEDS_PASSWORD in error_of(service.run(*RELEASE, user="nobody", check=False))
        for member in ("LoadModel", "UnloadModel", "WarmModel"):
            call = (*GDBUS, f"--object-path={ROOT}/engines", f"--method={BUS_NAME}.Engines.{member}", "ollama", "x")
            refused = error_of(service.run(*call, user=USER, check=False))
            assert f"{BUS_NAME}.Error." in refused, f"{member}: {refused}"
    finally:
        service.run("rm", rule)
        service.run("gpasswd", "--delete", USER, "gpu-admin")
        service.run("systemctl", "restart", "polkit.service")


def autotune(machine: Machine) -> tuple[str, ...]:
    """The command that has the whole range of power limits swept."""
    method = f"--method={BUS_NAME}.Profile.Autotune"
    return (*GDBUS, f"--object-path={path(machine)}", method, "ollama", "{'model': <'small'>, 'tokens': <uint32 100>}")


def state_of(machine: Machine, job: str) -> object:
    return properties(machine, job, f"{BUS_NAME}.Job").get("State")


@pytest.fixture
def idle(card: Machine) -> Machine:  # noqa: F811
    """The machine whose Ollama has its model and does nothing."""
    hold_a_model(card)
    card.wait_until("Ollama is idle", lambda: tenant(card, "ollama").get("Activity") == "idle", UNIT, within=LONG)
    return card


def job_of(done: subprocess.CompletedProcess[str]) -> str:
    """The object of the job that a caller was let in to start."""
    assert done.returncode == 0, done.stderr
    (job,) = re.findall(rf"'({ROOT}/jobs/\d+)'", done.stdout)
    return str(job)


def cancel(job: str) -> tuple[str, ...]:
    return (*GDBUS, f"--object-path={job}", f"--method={BUS_NAME}.Job.Cancel")


def test_an_autotune_is_begun_by_an_administrator_and_ended_by_nobody_else(idle: Machine) -> None:
    before = on_card(idle)["power_limit"]
    assert NEEDS_PASSWORD in error_of(idle.in_session(USER, *autotune(idle), seat="seat0"))
    assert NEEDS_PASSWORD in error_of(idle.run(*autotune(idle), user="nobody", check=False))
    assert on_card(idle)["power_limit"] == before
    job = job_of(idle.run(*autotune(idle), check=False))
    idle.wait_until("a point is set", lambda: on_card(idle)["power_limit"] != before, UNIT)
    assert NEEDS_PASSWORD in error_of(idle.in_session(USER, *cancel(job), seat="seat0"))
    assert NEEDS_PASSWORD in error_of(idle.run(*cancel(job), user="nobody", check=False))
    assert state_of(idle, job) == "running"
    idle.run(*cancel(job))
    idle.wait_until("it has ended", lambda: state_of(idle, job) == "cancelled", UNIT)
    assert on_card(idle)["power_limit"] == before


def test_whom_a_rule_lets_tune_ends_the_own_job_and_whom_one_forbids_it_is_denied(idle: Machine) -> None:
    before = on_card(idle)["power_limit"]
    idle.write(RULE, TUNERS)
    try:
        job = idle.wait_until(
            "the rule is in force",
            lambda: job_of(done) if not (done := idle.run(*autotune(idle), user=USER, check=False)).returncode else "",
            UNIT,
            within=LONG,  # the sweep of the test before may only just have ended: then Ollama has to rest first
        )
        idle.wait_until("a point is set", lambda: on_card(idle)["power_limit"] != before, UNIT)
        assert DENIED in error_of(idle.run(*autotune(idle), user="nobody", check=False))
        assert DENIED in error_of(idle.run(*cancel(job), user="nobody", check=False))
        assert state_of(idle, job) == "running"
        idle.run(*cancel(job), user=USER)  # cancel-job itself is not granted to this user
        idle.wait_until("it has ended", lambda: state_of(idle, job) == "cancelled", UNIT)
    finally:
        idle.run("rm", RULE)
    assert on_card(idle)["power_limit"] == before
