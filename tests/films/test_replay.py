"""The service's own judgement runs over a film, in virtual time."""

import time

import pytest

from gpusupervisor.films.checks import FilmError
from gpusupervisor.films.evaluate import evaluate
from gpusupervisor.films.projector import production_of
from gpusupervisor.films.replay import replay
from tests.films.scripts import GIB, MACHINE, ONE, ONE_RUNS, film_of


def test_what_the_film_shows_is_what_is_believed() -> None:
    works = {"t": 10, "http": {"8188": {"/prompt": ONE, "/queue": ONE_RUNS}}}
    loads = {"t": 10, "processes": {"200": {"vram": "8G", "over": 4, "cpu": 90, "sm": 60}}}
    record = replay(production_of(film_of(MACHINE, works, loads, lasts=30)))
    states = {round(moment.at / 1e6): moment.activities["comfyui"].state for moment in record.moments}
    assert states[0] == "idle"
    assert states[20] == "busy"
    last = record.moments[-1].situation.tenants["comfyui"]
    assert sum(last.holdings.values()) == 8 * GIB


def test_memory_grows_evenly() -> None:
    loads = {"t": 2, "processes": {"200": {"vram": "4G", "over": 10, "cpu": 90}}}
    record = replay(production_of(film_of(MACHINE, loads, lasts=14)))
    held = [sum(moment.situation.tenants["comfyui"].holdings.values()) for moment in record.moments]
    assert held == sorted(held)
    assert len(set(held)) > 5


def test_an_hour_passes_without_waiting() -> None:
    begun = time.monotonic()
    record = replay(production_of(film_of(MACHINE, lasts="1h")))
    assert record.moments[-1].at > 3500e6
    assert time.monotonic() - begun < 60  # it takes two seconds on a machine that has nothing else to do


def test_a_person_s_request_is_carried_out_and_the_engine_reacts() -> None:
    film = film_of(
        {**MACHINE, "processes": {"200": {**MACHINE["processes"]["200"], "vram": "8G"}}},
        {"when-asked": "8188", "after": 0.5, "processes": {"200": {"vram": "500M"}}},
        {"t": 5, "do": "release", "tenant": "comfyui"},
        {"expect": "asked", "tenant": "comfyui", "by": 6},
        {"expect": "outcome", "tenant": "comfyui", "is": "freed", "freed-least": "7G", "by": 8},
    )
    record = replay(production_of(film))
    assert not evaluate(film, record).findings
    assert not record.refusals


def test_what_is_not_as_expected_is_found_with_what_was_there() -> None:
    film = film_of(MACHINE, {"expect": "busy", "tenant": "comfyui", "at": 5}, lasts=6)
    found = evaluate(film, replay(production_of(film)))
    assert [finding.kind for finding in found.findings] == ["belief"]
    assert "its queue is empty" in found.findings[0].seen


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"t": 1, "gpu": {}}, "line 3: gpu: is no key here; allowed: do, expect, gpus, http"),
        ({"t": 1, "processes": {"200": {"vram": "much"}}}, "line 3: processes.200.vram"),
        ({"t": 1, "processes": {"200": {"vram": {"7": "1G"}}}}, "there are 0"),
        ({"t": 1, "processes": {"x": {}}}, "is no PID"),
        ({"t": -1}, "allowed: seconds"),
        ({"t": 1, "http": {"8188": {"/prompt": "gone"}}}, "one of closed, refused, silent"),
        ({"expect": "happy", "tenant": "x", "at": 1}, "allowed: absent, idle"),
        ({"expect": "idle", "tenant": "x"}, "says not when"),
        ({"expect": "idle", "at": 1}, "tenant: is missing"),
        ({"do": "dance"}, "allowed: release, make-room"),
    ],
)
def test_a_mistake_names_its_line_key_and_what_is_allowed(line: object, told: str) -> None:
    with pytest.raises(FilmError) as caught:
        film_of(MACHINE, line)
    assert told in str(caught.value)
    assert str(caught.value).startswith("line 3")
