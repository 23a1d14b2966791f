"""Whatever stands on a command line, in a file or in an answer: nothing raises, and what was said comes back."""

import string

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.engines.arguments import given_on
from gpusupervisor.engines.reading import read
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.engines.values import go_duration, keep_alive, spoken
from gpusupervisor.unit_syntax import assigned_by_unit_file, environment_file, words
from tests.engines.builders import api, process, service

tables = st.sampled_from(sorted(TABLES))
TEXT = st.text(max_size=40)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40)


@given(tables, st.lists(TEXT, max_size=12))
def test_any_command_line_is_read(engine: str, arguments: list[str]) -> None:
    assert set(given_on(TABLES[engine], arguments)) <= {known.name for known in TABLES[engine].settings}


@given(tables, st.data())
def test_the_last_of_a_flag_counts(engine: str, data: st.DataObject) -> None:
    table = TABLES[engine]
    flags = [(flag, known.name) for known in table.settings if known.takes == "one" for flag in known.flags]
    if not flags:
        return
    flag, name = data.draw(st.sampled_from(flags))
    values = data.draw(st.lists(st.text(string.ascii_letters + string.digits, min_size=1), min_size=1, max_size=4))
    line = [part for value in values for part in (flag, value)]
    assert given_on(table, line) == {name: values[-1]}


@given(tables, st.data())
def test_any_values_are_told_without_raising_and_fit_to_be_shown(engine: str, data: st.DataObject) -> None:
    table = TABLES[engine]
    some = sorted(table.variables())
    variables = data.draw(st.dictionaries(st.sampled_from(some), VALUES, max_size=6)) if some else {}
    configured = data.draw(st.dictionaries(st.sampled_from(some), VALUES, max_size=6)) if some else {}
    told = data.draw(st.dictionaries(st.sampled_from([known.name for known in table.settings]), VALUES, max_size=4))
    line = " ".join(
        data.draw(st.lists(st.sampled_from([f for k in table.settings for f in k.flags] or [""]), max_size=5))
    )
    running, unit = process(f"/usr/bin/engine {line}", **variables), service(f"/usr/bin/engine {line}", **configured)
    for setting in read(table, running, unit, api(data.draw(TEXT), told)).settings:
        assert setting.meaning or setting.pending
        assert (setting.value + setting.source + setting.meaning + setting.pending).isprintable()
        assert max(map(len, (setting.value, setting.source, setting.meaning, setting.pending))) <= 256


def quoted(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in '"\\`$' else char for char in value)
    return f'"{escaped}"'


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_an_environment_file_says_what_was_written_into_it(variables: dict[str, str]) -> None:
    text = "".join(f"{name}={quoted(value)}\n" for name, value in variables.items())
    assert environment_file(text) == variables


@given(st.text(max_size=200))
def test_any_text_is_read_to_its_end(text: str) -> None:
    environment_file(text)
    assigned_by_unit_file(text)
    assert all(isinstance(word, str) for word in words(text))


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=4))
def test_a_go_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    scale = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    seconds = go_duration("".join(f"{amount}{unit}" for amount, unit in parts))
    assert seconds is not None
    assert abs(seconds - sum(amount * scale[unit] for amount, unit in parts)) < 1e-6
    assert spoken(seconds)


@given(TEXT)
def test_any_keep_alive_is_a_number_or_none(text: str) -> None:
    assert keep_alive(text) is None or isinstance(keep_alive(text), float)
