"""Whatever a file says, reading it ends in a value or a problem; layers behave as layers."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.configuration.document import DocumentError, parse_document
from gpusupervisor.configuration.layers import Tree, merge, plain, sourced
from gpusupervisor.configuration.toml_text import toml_text
from gpusupervisor.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from gpusupervisor.settings import check_settings
from gpusupervisor.tenants.schema import check_definition, normalize

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
KEYS = (
    "title",
    "match",
    "endpoint",
    "activity",
    "release",
    "probes",
    "kind",
    "get",
    "json",
    "url",
    "units",
    "needs-vram",
)
tables = st.dictionaries(st.sampled_from(KEYS) | texts, values, max_size=6)
# One schema: "t" and "u" are always tables, "a" and "b" never.
one_schema = st.fixed_dictionaries(
    {},
    optional={
        "a": scalars | st.lists(scalars, max_size=2),
        "b": scalars,
        "t": st.dictionaries(st.sampled_from("ab"), scalars),
        "u": st.fixed_dictionaries({}, optional={"t": st.dictionaries(st.sampled_from("ab"), scalars)}),
    },
)


@given(st.text(max_size=80), st.sampled_from(["a.toml", "a.json", "a"]))
def test_any_text_is_a_table_or_a_document_error(text: str, name: str) -> None:
    try:
        table = parse_document(name, text)
    except DocumentError:
        return
    assert isinstance(table, dict)


@given(tables)
def test_any_table_is_a_definition_or_has_findings(table: dict[str, object]) -> None:
    definition, findings = check_definition("app", normalize(table))
    assert (definition is None) == bool(findings)
    assert all(message for _, message in findings)
    _, settings_findings = check_settings(table)
    assert bool(settings_findings) == bool(table)


@given(st.text(max_size=70))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_bytes, parse_duration):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert 0 <= value <= INFINITY


@given(st.integers(0, INFINITY - 1))
def test_durations_read_back(duration: int) -> None:
    assert parse_duration(format_duration(duration, accuracy=1)) == duration


@given(st.integers(0, 2**60), st.sampled_from(["", "K", "M", "G"]))
def test_bytes_read_back_and_show_within_a_twentieth(count: int, unit: str) -> None:
    size = min(count * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit], INFINITY - 1)
    assert parse_bytes(str(size)) == size
    assert size >= 1 << 63 or abs(parse_bytes(format_bytes(size)) - size) <= size * 0.05, "what is printed can be typed"
    number, shown_unit = format_bytes(size).split()
    shown = float(number) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(shown_unit)
    assert abs(shown - size) <= size * 0.05


def layer(table: dict[str, object], name: str) -> Tree:
    return sourced(table, name)


@given(one_schema, one_schema, one_schema)
def test_merging_is_associative(a: dict[str, object], b: dict[str, object], c: dict[str, object]) -> None:
    first, second, third = layer(a, "a"), layer(b, "b"), layer(c, "c")
    assert merge(merge(first, second), third) == merge(first, merge(second, third))


@given(tables, tables)
def test_the_later_layer_wins_and_nothing_is_lost(earlier: dict[str, object], later: dict[str, object]) -> None:
    merged = merge(layer(earlier, "earlier"), layer(later, "later"))
    assert set(merged) == set(earlier) | set(later)
    for key, value in later.items():
        if not isinstance(value, dict) or not isinstance(earlier.get(key), dict):
            assert merged[key] == sourced(later, "later")[key]
    for key in earlier.keys() - later.keys():
        assert merged[key] == sourced(earlier, "earlier")[key]
    assert plain(merge(layer(earlier, "x"), layer(earlier, "y"))) == earlier


@given(tables)
def test_what_is_explained_reads_back(table: dict[str, object]) -> None:
    read = tomllib.loads(toml_text(sourced(table, "/etc/file")))
    assert json.dumps(read, sort_keys=True) == json.dumps(table, sort_keys=True)
