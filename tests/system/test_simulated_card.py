"""The installed service, in its own hardened unit, over a simulated card with engines that run as other units."""

import json
from collections.abc import Iterator

import pytest

from tests.system.conftest import BUS_NAME, HELPER_UNIT, READER_UNIT, ROOT, UNIT, USER, stop_helper, stop_reader
from tests.system.machine import Machine

PYTHON = "/usr/local/lib/gpusupervisor/venv/bin/python"
CARD = "/var/lib/simulated-card"
DROP_INS = {
    f"/run/systemd/system/{UNIT}.d/card.conf": "daemon",
    f"/run/systemd/system/{HELPER_UNIT}.d/card.conf": "helper_daemon --idle=3",
    f"/run/systemd/system/{READER_UNIT}.d/card.conf": "reader_daemon --idle=3",
}
"""What runs in the place of the services' own programs."""
RESTORE = f"{PYTHON} -m gpusupervisor.simulation.helper_daemon --restore-fans --card {CARD}"
OF_HELPER = f"""\
ExecStartPre=
ExecStartPre=-{RESTORE}
ExecStopPost=
ExecStopPost={RESTORE}
ReadWritePaths={CARD}
"""
"""It sets what the real one sets in the card."""
MODEL_FILES = """\
import json, pathlib
folder, digest = pathlib.Path("/usr/share/ollama/.ollama/models"), "ab" * 32
manifest, blobs = folder / "manifests/registry.ollama.ai/library/small/latest", folder / "blobs"
manifest.parent.mkdir(parents=True, exist_ok=True)
blobs.mkdir(exist_ok=True)
manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [{"digest": f"sha256:{digest}", "size": 4096}]}))
(blobs / f"sha256-{digest}").write_bytes(b"x" * 4096)
"""
"""Puts a model where Ollama's package has it."""
GIB = 1 << 30
LONG = 40.0
"""Seconds: an engine counts as idle once it has been quiet for ten, and every look may be seconds after the last."""


@pytest.fixture(scope="module")
def card(machine: Machine) -> Iterator[Machine]:
    """The machine with the service reading the simulated card, and Ollama holding a model of 8 GiB."""
    machine.run(PYTHON, "-c", f"from gpusupervisor.simulation.nvml import SimulatedCard as C; C({CARD!r}).write_card()")
    machine.run(PYTHON, "-c", MODEL_FILES)
    for path, program in DROP_INS.items():
        command = f"{PYTHON} -m gpusupervisor.simulation.{program} --card {CARD}"
        text = f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=\nExecStart={command}\n"
        machine.write(path, text + (OF_HELPER if HELPER_UNIT in path else ""))
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--quiet", UNIT)
    stop_both(machine)
    machine.run("systemctl", "start", UNIT)
    start_engine(machine, "ollama.service", "ollama", "--model=small=8G", "--keep-alive=1h")
    yield machine
    machine.run("systemctl", "stop", "ollama.service", "mystery.service", check=False)
    machine.run("rm", *DROP_INS)
    machine.run("systemctl", "daemon-reload")
    stop_both(machine)
    machine.run("systemctl", "start", UNIT)


def stop_both(machine: Machine) -> None:
    """Stop all services, first the one that calls the others."""
    machine.run("systemctl", "stop", UNIT)
    stop_helper(machine)
    stop_reader(machine)


def start_engine(machine: Machine, unit: str, name: str, *arguments: str) -> None:
    """Run a simulated engine as a unit of an ordinary user, whose processes the service may not look into."""
    options = ["--quiet", "--collect", f"--unit={unit}", f"--uid={USER}"]
    module = f"gpusupervisor.simulation.engines.{name}"
    machine.run("systemd-run", *options, PYTHON, "-m", module, f"--card={CARD}", *arguments)


def hold_a_model(machine: Machine) -> None:
    """Make Ollama load its model, as a request without a prompt does, unless it is seen holding it."""
    program = (
        "import http.client as h, time\n"
        "for _ in range(50):\n"
        "  try: c = h.HTTPConnection('127.0.0.1', 11434, timeout=30); c.connect(); break\n"
        "  except OSError: time.sleep(0.1)\n"
        "c.request('POST', '/api/generate', '{\"model\": \"small\"}'); assert c.getresponse().status == 200"
    )
    if not tenant(machine, "ollama").get("Holding"):
        machine.run(PYTHON, "-c", program)
    whole = 7 * GIB
    machine.wait_until(
        "the whole model is seen", lambda: int(str(tenant(machine, "ollama").get("Holding") or 0)) > whole, UNIT
    )


def tenant(machine: Machine, name: str) -> dict[str, object]:
    """A tenant's properties, as anybody may read them; nothing while it is not there."""
    return properties(machine, f"{ROOT}/tenants/{name}", f"{BUS_NAME}.Tenant")


def gpu(machine: Machine) -> dict[str, object]:
    """The card's properties."""
    paths = machine.output("busctl", "tree", "--list", BUS_NAME).splitlines()
    (path,) = (path for path in paths if path.startswith(f"{ROOT}/gpus/"))
    return properties(machine, path, f"{BUS_NAME}.Gpu")


def properties(machine: Machine, path: str, interface: str) -> dict[str, object]:
    """All properties of an object, read by the ordinary user."""
    call = ("busctl", "--json=short", "call", BUS_NAME, path, "org.freedesktop.DBus.Properties", "GetAll", "s")
    answer = machine.run(*call, interface, user=USER, check=False)
    if answer.returncode != 0:
        return {}
    return {key: value["data"] for key, value in json.loads(answer.stdout)["data"][0].items()}


def test_the_status_line_says_who_holds_how_much(card: Machine) -> None:
    hold_a_model(card)
    line = card.wait_until(
        "STATUS= names Ollama",
        lambda: text if "ollama" in (text := card.property(UNIT, "StatusText")) and ": 8." in text else "",
        UNIT,
    )
    assert line.startswith("RTX 4090: 8.")
    assert "GiB held - ollama " in line
    assert line.endswith(" - healthy")


def test_every_self_check_is_well_within_the_walls_of_the_units(card: Machine) -> None:
    hold_a_model(card)
    card.wait_until("the model's files are known", lambda: checks(card).get("residency") == "ok", UNIT)
    found = checks(card)
    assert {name: state for name, state in found.items() if state not in ("ok", "skipped")} == {}
    asked = ("driver", "processes", "reader", "polkit", "telemetry", "surroundings", "residency", "api-ollama")
    assert {found[name] for name in (*asked, "model-directories-ollama")} == {"ok"}


def checks(machine: Machine) -> dict[str, str]:
    """The state of every self-check, looked at now."""
    health = (BUS_NAME, f"{ROOT}/health", f"{BUS_NAME}.Health", "Check")
    told = json.loads(machine.output("busctl", "--json=short", "call", *health, user=USER))["data"][0]
    return {each["id"]["data"]: each["state"]["data"] for each in told}


def test_another_users_engine_is_recognised_by_its_unit_and_reached(card: Machine) -> None:
    hold_a_model(card)
    assert abs(int(str(tenant(card, "ollama")["Holding"])) - 8 * GIB) < GIB
    engine = ("busctl", "get-property", BUS_NAME, f"{ROOT}/engines/ollama", f"{BUS_NAME}.Engine", "Reachable")
    card.wait_until("Ollama's API is reached", lambda: card.output(*engine) == "b true", UNIT)


def test_the_user_in_front_of_the_machine_has_an_idle_engine_released_for_real(card: Machine) -> None:
    hold_a_model(card)
    card.wait_until("Ollama is idle", lambda: tenant(card, "ollama").get("Activity") == "idle", UNIT, within=LONG)
    release = ("gdbus", "call", "--system", f"--dest={BUS_NAME}", f"--object-path={ROOT}/tenants")
    done = card.in_session(USER, *release, f"--method={BUS_NAME}.Tenants.Release", "ollama", seat="seat0")
    assert done.returncode == 0, done.stderr
    assert "'freed'" in done.stdout
    card.wait_until("the memory is free again", lambda: int(str(gpu(card)["MemoryUsed"])) < GIB, UNIT)
    assert "freed" in card.journal(UNIT)


def test_an_unknown_application_is_named_and_becomes_a_tenant_with_a_file(card: Machine) -> None:
    start_engine(card, "mystery.service", "third_app", "--hold=4G")
    card.wait_until("the unknown process is named", lambda: gpu(card)["Unmanaged"], UNIT)
    path = "/etc/gpusupervisor/tenants.d/mystery.toml"
    card.write(path, 'title = "Mystery"\n[match]\nunits = ["mystery.service"]\n')
    try:
        card.run("systemctl", "reload", UNIT)
        card.wait_until("the tenant holds its memory", lambda: tenant(card, "mystery").get("Holding"), UNIT)
        assert gpu(card)["Unmanaged"] == []
    finally:
        card.run("rm", path)
        card.run("systemctl", "reload", UNIT)
        card.run("systemctl", "stop", "mystery.service")


def test_a_unit_declares_itself_a_tenant_and_a_reload_of_systemd_is_noticed(card: Machine) -> None:
    path = "/run/systemd/system/selfmade.service.d/tenant.conf"
    declared = "[Service]\nEnvironment=GPUSUPERVISOR_TENANT=selfmade GPUSUPERVISOR_PRIORITY="
    card.write(path, f"{declared}30\n")
    start_engine(card, "selfmade.service", "third_app", "--hold=2G")
    try:
        card.wait_until("the tenant holds its memory", lambda: tenant(card, "selfmade").get("Holding"), UNIT)
        assert tenant(card, "selfmade")["Priority"] == 30
        card.write(path, f"{declared}35\n")
        card.run("systemctl", "daemon-reload")
        card.wait_until("the change is noticed", lambda: tenant(card, "selfmade").get("Priority") == 35, UNIT)
        card.write(path, f"{declared}high\n")
        card.run("systemctl", "daemon-reload")
        card.wait_until("the mistake is named", lambda: "GPUSUPERVISOR_PRIORITY" in health(card), UNIT)
    finally:
        card.run("rm", path)
        card.run("systemctl", "daemon-reload")
        card.run("systemctl", "stop", "selfmade.service")
    card.wait_until("all is well again", lambda: "GPUSUPERVISOR_PRIORITY" not in health(card), UNIT)


def health(machine: Machine) -> str:
    """What the health object says in one line."""
    return str(properties(machine, f"{ROOT}/health", f"{BUS_NAME}.Health").get("Summary"))


def test_a_killed_service_finds_everything_again(card: Machine) -> None:
    hold_a_model(card)
    old = card.property(UNIT, "MainPID")
    card.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", UNIT)
    card.wait_until("it runs again", lambda: card.property(UNIT, "MainPID") not in ("0", old), UNIT)
    card.wait_until("Ollama's holding is seen again", lambda: tenant(card, "ollama").get("Holding"), UNIT)


def test_what_happened_is_stored_by_the_closed_in_service_and_outlives_it(card: Machine) -> None:
    hold_a_model(card)
    card.wait_until("Ollama is idle", lambda: tenant(card, "ollama").get("Activity") == "idle", UNIT, within=LONG)
    card.run("busctl", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "Release", "s", "ollama")
    card.run("systemctl", "restart", UNIT)
    telemetry = (BUS_NAME, "/org/gpusupervisor1/telemetry", f"{BUS_NAME}.Telemetry")
    events = card.output("busctl", "call", *telemetry, "Events", "ttsu", "0", "0", "outcome", "0", user=USER)
    assert "satisfied" in events
    assert '"floor"' in card.output("busctl", "call", *telemetry, "Learned", user=USER)
    owner = card.output("stat", "--format=%U %a", "/var/lib/gpusupervisor/telemetry.sqlite").strip()
    assert owner == "gpusupervisor 600"


def test_no_traceback_was_ever_logged(card: Machine) -> None:
    assert "Traceback" not in card.journal(UNIT)
