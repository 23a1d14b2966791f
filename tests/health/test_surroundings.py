"""What is wrong around: each check over what is looked at seldom is driven to each of its states."""

from dataclasses import replace

import pytest

from gpusupervisor.gpu.power import DevicePower
from gpusupervisor.health.attribution import UNSEEN_FOR, check_processes
from gpusupervisor.health.power import AWAKE_FOR, check_sleep
from gpusupervisor.health.privileged import check_polkit
from gpusupervisor.health.surroundings import UNSEEN, OpenBy, PolkitSeen, ProcView, Surroundings
from gpusupervisor.state import Check
from tests.arbitration.builders import CARD
from tests.arbitration.seen import process
from tests.health.builders import complains, facts


def processes(lasted: int, proc: ProcView = UNSEEN.proc) -> Check:
    ghost = replace(process(99, 2), identity=None)
    return check_processes(
        facts(
            process(7, 1),
            ghosts=(ghost,),
            lasted={("unseen", CARD, "99"): lasted},
            surroundings=replace(UNSEEN, proc=proc),
        )
    )


def test_processes_that_can_be_seen_are_well() -> None:
    assert check_processes(facts(process(7, 1))).state == "ok"
    assert check_processes(facts()).state == "skipped"


def test_a_process_that_has_only_just_ended_is_no_trouble() -> None:
    assert processes(UNSEEN_FOR - 1).state == "ok"


@pytest.mark.parametrize(
    ("proc", "says"),
    [
        (ProcView(), "or it has ended"),
        (ProcView("invisible"), "mounted with hidepid=invisible"),
        (ProcView("invisible", own_namespace=True), "runs in a PID namespace of its own"),
    ],
    ids=["somewhere else", "hidden", "in a container"],
)
def test_a_process_that_cannot_be_seen_is_told_with_why(proc: ProcView, says: str) -> None:
    check = processes(UNSEEN_FOR, proc)
    assert complains(check)
    assert check.summary.startswith("PID 99 holds VRAM")
    assert says in check.summary


@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        ("unasked", "skipped"),
        ("answers", "ok"),
        ("startable", "ok"),
        ("missing", "degraded"),
        ("silent", "failed"),
        ("refusing", "failed"),
    ],
)
def test_polkit(state: str, becomes: str) -> None:
    check = check_polkit(PolkitSeen(state, "for some reason"))  # type: ignore[arg-type]
    assert check.state == becomes
    assert becomes in ("ok", "skipped") or complains(check, becomes)


def sleep(status: str, lasted: int = 0, *who: OpenBy) -> Check:
    around = Surroundings(power=(DevicePower("0000:01:00.0", status, "auto"),), open_by=who)
    (check,) = check_sleep(facts(surroundings=around, lasted={("awake", "0000:01:00.0"): lasted}))
    return check


def test_a_gpu_that_sleeps_or_is_in_use_is_well() -> None:
    assert sleep("suspended").state == "ok"
    assert sleep("active", AWAKE_FOR - 1).state == "ok"


def test_a_gpu_that_is_kept_awake_is_told_with_who_has_it_open() -> None:
    check = sleep("active", AWAKE_FOR, OpenBy(12, "nvtop"))
    assert complains(check)
    assert "nvtop (PID 12)" in check.summary
    assert "have a GPU open" not in sleep("active", AWAKE_FOR).summary


def test_a_gpu_that_may_not_sleep_has_no_such_check() -> None:
    around = Surroundings(power=(DevicePower("0000:01:00.0", "active", "on"),))
    assert list(check_sleep(facts(surroundings=around))) == []
