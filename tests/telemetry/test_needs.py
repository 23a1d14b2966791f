"""What a tenant needs is learned from what it held while it worked."""

from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.arbitration.learned import Fact, LearnedFacts
from gpusupervisor.telemetry.needs import MONTH, PAUSE, SESSIONS, NeedLearner, application
from gpusupervisor.tenants.activity.verdict import ActivityState
from tests.arbitration.builders import GIB
from tests.telemetry.builders import EPOCH, SECOND
from tests.telemetry.states import PROGRAM, running, state

OTHER = ("/opt/comfyui/python", "main.py", "--highvram")


class Lesson:
    """A learner and the time."""

    def __init__(self) -> None:
        self.kept: list[Fact] = []
        self.learned = LearnedFacts(keep=self.kept.append)
        self.erased: list[Fact] = []
        self.learner = NeedLearner(self.learned, self.erased.append)
        self.at = EPOCH

    def sees(self, activity: ActivityState = "busy", held: float | None = 8, wait: int = SECOND, **more: Any) -> None:
        self.learner.observe(state(activity, held, **more), self.at)
        self.at += wait

    def session(self, held: float, **more: Any) -> None:
        """Work, and a pause that ends it."""
        self.sees("busy", held, **more)
        self.sees("idle", 1, wait=PAUSE + SECOND)
        self.sees("idle", 1)

    @property
    def need(self) -> float | None:
        need = self.learned.need("app")
        return None if need is None else need / GIB

    @property
    def usual(self) -> float | None:
        fact = self.learned.get("need-usual", "app")
        return None if fact is None else fact.value / GIB


@pytest.fixture
def lesson() -> Lesson:
    return Lesson()


def test_the_most_that_it_held_is_learned_when_it_rests(lesson: Lesson) -> None:
    for held in (1, 5, 12, 9):
        lesson.sees("busy", held)
    assert not lesson.kept, "it may be pressed yet"
    lesson.sees("idle", 9)
    assert lesson.need == 12
    assert [fact.value // GIB for fact in lesson.kept] == [12]
    assert "while it worked" in lesson.kept[-1].source


def test_little_growth_is_not_stored_again_and_again(lesson: Lesson) -> None:
    for number in range(50):
        lesson.sees("busy", 8 + number / 1024)
        lesson.sees("idle", 8)
    assert len(lesson.kept) == 1
    lesson.sees("idle", 1, wait=PAUSE + SECOND)
    lesson.sees("idle", 1)
    assert lesson.need == 8 + 49 / 1024, "the end of the session has the exact figure"


@pytest.mark.parametrize("activity", ["idle", "unknown", "stuck"])
def test_what_it_holds_without_working_teaches_nothing(lesson: Lesson, activity: ActivityState) -> None:
    lesson.sees(activity, 12)
    assert lesson.need is None


def test_a_large_job_is_forgotten_after_some_sessions(lesson: Lesson) -> None:
    lesson.session(20)
    for _ in range(SESSIONS - 1):
        lesson.session(8)
        assert lesson.need == 20
    lesson.session(8)
    assert lesson.need == 8


def test_a_large_job_is_forgotten_after_a_month(lesson: Lesson) -> None:
    lesson.session(20)
    lesson.at += MONTH
    assert lesson.need == 20, "the only thing that is known"
    lesson.session(8)
    assert lesson.need == 8


def test_a_session_on_a_full_card_teaches_no_need(lesson: Lesson) -> None:
    lesson.session(6, free=0.1)
    assert lesson.need is None
    lesson.session(14)
    for _ in range(SESSIONS + 2):
        lesson.session(6, free=0.1)
    assert lesson.need == 14


def test_a_bound_that_a_full_card_has_shown_to_be_too_low_is_forgotten(lesson: Lesson) -> None:
    lesson.session(14)
    lesson.sees("busy", 16, free=0.1)
    lesson.sees("idle", 16, free=0.1)
    assert lesson.need is None, "it needs more than 16 GiB, and nobody knows how much"
    assert [fact.value for fact in lesson.erased] == [14 * GIB]


def test_several_sessions_with_plenty_of_room_teach_the_least_too(lesson: Lesson) -> None:
    lesson.session(6, free=10)
    lesson.session(4, free=10)
    assert not lesson.usual
    lesson.session(5, free=10)
    assert (lesson.usual, lesson.need) == (4, 6)
    lesson.session(2, free=1)
    assert lesson.usual == 2, "less was enough, whatever was left free"


def test_an_allocator_that_takes_what_there_is_teaches_an_upper_bound_only(lesson: Lesson) -> None:
    for _ in range(2 * SESSIONS):
        lesson.session(22, free=1.2)
    assert (lesson.need, lesson.usual) == (22, None)


def test_what_is_learned_is_counted(lesson: Lesson) -> None:
    lesson.session(14)
    lesson.session(16)
    for _ in range(SESSIONS + 1):
        lesson.session(8)
    counted = lesson.learner.counters.all()
    assert counted["learned-up"] >= 2
    assert counted["learned-down"] >= 1


def test_short_pauses_do_not_end_a_session(lesson: Lesson) -> None:
    for _ in range(3 * SESSIONS):
        lesson.sees("busy", 8)
        lesson.sees("idle", 8)
    fact = lesson.learned.get("need", "app")
    assert fact is not None
    assert fact.evidence == ()
    assert len(lesson.kept) == 1


def test_another_application_replaces_the_need_when_its_first_session_has_ended(lesson: Lesson) -> None:
    lesson.session(14)
    lesson.sees("busy", held=2, holders=(running(2, OTHER),))
    assert lesson.need == 14, "too much is asked for rather than too little"
    lesson.sees("busy", held=6, holders=(running(6, OTHER),))
    lesson.sees("idle", wait=PAUSE + SECOND)
    lesson.sees("idle")
    assert lesson.need == 6
    fact = lesson.learned.get("need", "app")
    assert fact is not None
    assert fact.application == "/opt/comfyui/python --highvram"


def test_one_that_grows_beyond_it_is_learned_from_as_soon_as_it_rests(lesson: Lesson) -> None:
    lesson.session(14)
    lesson.sees("busy", held=20, holders=(running(20, OTHER),))
    lesson.sees("idle", held=20, holders=(running(20, OTHER),))
    assert lesson.need == 20
    lesson.session(9, holders=(running(9, OTHER),))
    assert lesson.need == 20


def test_the_application_is_told_without_the_values_of_its_options() -> None:
    shown = application(
        state(holders=(running(8, (*PROGRAM, "--api-key", "s3cret", "--token=hush")),)).census.tenants["app"]
    )
    assert shown == "/opt/comfyui/python --api-key --listen --lowvram --port --token"
    assert application(None) == ""


@pytest.mark.parametrize(
    "more",
    [
        {"holders": (running(None), running(4))},
        {"holders": (running(8, orphan=True),)},
        {"attribution_problem": "attribution unavailable"},
        {"protected": True},
    ],
    ids=["unknown size", "orphan", "process lists that cannot be believed", "protected"],
)
def test_what_is_not_surely_its_own_doing_teaches_nothing(lesson: Lesson, more: dict[str, Any]) -> None:
    lesson.sees("busy", **more)
    assert lesson.need is None


def test_what_is_forgotten_is_learned_anew(lesson: Lesson) -> None:
    lesson.sees("busy", 14)
    lesson.sees("idle", 14)
    lesson.learned.forget("app", "need")
    lesson.learner.forget("app")
    assert lesson.need is None
    lesson.sees("busy", 6)
    lesson.sees("idle", 6)
    assert lesson.need == 6


def test_a_session_of_a_tenant_that_vanishes_ends_too(lesson: Lesson) -> None:
    lesson.sees("busy", 8)
    lesson.sees("absent", wait=PAUSE)
    lesson.sees("absent")
    fact = lesson.learned.get("need", "app")
    assert fact is not None
    assert [each.value for each in fact.evidence] == [8 * GIB]


def test_a_wall_clock_that_was_set_back_ends_the_session(lesson: Lesson) -> None:
    lesson.sees("busy", 8)
    lesson.at -= 1000 * SECOND
    lesson.sees("idle")
    fact = lesson.learned.get("need", "app")
    assert fact is not None
    assert len(fact.evidence) == 1


def test_what_was_recalled_is_gone_on_from(lesson: Lesson) -> None:
    lesson.session(14)
    again = Lesson()
    again.learned.recall(lesson.learned.all())
    again.at = lesson.at
    again.session(8)
    assert again.need == 14
    assert [replace(fact, evidence=()) for fact in again.kept] != []
