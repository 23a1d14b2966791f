"""When to look, and what to do about what was seen."""

from gpusupervisor.helper.drift.keeper import (
    BACK_OFF,
    CONFIRM,
    INTERVAL,
    MOST_REPAIRS,
    RESET_PAUSE,
    SETTLE,
    WINDOW,
    DriftContested,
    DriftDetected,
    DriftEnded,
    DriftKeeper,
    DriftRepaired,
    Trigger,
)
from gpusupervisor.helper.drift.verdict import Cause, Kind, Verdict
from gpusupervisor.helper.values import ItemResult

SECOND = 1_000_000
START = 1000 * SECOND


def verdict(kind: Kind, cause: Cause = "", item: str = "power-limit") -> Verdict:
    return Verdict(item, kind, cause, "300 W", "" if kind == "unverifiable" else "450 W")


OK = verdict("ok")
RESET = verdict("drifted", "reset-to-default")
CHANGED = verdict("drifted", "changed-by-another")
BLIND = verdict("unverifiable", "no-getter", "locked-clocks-graphics")
UNREAD = verdict("unverifiable", "unreadable")


def test_it_looks_every_minute() -> None:
    keeper = DriftKeeper(START)
    assert not keeper.due(START + INTERVAL - 1)
    assert keeper.due(START + INTERVAL)
    keeper.decide([OK], START + INTERVAL, repair=True)
    assert keeper.next_check() == START + 2 * INTERVAL


def test_it_looks_soon_after_a_trigger_but_not_before_the_driver_has_settled() -> None:
    keeper = DriftKeeper(START)
    keeper.trigger("driver", START + 59 * SECOND)
    assert keeper.next_check() == START + 59 * SECOND + SETTLE["driver"]
    keeper.trigger("xid", START + 59 * SECOND)
    assert keeper.next_check() == START + 59 * SECOND + SETTLE["driver"]


def test_a_storm_of_xids_does_not_put_the_look_off() -> None:
    keeper = DriftKeeper(START)
    for second in range(10):
        keeper.trigger("xid", START + second * SECOND)
    assert keeper.next_check() == START + SETTLE["xid"]


def test_frozen_it_does_nothing_and_then_waits_for_the_driver() -> None:
    keeper = DriftKeeper(START)
    keeper.freeze()
    assert keeper.frozen
    assert keeper.next_check() is None
    keeper.trigger("xid", START)
    assert not keeper.due(START + 100 * INTERVAL)
    keeper.thaw(START + 100 * INTERVAL)
    assert not keeper.due(START + 100 * INTERVAL + SETTLE["resume"] - 1)
    assert keeper.due(START + 100 * INTERVAL + SETTLE["resume"])


def test_drift_is_told_once_and_repaired() -> None:
    keeper = DriftKeeper(START)
    decision = keeper.decide([RESET], START, repair=True)
    assert decision.repair == ("power-limit",)
    assert decision.events == (DriftDetected(RESET),)
    result = ItemResult("power-limit", True, "300 W", "300 W")
    assert keeper.repaired([result]) == (DriftRepaired(result),)
    assert keeper.decide([OK], START + SECOND, repair=True).events == ()
    again = keeper.decide([RESET], START + BACK_OFF[0], repair=True)
    assert again.events == (DriftDetected(RESET),)


def test_a_failed_repair_is_no_repair_and_drift_is_not_told_again() -> None:
    keeper = DriftKeeper(START)
    keeper.decide([RESET], START, repair=True)
    assert keeper.repaired([ItemResult("power-limit", False, "300 W", "", "refused")]) == ()
    assert keeper.decide([RESET], START + INTERVAL, repair=True).events == ()


def test_only_looking_repairs_nothing() -> None:
    keeper = DriftKeeper(START)
    for minute in range(10):
        decision = keeper.decide([CHANGED, BLIND], START + minute * INTERVAL, repair=False)
        assert (decision.repair, decision.renew) == ((), ())
        assert decision.verdicts == (CHANGED, BLIND)


def test_each_further_repair_waits_longer_and_then_comes_at_once() -> None:
    keeper = DriftKeeper(START)
    keeper.decide([CHANGED], START, repair=True)
    early = keeper.decide([CHANGED], START + SECOND, repair=True)
    assert early.repair == ()
    assert early.verdicts == (CHANGED,)
    assert keeper.next_check() == START + BACK_OFF[0]
    second = START + BACK_OFF[0]
    assert keeper.decide([CHANGED], second, repair=True).repair == ("power-limit",)
    assert keeper.decide([CHANGED], second + BACK_OFF[0], repair=True).repair == ()
    assert keeper.decide([CHANGED], second + BACK_OFF[1], repair=True).repair == ("power-limit",)


def contested_keeper() -> tuple[DriftKeeper, int]:
    """One whose item was repaired as often as it may be, and the time."""
    keeper, now = DriftKeeper(START), START
    for _ in range(MOST_REPAIRS):
        assert keeper.decide([CHANGED], now, repair=True).repair
        now += BACK_OFF[-1]
    return keeper, now


def test_repaired_too_often_it_is_contested_and_left() -> None:
    keeper, now = contested_keeper()
    decision = keeper.decide([CHANGED], now, repair=True)
    assert decision.repair == ()
    (seen,) = decision.verdicts
    assert seen.verdict == "contested"
    assert decision.events == (DriftContested(seen),)
    later = keeper.decide([CHANGED], now + 2 * WINDOW, repair=True)
    assert (later.repair, later.events) == ((), ())
    assert later.verdicts[0].verdict == "contested"


def test_a_contested_item_that_reads_as_accepted_is_ok() -> None:
    keeper, now = contested_keeper()
    keeper.decide([CHANGED], now, repair=True)
    assert keeper.decide([OK], now + SECOND, repair=True).verdicts == (OK,)
    assert keeper.decide([CHANGED], now + 2 * SECOND, repair=True).repair == ()


def test_applying_anew_starts_over() -> None:
    keeper, now = contested_keeper()
    keeper.decide([CHANGED], now, repair=True)
    keeper.start_over(now)
    assert keeper.decide([CHANGED], now, repair=True).repair == ("power-limit",)


def test_drift_that_ends_by_itself_is_told_to_be_over_once() -> None:
    keeper = DriftKeeper(START)
    keeper.decide([CHANGED], START, repair=False)
    assert keeper.decide([OK], START + INTERVAL, repair=False).events == (DriftEnded("power-limit", "restored"),)
    assert keeper.decide([OK], START + 2 * INTERVAL, repair=False).events == ()
    keeper.decide([CHANGED], START + 3 * INTERVAL, repair=False)
    assert keeper.start_over(START + 3 * INTERVAL) == (DriftEnded("power-limit", "replaced"),)
    assert keeper.start_over(START + 3 * INTERVAL) == ()


def test_what_cannot_be_read_now_does_not_end_drift() -> None:
    keeper = DriftKeeper(START)
    keeper.decide([CHANGED], START, repair=False)
    assert keeper.decide([UNREAD], START + INTERVAL, repair=False).events == ()
    assert keeper.decide([CHANGED], START + 2 * INTERVAL, repair=False).events == ()


def test_a_contest_that_ends_is_over_and_told_again_when_it_goes_on() -> None:
    keeper, now = contested_keeper()
    keeper.decide([CHANGED], now, repair=True)
    assert keeper.decide([OK], now + SECOND, repair=True).events == (DriftEnded("power-limit", "restored"),)
    (again,) = keeper.decide([CHANGED], now + 2 * SECOND, repair=True).events
    assert isinstance(again, DriftContested)


def test_it_is_looked_soon_whether_a_repair_lasts() -> None:
    keeper = DriftKeeper(START)
    keeper.decide([RESET], START, repair=True)
    assert keeper.next_check() == START + CONFIRM


def test_rare_drift_is_never_contested() -> None:
    keeper = DriftKeeper(START)
    for hour in range(20):
        assert keeper.decide([CHANGED], START + hour * 3600 * SECOND, repair=True).repair == ("power-limit",)


def test_what_cannot_be_read_is_set_again_once_after_what_makes_drivers_forget() -> None:
    keeper = DriftKeeper(START)
    assert keeper.decide([OK, BLIND], START, repair=True).renew == ()
    keeper.trigger("resume", START)
    assert keeper.decide([OK, BLIND], START, repair=True).renew == ("locked-clocks-graphics",)
    assert keeper.decide([OK, BLIND], START, repair=True).renew == ()
    keeper.trigger("xid", START)
    assert keeper.decide([OK, BLIND], START, repair=True).renew == ()


def test_what_cannot_be_read_is_set_again_when_something_else_was_reset() -> None:
    keeper = DriftKeeper(START)
    assert keeper.decide([RESET, BLIND], START, repair=True).renew == ("locked-clocks-graphics",)
    assert DriftKeeper(START).decide([CHANGED, BLIND], START, repair=True).renew == ()


def test_a_reading_that_failed_is_made_again_before_the_trigger_counts_as_done() -> None:
    keeper = DriftKeeper(START)
    keeper.trigger("driver", START)
    keeper.decide([UNREAD, BLIND], START, repair=True)
    assert keeper.decide([OK, BLIND], START + INTERVAL, repair=True).renew == ("locked-clocks-graphics",)
    assert keeper.decide([OK, BLIND], START + 2 * INTERVAL, repair=True).renew == ()


def test_what_the_driver_resets_again_and_again_is_set_again_each_time_and_never_contested() -> None:
    keeper, now = DriftKeeper(START), START
    for _ in range(3 * MOST_REPAIRS):
        decision = keeper.decide([RESET], now, repair=True)
        assert decision.repair == ("power-limit",)
        assert decision.verdicts == (RESET,)
        assert not [event for event in decision.events if isinstance(event, DriftContested)]
        assert keeper.decide([RESET], now + SECOND, repair=True).repair == (), "not at every look"
        now += RESET_PAUSE


def test_resets_are_not_counted_against_somebody_who_changes_it_later() -> None:
    keeper, now = DriftKeeper(START), START
    for _ in range(MOST_REPAIRS):
        assert keeper.decide([RESET], now, repair=True).repair
        now += RESET_PAUSE
    decision = keeper.decide([CHANGED], now, repair=True)
    assert decision.repair == ("power-limit",)
    assert decision.verdicts[0].verdict == "drifted"


def test_waking_explains_a_reset_so_that_it_is_set_again_at_once() -> None:
    triggers: tuple[Trigger, ...] = ("waking", "resume", "driver")
    for trigger in triggers:
        keeper = DriftKeeper(START)
        assert keeper.decide([RESET], START, repair=True).repair
        keeper.trigger(trigger, START + SECOND)
        settled = START + SECOND + SETTLE[trigger]
        assert keeper.next_check() == settled
        assert keeper.decide([RESET], settled, repair=True).repair == ("power-limit",)
