"""Names from a service that is real, and from answers that are not."""

import resource
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.completion import names as completion
from gpusupervisor.cli.completion.names import bare, names
from gpusupervisor.cli.registry import Completes
from tests.bus.builders import CARD, make_state
from tests.bus.conftest import PERMISSIVE, PrivateBus, need
from tests.cli.conftest import COMMAND, Run

BEST_OF = 5
SLOWEST = 0.150
"""Seconds of CPU in the best run; the time itself is a figure of make bench."""


@pytest.fixture(autouse=True)
def _busctl() -> None:
    need("busctl")


async def values(ctl: Run, *words: str) -> list[str]:
    shown = await ctl("complete", "zsh", "--", *words)
    assert (shown.status, shown.errors) == (0, "")
    return sorted(line.split("\t")[0] for line in shown.output.splitlines())


async def test_names_are_those_that_the_service_knows(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    assert await values(ctl, "release", "") == ["comfyui", "ollama"]
    assert await values(ctl, "plan", "--gpu", "") == [CARD]
    assert await values(ctl, "warm", "") == ["comfyui", "ollama"]
    assert await values(ctl, "warm", "ollama", "") == ["qwen3:8b", "x:1b"]
    assert await values(ctl, "warm", "comfyui", "") == []
    shown = await ctl("complete", "fish", "--", "release", "")
    assert "ollama\tOllama, busy\n" in shown.output


async def test_without_a_service_there_are_no_names_and_no_words_about_it(ctl: Run, bus: PrivateBus) -> None:
    for words in (("release", ""), ("warm", "ollama", ""), ("job", "")):
        shown = await ctl("complete", "fish", "--", *words)
        assert (shown.status, shown.output, shown.errors) == (0, "", "")


async def test_without_a_bus_too(ctl: Run, bus: PrivateBus) -> None:
    shown = await bus.run(
        "env", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere", *COMMAND, "complete", "zsh", "--", "tenant", ""
    )
    assert (shown.status, shown.output, shown.errors) == (0, "", "")


async def test_the_service_is_never_started(tmp_path: Path) -> None:
    """A bus that could start it, by a program that leaves a trace."""
    trace = tmp_path / "started"
    (tmp_path / "services").mkdir()
    (tmp_path / "services/org.gpusupervisor1.service").write_text(
        f"[D-BUS Service]\nName=org.gpusupervisor1\nExec=/bin/touch {trace}\n"
    )
    could = f'<servicedir>{tmp_path}/services</servicedir><limit name="service_start_timeout">300</limit>'
    bus = PrivateBus(PERMISSIVE.replace("<policy", f"{could}<policy", 1))
    try:
        shown = await bus.run(*COMMAND, "complete", "zsh", "--", "release", "")
        assert (shown.status, shown.output, shown.errors) == (0, "", "")
        assert not trace.exists()
        assert (await bus.run(*COMMAND, "status")).status == 3
        assert not trace.exists(), "a command that only looks does not start it either"
        called = (f"--address={bus.address}", "call", "org.gpusupervisor1", "/", "org.freedesktop.DBus.Peer", "Ping")
        await bus.run("busctl", *called)
        assert trace.exists(), "this bus does not start it at all"
    finally:
        bus.stop()


async def test_it_is_quick(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    took = []
    for _ in range(BEST_OF):
        begun = cpu_time()
        assert await values(ctl, "release", "") == ["comfyui", "ollama"]
        took.append(cpu_time() - begun)
    assert min(took) < SLOWEST


def cpu_time() -> float:
    """Seconds that programs which have ended took; unlike time, no matter of what else runs here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "arguments", [(), ("bash",), ("bash", "x", "y", "z"), ("csh", "--", ""), ("zsh", "--"), ("zsh", "x")]
)
async def test_called_in_another_way_it_says_nothing(ctl: Run, bus: PrivateBus, arguments: tuple[str, ...]) -> None:
    shown = await ctl("complete", *arguments)
    assert (shown.status, shown.output, shown.errors) == (0, "", "")


def objects(**interfaces: object) -> dict[str, object]:
    return {
        f"/{number}": {f"org.gpusupervisor1.{name}": values} for number, (name, values) in enumerate(interfaces.items())
    }


def answering(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setattr(completion, "_call", lambda *_: answer)


@pytest.mark.parametrize(
    ("kind", "interface", "found"),
    [
        ("job", {"Job": {"Id": 3, "Kind": "autotune", "State": "running"}}, [("3", "autotune, running")]),
        ("check", {"Health": {"Checks": [{"id": "driver", "summary": "it answers"}]}}, [("driver", "it answers")]),
        ("model", {"Engine": {"Id": "ollama", "Engine": "ollama", "Models": [{"name": "x:1b"}]}}, [("x:1b", "ollama")]),
    ],
)
def test_names_of_each_kind(
    kind: Completes, interface: dict[str, object], found: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, objects(**interface))
    assert [(each.value, each.about) for each in names(kind, "")] == found


def test_names_that_would_steer_a_terminal_or_break_a_line_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ("", "a\nb", "\x1b[2J", "x\ty", "-rf", "y" * 500, "z\u202ew")
    jobs = [{"name": name} for name in (*bad, "good one")]
    answering(monkeypatch, objects(Engine={"Id": "e", "Engine": "e", "Models": jobs}))
    assert [each.value for each in names("model", "e")] == ["good one"]


@pytest.mark.parametrize("answer", [None, [], "text", 3])
def test_answers_of_another_shape_are_no_names(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, answer)
    assert names("tenant", "") == []


def test_types_are_taken_off() -> None:
    assert bare({"a": {"type": "as", "data": ["x", {"type": "u", "data": 1}]}}) == {"a": ["x", 1]}
