"""Processes, units and readings for tests, short to write."""

from collections.abc import Mapping
from dataclasses import replace

from gpusupervisor.engines.configured import Unit
from gpusupervisor.engines.interpret import NOT_ASKED, ApiFacts
from gpusupervisor.engines.reading import Reading, read
from gpusupervisor.engines.setting import Setting
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.unit_environment import Given
from tests.tenants.people import who

PID = 700
DROP_IN = "/etc/systemd/system/engine.service.d/override.conf"


def process(line: str = "/usr/bin/engine serve", **variables: str) -> ProcessIdentity:
    """The main process of engine.service."""
    program = line.split(" ", 1)[0]
    return who(PID, line, executable=program, cgroup="/system.slice/engine.service", variables=variables)


def hidden_process() -> ProcessIdentity:
    """The same, of which the environment may not be read."""
    return replace(process(), hidden=frozenset({"environment"}))


def service(line: str = "/usr/bin/engine serve", **variables: str) -> Unit:
    """engine.service, which runs `process`."""
    environment = {name: Given(value, DROP_IN) for name, value in variables.items()}
    return Unit(
        "engine.service", active=True, main_pid=PID, commands=(tuple(line.split()),), environment=environment,
        fragment="/etc/systemd/system/engine.service",
    )  # fmt: skip


def api(version: str = "", told: Mapping[str, str] | None = None) -> ApiFacts:
    """What its API said, at /info."""
    return ApiFacts(version, {name: Given(value, "/info") for name, value in (told or {}).items()})


def reading(
    engine: str, running: ProcessIdentity | None, unit: Unit | None = None, facts: ApiFacts = NOT_ASKED
) -> Reading:
    """What is made of it."""
    return read(TABLES[engine], running, unit, facts)


def settings(
    engine: str, running: ProcessIdentity | None, unit: Unit | None = None, facts: ApiFacts = NOT_ASKED
) -> dict[str, Setting]:
    """By name."""
    return {setting.name: setting for setting in reading(engine, running, unit, facts).settings}
