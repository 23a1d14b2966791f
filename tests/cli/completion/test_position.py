"""What may stand where, from the declarations of the commands alone."""

import subprocess
import sys
from typing import get_args

import pytest

from gpusupervisor.cli import commands
from gpusupervisor.cli.completion.answer import ASKED_OF_THE_SHELL
from gpusupervisor.cli.completion.names import SOURCES
from gpusupervisor.cli.completion.position import Expected, expected
from gpusupervisor.cli.registry import Completes


def words(*line: str) -> set[str]:
    return {each.value for each in expected(line).words}


def test_first_comes_a_command() -> None:
    assert words("") == words("--json", "") == words("-H", "box", "") == {c.name for c in commands.load_all()}


def test_options_are_those_of_the_command_and_the_common_ones() -> None:
    assert words("-") == {"-h", "--help", "--version", "-H", "--host", "--json"}
    assert words("plan", "--") == {"--size", "--gpu", "-h", "--help", "-H", "--host", "--json"}
    assert "--within" in words("profile", "try", "file", "-")
    assert "--within" not in words("profile", "confirm", "-")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (("release", ""), "tenant"), (("plan", "--gpu", ""), "gpu"), (("plan", "--size", "8G", ""), "tenant"),
        (("plan", "--gpu", "GPU-1", ""), "tenant"), (("lint", "a.toml", "b.toml", ""), "file"), (("-H", ""), "host"),
        (("profile", "try", ""), "file"), (("job", "--follow", ""), "job"), (("plan", "--", ""), "tenant"),
        (("autotune", ""), "gpu"), (("autotune", "GPU-1", ""), "engine"),
    ],
)  # fmt: skip
def test_names_are_those_of_the_argument(line: tuple[str, ...], kind: Completes) -> None:
    assert expected(line) == Expected((), kind)


def test_models_are_those_of_the_engine_that_was_named() -> None:
    assert expected(("warm", "ollama", "")) == Expected((), "model", "ollama")
    assert expected(("autotune", "GPU-1", "ollama", "--model", "")) == Expected((), "model", "ollama")


def test_an_option_and_its_value_may_be_one_word() -> None:
    assert expected(("plan", "--gpu=GPU")) == Expected((), "gpu", prefix="--gpu=")
    assert expected(("plan", "--gpu=GPU-1", "")) == Expected((), "tenant")
    assert expected(("-Hbox", "release", "")) == Expected()


def test_words_are_offered_where_only_they_may_stand() -> None:
    assert words("automatic", "") == {"on", "off"}
    assert {"try", "confirm"} < words("profile", "")
    assert words("profile", "try", "file", "") == set()


@pytest.mark.parametrize(
    "line",
    [("nonsense", ""), ("tenants", ""), ("release", "ollama", ""), ("--json=x",), ("plan", "--nonsense=x"),
     ("status", "x", "")],
)  # fmt: skip
def test_where_nothing_may_stand_nothing_is_offered(line: tuple[str, ...]) -> None:
    assert expected(line) == Expected()


@pytest.mark.parametrize("line", [("-H", "box", "release", ""), ("--host=box", "release", ""), ("job", "-H", "b", "")])
def test_another_machine_is_not_asked(line: tuple[str, ...]) -> None:
    assert expected(line) == Expected()


def test_whatever_an_argument_may_complete_has_a_source() -> None:
    assert set(get_args(Completes)) == {"", "model", *SOURCES, *ASKED_OF_THE_SHELL}


def test_neither_rich_nor_a_library_of_d_bus_is_imported() -> None:
    code = "import sys; from gpusupervisor.cli.completion import answer, names; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"rich", "dbus_fast", "asyncio"} & set(done.stdout.split())
