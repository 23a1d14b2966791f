from gpusupervisor.arbitration.history import HOUR, RELOAD_COOLDOWN, History
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Reservation, StepResult

GIB = 1024**3
SECOND = 1_000_000
CARD = "GPU-1"


def freed(size: int, outcome: str = "freed") -> StepResult:
    return StepResult("t", outcome, size, size, SECOND, "")  # type: ignore[arg-type]


def test_a_tenant_is_resident_from_when_it_holds_more_than_its_floor() -> None:
    history = History()
    history.observe("t", {CARD: GIB // 2}, GIB, 10)
    assert history.of("t").resident_since is None
    history.observe("t", {CARD: 5 * GIB}, GIB, 20)
    history.observe("t", {CARD: 6 * GIB}, GIB, 30)
    assert history.of("t").resident_since == 20
    history.observe("t", {}, GIB, 40)
    assert history.of("t").resident_since is None


def test_a_complete_release_teaches_the_floor() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB), 600, 10)
    assert history.learned.floors("t") == {CARD: 600}


def test_a_partial_release_teaches_nothing() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB, "partial"), 600, 10)
    assert history.learned.floors("t") == {}


def test_the_last_bytes_that_come_after_the_verdict_lower_the_floor() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB), GIB, 10)
    history.observe("t", {CARD: GIB // 2}, 0, 20)
    assert history.learned.floors("t") == {CARD: GIB // 2}


def test_a_client_that_reloads_at_once_wins_and_is_noticed() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB), GIB, 0)
    history.observe("t", {CARD: 9 * GIB}, 0, 20 * SECOND)
    past = history.of("t")
    assert past.reloaded_at == 20 * SECOND
    assert past.cooldown_until == 20 * SECOND + RELOAD_COOLDOWN


def test_a_load_that_is_ours_is_no_reload_by_a_client() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB), GIB, 0)
    history.used("t")
    history.observe("t", {CARD: 9 * GIB}, 0, 20 * SECOND)
    assert history.of("t").reloaded_at is None


def test_a_reload_long_after_is_nothing_special() -> None:
    history = History()
    history.released("t", CARD, freed(8 * GIB), GIB, 0)
    history.observe("t", {CARD: GIB}, 0, 61 * SECOND)
    history.observe("t", {CARD: 9 * GIB}, 0, 62 * SECOND)
    assert history.of("t").reloaded_at is None


def test_releases_are_counted_within_the_hour() -> None:
    history = History()
    for at in (0, HOUR // 2, HOUR):
        history.asked("t", at, SECOND)
    assert history.of("t").releases_within_hour(HOUR + 1) == 2


def test_tenants_that_vanish_are_forgotten() -> None:
    history = History()
    history.asked("t", 0, SECOND)
    history.keep_only([])
    assert history.of("t").releases_within_hour(0) == 0


def test_room_is_kept_until_its_beneficiary_has_grown_into_it() -> None:
    book = ReservationBook(45 * SECOND)
    book.keep(CARD, "comfyui", 8 * GIB, GIB, now=0)
    assert book.current({"comfyui": {CARD: GIB}}, 1) == (Reservation(CARD, "comfyui", 8 * GIB, 45 * SECOND),)
    assert book.current({"comfyui": {CARD: 4 * GIB}}, 2)[0].size == 5 * GIB
    assert book.current({"comfyui": {CARD: 9 * GIB}}, 3) == ()
    assert book.current({"comfyui": {CARD: GIB}}, 4) == ()


def test_room_is_not_kept_for_ever() -> None:
    book = ReservationBook(45 * SECOND)
    book.keep(CARD, "comfyui", 8 * GIB, 0, now=0)
    assert book.current({}, 45 * SECOND) == ()
