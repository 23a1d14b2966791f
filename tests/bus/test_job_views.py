"""A job and what it makes, as D-Bus values."""

import json

import pytest
from dbus_fast import Variant

from gpusupervisor.autotune.curve import Measured, Tuning, Work
from gpusupervisor.autotune.points import Point, profile_document
from gpusupervisor.bus.interfaces import JOB
from gpusupervisor.bus.job_views import finished_body, job_view, result_details
from gpusupervisor.bus.published import variants
from gpusupervisor.clock import MICROSECONDS, UNKNOWN
from gpusupervisor.helper.profile.document import check_profile
from gpusupervisor.helper.values import Profile
from gpusupervisor.jobs import Job
from tests.bus.builders import CARD, bare


def measured(power_limit: int, offset: int | None = None, reasons: frozenset[str] = frozenset()) -> Measured:
    return Measured(Point(power_limit, offset), Work(256, 4 * MICROSECONDS), 200_000, 71, reasons)


def realtime(instant: int | None) -> int:
    return UNKNOWN if instant is None else 1_000 + instant


def test_a_running_job_has_every_property_and_no_end() -> None:
    job = Job(3, "autotune", 7, CARD, 1000, progress=40, detail="point 2 of 5")
    shown = bare(variants(JOB, job_view(job, realtime)))
    assert shown == {
        "Id": 3, "Kind": "autotune", "Target": CARD, "StartedBy": 1000, "StartedAt": 1_007, "State": "running",
        "Progress": 40, "Detail": "point 2 of 5", "Result": {}, "EndedAt": UNKNOWN,
    }  # fmt: skip


def test_what_nobody_started_is_nobodys() -> None:
    assert job_view(Job(1, "autotune", 0), realtime)["StartedBy"] == 2**32 - 1


def test_a_curve_so_far_has_no_proposal() -> None:
    shown = result_details(Tuning("token", 5, (measured(200_000), measured(250_000, reasons=frozenset({"b", "a"})))))
    assert shown.keys() == {"unit", "tolerance", "curve"}
    first, second = bare(shown["curve"])
    assert first == {
        "power_limit": 200_000, "units": 256, "duration": 4 * MICROSECONDS, "throughput": 64.0, "power": 200_000,
        "energy_per_unit": 3125.0, "hottest": 71, "reasons": [],
    }  # fmt: skip
    assert second["reasons"] == ["a", "b"]
    assert {name: value.signature for name, value in shown["curve"].value[0].items()} == {
        "power_limit": "t", "units": "t", "duration": "t", "throughput": "d", "power": "t", "energy_per_unit": "d",
        "hottest": "x", "reasons": "as",
    }  # fmt: skip


def test_a_whole_curve_proposes_a_point_and_the_profile_that_sets_it() -> None:
    best = measured(285_500, offset=-30)
    shown = result_details(Tuning("token", 5, (best,), best, profile_document(best.point)))
    assert bare(shown["proposal"]) == bare(shown["curve"])[0]
    assert bare(shown["proposal"])["offset_graphics"] == -30
    profile, findings = check_profile(json.loads(shown["profile"].value))
    assert (profile, list(findings)) == (Profile(power_limit=285_500, offsets={"graphics": -30}), [])


def test_a_point_without_an_offset_leaves_the_clocks_as_they_are() -> None:
    profile, findings = check_profile(json.loads(profile_document(Point(300_000))))
    assert (profile, list(findings)) == (Profile(power_limit=300_000), [])


def test_the_end_is_told_with_text_that_is_harmless() -> None:
    job = Job(1, "load", 0, state="failed", detail="out of memory\x1b[2J")
    assert finished_body(job) == ["failed", "out of memory [2J", {}]


def test_a_result_that_nobody_can_show_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="Variant"):
        result_details(Variant("s", "x"))
