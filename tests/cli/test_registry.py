"""Commands as they are declared: found without importing what they do not need."""

import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest

from gpusupervisor.cli import commands, exits
from gpusupervisor.cli.main import first_word, parse, parser
from gpusupervisor.cli.registry import Argument, Command, Completes

HEAVY = {"rich", "dbus_fast", "asyncio", "dataclasses", "inspect", "json", "pathlib", "subprocess"}


def every() -> Iterator[Command]:
    for command in commands.load_all():
        yield command
        yield from command.actions


def test_each_group_declares_the_commands_it_is_listed_with() -> None:
    listed = [name for names in commands.GROUPS.values() for name in names]
    assert [command.name for command in commands.load_all()] == listed
    assert len(set(listed)) == len(listed)
    assert all(commands.load(name).name == name for name in listed)


def test_everything_has_a_help_and_is_completed_by_something_known() -> None:
    arguments: list[Argument] = [argument for command in every() for argument in command.arguments]
    assert all(command.help for command in every())
    assert all(argument.help for argument in arguments)
    assert {each.completes for each in arguments} <= set(get_args(Completes))
    assert [each.completes for each in commands.load("release").arguments] == ["tenant"]


def test_the_help_lists_every_command_and_every_exit_code() -> None:
    words = parser(commands.load_all()).format_help().split()
    assert {command.name for command in commands.load_all()} <= set(words)
    assert {str(code) for code in exits.MEANINGS} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ([], None), (["status"], 0), (["--json", "tenants"], 1), (["-H", "box", "jobs"], 2), (["--host", "box"], None),
        (["--host=box", "plan", "x"], 1), (["-Hbox", "plan"], 1),
    ],
)  # fmt: skip
def test_the_command_is_found_among_the_options(arguments: list[str], place: int | None) -> None:
    assert first_word(arguments) == place


def test_common_options_stand_before_or_behind_the_command() -> None:
    for arguments in (["-H", "box", "--json", "tenants"], ["tenants", "-H", "box", "--json"]):
        options = parse(arguments)
        assert (options.host, options.json, options.command.name) == ("box", True, "tenants")
    assert not hasattr(parse(["tenants"]), "host")


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_to_read_the_command_line_nothing_is_imported_but_the_command() -> None:
    found = imported_by("from gpusupervisor.cli.main import parse\nparse(['tenants'])")
    assert not HEAVY & found
    assert "gpusupervisor.cli.commands.tenants" in found
    assert "gpusupervisor.cli.commands.monitor" not in found


def test_all_declarations_together_import_nothing_heavy() -> None:
    assert not HEAVY & imported_by("from gpusupervisor.cli.commands import load_all\nload_all()")


def test_a_tab_imports_nothing_heavy() -> None:
    assert not HEAVY & imported_by("from gpusupervisor.cli.completion import answer\nanswer.main(['zsh', '--', ''])")


def test_the_version_is_told_without_any_command() -> None:
    code = "from gpusupervisor.cli.main import parse\ntry:\n    parse(['--version'])\nexcept SystemExit:\n    print()"
    found = imported_by(code)
    assert not HEAVY & found
    assert not {name for name in found if name.startswith("gpusupervisor.cli.commands.")}
