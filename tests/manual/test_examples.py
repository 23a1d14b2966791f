"""What the pages tell a person to type is typed: against the service on a bus of its own."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from tests.bus.conftest import PrivateBus, need
from tests.manual.entries import every_command
from tests.manual.pages import SOURCES, examples

RUN = ("busctl", "gdbus call", "gpusupervisorctl", "GPU=", "telemetry=")
ENDS_WITH = {"gpusupervisorctl health": (0, 1), "gpusupervisorctl plan": (0, 1)}
SCRIPTS = [
    pytest.param(text, id=f"{name}-{number}")
    for name in SOURCES
    for number, text in enumerate(examples(name))
    if text.startswith(RUN)
]


def joined(text: str) -> str:
    """Each command on one line."""
    return text.replace("\\\n", " ")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "gpusupervisorctl"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpusupervisor.cli.main "$@"\n')
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("text", SCRIPTS)
async def test_what_is_to_be_typed_works(text: str, bus: PrivateBus, service: BusService, program: Path) -> None:
    variables = ""
    for line in joined(text).splitlines():
        need("gdbus" if line.startswith("gdbus") else "busctl")
        if "| jq" in line and shutil.which("jq") is None:
            line = line.partition("| jq")[0]  # noqa: PLW2901  (the rest cannot be run here)
        if re.match(r"\w+=", line):
            variables = f"{line}; "
        script = f"PATH={program.parent}:$PATH; set -o pipefail; {variables}{line}"
        shown = await bus.run("bash", "-c", script)
        allowed = next((codes for begins, codes in ENDS_WITH.items() if line.startswith(begins)), (0,))
        assert shown.status in allowed, f"{line}\n{shown.errors}"
        assert shown.errors == "", line


def test_there_is_something_to_type() -> None:
    assert len(SCRIPTS) >= 7


@pytest.mark.parametrize("name", SOURCES)
def test_commands_in_a_text_are_commands(name: str) -> None:
    """*gpusupervisorctl WORD*, wherever a page says it."""
    known = {command for command, _ in every_command()}
    named = set(re.findall(r"\*gpusupervisorctl ([a-z-]+)", SOURCES[name].read_text()))
    assert named <= known, f"{name} names commands that are not there"
