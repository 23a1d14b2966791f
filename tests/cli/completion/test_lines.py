"""Lines as bash reads them, and candidates as bash reads them back."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.cli.completion.lines import as_bash_inserts, read

BREAKS = " \t\n\"'@><=;|&(:"
NASTY = (
    "my model", "it's", 'say "hi"', "$(touch x)", "`touch x`", "qwen3:8b", "a\\b", "x;y", "日本", "~me", "#1", "*",
    "a=b@c", "!!",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words", "quote", "kept"),
    [
        ("ctl ", ("ctl", ""), "", ""),
        ("ctl re", ("ctl", "re"), "", ""),
        ("ctl  warm ollama qwen3:8", ("ctl", "warm", "ollama", "qwen3:8"), "", "qwen3:"),
        (r"ctl my\ mo", ("ctl", "my mo"), "", ""),
        ("ctl 'my mo", ("ctl", "my mo"), "'", ""),
        ('ctl a" b', ("ctl", "a b"), '"', "a"),
        ('ctl "a\\"b\\c" ', ("ctl", 'a"b\\c', ""), "", ""),
        ("ctl --gpu=GP", ("ctl", "--gpu=GP"), "", "--gpu="),
        ("true; ctl x | ctl y", ("ctl", "y"), "", ""),
        ("ctl ''", ("ctl", ""), "", ""),
        ("ctl '' x", ("ctl", "", "x"), "", ""),
        ("ctl x\\", ("ctl", "x"), "", ""),
    ],
)
def test_a_line_is_read_as_bash_reads_it(text: str, words: tuple[str, ...], quote: str, kept: str) -> None:
    line = read(text, BREAKS)
    assert (line.words, line.quote, line.kept) == (words, quote, kept)


def test_only_what_begins_so_is_inserted_and_only_its_rest() -> None:
    line = read("ctl warm ollama qwen3:", BREAKS)
    assert as_bash_inserts(line, ["qwen3:8b", "qwen3:14b", "llama"]) == ["8b", "14b"]


def test_what_cannot_be_written_between_double_quotes_is_left_out() -> None:
    assert as_bash_inserts(read('ctl "', BREAKS), ["a!b", "c"]) == ["c"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_bash_reads_every_candidate_back_as_it_is(quote: str) -> None:
    names = [name for name in NASTY if not ("!" in name and quote == '"')]
    inserted = as_bash_inserts(read(f"ctl {quote}", BREAKS), names)
    shown = " ".join(f"{quote}{each}{quote}" for each in inserted)
    done = subprocess.run(["bash", "-c", f"printf '%s\\n' {shown}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == names
    assert done.stderr == ""


@given(st.text(alphabet=st.characters(exclude_categories=["C"]), min_size=1, max_size=12), st.sampled_from(["", "'"]))
def test_what_was_inserted_is_read_as_the_same_word(name: str, quote: str) -> None:
    (inserted,) = as_bash_inserts(read(f"ctl {quote}", BREAKS), [name])
    assert read(f"ctl {quote}{inserted}{quote}", BREAKS).words == ("ctl", name)
