"""Whatever a text contains, it survives the way to journald, and stays the value of its field."""

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.journal.fields import FIELDS
from gpusupervisor.journal.handlers import legible
from gpusupervisor.journal.native import encode
from tests.journal.journald import parse

NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,63}", fullmatch=True)
ANY_TEXT = st.text(st.characters(codec=None, categories=None))
"""Surrogates too."""


@given(st.lists(st.tuples(NAMES, st.text())))
def test_any_text_is_read_as_it_was_written(entry: list[tuple[str, str]]) -> None:
    assert parse(encode(entry)) == entry


@given(st.lists(st.tuples(NAMES, ANY_TEXT)))
def test_even_what_is_no_text_stays_in_its_field(entry: list[tuple[str, str]]) -> None:
    assert parse(encode(entry)) == [(name, value.encode("utf-8", "backslashreplace").decode()) for name, value in entry]


@given(ANY_TEXT)
def test_a_message_is_shown_by_a_terminal_and_by_journalctl(text: str) -> None:
    shown = legible(text)
    assert len(shown) == len(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)


@given(ANY_TEXT, st.sampled_from(sorted(FIELDS)))
def test_a_field_is_one_bounded_line(text: str, name: str) -> None:
    for value in FIELDS[name].values((text, text)):
        assert len(value) <= 1024
        assert value.isprintable()
