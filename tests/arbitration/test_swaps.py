"""Going back and forth is bounded for each pair, and named."""

from gpusupervisor.arbitration.eligibility import idle_objection, objection
from gpusupervisor.arbitration.swaps import HOUR, SWAPS_PER_HOUR, THRASH_WITHIN, SwapBook, Thrash
from tests.arbitration.builders import CARD, MINUTE, NOW, tenant


def test_a_pair_may_swap_so_often_an_hour_in_both_directions_together() -> None:
    book = SwapBook()
    for number in range(SWAPS_PER_HOUR):
        assert not book.until("ollama", "comfyui", NOW + number)
        giver, taker = ("ollama", "comfyui") if number % 2 else ("comfyui", "ollama")
        book.note(giver, taker, NOW + number)
    assert book.until("ollama", "comfyui", NOW + 20) == book.until("comfyui", "ollama", NOW + 20) == NOW + HOUR
    assert not book.until("ollama", "other", NOW + 20)
    assert book.paused("comfyui", NOW + 20) == {"ollama": NOW + HOUR}
    assert not book.until("ollama", "comfyui", NOW + HOUR)


def test_a_pair_whose_memory_goes_back_and_forth_thrashes() -> None:
    book = SwapBook()
    for number, (giver, taker) in enumerate([("a", "b"), ("b", "a"), ("a", "b")]):
        book.note(giver, taker, NOW + number * MINUTE)
    assert book.thrashing(NOW + 3 * MINUTE) == ()
    book.note("b", "a", NOW + 3 * MINUTE)
    assert book.thrashing(NOW + 3 * MINUTE) == (Thrash(("a", "b"), 4),)
    assert book.thrashing(NOW + THRASH_WITHIN + MINUTE) == ()


def test_giving_again_and_again_in_one_direction_is_no_thrash() -> None:
    book = SwapBook()
    for number in range(8):
        book.note("a", "b", NOW + number)
    assert book.thrashing(NOW + 9) == ()


def test_a_tenant_at_rest_gives_way_within_its_minimum_residency_but_is_not_released_for_nobody() -> None:
    fresh = tenant("chat", 9, resident_since=NOW - 10_000_000)
    assert objection(fresh, CARD, NOW, 50, "image") is None
    against = idle_objection(fresh, CARD, NOW)
    assert against is not None
    assert "min-residency, for another 50s" in against.detail


def test_every_pause_shows_the_time_that_is_left() -> None:
    pauses = (
        tenant("t", 9, cooldown_until=NOW + 25_000_000),
        tenant("t", 9, releases_left=0, budget_until=NOW + 25_000_000),
        tenant("t", 9, paused_for={"image": NOW + 25_000_000}),
        tenant("t", 9, distrusted_until=NOW + 25_000_000, distrust="it kept it"),
    )
    for paused in pauses:
        against = objection(paused, CARD, NOW, 50, "image")
        assert against is not None
        assert against.until == NOW + 25_000_000
        assert "30s" in against.detail, "rounded up, so that the text changes seldom"
