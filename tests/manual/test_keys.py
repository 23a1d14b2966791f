"""gpusupervisor-tenant(5) and gpusupervisor.toml(5): every key with its default, and examples that are right."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import Table
from gpusupervisor.settings import check_settings
from gpusupervisor.tenants.declared import VARIABLES
from gpusupervisor.tenants.definition import ENGINES
from gpusupervisor.tenants.schema import check_definition, normalize
from gpusupervisor.tenants.schema_activity import _PROBES
from tests.manual.pages import Definition, definitions, examples, page, parts, section

TENANT, SETTINGS = "gpusupervisor-tenant.5", "gpusupervisor.toml.5"
PROBES: Mapping[str, Table] = {
    "http": {"get": "/", "busy-when": "x"},
    "prometheus": {"busy-metrics": ["x"]},
}
"""What a probe of a kind cannot do without."""
REQUEST: Table = {
    "post": "/{item}",
    "for-each": {"get": "/", "items": "x"},
    "only-if": {"get": "/", "when": "x"},
    "version": {"get": "/", "value": "x", "minimum": "1"},
    "headers": {"A": {"file": "/f", "prefix": "B"}},
}
UNIT: Table = {"method": "unit", "unit": "x.service"}
WHOLE: Table = {
    "title": "X",
    "match": {"comms": ["x"]},
    "endpoint": {"url": "http://127.0.0.1:1", "headers": {"A": {"file": "/f", "prefix": "B"}}},
    "activity": {"stuck-after": "30s", "probes": [{"kind": kind, **PROBES.get(kind, {})} for kind in _PROBES]},
    "models": {"directories": ["/x"]},
    "release": [REQUEST, UNIT],
}
LEAST: Mapping[str, Table] = {
    "": {"title": "X", "match": {"comms": ["x"]}},
    "match": {"comms": ["x"]},
    "endpoint": {"url": "http://127.0.0.1:1"},
    "activity": {"probes": [{"kind": "cpu"}]},
    "models": {"directories": ["/x"]},
    "release": {"post": "/x"},
}
"""What a table cannot do without."""


class Asked:
    """Notes every key that a schema asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[tuple[str, str]] = set()
        """Table and key: ("activity.probes:http", "get")."""
        raw = TableReader.raw

        def noting(reader: TableReader, key: str) -> object:
            table = ".".join(str(step) for step in reader._path if isinstance(step, str))
            if table == "activity.probes":
                table += f":{reader._table.get('kind')}"
            self.keys.add((table, key))
            return raw(reader, key)

        monkeypatch.setattr(TableReader, "raw", noting)


def inner(table: str) -> bool:
    """A table that is written within the line of its key."""
    return (
        table.split(".")[-1] in ("for-each", "only-if", "version") or ".headers" in table or table.endswith("headers")
    )


def tables() -> Iterator[tuple[str, Definition]]:
    """Everything that gpusupervisor-tenant(5) defines, by table."""
    for heading, text in parts(page(TENANT), "#").items():
        if heading != "TOP LEVEL" and not heading.startswith("["):
            continue
        table = "" if heading == "TOP LEVEL" else heading.strip("[]")
        for title, below in parts(text, "##").items():
            for each in definitions(below):
                kinds = re.findall(r"[\w-]+", title.partition(" ")[2])
                if table != "activity.probes" and not kinds:
                    yield table, each
                for kind in kinds or (_PROBES if table == "activity.probes" else ()):
                    yield f"{table}:{kind}", each


DOCUMENTED = list(tables())


def test_every_key_of_a_tenant_file_is_described_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    definition, findings = check_definition("x", normalize(WHOLE))
    assert definition is not None, findings
    asked.keys.add(("activity", "probe"))  # which is written out before
    told = {(table.removesuffix(":unit"), name) for table, each in DOCUMENTED for name in each.names}
    headings = {heading.strip("[]") for heading in parts(page(TENANT), "#")}
    wanted = {key for key in asked.keys if not inner(key[0]) and ".".join(filter(None, key)) not in headings}
    assert wanted - told == set(), f"{TENANT} does not describe these keys"
    assert told - wanted == set(), f"{TENANT} describes keys that are not there"


def test_keys_within_a_line_are_described_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    check_definition("x", normalize(WHOLE))
    for table, key in asked.keys:
        steps = table.split(".")
        if inner(table) and key != "A":
            outer = steps[steps.index("headers")] if "headers" in steps else steps[-1]
            of = steps[0]
            [described] = [each for at, each in DOCUMENTED if at == of and outer in each.names]
            assert f"*{key}*" in described.body, f"{TENANT} does not describe {key!r} of {table}"


def default(each: Definition) -> str | None:
    """The default as it is written; None for what has none, which must be said."""
    found = re.search(r"Default: \*(.+?)\*\.", each.body)
    assert found or "Required." in each.body or "Optional" in each.body, f"no default is told of {each.names}"
    return found[1] if found else None


@pytest.mark.parametrize(("table", "each"), DOCUMENTED, ids=lambda value: getattr(value, "terms", (value,))[0])
def test_a_default_of_a_tenant_is_what_counts_without_the_key(table: str, each: Definition) -> None:
    written = default(each)
    for name in each.names if written else ():
        value = tomllib.loads(f"x = {written}")["x"]
        with_it, without = _definition(table, name, {name: value}), _definition(table, name, {})
        assert with_it == without, f"{TENANT} tells another default of {name!r} in {table or 'the top level'}"


def _definition(table: str, name: str, more: dict[str, Any]) -> object:
    """What is made of the least that there must be, with something more in one table."""
    if (table, name) == ("match", "comms"):
        more = {"comms": [], "units": ["x"], **more}
    top, _, kind = table.partition(":")
    of: Table
    if top == "release" and kind == "unit":
        of = {"release": [{**UNIT, **more}]}
    elif kind:
        of = {"activity": {"probes": [{"kind": kind, **PROBES.get(kind, {}), **more}]}, "endpoint": LEAST["endpoint"]}
    elif top == "release":
        of = {"release": [{**LEAST[top], **more}], "endpoint": LEAST["endpoint"]}
    else:
        of = {top: {**LEAST[top], **more}} if top else more
    definition, findings = check_definition("x", normalize({**LEAST[""], **of}))
    assert definition is not None, findings
    return definition


def test_every_engine_is_named() -> None:
    [engine] = [each for table, each in DOCUMENTED if (table, each.names) == ("", ["engine"])]
    assert {name for name in ENGINES if name not in engine.body} == set()


def test_every_variable_of_a_unit_is_described_and_no_other() -> None:
    told = {name for each in definitions(section(TENANT, "UNITS THAT DECLARE THEMSELVES")) for name in each.names}
    assert told == VARIABLES


def test_every_setting_is_described_with_its_default_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    check_settings({"telemetry": {}})
    told: dict[tuple[str, str], str | None] = {}
    for heading, text in parts(page(SETTINGS), "#").items():
        if heading == "TOP LEVEL" or heading.startswith("["):
            table = "" if heading == "TOP LEVEL" else heading.strip("[]")
            told |= {(table, name): default(each) for each in definitions(text) for name in each.names}
    wanted = {key for key in asked.keys if not any(table == key[1] for table, _ in asked.keys)}
    assert wanted - told.keys() == set(), f"{SETTINGS} does not describe these settings"
    assert told.keys() - wanted == set(), f"{SETTINGS} describes settings that are not there"
    for (table, name), written in told.items():
        value = tomllib.loads(f"x = {written}")["x"]
        alone: Table = {table: {name: value}} if table else {name: value}
        assert check_settings(alone) == check_settings({}), f"{SETTINGS} tells another default of {name!r}"


@pytest.mark.parametrize(
    "text", [each for each in examples(TENANT) if re.match(r"\[|title", each) and "[Service]" not in each]
)
def test_an_example_of_a_tenant_is_right(text: str) -> None:
    table = tomllib.loads(text)
    base = {"title": "X", "match": {"comms": ["x"]}, "endpoint": {"url": "http://127.0.0.1:1"}}
    definition, findings = check_definition("example", normalize({**base, **table}))
    assert definition is not None, findings


@pytest.mark.parametrize("text", examples(SETTINGS))
def test_an_example_of_settings_is_right(text: str) -> None:
    _, findings = check_settings(tomllib.loads(text))
    assert findings == []
