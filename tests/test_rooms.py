"""The rooms of the house: each imports only those below it, and nobody outside a room knows what it hides."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gpusupervisor

PACKAGE = Path(gpusupervisor.__file__).parent
NAME = "gpusupervisor"

STOREYS = (
    {"quantities", "foreign_text", "clock", "errors", "unit_syntax", "unit_environment"},
    {"configuration", "settings", "journal", "notify", "automatic", "memory"},
    {"gpu"},
    {"processes"},
    {"engine_http"},
    {"tenants"},
    {"arbitration"},
    {"engines"},
    {"models"},
    {"state", "controls", "health", "jobs", "telemetry", "effective"},
    {"autotune"},
    {"bus"},
    {"peers"},
    {"keepers", "observatory", "world"},
    {"supervisor"},
    {"films"},
    {"daemon"},
    {"privileged"},
    {"reader"},
    {"helper"},
)
"""From the ground up. A room may import the rooms below its own storey, and those on it."""
SHARED = {"quantities", "foreign_text", "clock", "errors", "configuration", "journal", "notify", "memory"}
BUS_MODULES = {"bus.connection", "bus.declare", "bus.names", "bus.objects", "bus.presence", "bus.published",
               "bus.log_control", "bus.replies", "bus.wire"}  # fmt: skip
PRIVILEGED = {
    "privileged": {*SHARED, *BUS_MODULES, "privileged"},
    "helper": {*SHARED, *BUS_MODULES, "privileged", "helper", "gpu", "tenants.catalog", "tenants.definition",
               "tenants.schema"},
    "reader": {*SHARED, *BUS_MODULES, "privileged", "reader", "processes", "tenants.catalog", "tenants.declared",
               "tenants.definition", "tenants.schema", "tenants.signs", "engines.variables",
               "engines.configuration_files"},
}  # fmt: skip
"""Rooms and single modules that the privileged services are made of."""
CLIENTS = {"cli"}
FLOOR = {"quantities", "clock", "unit_syntax", "unit_environment"}
"""What clients share with the service: what would otherwise be implemented twice."""
APART = {"simulation"}
DOMAIN = ("quantities", "foreign_text", "clock", "errors", "gpu", "processes", "engine_http", "tenants", "arbitration",
          "engines", "models", "state", "controls", "health", "jobs", "telemetry", "autotune")  # fmt: skip


def modules() -> Iterator[tuple[Path, str]]:
    """Every module with the room that it is in; the package's own __init__ is in none."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0].removesuffix(".py")
        if room != "__init__":
            yield path, room


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Full names of everything that a module imports, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def rooms_imported(path: Path) -> set[str]:
    """Rooms of ours that a module imports."""
    names = (name.split(".") for name in imports(path))
    return {parts[1] for parts in names if parts[0] == NAME and len(parts) > 1} - {"__version__"}


def libraries_imported(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def storey(room: str) -> int:
    return next(number for number, rooms in enumerate(STOREYS) if room in rooms)


def test_every_room_has_its_place() -> None:
    assert {room for _, room in modules()} <= set().union(*STOREYS, CLIENTS, APART)


@pytest.mark.parametrize("room", sorted({room for _, room in modules()} - CLIENTS - APART))
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    allowed = set().union(*STOREYS[: storey(room) + 1])
    for path, own in modules():
        if own == room:
            assert rooms_imported(path) <= allowed, f"{path.relative_to(PACKAGE)} looks up"


def test_clients_know_the_service_by_its_bus_alone() -> None:
    for path, room in modules():
        if room in CLIENTS:
            assert rooms_imported(path) <= {room} | FLOOR, path


def test_no_shipped_room_knows_of_the_simulation() -> None:
    for path, room in modules():
        if room not in APART:
            assert not rooms_imported(path) & APART, path


@pytest.mark.parametrize("own", PRIVILEGED)
def test_the_privileged_services_are_made_of_little(own: str) -> None:
    for path, room in modules():
        if room == own:
            ours = (name.split(".")[1:] for name in imports(path) if name.startswith(f"{NAME}."))
            named = {(parts[0], ".".join(parts[:2])) for parts in ours if parts[0] != "__version__"}
            assert not {module for room, module in named if not {room, module} & PRIVILEGED[own]}, path


@pytest.mark.parametrize(
    ("service", "never"),
    [
        ("helper", ("processes.reader", "processes.procfs", "processes.inside", "reader")),
        ("reader", ("helper", "gpu.session", "gpu.reader", "gpu.nvml")),
    ],
)
def test_neither_privileged_service_loads_what_is_the_others(service: str, never: tuple[str, ...]) -> None:
    """What has the device parses nothing of users', and what parses that has no driver library; indirectly neither."""
    program = f"import sys, {NAME}.{service}.daemon; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {module for module in loaded for room in never if module.startswith(f"{NAME}.{room}")}


@pytest.mark.parametrize("room", DOMAIN)
def test_the_domain_knows_no_d_bus(room: str) -> None:
    for path, own in modules():
        if own == room:
            assert not libraries_imported(path) & {"dbus_fast", "dbus", "sdnotify"}, path


def test_only_the_gpus_own_room_knows_nvml() -> None:
    for path, room in modules():
        if room not in {"gpu", *APART}:
            assert "pynvml" not in libraries_imported(path), path


def test_the_decisions_are_pure() -> None:
    """No clock, no I/O, no waiting, no logging: the time is a field of what they are given."""
    impure = {"asyncio", "time", "datetime", "os", "random", "socket", "subprocess", "pathlib", "logging", "threading"}
    for name in (
        "situation",
        "assess",
        "eligibility",
        "plan",
        "verify",
        "compose",
        "history",
        "learned",
        "reservations",
    ):
        assert not libraries_imported(PACKAGE / "arbitration" / f"{name}.py") & impure, name


def test_the_rule_sees_imports_inside_of_functions(tmp_path: Path) -> None:
    module = tmp_path / "sly.py"
    module.write_text("def f():\n    from gpusupervisor.bus import names\n    import gpusupervisor.cli.main\n")
    assert rooms_imported(module) == {"bus", "cli"}
