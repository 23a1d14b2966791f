"""Variables in ExecStart= are filled in as systemd itself does."""

from pathlib import Path

from gpusupervisor.unit_syntax import environment_file, expanded
from tests.system.machine import booted

FILE = r"""ARGS=--port 8081 "two words" 'it''s'
PORT=9000
QUOTED="a \"b\" \\n"
BACK='x\y \z'
EMPTY=
SPACES=" a   b "
"""
ARGUMENTS = (
    "$ARGS", "${ARGS}", "${NONE}x", "$$HOME", "a$PORT", "$PORT", "${PORT}${PORT}", "$NONE", "$EMPTY", "${EMPTY}",
    "$SPACES", "x$$y", "$PORT/x", "$QUOTED", "$BACK", "a${PORT", "${PORT}/v1", "end",
)  # fmt: skip


def test_the_arguments_are_those_that_systemd_passes_on(tmp_path: Path) -> None:
    line = " ".join(["/bin/sh", "/etc/print-arguments", *ARGUMENTS])
    with booted(tmp_path) as machine:
        machine.write("/etc/print-arguments", 'for each; do printf "[%s]\\n" "$each"; done >/run/arguments\n')
        machine.write("/etc/expansion.env", FILE)
        machine.write(
            "/etc/systemd/system/expansion.service",
            f"[Service]\nType=oneshot\nEnvironmentFile=/etc/expansion.env\nExecStart={line}\n",
        )
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "expansion.service")
        passed = machine.output("cat", "/run/arguments").splitlines()
    assert [f"[{each}]" for each in expanded(ARGUMENTS, environment_file(FILE))] == passed
