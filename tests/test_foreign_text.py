"""Foreign text made harmless."""

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.foreign_text import harmless


def test_ordinary_text_is_kept() -> None:
    assert harmless("llama3:8b-größe") == "llama3:8b-größe"


def test_what_steers_a_terminal_is_gone() -> None:
    assert harmless("a\x1b[31mred\n\u202eb\x9bc") == "a [31mred b c"


@given(st.text(), st.integers(2, 50))
def test_it_is_one_printable_line_within_the_limit(text: str, limit: int) -> None:
    shown = harmless(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert shown.isprintable()
