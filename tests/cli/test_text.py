"""Names of any script, and nothing that steers a terminal."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.cli.text import (
    LEFT_TO_RIGHT_MARK,
    NEAREST,
    folded,
    is_utf8,
    kept_in_place,
    safe,
    safe_lines,
    sentence,
)
from tests.cli.screens import NASTY, is_harmless
from tests.cli.shapes_of import EVERY_SCRIPT


@given(st.text())
def test_whatever_comes_is_harmless_and_stays_so(text: str) -> None:
    once = safe(text)
    assert is_harmless(once)
    assert "\n" not in once
    assert safe(once) == once
    assert is_harmless(safe_lines(text))


@pytest.mark.parametrize("name", EVERY_SCRIPT)
def test_names_of_any_script_stay_readable(name: str) -> None:
    assert safe(name).removesuffix(LEFT_TO_RIGHT_MARK) == name


def test_after_text_from_right_to_left_columns_stay_where_they_are() -> None:
    assert safe("מערכת").endswith(LEFT_TO_RIGHT_MARK)
    assert not safe("модель").endswith(LEFT_TO_RIGHT_MARK)


def test_what_turns_the_direction_is_taken_away() -> None:
    assert safe("a\u202eb\u2066c\u200fd") == "abcd"
    assert safe(NASTY) == "evil [2J   root# gnp.exe 31m"


def test_an_encoding_that_lacks_a_character_has_something_like_it_or_a_question_mark() -> None:
    assert f"┌─┐ ▁▄█ … 日{LEFT_TO_RIGHT_MARK} é".encode("ascii", NEAREST) == b"+-+ ### ~ ? ?"
    assert "日 é".encode("latin-1", NEAREST) == b"? \xe9"


def test_a_letter_has_only_so_many_marks() -> None:
    assert len(safe("e" + "\u0301" * 50)) < 10


def test_lines_stay_lines_and_tabs_become_blanks() -> None:
    assert safe_lines("a\tb\nc\x07") == "a       b\nc "


def test_utf8_is_known_by_all_its_names() -> None:
    assert is_utf8("UTF-8")
    assert is_utf8("utf8")
    assert not is_utf8("ANSI_X3.4-1968")
    assert not is_utf8(None)


def test_what_follows_text_from_right_to_left_stays_in_place_once() -> None:
    assert kept_in_place("שלום") == LEFT_TO_RIGHT_MARK
    assert kept_in_place(safe("שלום")) == kept_in_place("日本") == kept_in_place("a") == ""


def test_a_message_is_folded_between_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = StringIO()
    assert folded("There are: one, two-three and four", stream) == "There are: one, two-three and four"
    monkeypatch.setattr(stream, "isatty", lambda: True)
    assert folded("There are: one, two-three and four", stream) == "There are: one,\ntwo-three and four"
    assert folded("x" * 30, stream) == "x" * 30, "what has no words is left to the terminal"


def test_a_message_ends_with_one_full_stop() -> None:
    assert sentence("it is lost") == sentence("it is lost.") == "it is lost."
