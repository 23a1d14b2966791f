"""The parts of `setup`: how a process is described, where models are, what is hinted at, how it looks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.cli.screens.setup import found, proposal
from gpusupervisor.cli.setup.applications import name_for, way_to
from gpusupervisor.cli.setup.findings import Findings, Process, Tenant, Unit
from gpusupervisor.cli.setup.item import Item
from gpusupervisor.cli.setup.model_folders import covers, folder_of
from gpusupervisor.cli.setup.proposals import Advice, Proposal, advise
from gpusupervisor.cli.setup.systemd import services, user_bus
from gpusupervisor.cli.setup.toml_text import Change
from gpusupervisor.cli.terminal import Canvas
from tests.bus.conftest import PrivateBus
from tests.cli.fake_systemd import FakeSystemd
from tests.cli.fake_systemd import Unit as FakeUnit
from tests.cli.screens import NASTY, drawn, is_harmless
from tests.cli.shapes_of import EVERY_SCRIPT, GIB, gpu

OK = {"id": "driver", "state": "ok", "summary": "driver 580 answers", "impact": "", "remedy": ""}
OLLAMA = {
    "engine": "ollama", "endpoint": {"url": "http://127.0.0.1:11434", "own-port": True},
    "models": {"directories": ["/usr/share/ollama"]}, "needs-vram": "auto",
}  # fmt: skip


def process(name: str = "render", **more: Any) -> Process:
    base = Process(4242, name, 2 * GIB, executable=name.partition(" ")[0])
    return replace(base, **more)


def tenant(name: str = "ollama", **more: Any) -> Tenant:
    base = Tenant(name, name, "idle", False, 2 * GIB, True, None, "http://127.0.0.1:11434", True, "", (), OLLAMA)
    return replace(base, **more)


def findings(tenants: Sequence[Tenant] = (), **more: Any) -> Findings:
    by_id = {each.id: each for each in tenants}
    return replace(Findings(OK, (gpu(),), by_id, frozenset(by_id), (), ()), **more)


@pytest.mark.parametrize(
    ("one", "key", "pattern"),
    [
        (process(unit="render.service"), "units", "render.service"),
        (process(unit="user@1000.service", user_unit="render.service"), "user-units", "render.service"),
        (process(unit="user@1000.service", user_unit="app-gnome-render-4242.scope"), "executables", "*/render"),
        (process(unit="docker.service", container="a" * 64), "executables", "*/render"),
        (process(unit="run-r3f.service"), "executables", "*/render"),
        (process(container="studio"), "containers", "studio"),
        (process("re[n]der"), "executables", "*/re[[]n]der"),
        (process("python3.11 train_x.py"), "command-lines", "*python*[/ ]train_x.py"),
        (process("python3.11 -m kohya.train"), "command-lines", "*python* -m kohya.train"),
        (
            process("python3.11 main.py", command_line=("python", "/home/me/kohya_ss/main.py")),
            "command-lines", "*python*/kohya_ss/main.py",
        ),
        (process("python3.11 main.py"), "command-lines", "*python*[/ ]main.py"),
    ],
)  # fmt: skip
def test_a_process_is_recognised_by_what_outlives_most(one: Process, key: str, pattern: str) -> None:
    way = way_to(one, [one])
    assert way is not None
    assert (way.key, way.patterns[0]) == (key, pattern)


@pytest.mark.parametrize("name", ["python3.11", "bash", "", "python3.11 -m torch.distributed.run"])
def test_what_nothing_tells_apart_is_not_described(name: str) -> None:
    assert way_to(process(name), []) is None
    [hint] = advise(findings(strangers=(process(name),))).hints
    assert "systemd-run --user --unit=NAME" in hint


def test_what_is_not_unambiguous_is_told_apart_by_its_folder() -> None:
    one, other = process(path="/opt/a/render"), process(path="/opt/b/render", pid=2)
    way = way_to(one, [one, other])
    assert way is not None
    assert way.patterns == ("/opt/a/render",)
    again = way_to(one, [one, replace(one, pid=3)])
    assert again is not None
    assert again.patterns == ("*/render",)


def test_a_name_is_a_tenants_id_that_is_not_taken() -> None:
    way = way_to(process(unit="über@1 x.service"), [])
    assert way is not None
    assert name_for(way, frozenset()) == "ber-1-x"
    assert name_for(way, frozenset({"ber-1-x", "ber-1-x-2"})) == "ber-1-x-3"


@pytest.mark.parametrize(
    ("engine", "line", "environment", "folder"),
    [
        ("ollama", [], {"OLLAMA_MODELS": "/data/models/"}, "/data/models"),
        ("ollama", [], {"OLLAMA_MODELS": "models"}, ""),
        ("ollama", [], {"OLLAMA_MODELS": "/"}, ""),
        ("ollama", [], {"OLLAMA_MODELS": "//a/../b"}, "/b"),
        ("llama.cpp", ["llama-server", "-m", "/data/x.gguf"], {}, "/data"),
        ("llama.cpp", ["llama-server", "-m", "/a/x.gguf", "--models-dir=/b"], {}, "/b"),
        ("vllm", [], {"HF_HOME": "/data/hf"}, "/data/hf/hub"),
        ("comfyui", ["python", "main.py", "--base-directory", "/data/c"], {}, "/data/c/models"),
        ("comfyui", ["python", "main.py", "--base-directory"], {}, ""),
        ("comfyui", ["python", "main.py", "--base-directory", "/data/c", "--models-directory", "/m"], {}, "/m"),
        ("tabbyapi", ["python", "main.py"], {"TABBY_MODEL_MODEL_DIR": "/srv/exl"}, "/srv/exl"),
        ("invokeai", ["invokeai-web", "--root", "/srv/i"], {"INVOKEAI_MODELS_DIR": "/m"}, "/m"),
        ("lm-studio", ["x", "--model", "/a/b"], {}, ""),
    ],
)  # fmt: skip
def test_a_unit_says_where_models_are(engine: str, line: list[str], environment: dict[str, str], folder: str) -> None:
    assert folder_of(engine, line, environment)[0] == folder
    assert not folder or covers([folder], f"{folder}/x")
    assert not covers(["/data"], "/database")


def test_an_engine_that_does_not_answer_is_hinted_at_with_what_is_known() -> None:
    unit = Unit("ollama.service", False, "active", "ollama", "http://127.0.0.1:11434", (), {}, ("/etc/default/ollama",))
    silent = tenant(reachable=False, detail="nothing listens there", processes=(process(ports=(1, 2)),))
    advice = advise(findings([silent], units=(unit,)))
    assert advice.proposals == ()
    assert advice.hints == (
        "ollama cannot be reached at http://127.0.0.1:11434: nothing listens there (its processes listen on 1, 2; its"
        " address may be set in /etc/default/ollama)."
        " If it is elsewhere, set url in [endpoint] with: gpusupervisorctl edit ollama",
    )
    assert advise(findings([tenant()], units=(unit,))).hints == ()


@pytest.mark.parametrize(("reachable", "proposed"), [(True, 0), (False, 1)])
def test_an_address_at_which_the_engine_was_found_is_not_proposed(reachable: bool, proposed: int) -> None:
    url = "http://127.0.0.1:11500"
    unit = Unit("ollama.service", True, "active", "ollama", url)
    found = findings([tenant(endpoint=url, reachable=reachable)], units=(unit,))
    assert len(advise(found).proposals) == proposed


def test_a_stopped_unit_is_named_and_nothing_is_proposed_for_it() -> None:
    unit = Unit("ollama.service", False, "stopped", "ollama", "http://127.0.0.1:1", (), {})
    stopped = findings([tenant(holding=0, reachable=False)], units=(unit,))
    assert advise(stopped) == Advice((), ())
    assert "unit ollama.service" in drawn(found(stopped, advise(stopped), Canvas(80, False, True)))


@pytest.mark.parametrize("used", [None, 2 * GIB, GIB // 8])
def test_only_who_holds_enough_is_proposed(used: int | None) -> None:
    advice = advise(findings(strangers=(process(used=used),)))
    assert bool(advice.proposals) == (used != GIB // 8)


@pytest.mark.parametrize(
    ("environment", "uid", "address"),
    [
        ({"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}, 1000, "unix:path=/x"),
        ({}, 4_000_000, ""),
        ({"SUDO_UID": "4000000"}, 0, ""),
        ({"SUDO_UID": "../../tmp"}, 0, ""),
        ({}, 0, ""),
    ],
)  # fmt: skip
def test_the_users_bus_is_the_users_own(environment: dict[str, str], uid: int, address: str) -> None:
    assert user_bus(environment, uid) == address


async def test_services_are_told_with_how_they_are_started(bus: PrivateBus, tmp_path: Path) -> None:
    file = tmp_path / "d.env"
    file.write_text("ARGS=--port 8081\nGONE=1\n")
    units = [
        FakeUnit(
            "a.service", command=["/bin/a", "--port", "${PORT}", "$OTHER", "${NONE}x", "$$HOME", "a$PORT"],
            environment=["PORT=1", "EMPTY="],
        ),
        FakeUnit("b.service", "failed", environment_files=["/etc/default/b"]),
        FakeUnit("c.service", "stopped"),
        FakeUnit(
            "d.service", "activating", command=["/bin/d", "$ARGS"], environment_files=[str(file), str(tmp_path)],
            unset=["GONE"],
        ),
    ]  # fmt: skip
    systemd = await FakeSystemd.on(bus.address, units)
    other = await FakeSystemd.connection(bus.address)
    a, d, b, c = await services(other) or []
    assert a.command_line == ("/bin/a", "--port", "1", "x", "$HOME", "a$PORT")
    assert a.environment == ("PORT=1", "EMPTY=")
    assert d.command_line == ("/bin/d", "--port", "8081")
    assert (d.state, d.environment, d.unreadable) == ("activating", ("ARGS=--port 8081",), (str(tmp_path),))
    assert [(each.name, each.state) for each in (b, c)] == [("b.service", "failed"), ("c.service", "stopped")]
    _, elsewhere, *_ = await services(other, local=False) or []
    assert (elsewhere.command_line, elsewhere.unreadable) == (("/bin/d",), (str(file), str(tmp_path)))
    await systemd.leave()
    assert await services(other) is None
    other.disconnect()


def test_without_a_driver_it_says_what_its_check_says() -> None:
    driver = {"id": "driver", "state": "failed", "summary": "libnvidia-ml.so.1 is not installed",
              "impact": "nothing is known of any GPU", "remedy": "install libnvidia-ml1"}  # fmt: skip
    nothing = findings(driver=driver, gpus=())
    screen = drawn(found(nothing, advise(nothing), Canvas(80, False, True)))
    assert screen == ("! libnvidia-ml.so.1 is not installed\n  nothing is known of any GPU\n  install libnvidia-ml1")


@pytest.mark.parametrize("width", [80, 200])
def test_whatever_others_write_the_screen_stays_whole(width: int) -> None:
    names = (*EVERY_SCRIPT, NASTY)
    strangers = tuple(process(name, pid=number, executable=name) for number, name in enumerate(names, 1))
    unit = Unit(NASTY, True, "active", "ollama", f"http://{NASTY}", (), {"OLLAMA_MODELS": f"/{NASTY}"}, (NASTY,))
    machine = findings([tenant(reachable=False, detail=NASTY)], strangers=strangers, units=(unit,), notes=(NASTY,))
    advice = advise(machine)
    screens = found(machine, advice, Canvas(width, False, True))
    for each in advice.proposals:
        item = Item(each, Path("/etc") / NASTY, None, each.text(None))
        screens += proposal(item, 1, 1)
    text = drawn(screens, width)
    assert is_harmless(text)
    assert all(len(line) <= width for line in text.splitlines())


def test_what_changes_in_a_file_is_shown_as_a_diff() -> None:
    change = Change(("endpoint", "url"), "http://127.0.0.1:1", "it listens there")
    made = Proposal("ollama", ("it listens there",), (change,))
    before = "priority = 3\n"
    item = Item(made, Path("/etc/ollama.toml"), before, made.text(before))
    assert drawn(proposal(item, 1, 2)).splitlines()[1:] == [
        "1 of 2  /etc/ollama.toml  extended",
        "    @@ -1 +1,5 @@",
        "     priority = 3",
        "    +",
        "    +[endpoint]",
        "    +# it listens there",
        '    +url = "http://127.0.0.1:1"',
    ]
