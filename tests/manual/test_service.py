"""The manual pages of the three services: checks, blockers, fields, variables, exit codes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import gpusupervisor
from gpusupervisor import daemon
from gpusupervisor.arbitration.situation import BlockerReason
from gpusupervisor.journal.fields import FIELDS
from gpusupervisor.privileged.life import EXIT_BUS_LOST
from tests.manual.pages import SOURCES, definitions, page, parts, section

SERVICE, CLI = "gpusupervisor.service.8", "gpusupervisorctl.1"
HELPER, READER = "gpusupervisor-helper.service.8", "gpusupervisor-reader.service.8"
PACKAGE = Path(gpusupervisor.__file__).parent
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}")
OF_LIBRARIES = {
    "DBUS_SYSTEM_BUS_ADDRESS": "dbus_fast",
    "NO_COLOR": "rich",
    "COLUMNS": "rich",
}
"""Variables that are read for us, and by what."""


def beginning(node: ast.expr) -> Iterator[str]:
    """An id as far as it is written out: "gpu-" of f"gpu-{uuid}"."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield next((str(part.value) for part in node.values[:1] if isinstance(part, ast.Constant)), "")
    elif isinstance(node, ast.IfExp):
        yield from beginning(node.body)
        yield from beginning(node.orelse)


def check_ids() -> set[str]:
    """Every id that a check is made with, in the room of the checks; what each item of its list is called, too."""
    found = set[str]()
    for path in (PACKAGE / "health").glob("*.py"):
        tree = ast.parse(path.read_text())
        items = (first for call, first in _calls(tree) if call in ("SelfCheckItem", "_ok", "_skipped"))
        found |= {text for each in items for text in beginning(each)}
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            ids = [first for call, first in _calls(function) if call == "Check"]
            variables = {each.id for each in ids if isinstance(each, ast.Name)}
            pairs = (pair for node in ast.walk(function) if isinstance(node, ast.Assign) for pair in _pairs(node))
            ids += [value for target, value in pairs if target in variables]
            found |= {text for each in ids for text in beginning(each)}
    return found - {""}


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What is called by a plain name, with the first argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            yield node.func.id, node.args[0]


def _pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from ((ast.unparse(t), v) for t, v in zip(target.elts, node.value.elts, strict=True))
        else:
            yield ast.unparse(target), node.value


def test_every_health_check_is_described_and_no_other() -> None:
    told = {
        found
        for each in definitions(section(SERVICE, "HEALTH CHECKS"))
        for found in re.findall(r"\*([\w-]+)\*", each.terms[0])
    }
    assert check_ids() - told == set(), f"{SERVICE} does not describe these checks"
    assert told - check_ids() == set(), f"{SERVICE} describes checks that are not there"


def test_every_blocker_is_described_and_no_other() -> None:
    told = {name for each in definitions(section(SERVICE, "WHO YIELDS TO WHOM")) for name in each.names}
    assert told == set(get_args(BlockerReason))


def test_every_field_of_the_journal_is_described() -> None:
    told = {name for each in definitions(section(SERVICE, "JOURNAL")) for name in each.names}
    assert told == {field.journal_name for field in FIELDS.values()}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        (SERVICE, {0, daemon.EXIT_BUS_LOST, daemon.EXIT_DRIVER_CHANGED}),
        (HELPER, {0, EXIT_BUS_LOST}),
        (READER, {0, EXIT_BUS_LOST}),
    ],
)
def test_every_exit_code_is_described_and_no_other(name: str, codes: set[int]) -> None:
    assert {int(number) for each in definitions(section(name, "EXIT STATUS")) for number in each.names} == codes


def variables_of(path: Path) -> set[str]:
    """Names of the variables that a module asks its environment for."""
    tree = ast.parse(path.read_text())
    loops = {
        node.target.id: [*ast.walk(node.iter)]
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
    }
    asked = list[ast.AST]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=where, attr="get" | "pop"), args=[name, *_]) if _environment(where):
                asked += loops.get(name.id, []) if isinstance(name, ast.Name) else [name]
            case ast.Compare(left=name, comparators=[where]) if _environment(where):
                asked.append(name)
            case ast.Subscript(value=where, slice=name) if _environment(where):
                asked.append(name)
    values = {node.value for node in asked if isinstance(node, ast.Constant)}
    return {value for value in values if isinstance(value, str) and VARIABLE.fullmatch(value)}


def _environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ", "environment")


def rooms(*names: str) -> Iterator[Path]:
    for name in names:
        yield from [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else (PACKAGE / name).rglob("*.py")


EVERYTHING = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()} - {"__pycache__", "__init__"}
READ_BY = {
    CLI: {"cli"},
    HELPER: {"helper", "privileged", "journal", "notify"},
    READER: {"reader", "privileged", "journal", "notify"},
    SERVICE: EVERYTHING - {"cli", "helper", "reader", "privileged", "simulation"},
}


@pytest.mark.parametrize("name", READ_BY)
def test_every_variable_is_described_and_no_other(name: str) -> None:
    told = {found for each in definitions(section(name, "ENVIRONMENT")) for found in each.names}
    read = {found for path in rooms(*READ_BY[name]) for found in variables_of(path)}
    assert read - told == set(), f"{name} does not describe these variables"
    assert told - read <= OF_LIBRARIES.keys(), f"{name} describes variables that nobody reads"


@pytest.mark.parametrize(("variable", "library"), OF_LIBRARIES.items())
def test_what_a_library_reads_it_reads(variable: str, library: str) -> None:
    module = __import__(library)
    assert module.__file__
    assert any(variable in path.read_text() for path in Path(module.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("name", SOURCES)
def test_programs_have_a_section_for_what_they_read_and_return(name: str) -> None:
    if name.endswith((".1", ".8")):
        assert {"ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"} <= parts(page(name), "#").keys()
