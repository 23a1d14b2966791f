"""gpusupervisorctl(1): every command, option, exit code and variable is in it, and nothing that is not there."""

import re

import pytest

from gpusupervisor.cli import exits
from gpusupervisor.cli.completion.position import HELP, VERSION
from gpusupervisor.cli.registry import COMMON, Command
from tests.manual.entries import entry, every_command, is_option, option_entry
from tests.manual.pages import Definition, definitions, section

PAGE = "gpusupervisorctl.1"
COMMANDS = [each for part in [section(PAGE, "COMMANDS")] for each in definitions(part)]


def where(line: str) -> Definition | None:
    return next((each for each in COMMANDS if line in each.terms), None)


@pytest.mark.parametrize(("name", "command"), list(every_command()))
def test_a_command_is_described_with_all_its_arguments(name: str, command: Command) -> None:
    line = entry(name, command)
    described = where(line)
    assert described, f"{PAGE} has no description of {name!r}; in COMMANDS it begins with the line: {line}"
    own = {option for term in described.terms for option in re.findall(r"\[(\*--.*?)\]", term)}
    wanted = {option_entry(each) for each in command.arguments if is_option(each)}
    told = {term for each in definitions(described.body) for term in each.terms}
    assert wanted <= told, f"{PAGE} does not say what these options of {name!r} do: {wanted - told}"
    assert len(told) == len(own), f"{PAGE} describes more options of {name!r} than it has: {told}"
    values = set(re.findall(r"_([A-Z]+)_", line)) - set(re.findall(r"_([A-Z]+)_", " ".join(own)))
    if not {"NAME", "N"} & values:
        unsaid = {each for each in values if each not in described.body}
        assert not unsaid, f"{PAGE} does not say what is meant by {unsaid} of {name!r}"


def test_no_command_is_described_that_is_not_there() -> None:
    known = {entry(name, command) for name, command in every_command()}
    assert {term for each in COMMANDS for term in each.terms} - known == set()


def test_every_common_option_is_described_and_no_other() -> None:
    told = {term for each in definitions(section(PAGE, "OPTIONS")) for term in each.terms}
    assert told == {option_entry(each) for each in (*COMMON, HELP, VERSION)}


def test_every_exit_code_is_described_and_no_other() -> None:
    told = {name for each in definitions(section(PAGE, "EXIT STATUS")) for name in each.names}
    assert told == {str(code) for code in exits.MEANINGS}
