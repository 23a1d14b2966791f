"""The proxy that `setup` offers: for which units, with which files, and what is done and undone."""

import asyncio
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from blockbuster import BlockBuster

from gpusupervisor.cli import overrides
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.setup import front_writing
from gpusupervisor.cli.setup.findings import Tenant, Unit
from gpusupervisor.cli.setup.front import Front, front_of
from gpusupervisor.cli.setup.front_writing import FrontItem, FrontWriter
from gpusupervisor.cli.setup.systemd import services
from gpusupervisor.cli.setup.toml_text import CannotExtend
from gpusupervisor.cli.setup.writing import Mode
from tests.bus.conftest import PrivateBus
from tests.cli.fake_systemd import FakeSystemd
from tests.cli.fake_systemd import Unit as FakeUnit

COMMAND = ("/usr/bin/llama-server", "-m", "/srv/a b%.gguf", "--port", "8080")
PROXYD = Path("/usr/lib/systemd/systemd-socket-proxyd")


def tenant(engine: str = "llama.cpp", **more: Any) -> Tenant:
    base = Tenant("llm", engine, "idle", False, 1, True, None, "http://127.0.0.1:8080", True, "", (), {"title": "x"})
    return replace(base, **more)


def unit(*command: str, **more: Any) -> Unit:
    words = command or COMMAND
    base = Unit("llm.service", False, "active", "llm", "http://127.0.0.1:8080", words, {}, (), words)
    return replace(base, **more)


def front(**more: Any) -> Front:
    found = front_of(unit(**more), tenant(), ())
    assert found is not None
    return found


def test_the_socket_takes_the_usual_address_and_the_engine_another_port_of_this_machine_alone() -> None:
    files = front().unit_files(PROXYD)
    assert list(files) == ["llm-proxy.socket", "llm-proxy.service", "llm.service.d/50-gpusupervisor-proxy.conf"]
    assert "ListenStream=127.0.0.1:8080\n" in files["llm-proxy.socket"]
    assert f"ExecStart={PROXYD} 127.0.0.1:18080\n" in files["llm-proxy.service"]
    assert "http://127.0.0.1:18080/health\n" in files["llm-proxy.service"]
    assert files["llm.service.d/50-gpusupervisor-proxy.conf"].endswith(
        'ExecStart=\nExecStart=/usr/bin/llama-server -m "/srv/a b%%.gguf" --port 18080 --host 127.0.0.1\n'
    )


@pytest.mark.parametrize(
    ("engine", "words", "environment", "listen"),
    [
        ("llama.cpp", ("llama-server", "--host", "0.0.0.0"), {}, "8080"),
        ("llama.cpp", ("llama-server", "--host=::1"), {}, "[::1]:8080"),
        ("llama.cpp", ("llama-server", "--host", "localhost"), {}, "127.0.0.1:8080"),
        ("llama.cpp", ("llama-server",), {"LLAMA_ARG_HOST": "192.168.1.2"}, "192.168.1.2:8080"),
        ("llama.cpp", ("llama-server", "--host", "1.1.1.1", "--host", "192.168.1.2"), {}, "192.168.1.2:8080"),
        ("vllm", ("vllm", "serve", "m"), {}, "8080"),
        ("koboldcpp", ("koboldcpp",), {}, "8080"),
        ("sglang", ("sglang",), {}, "127.0.0.1:8080"),
    ],
)
def test_the_proxy_is_reached_from_where_the_engine_was(
    engine: str, words: tuple[str, ...], environment: dict[str, str], listen: str
) -> None:
    found = front_of(unit(*words, environment=environment), tenant(engine), ())
    assert found is not None
    assert found.listen == listen
    assert "127.0.0.1" in " ".join(found.command)


@pytest.mark.parametrize(
    ("one", "whose"),
    [
        (unit(), tenant("ollama")),
        (unit(), tenant(definition={"release": [{"post": "/free"}]})),
        (unit(), tenant(protected=True)),
        (unit(of_user=True), tenant()),
        (unit(state="stopped"), tenant()),
        (unit(command=()), tenant()),
        (unit(endpoint="unix:/run/llm"), tenant()),
        (unit(endpoint=""), tenant()),
        (unit(name="a b.service"), tenant()),
        (unit("llama-server", "--host", "llm.example"), tenant()),
        (unit("python3", "-m", "llama_cpp.server"), tenant()),
    ],
)
def test_where_there_is_no_sure_way_or_nothing_to_gain_none_is_offered(one: Unit, whose: Tenant) -> None:
    assert front_of(one, whose, ()) is None


def test_a_port_that_something_has_is_not_taken() -> None:
    found = front_of(unit(), tenant(), (18080, 18081))
    assert found is not None
    assert found.port == 18082
    high = front_of(unit(endpoint="http://127.0.0.1:60000"), tenant(), ())
    assert high is not None
    assert high.port == 50000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (("s", "--port=1", "$ARGS"), 's --port=18080 "$ARGS" --host 127.0.0.1'),
        (("s", "${P}", "a$$b"), 's "${P}" "a$$b" --port 18080 --host 127.0.0.1'),
        (("s", ";", 'q"\\'), 's ";" "q\\"\\\\" --port 18080 --host 127.0.0.1'),
    ],
)
def test_the_command_stays_what_it_was_but_for_where_it_listens(written: tuple[str, ...], expected: str) -> None:
    conf = front(command=written).unit_files(PROXYD)["llm.service.d/50-gpusupervisor-proxy.conf"]
    assert conf.splitlines()[-1] == f"ExecStart={expected}"


def test_the_tenants_file_says_where_it_is_and_how_it_is_released() -> None:
    text = front().tenant_text("priority = 7\n[endpoint]\nprefix-flags = []\n")
    assert tomllib.loads(text) == {
        "priority": 7,
        "endpoint": {"url": "http://127.0.0.1:18080", "prefix-flags": []},
        "release": [{"method": "unit", "unit": "llm.service"}],
    }
    for there in ('[[release]]\npost = "/x"\n', "release = []\n", '[endpoint]\nurl = "http://127.0.0.1:1"\n'):
        with pytest.raises(CannotExtend):
            front().tenant_text(there)


@pytest.mark.parametrize(
    ("one", "command"),
    [
        (FakeUnit("a.service", command=COMMAND), COMMAND),
        (FakeUnit("a.service", command=COMMAND, prefixes=["ignore-failure"]), ()),
        (FakeUnit("a.service", command=COMMAND, triggers=["a.socket"]), ()),
    ],
)
async def test_a_command_with_prefixes_or_a_socket_of_its_own_is_left_alone(
    one: FakeUnit, command: tuple[str, ...], bus: PrivateBus
) -> None:
    systemd = await FakeSystemd.on(bus.address, [one])
    client = await FakeSystemd.connection(bus.address)
    [found] = await services(client) or []
    client.disconnect()
    await systemd.leave()
    assert found.command == command


SYSTEMCTL = '#!/bin/sh\nshift\necho "$@" >> "$(dirname "$0")/done"\nif [ "$1" = "$FAILS" ]; then exit 1; fi\n'


class Place:
    """Folders of ours for what setup writes and runs, and a service that finds what `problems` says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.units, self.tenants = folder / "units", folder / "tenants"
        self.units.mkdir()
        (folder / "systemctl").write_text(SYSTEMCTL)
        (folder / "systemctl").chmod(0o755)
        monkeypatch.setattr(overrides, "FOLDER", self.tenants)
        monkeypatch.setattr(front_writing, "UNITS", self.units)
        monkeypatch.setattr(front_writing, "SYSTEMCTL", str(folder / "systemctl"))
        monkeypatch.setattr(front_writing, "CURL", Path("/bin/sh"))
        monkeypatch.setattr(front_writing, "PROXYD", (Path("/bin/sh"),))
        monkeypatch.setattr(front_writing, "answer", self._answer)
        self.typed = "y"
        self.problems: list[str] = []
        self.reload_fails = False
        self.json, self.client = True, self

    async def _answer(self, _question: str) -> str:
        return self.typed

    async def call(self, member: str, *_: object) -> list[str]:
        if member == "Reload" and self.reload_fails:
            raise CommandFailed("the service is gone")
        return self.problems

    def say(self, _text: str) -> None:
        """Nothing is shown."""

    def put(self, mode: Mode = "ask") -> FrontItem:
        [item] = asyncio.run(FrontWriter(cast("Session", self), mode).carry_out((front(),)))
        return item

    def done(self) -> list[str]:
        file = self.folder / "done"
        return file.read_text().splitlines() if file.exists() else []

    def is_untouched(self) -> bool:
        return not list(self.units.rglob("*")) and not list(self.tenants.glob("*"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_blocking_calls: BlockBuster) -> Place:
    no_blocking_calls.deactivate()  # nobody else waits for what setup writes
    return Place(tmp_path, monkeypatch)


def test_after_a_yes_the_unit_is_moved_behind_the_socket_before_it_may_be_stopped(place: Place) -> None:
    assert place.put().outcome == "written"
    assert place.done() == ["daemon-reload", "stop llm.service", "enable --now llm-proxy.socket"]
    assert len(list(place.units.rglob("*"))) == 4
    assert 'unit = "llm.service"' in (place.tenants / "llm.toml").read_text()
    assert place.put().outcome == "left", "what is there is never replaced"


@pytest.mark.parametrize(
    ("mode", "typed", "outcome"),
    [("ask", "n", "declined"), ("ask", "q", "proposed"), ("yes", "y", "left"), ("show", "y", "proposed")],
)
def test_nothing_is_touched_without_a_yes_to_this_very_question(
    place: Place, mode: Mode, typed: str, outcome: str
) -> None:
    place.typed = typed
    assert place.put(mode).outcome == outcome
    assert place.is_untouched()
    assert place.done() == []


@pytest.mark.parametrize("fails", ["stop", "enable"])
def test_when_a_step_fails_all_is_undone(place: Place, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", fails)
    item = place.put()
    assert item.outcome == "failed"
    assert f"{fails} " in item.detail
    assert place.is_untouched()
    assert place.done()[-2:] == ["daemon-reload", "start llm.service"]


def test_a_tenants_file_that_is_not_in_force_does_not_stay(place: Place) -> None:
    place.reload_fails = True
    assert place.put().outcome == "failed"
    assert place.is_untouched()


def test_a_tenants_file_that_is_wrong_is_known_before_anything_is_touched(place: Place) -> None:
    place.problems = ["it is wrong"]
    assert (place.put().detail, place.done()) == ("it is wrong", [])
    assert place.is_untouched()


async def test_in_a_command_without_expansion_variables_stay_as_they_stand(bus: PrivateBus) -> None:
    command = ("/bin/llama-server", "$ARGS", "a$$b")
    unit = FakeUnit("a.service", command=command, prefixes=["no-env-expand"], environment=["ARGS=--port 1"])
    systemd = await FakeSystemd.on(bus.address, [unit])
    client = await FakeSystemd.connection(bus.address)
    [found] = await services(client) or []
    client.disconnect()
    await systemd.leave()
    assert found.command_line == command
