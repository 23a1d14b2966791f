"""Every check is driven to each of its states."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.situation import TenantSituation
from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.errors import (
    DRIVER_NOT_LOADED,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    DriverError,
)
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuSample, Sample
from gpusupervisor.health.attribution import check_attribution
from gpusupervisor.health.configuration import LISTED, LISTED_OF_USERS, check_configuration, check_declarations
from gpusupervisor.health.driver import check_driver, check_gpus
from gpusupervisor.health.model_files import check_residency
from gpusupervisor.health.privileged import check_reader
from gpusupervisor.health.summary import overall
from gpusupervisor.health.telemetry import check_telemetry
from gpusupervisor.health.tenants import check_tenants
from gpusupervisor.models.residency import ModelResidency, Residency, residency_of
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.state import Check
from gpusupervisor.telemetry.status import StoreStatus
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from tests.arbitration.builders import CARD, NOW, situation, tenant
from tests.arbitration.seen import card, doing
from tests.health.builders import facts

OK = DriverStatus("ok", version="580.95.05")


def of_driver(status: DriverStatus) -> Check:
    return check_driver(Sample(NOW, status))


def of_gpu(gpu: GpuSample) -> Check:
    (check,) = check_gpus(Sample(NOW, OK, (gpu,)))
    return check


def of_attribution(*gpus: GpuSample) -> Check:
    (check,) = check_attribution(Sample(NOW, OK, gpus))
    return check


def of_tenant(one: TenantSituation, activity: Activity | None = None, *, reloaded: bool = False) -> tuple[Check, ...]:
    activities = {one.id: activity} if activity else {}
    return check_tenants(
        facts(
            situation=situation(one), activities=activities, reloaded=frozenset({one.id}) if reloaded else frozenset()
        )
    )


def says_everything(check: Check) -> bool:
    return bool(check.summary and check.impact and check.remedy)


def test_a_driver_that_answers_is_ok() -> None:
    assert of_driver(OK) == Check("driver", "ok", "driver 580.95.05 answers")


def test_a_driver_some_of_whose_gpus_cannot_be_opened_is_degraded() -> None:
    check = of_driver(driver_status.healthy("580.95.05", (DriverError("nvmlDeviceGetHandle", NO_PERMISSION),)))
    assert check.state == "degraded"
    assert "cannot be opened" in check.summary
    assert says_everything(check)


@pytest.mark.parametrize("status", [driver_status.STARTING, driver_status.ASLEEP], ids=lambda s: s.state)
def test_a_driver_that_is_not_asked_is_neither_good_nor_bad(status: DriverStatus) -> None:
    check = of_driver(status)
    assert check.state == "skipped"
    assert check.summary == status.detail


@pytest.mark.parametrize(
    "status",
    [
        *(
            driver_status.of_error(DriverError("nvmlInit_v2", code))
            for code in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH, NO_PERMISSION, 999)
        ),
        driver_status.NO_GPU,
        driver_status.failing("nvmlInit_v2: Unknown Error"),
        driver_status.unresponsive("the driver did not answer within 5 s"),
    ],
    ids=lambda s: s.state,
)
def test_a_driver_that_cannot_be_used_fails_the_check_with_what_breaks_and_what_to_do(status: DriverStatus) -> None:
    check = of_driver(status)
    assert check.state == "failed"
    assert says_everything(check)


def test_a_gpu_that_is_read_or_sleeps_is_ok() -> None:
    assert of_gpu(card(5)).state == "ok"
    asleep = of_gpu(replace(card(5), state="asleep", memory=None))
    assert (asleep.id, asleep.state, asleep.summary) == (f"gpu-{CARD}", "ok", "RTX 4090 is asleep")


@pytest.mark.parametrize("state", ["lost", "failing"])
def test_a_gpu_that_cannot_be_read_fails_its_check(state: str) -> None:
    check = of_gpu(replace(card(5), state=state, memory=None, detail="GPU is lost"))  # type: ignore[arg-type]
    assert check.state == "failed"
    assert check.summary == f"RTX 4090 is {state}: GPU is lost"
    assert says_everything(check)


def test_a_gpu_whose_processes_cannot_be_believed_is_degraded() -> None:
    assert of_attribution().state == "skipped"
    assert of_attribution(replace(card(5), state="asleep", memory=None)).state == "skipped"
    assert of_attribution(card(5)).state == "ok"
    assert of_gpu(card(5, attribution_problem="attribution unavailable: PIDs that cannot exist")).state == "ok"
    check = of_attribution(card(5, attribution_problem="attribution unavailable: PIDs that cannot exist"))
    assert check.id == f"attribution-{CARD}"
    assert check.state == "degraded"
    assert "PIDs that cannot exist" in check.summary
    assert says_everything(check)


def test_every_gpu_has_a_check_of_its_own() -> None:
    two = Sample(NOW, OK, (card(5), card(5, "GPU-2")))
    assert [check.id for check in check_gpus(two)] == [f"gpu-{CARD}", "gpu-GPU-2"]


def test_a_gpu_that_is_gone_with_its_driver_is_not_said_to_need_a_reboot() -> None:
    driver = driver_status.of_error(DriverError("nvmlInit", DRIVER_NOT_LOADED))
    gone = GpuSample(GpuIdentity(CARD, "RTX 4090", ""), "lost", NOW, detail=driver.detail)
    (check,) = check_gpus(Sample(NOW, driver, (gone,)))
    assert check.state == "failed"
    assert "modprobe nvidia" in check.remedy
    assert "reboot" not in check.remedy


def test_a_configuration_that_is_understood_is_ok() -> None:
    (check,) = check_configuration((), ())
    assert check.state == "ok"


def test_every_problem_of_the_configuration_is_told() -> None:
    problems = ("a.toml: title: is missing", "b.toml: priority: is no number")
    checks = check_configuration(problems, ())
    assert [check.summary for check in checks] == list(problems)
    assert len({check.id for check in checks}) == 2
    assert all(check.id.startswith("configuration") and check.state == "degraded" for check in checks)
    assert all(says_everything(check) for check in checks)
    assert "not asked for anything" in checks[0].impact


def test_a_reload_that_was_refused_is_told_instead_and_that_the_old_one_is_kept() -> None:
    checks = check_configuration(("a.toml: old mistake",), ("a.toml: new mistake",))
    assert [check.summary for check in checks] == ["reload failed: a.toml: new mistake"]
    assert "stays in force" in checks[0].impact


def test_very_many_problems_are_counted() -> None:
    checks = check_configuration(tuple(f"{number}.toml: bad" for number in range(LISTED + 7)), ())
    assert len(checks) == LISTED + 1
    assert checks[-1].summary == "7 more problems"


def test_a_tenant_that_is_well_has_no_check() -> None:
    assert of_tenant(tenant("app", 3), doing("idle")) == ()
    assert of_tenant(tenant("app", 3)) == ()


def test_a_stuck_tenant_is_degraded_in_the_probes_words() -> None:
    stuck = doing("stuck", reason="it claims to be running a prompt", impact="no job will run", remedy="restart it")
    (check,) = of_tenant(tenant("app", 3, "stuck"), stuck)
    assert check == Check(
        "tenant-app", "degraded", "app: it claims to be running a prompt", "no job will run", "restart it"
    )


def test_a_tenant_with_an_orphan_is_degraded() -> None:
    (check,) = of_tenant(tenant("app", 3, orphan_on=frozenset({CARD})), doing("idle"))
    assert check.state == "degraded"
    assert "its server is gone" in check.summary
    assert says_everything(check)


def test_a_tenant_that_a_client_reloads_at_once_is_degraded() -> None:
    (check,) = of_tenant(tenant("app", 3), doing("idle"), reloaded=True)
    assert check.state == "degraded"
    assert "reload" in check.summary
    assert says_everything(check)


HIDDEN = frozenset({"executable", "working_directory", "listening_ports"})


def hiding(*hidden: frozenset[str], tenant: bool = False) -> Census:
    """A census of processes of which so much is hidden."""
    holders = tuple(
        Holder(CARD, pid, 1, ProcessIdentity(ProcessKey(pid, 1), 1, 1000, "python3", hidden=what))
        for pid, what in enumerate(hidden, 10)
    )
    presence = {"app": TenantPresence("app", "app", "", holders)} if tenant else {}
    return Census(presence, {CARD: GpuAccount(CARD, {}, () if tenant else holders, 0)})


@pytest.mark.parametrize(
    ("state", "word"), [("missing", "make install"), ("refused", "bus policy"), ("failing", "journalctl")]
)
@pytest.mark.parametrize("tenant", [True, False])
def test_without_the_reader_the_check_says_of_whom_it_could_not_see_what(state: str, word: str, tenant: bool) -> None:
    check = check_reader(Sight(state, "why"), hiding(HIDDEN, tenant=tenant))  # type: ignore[arg-type]
    assert check.state == "degraded"
    assert "python3 (PID 10)" in check.summary
    assert "why" in check.summary
    assert word in check.remedy
    assert says_everything(check)


def test_very_many_processes_are_not_all_named() -> None:
    check = check_reader(Sight("missing"), hiding(*[HIDDEN] * 9))
    assert check.summary.count("PID") == 4
    assert "and others" in check.summary


def test_nothing_is_wrong_while_nothing_is_hidden_or_the_reader_tells_it() -> None:
    only_ports = hiding(frozenset({"listening_ports"}))
    assert check_reader(Sight("missing"), only_ports).state == "skipped"
    assert check_reader(Sight("unasked"), hiding(HIDDEN)).state == "skipped"
    assert check_reader(Sight("ok"), hiding(HIDDEN)).state == "ok"


@pytest.mark.parametrize(
    ("status", "state", "part"),
    [
        (StoreStatus("off", detail="there is no state directory"), "skipped", "no state directory"),
        (StoreStatus("opening", "/x"), "skipped", "being opened"),
        (StoreStatus("ok", "/x"), "ok", "is stored"),
        (StoreStatus("ok", "/x", losing=True, dropped_samples=7), "degraded", "too slow"),
        (StoreStatus("ok", "/x", late=True), "degraded", "too slow"),
        (StoreStatus("ok", "/x", set_aside="/x.damaged-1"), "degraded", "was damaged"),
        (StoreStatus("failing", "/x", "database or disk is full", set_aside="/y"), "failed", "disk is full"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_telemetry_comes_to_each_of_its_states(status: StoreStatus, state: str, part: str) -> None:
    check = check_telemetry(status)
    assert (check.id, check.state) == ("telemetry", state)
    assert part in check.summary
    assert says_everything(check) or state in ("ok", "skipped")


def known(*models: ModelResidency, method: str = "cachestat", problems: tuple[str, ...] = ()) -> Residency:
    return residency_of(models, method, problems, NOW)


SEEN = ModelResidency("a", 10, 5)
DARK = ModelResidency("b", 10, None, "the kernel tells that only to the file's owner")


@pytest.mark.parametrize(
    ("residencies", "state", "words"),
    [
        ({}, "skipped", "no model files were found"),
        ({"app": known()}, "skipped", "no model files were found"),
        ({"app": known(method="", problems=("the reader is not there",))}, "skipped", "the reader is not there"),
        ({"app": known(SEEN)}, "ok", "measured by cachestat"),
        ({"app": known(SEEN, method="mincore"), "b": known(SEEN)}, "ok", "measured by cachestat and mincore"),
        ({"app": known(SEEN, DARK)}, "ok", "measured by cachestat"),
        (
            {"app": known(DARK, method="mincore")},
            "degraded",
            "(mincore): the kernel tells that only to the file's owner",
        ),
    ],
)
def test_how_residency_is_measured_is_told_or_why_it_cannot_be(
    residencies: dict[str, Residency], state: str, words: str
) -> None:
    found = check_residency(residencies)
    assert (found.id, found.state) == ("residency", state)
    assert words in found.summary
    assert bool(found.impact and found.remedy) is (state == "degraded")


def test_a_unit_that_declares_nonsense_is_named() -> None:
    assert check_declarations((), ()) == ()
    one, two = check_declarations(("unit a.service: GPUSUPERVISOR_PRIORITY: is high", "unit b.service: x"), ())
    assert (one.id, one.state, one.summary) == (
        "declaration-1", "degraded", "unit a.service: GPUSUPERVISOR_PRIORITY: is high",
    )  # fmt: skip
    assert two.id == "declaration-2"
    assert says_everything(one)
    many = check_declarations(tuple(f"unit {number}" for number in range(LISTED + 7)), ())
    assert (len(many), many[-1].summary) == (LISTED + 1, "7 more problems")


def test_what_a_users_unit_says_wrongly_is_shown_and_spoils_nothing() -> None:
    checks = check_declarations((), tuple(f"user unit {number}: x" for number in range(1000)))
    assert len(checks) == LISTED_OF_USERS + 1
    assert checks[0].summary == "user unit 0: x"
    assert overall((Check("driver", "ok", "well"), *checks)) == "ok"
