"""What was learned, as values."""

from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import Fact, LearnedFacts
from gpusupervisor.arbitration.situation import StepResult

GIB = 1024**3
CARD = "GPU-1"


def test_every_new_fact_is_passed_on_with_its_time_and_its_source() -> None:
    kept: list[Fact] = []
    history = History(LearnedFacts(lambda instant: instant + 1000, kept.append))
    result = StepResult("t", "freed", 8 * GIB, 8 * GIB, 1, "")
    history.released("t", CARD, result, 600, 10, "plan-7")
    history.released("t", CARD, result, 600, 20, "plan-8")
    history.released("t", CARD, result, 500, 30, "plan-9")
    assert [(fact.kind, fact.value, fact.learned_at) for fact in kept] == [("floor", 600, 1010), ("floor", 500, 1030)]
    assert kept[0].source == "what it kept after a release of plan-7 that freed 8.0 GiB"


def test_what_was_learned_since_stands_over_what_is_recalled() -> None:
    learned = LearnedFacts()
    learned.learn_floor("t", CARD, 5, "now", 1)
    learned.recall([Fact("floor", "t", CARD, 9, 0, "then"), Fact("need", "t", "", 7, 0, "then")])
    assert (learned.floors("t"), learned.need("t")) == ({CARD: 5}, 7)
    assert [fact.kind for fact in learned.all()] == ["floor", "need"]


def test_one_kind_or_everything_can_be_forgotten() -> None:
    learned = LearnedFacts()
    learned.recall(
        [Fact("floor", "t", CARD, 9, 0, ""), Fact("need", "t", "", 7, 0, ""), Fact("need", "u", "", 1, 0, "")]
    )
    assert [fact.kind for fact in learned.forget("t", "need")] == ["need"]
    assert (learned.need("t"), learned.floors("t")) == (None, {CARD: 9})
    assert len(learned.forget("t", None)) == 1
    assert learned.forget("nobody", None) == ()
    assert learned.need("u") == 1


def test_a_larger_need_that_is_recalled_late_stands_and_is_stored_again() -> None:
    kept: list[Fact] = []
    learned = LearnedFacts(keep=kept.append)
    learned.learn(Fact("need", "t", "", 3, 9, "the beginning of its work"))
    learned.recall([Fact("need", "t", "", 14, 1, "then")])
    assert learned.need("t") == 14
    assert [fact.value for fact in kept] == [3, 14]
    learned.recall([Fact("need", "t", "", 5, 1, "another time")])
    assert learned.need("t") == 14
