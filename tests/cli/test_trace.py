"""Sparklines: what is kept of the last ten minutes, and how it is drawn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpusupervisor.cli.top.columns import Column, fitted, heading, left_over, row
from gpusupervisor.cli.top.overview import age
from gpusupervisor.cli.top.trace import COUNT, SPAN, STEP, Trace, sparkline

NOW = 1_790_000_000_000_000 // STEP * STEP


def test_a_value_stands_until_the_next() -> None:
    trace = Trace()
    trace.note(NOW, 5)
    trace.note(NOW + 3 * STEP, 2)
    assert trace.values(NOW + 3 * STEP, COUNT)[-5:] == [None, 5, 5, 5, 5]
    assert trace.values(NOW + 4 * STEP, COUNT)[-1] is None
    trace.note(NOW + 4 * STEP, 2)
    assert trace.values(NOW + 4 * STEP, COUNT)[-1] == 2


def test_a_peak_stays_visible_however_narrow_it_is_drawn() -> None:
    trace = Trace()
    for n, value in enumerate([1, 9, 1, 1, 1, 1, 1, 1]):
        trace.note(NOW + n * STEP, value)
    assert max(value or 0 for value in trace.values(NOW + 8 * STEP, 3)) == 9
    assert trace.most() == 9


def test_what_the_service_remembers_is_of_before_our_time_and_adds_up_over_cards() -> None:
    trace = Trace()
    trace.note(NOW, 4)
    for card in (1, 2):
        trace.seed([(NOW - STEP, 0, 0, card), (NOW, 0, 0, 100)])
    assert trace.values(NOW, COUNT)[-2:] == [3, 4]


def test_nothing_is_drawn_of_a_time_when_nothing_was_known() -> None:
    trace = Trace()
    trace.note(NOW, 4)
    trace.note(NOW + STEP, None)
    trace.note(NOW + 4 * STEP, None)
    trace.note(NOW + 5 * STEP, 4)
    assert trace.values(NOW + 5 * STEP, COUNT)[-3:] == [None, None, 4]


def test_what_is_older_than_ten_minutes_is_forgotten() -> None:
    trace = Trace()
    trace.note(NOW, 9)
    trace.note(NOW + STEP, 1)
    trace.note(NOW + 2 * SPAN, 1)
    assert trace.most() == 1


@pytest.mark.parametrize(
    ("values", "unicode", "drawn"),
    [([None, 0, 1, 50, 100, 200], True, " ·▁▄██"), ([None, 0, 1, 50, 100], False, " _.=@"), ([5], True, "▁")],
)
def test_a_sparkline_is_a_share_of_the_whole(values: list[int | None], unicode: bool, drawn: str) -> None:
    assert sparkline(values, 100, unicode=unicode) == drawn


@given(st.text(max_size=30), st.integers(0, 40), st.booleans())
def test_a_cell_is_just_as_wide_as_its_column(text: str, width: int, right: bool) -> None:
    assert cell_len(fitted(text, width, right=right)) == width


def test_what_is_left_goes_to_one_column() -> None:
    columns = (Column("a", "A", 3, right=True), Column("b", "BE", 0), Column("c", "C", 2))
    room = left_over(columns, 20)
    assert room == 11
    assert row(columns, [("1", ""), ("x" * 20, ""), ("z", "")], room).plain == f"  1  {'x' * 10}…  z"
    assert heading(columns, "b", room).plain.split() == ["A", "BE", "C"]


@pytest.mark.parametrize(
    ("minutes", "told"), [(0, "<1min"), (1, "1min"), (59, "59min"), (60, "1h"), (47 * 60, "47h"), (48 * 60, "2d")]
)
def test_ages_are_coarse(minutes: int, told: str) -> None:
    assert age(NOW - minutes * 60_000_000, NOW) == told
    assert age(None, NOW) == "-"
