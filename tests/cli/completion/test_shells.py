"""Tab in bash, zsh and fish as they are: a line is typed, completed, and run; what the program was given is compared.

The program is a stand-in that lets the real one complete, and writes down its arguments otherwise.
"""

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.models.warm_plan import WarmStep
from tests.bus.builders import CARD, make_state
from tests.bus.conftest import PrivateBus, need
from tests.bus.fakes import FakeController
from tests.cli.conftest import COMMAND
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.system.machine import REPOSITORY

SCRIPTS = REPOSITORY / "gpusupervisor/cli/completion/shells"
READY = "are you ready? "
NASTY = ("my model", "it's $(touch pwned) `touch pwned`", 'say "hi"; touch pwned', "qwen3:8b", "日本 モデル")
SHELLS = ("bash", "zsh", "fish")

Type = Callable[[str], Awaitable[list[str]]]


class Models(FakeController):
    """An engine with models that somebody has named without a thought of shells."""

    async def plan_warming(self) -> tuple[WarmStep, ...]:
        return tuple(WarmStep("ollama", ModelResidency(name, 1, 1), "warm", "") for name in NASTY)


@pytest.fixture
def controller() -> FakeController:
    return Models()


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Path]:
    program = tmp_path / "bin/gpusupervisorctl"
    program.parent.mkdir()
    real = shlex.join(COMMAND)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = complete ] && exec {real} "$@"\nprintf "%s\\0" "$@" >"{tmp_path}/new"\n'
        f'mv "{tmp_path}/new" "{tmp_path}/given"\n'
    )
    program.chmod(0o755)
    yield program
    assert not list(tmp_path.glob("pwned"))


def command(shell: str, folder: Path) -> tuple[str, ...]:
    """The shell without anybody's configuration, with our completion and a prompt that can be waited for."""
    start = folder / "start"
    match shell:
        case "bash":
            start.write_text(f"PS1='{READY}'; . {SCRIPTS}/gpusupervisorctl.bash\n")
            return ("bash", "--noprofile", "--rcfile", str(start), "-i")
        case "zsh":
            (folder / ".zshrc").write_text(
                f"fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste\n"
                f"PS1='{READY}'\n"
            )
            return ("zsh", "-d", "-i")
    start.write_text(f"function fish_prompt; printf '{READY}'; end; source {SCRIPTS}/gpusupervisorctl.fish\n")
    return ("fish", "--no-config", "--init-command", f"source {start}")


@pytest.fixture(params=SHELLS)
async def typed(request: pytest.FixtureRequest, bus: PrivateBus, stand_in: Path, tmp_path: Path) -> AsyncIterator[Type]:
    """Types keys at a prompt and Return; what the program was given then."""
    shell = str(request.param)
    need(shell)
    home = str(tmp_path)
    environment = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address, "HOME": home, "ZDOTDIR": home, "TERM": "xterm"}
    terminal = await PseudoTerminal.run(
        "env", f"--chdir={home}", f"PATH={stand_in.parent}:/usr/bin:/bin", *command(shell, tmp_path),
        environment=environment, columns=200,
    )  # fmt: skip
    await terminal.wait_for(READY)
    given = tmp_path / "given"

    async def type_(keys: str) -> list[str]:
        given.unlink(missing_ok=True)
        terminal.press(f"{keys}\r".encode())
        async with asyncio.timeout(15):
            while not given.exists():
                await asyncio.sleep(0.02)
        return given.read_text().split("\0")[:-1]

    yield type_
    terminal.press(b"\x15exit\r")
    await terminal.end()


async def test_commands_options_and_names(typed: Type, service: BusService) -> None:
    service.publish(make_state())
    assert await typed("gpusupervisorctl rele\tol\t") == ["release", "ollama"]
    assert await typed("gpusupervisorctl automatic of\t") == ["automatic", "off"]
    assert await typed("gpusupervisorctl plan --gp\tGPU\tcom\t") == ["plan", "--gpu", CARD, "comfyui"]
    assert await typed("gpusupervisorctl profile conf\t") == ["profile", "confirm"]


@pytest.mark.parametrize(("begun", "name"), [("my", NASTY[0]), ("it", NASTY[1]), ("say", NASTY[2]), ("日", NASTY[4])])
async def test_a_name_of_any_kind_arrives_as_it_is(typed: Type, service: BusService, begun: str, name: str) -> None:
    service.publish(make_state())
    assert await typed(f"gpusupervisorctl warm ollama {begun}\t") == ["warm", "ollama", name]


async def test_a_colon_within_a_name_is_no_end_of_it(typed: Type, service: BusService) -> None:
    service.publish(make_state())
    assert await typed("gpusupervisorctl warm ollama qw\t") == ["warm", "ollama", "qwen3:8b"]
    assert await typed("gpusupervisorctl warm ollama qwen3:\t") == ["warm", "ollama", "qwen3:8b"]


async def test_what_was_begun_in_quotes_is_ended_in_them(typed: Type, service: BusService) -> None:
    service.publish(make_state())
    assert await typed("gpusupervisorctl warm ollama 'my m\t") == ["warm", "ollama", "my model"]
    assert await typed('gpusupervisorctl warm ollama "my m\t') == ["warm", "ollama", "my model"]


async def test_files_are_the_shells_own(typed: Type, tmp_path: Path) -> None:
    (tmp_path / "some tenant.toml").touch()
    assert await typed("gpusupervisorctl lint some\t") == ["lint", "some tenant.toml"]


async def test_without_the_service_nothing_is_said_and_nothing_changed(typed: Type) -> None:
    assert await typed("gpusupervisorctl release ol\t") == ["release", "ol"]
    assert await typed("gpusupervisorctl rele\tx") == ["release", "x"]
