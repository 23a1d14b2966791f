"""What the other commands print, also of names that other programs chose to be nasty."""

from typing import Any

import pytest
from rich.text import Text

from gpusupervisor.cli import signals
from gpusupervisor.cli.screens import controls, engines, health, jobs, plans, tenants
from gpusupervisor.cli.screens.common import table
from gpusupervisor.cli.terminal import Canvas
from tests.cli.screens import NASTY, drawn, is_harmless
from tests.cli.shapes_of import GIB, job, tenant
from tests.cli.shapes_of import health as health_shape

NARROW, WIDE = Canvas(80, colours=False, unicode=True), Canvas(200, colours=False, unicode=True)


def plan(word: str = "ollama", *, empty: bool = False) -> dict[str, Any]:
    return {
        "summary": f"ask {word}",
        "steps": [] if empty else [{"tenant": word, "expected": 4 * GIB, "reason": f"{word} is idle"}],
        "blockers": [] if empty else [{"holder": word, "held": None, "reason": "unmanaged", "detail": word}],
        "sufficient": True,
    }


def result(word: str = "ollama") -> dict[str, Any]:
    step = {"tenant": word, "outcome": "freed", "freed": 4 * GIB, "duration": 1_234_567, "detail": word}
    return {"outcome": "satisfied", "freed": 4 * GIB, "steps": [step], "detail": word}


def events(word: str = "plan-1") -> list[tuple[str, list[Any]]]:
    return [
        ("ReleasePlanned", [word, plan(word)]),
        ("ReleaseStarted", [word, plan(word)]),
        ("ReleaseStep", [word, word, "freed", 4 * GIB, {"detail": word}]),
        ("ReleaseFinished", [word, "satisfied", 4 * GIB, {"detail": word}]),
    ]


def test_a_plan_shows_whom_it_asks_and_who_is_in_the_way() -> None:
    lines = drawn(plans.plan_screen(plan())).splitlines()
    assert lines[0] == "ask ollama"
    assert lines[2].split() == ["ASK", "FOR", "BECAUSE"]
    assert lines[3].split() == ["ollama", "4.0", "GiB", "ollama", "is", "idle"]
    assert lines[5].split() == ["NOT", "ASKED", "HOLDS", "REASON", "WHY"]
    assert lines[6].split() == ["ollama", "?", "unmanaged", "ollama"]
    assert drawn(plans.plan_screen(plan(empty=True))) == "ask ollama"
    blocked = drawn(plans.plan_screen({**plan(), "steps": [], "sufficient": False})).splitlines()
    assert blocked[2].split() == ["IN", "THE", "WAY", "HOLDS", "REASON", "WHY"]


def test_nobody_is_in_the_way_where_there_is_room_already() -> None:
    assert drawn(plans.plan_screen({**plan(), "steps": []})) == "ask ollama"


def test_a_result_shows_each_step_as_it_was_measured() -> None:
    lines = drawn(plans.result_screen(result())).splitlines()
    assert lines[0] == "satisfied: 4.0 GiB came back"
    assert lines[3].split() == ["ollama", "freed", "4.0", "GiB", "1s", "234ms", "ollama"]
    nothing_done = {**result(), "steps": [], "detail": "there was room already"}
    assert drawn(plans.result_screen(nothing_done)) == "satisfied: there was room already"


def test_the_table_of_tenants_lists_the_largest_first() -> None:
    made = tenants.all_tenants([tenant("a", holding=1), tenant("b", holding=3), tenant("c", holding=2)], NARROW)
    assert [row.split()[0] for row in drawn(made).splitlines()[1:]] == ["b", "c", "a"]


def test_the_table_of_tenants_has_columns_for_figures_only_where_there_is_room() -> None:
    rows = [tenant(need=14 * GIB, reclaimable=11 * GIB)]
    wide = drawn(tenants.all_tenants(rows, WIDE), 200).splitlines()
    assert wide[0].split() == ["TENANT", "ACTIVITY", "HOLDS", "NEEDS", "GIVES", "BACK", "WHY"]
    narrow = " ".join(drawn(tenants.all_tenants(rows, NARROW)).split())
    assert "no request is running; needs 14.0 GiB; can give back 11.0 GiB" in narrow


def test_a_long_name_is_folded_where_there_is_no_room_and_nowhere_cut() -> None:
    rows = [tenant("x" * 60)]
    narrow = drawn(tenants.all_tenants(rows, NARROW))
    assert "x" * 60 not in narrow
    assert narrow.count("x") == 60
    assert "x" * 60 in drawn(tenants.all_tenants(rows, Canvas(10_000, colours=False, unicode=True)), 10_000)


def test_a_long_name_in_another_column_leaves_room_for_the_names() -> None:
    rows = [("e" * 60, "m" * 40, Text("a sentence that does not fit beside all of that, by no means"))]
    lines = drawn([table(("ENGINE", "MODEL", "WHY"), rows, names=1)]).splitlines()
    assert sum(line.count("m") for line in lines[:-1]) == 40
    assert max(map(len, lines)) <= 80


def test_after_a_name_from_right_to_left_the_columns_stay_where_they_are_on_every_line() -> None:
    rows = [("א" * 60, "busy", Text("a sentence as long as this one"))]
    first, second, *_ = drawn([table(("NAME", "STATE", "WHY"), rows)]).splitlines()[1:]
    assert first.strip("א").startswith("\u200e  busy")
    assert second.strip("א") == ""


def test_columns_in_which_there_is_nothing_are_left_out() -> None:
    lines = drawn([table(("NAME", "TIME", "WHY"), [("a", "", "so"), ("b", "", "")])]).splitlines()
    assert [line.split() for line in lines] == [["NAME", "WHY"], ["a", "so"], ["b"]]


def test_one_tenant_is_shown_with_all_that_is_known_of_it() -> None:
    process = {"pid": 7, "name": "ollama", "gpu": "GPU-1", "used": GIB, "recognised_by": "its unit", "orphan": True}
    one = tenant(
        need=14 * GIB, need_source="its engine", processes=[process], holdings={"GPU-1": GIB, "GPU-2": GIB},
        impact="it blocks", remedy="restart it", protected=True, release_method="",
    )  # fmt: skip
    text = drawn(tenants.details(one, {"GPU-1": "RTX 4090"}))
    for part in (
        "1.0 GiB on RTX 4090", "1.0 GiB on GPU-2", "14.0 GiB (its engine)", "its unit, orphan", "it blocks",
        "restart it", "never asked", "it cannot be asked", "no model is loaded",
    ):  # fmt: skip
        assert part in text


def test_health_shows_the_worst_first_with_what_to_do() -> None:
    shape = health_shape(("a", "ok", "fine", ""), ("b", "failed", "broken", "mend it"), ("c", "skipped", "no", ""))
    lines = drawn(health.screen(shape)).splitlines()
    assert [line.split()[:2] for line in lines[3:]] == [
        ["failed", "b"], ["remedy:", "mend"], ["ok", "a"], ["skipped", "c"],
    ]  # fmt: skip
    assert drawn(health.screen(health_shape())) == "ok: healthy"


def test_jobs_are_a_table_and_one_is_shown_with_its_result() -> None:
    assert drawn([jobs.all_jobs([])]) == "No job runs, and none has ended lately."
    row = drawn([jobs.all_jobs([job()])], 200).splitlines()[1]
    assert row.split()[:5] == ["3", "autotune", "running", "42", "%"]
    text = drawn(jobs.details(job(state="failed", started_by=None, result={"unit": "token"})))
    assert "by itself" in text
    assert '"unit": "token"' in text


def test_nothing_that_others_named_can_steer_the_terminal() -> None:
    process = {"pid": 1, "name": NASTY, "gpu": NASTY, "used": 1, "recognised_by": NASTY, "orphan": False}
    named = tenant(NASTY, title=NASTY, activity_reason=NASTY, activity_evidence=[NASTY], need_source=NASTY, need=1,
                   impact=NASTY, remedy=NASTY, engine=NASTY, processes=[process], release_method=NASTY)  # fmt: skip
    texts = [
        drawn([*tenants.all_tenants([named], NARROW), *tenants.all_tenants([named], WIDE)]),
        drawn(tenants.details(named, {"GPU-1": NASTY})),
        drawn(plans.plan_screen(plan(NASTY))),
        drawn(plans.result_screen(result(NASTY))),
        drawn(health.screen(health_shape((NASTY, "failed", NASTY, NASTY), summary=NASTY))),
        drawn([jobs.all_jobs([job(kind=NASTY, detail=NASTY)])]),
        drawn(jobs.details(job(kind=NASTY, detail=NASTY, result={NASTY: NASTY}))),
        drawn(controls.results([{"item": NASTY, "ok": False, "asked": NASTY, "accepted": "", "detail": NASTY}])),
        *(signals.event(member, body) for member, body in events(NASTY)),
        signals.line("/x", "Finished", ["failed", NASTY, {}]),
        signals.event("Unheard", [NASTY]),
        signals.changes(NASTY, "org.gpusupervisor1.Tenant", {"ActivityReason": NASTY}),
    ]
    for text in texts:
        assert is_harmless(text), text


def test_every_signal_is_one_line() -> None:
    assert [signals.event(member, body) for member, body in events()] == [
        "plan-1 planned: ask plan-1",
        "plan-1 started",
        "plan-1 plan-1 freed: plan-1",
        "plan-1 finished, satisfied: 4.0 GiB came back",
    ]


def test_a_signal_of_another_shape_is_shown_as_it_came() -> None:
    assert signals.event("ReleaseStep", ["plan-1"]) == "ReleaseStep ['plan-1']"


def test_changed_properties_are_one_line_and_bulky_ones_left_out() -> None:
    line = signals.changes("ollama", "org.gpusupervisor1.Tenant", {"Activity": "busy", "Holdings": {}})
    assert line == "ollama Tenant: Activity=busy"
    assert signals.changes("x", "y", {"Holdings": {}}) == ""


@pytest.mark.parametrize(
    ("member", "body", "told"),
    [
        ("InterfacesAdded", ["/org/gpusupervisor1/tenants/x", {}], "tenant x is new"),
        ("NameOwnerChanged", ["n", ":1.2", ""], "gpusupervisor has stopped"),
        ("NameOwnerChanged", ["n", "", ":1.3"], "gpusupervisor has started"),
        ("Finished", ["failed", "no load", {}], "job 4 failed: no load"),
        ("Finished", ["succeeded", "", {}], "job 4 succeeded"),
        ("PropertiesChanged", ["a.Job", {"Progress": 3}, []], "4 Job: Progress=3"),
    ],
)
def test_signals_of_objects_name_them(member: str, body: list[Any], told: str) -> None:
    assert signals.line("/org/gpusupervisor1/jobs/4", member, body) == told


SENTENCES = table(
    ("CHECK", "STATE", "A COLUMN OF SOME WIDTH", "WHY"),
    [
        ("driver", "ok", "x", Text("it answers, and it has done so for as long as anybody can remember")),
        ("fans", "skipped", "y", Text()),
    ],
)


def test_sentences_stand_beside_their_row_where_there_is_room() -> None:
    head, driver, fans = drawn([SENTENCES], 130).splitlines()
    assert head.split() == ["CHECK", "STATE", "A", "COLUMN", "OF", "SOME", "WIDTH", "WHY"]
    assert driver.endswith("for as long as anybody can remember")
    assert fans.split() == ["fans", "skipped", "y"]


def test_sentences_stand_below_their_row_where_they_would_be_a_strip() -> None:
    lines = drawn([SENTENCES], 60).splitlines()
    assert lines == [
        "CHECK   STATE    A COLUMN OF SOME WIDTH",
        "driver  ok       x",
        "    it answers, and it has done so for as long as anybody",
        "    can remember",
        "fans    skipped  y",
    ]


def test_a_job_shows_its_result_as_the_command_does_that_starts_it() -> None:
    loaded = {"taken": 3 * GIB, "duration": 2_000_000, "speed": GIB, "spilled": False}
    assert "loaded: 3.0 GiB of VRAM in 2s, 1.0 GiB/s" in drawn(jobs.details(job(kind="load-model", result=loaded)))
    warmed = {"size": 3 * GIB, "took": 2_000_000}
    assert "3.0 GiB in RAM after 2s" in drawn(jobs.details(job(kind="warm-up", result=warmed)))
    unheard_of = drawn(jobs.details(job(kind="x", result={"a": 1})))
    assert unheard_of.splitlines()[-3:] == ["{", '  "a": 1', "}"]


def test_where_there_is_nothing_it_is_said() -> None:
    assert drawn(tenants.all_tenants([], NARROW)) == "No tenant is described."
    assert drawn(engines.all_engines([])) == "No engine is described."


def test_a_number_is_not_torn_from_its_unit() -> None:
    rows = [("a", Text("it can give back 256.0 MiB"))]
    lines = drawn([table((), rows)], 28).splitlines()
    assert lines == ["a", "    it can give back", "    256.0 MiB"]
