"""What an engine in a unit of its own is set to: the file that says so, and what waits for a restart."""

import json
from collections.abc import Iterator

import pytest

from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT, USER
from tests.system.machine import Machine
from tests.system.test_simulated_card import CARD, DROP_INS, OF_HELPER, PYTHON, properties, stop_both

ENGINE = "ollama.service"
PORT = 11777
SERVICE = f"/run/systemd/system/{ENGINE}"
KEEP = f"{SERVICE}.d/keep.conf"
SECRET = f"{SERVICE}.d/secret.conf"
VARIABLES = "/etc/ollama.env"
LOCKED = "/etc/ollama-secret.env"
COMMAND = f"{PYTHON} -m gpusupervisor.simulation.engines.ollama --card={CARD} --model=small=8G --port={PORT}"


@pytest.fixture(scope="module")
def engine(machine: Machine) -> Iterator[Machine]:
    """The service over a simulated card, and an idle Ollama of another user that holds no VRAM."""
    machine.run(PYTHON, "-c", f"from gpusupervisor.simulation.nvml import SimulatedCard as C; C({CARD!r}).write_card()")
    for path, program in DROP_INS.items():
        command = f"{PYTHON} -m gpusupervisor.simulation.{program} --card {CARD}"
        text = f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=\nExecStart={command}\n"
        machine.write(path, text + (OF_HELPER if HELPER_UNIT in path else ""))
    environment = f"Environment=OLLAMA_HOST=127.0.0.1:{PORT} OLLAMA_NUM_PARALLEL=1\nEnvironmentFile={VARIABLES}"
    machine.write(SERVICE, f"[Service]\nUser={USER}\nExecStart={COMMAND}\n{environment}\n")
    machine.write(KEEP, "[Service]\nEnvironment=OLLAMA_KEEP_ALIVE=1h\n")
    machine.write(VARIABLES, "# by hand\nOLLAMA_MAX_LOADED_MODELS='1'\n")
    machine.run("systemctl", "daemon-reload")
    stop_both(machine)
    machine.run("systemctl", "start", UNIT, ENGINE)
    yield machine
    machine.run("systemctl", "stop", ENGINE, check=False)
    machine.run("rm", "-rf", *DROP_INS, SERVICE, f"{SERVICE}.d", VARIABLES, LOCKED)
    machine.run("systemctl", "daemon-reload")
    stop_both(machine)
    machine.run("systemctl", "start", UNIT)
    machine.run("busctl", "call", f"{BUS_NAME}.Helper", f"{ROOT}/Helper", "org.freedesktop.DBus.Peer", "Ping")


def shown(machine: Machine) -> dict[str, object]:
    """The engine's properties, as anybody may read them; nothing while it is not there."""
    return properties(machine, f"{ROOT}/engines/ollama", f"{BUS_NAME}.Engine")


def settings(machine: Machine) -> dict[str, dict[str, str]]:
    """By name: what is said of each."""
    listed = shown(machine).get("Settings") or []
    assert isinstance(listed, list)
    plain = [{key: value["data"] for key, value in each.items()} for each in listed]
    return {each["name"]: each for each in plain}


def wait_for(machine: Machine, name: str, **expected: str) -> dict[str, str]:
    """Wait until a setting is shown so."""
    return machine.wait_until(
        f"{name} has {expected}",
        lambda: found if expected.items() <= (found := settings(machine).get(name, {})).items() else {},
        UNIT,
    )


def check(machine: Machine) -> dict[str, str]:
    """The self-check of the engine."""
    health = properties(machine, f"{ROOT}/health", f"{BUS_NAME}.Health")
    listed = health["Checks"]
    assert isinstance(listed, list)
    found = ({key: value["data"] for key, value in each.items()} for each in listed)
    return next((each for each in found if each["id"] == "engine-ollama"), {})


def test_an_idle_engine_without_vram_is_reached_where_its_unit_has_it_listen(engine: Machine) -> None:
    endpoint = f"http://127.0.0.1:{PORT}"
    engine.wait_until("it is reached", lambda: shown(engine).get("Reachable"), UNIT)
    found = shown(engine)
    assert (found["Endpoint"], found["Unit"]) == (endpoint, ENGINE)
    engine.wait_until("its version is known", lambda: shown(engine).get("Version") == "0.33.0", UNIT)
    assert f", at {endpoint}" in engine.journal(UNIT)


def test_each_setting_has_the_file_that_says_so_and_what_it_means(engine: Machine) -> None:
    parallel = wait_for(engine, "OLLAMA_NUM_PARALLEL", value="1", source=SERVICE)
    assert "an unload waits behind a generation that is running" in parallel["meaning"]
    wait_for(engine, "OLLAMA_KEEP_ALIVE", value="1h", source=KEEP, pending="")
    loaded = wait_for(engine, "OLLAMA_MAX_LOADED_MODELS", value="1", source=VARIABLES)
    assert "evicts" in loaded["meaning"]
    engine.wait_until("all is in force", lambda: check(engine).get("state") == "ok", UNIT)


def test_a_change_is_noticed_at_the_reload_and_waits_for_the_restart(engine: Machine) -> None:
    wait_for(engine, "OLLAMA_KEEP_ALIVE", value="1h", pending="")
    engine.write(KEEP, "[Service]\nEnvironment=OLLAMA_KEEP_ALIVE=-1\n")
    engine.run("systemctl", "daemon-reload")
    wait_for(engine, "OLLAMA_KEEP_ALIVE", value="1h", pending="-1")
    told = check(engine)
    assert told["state"] == "degraded"
    assert f"systemctl restart {ENGINE} to bring" in told["remedy"]
    assert "OLLAMA_KEEP_ALIVE is configured but not in force" in told["summary"]
    engine.run("systemctl", "restart", ENGINE)
    after = wait_for(engine, "OLLAMA_KEEP_ALIVE", value="-1", source=KEEP, pending="")
    assert "pinned" in after["meaning"]
    engine.wait_until("all is in force", lambda: check(engine).get("state") == "ok", UNIT)


def test_what_a_file_of_roots_says_is_known_of_the_running_process(engine: Machine) -> None:
    engine.write(LOCKED, "OLLAMA_CONTEXT_LENGTH=8192\nOLLAMA_API_KEY=hunter2\n")
    engine.run("chmod", "600", LOCKED)
    engine.write(SECRET, f"[Service]\nEnvironmentFile={LOCKED}\n")
    engine.run("systemctl", "daemon-reload")
    engine.run("systemctl", "restart", ENGINE)
    found = wait_for(engine, "OLLAMA_CONTEXT_LENGTH", value="8192", source="environment", pending="")
    assert "8192 tokens" in found["meaning"]
    assert "hunter2" not in json.dumps(shown(engine))


def test_the_command_line_tool_shows_them_to_everybody(engine: Machine) -> None:
    wait_for(engine, "OLLAMA_NUM_PARALLEL", value="1")
    output = engine.output("gpusupervisorctl", "engine", "ollama", user=USER)
    assert f"OLLAMA_NUM_PARALLEL = 1  {SERVICE}" in output
    assert "ollama" in engine.output("gpusupervisorctl", "engines", user=USER)
